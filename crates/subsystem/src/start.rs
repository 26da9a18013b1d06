//! Starting a subsystem: its inputs, and what runs.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use gantry_controller::{Actor, ExternalSystems, Filter, ManagerHandle, Registration};
use gantry_process::clock::Clock;
use gantry_process::metrics::Metrics;
use gantry_process::tasks::Tasks;
use gantry_reconcile::StoreId;
use kube::Client;

use crate::settings::Values;

/// The inputs of a subsystem's start.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The checked settings.
    pub values: &'a Values,
    /// Where the controllers run.
    pub host: Host,
    /// The namespace for the subsystem's own objects: the operator's own, or `kube-system`. Not
    /// every operator knows it, and only some subsystems need it.
    pub namespace: &'a (dyn Fn() -> Result<String, StartError> + Sync),
    /// The clock.
    pub clock: &'a Clock,
    /// The registry for its metrics.
    pub metrics: &'a Metrics,
    /// Its clients for the API server.
    pub clients: &'a dyn Clients,
    /// Returns whether a controller is enabled by name.
    pub is_controller_enabled: &'a (dyn Fn(&str) -> bool + Sync),
    /// Extensions of the host for individual subsystems.
    pub extensions: &'a HostExtensions,
}

impl fmt::Debug for Setup<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Setup({:?})", self.host)
    }
}

/// Where the controllers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Beside an API server in the same process: each account has its own permissions there, and
    /// writes can be made on behalf of a user.
    Embedded,
    /// Against a cluster, with the permissions of the operator.
    Cluster,
}

/// Creates the clients of accounts.
pub trait Clients: Sync {
    /// Returns the client for writes of an account. On a cluster it is the operator's, and writes
    /// only while the operator is the leader.
    ///
    /// # Errors
    /// The credentials cannot be used.
    fn writer(&self, account: &Identity) -> Result<Client, StartError>;

    /// Returns the client for reads and reviews of an account, whether the operator is the leader
    /// or not.
    ///
    /// # Errors
    /// The credentials cannot be used.
    fn reader(&self, account: &Identity) -> Result<Client, StartError>;
}

/// The identity of a subsystem on the embedded server; on a cluster it is always the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user name.
    pub user: String,
    /// The groups of that user.
    pub groups: Vec<String>,
    /// Whether it impersonates the users that its requests carry.
    pub impersonates_users: bool,
}

impl Identity {
    /// Returns the user of an account, in the group of the same name.
    #[must_use]
    pub fn account(name: &str) -> Self {
        Self { user: name.to_owned(), groups: vec![name.to_owned()], impersonates_users: false }
    }

    /// Makes it impersonate users, if the host can.
    #[must_use]
    pub fn impersonating_users(self) -> Self {
        Self { impersonates_users: true, ..self }
    }
}

impl Setup<'_> {
    /// Returns the actor of an account: its client, field manager and event source.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub fn actor(
        &self,
        account: &Identity,
        manager: &str,
        component: &str,
    ) -> Result<Arc<Actor>, StartError> {
        let actor = Actor::new(self.clients.writer(account)?, manager, component);
        Ok(Arc::new(match (self.host, account.impersonates_users) {
            (Host::Embedded, true) => actor.with_impersonation(),
            (Host::Embedded, false) | (Host::Cluster, _) => actor,
        }))
    }
}

/// Extensions that a host offers to individual subsystems, by type. A subsystem must work without
/// an extension that is absent.
#[derive(Default)]
pub struct HostExtensions(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl HostExtensions {
    /// Adds an extension; there is one of each type.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, offer: T) -> Self {
        self.0.insert(TypeId::of::<T>(), Box::new(offer));
        self
    }

    /// Returns the extension of a type.
    #[must_use]
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl fmt::Debug for HostExtensions {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Offers({})", self.0.len())
    }
}

/// Why a subsystem cannot start.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

/// A start in progress.
pub type StartFuture<'a> =
    Pin<Box<dyn Future<Output = Result<SubsystemComponents, StartError>> + Send + 'a>>;

/// Starts a task that runs beside the controllers.
pub type BackgroundTask = Box<dyn FnOnce(&mut Tasks, &ManagerHandle) + Send>;

/// Applies changed settings.
pub type Reconfigure =
    Arc<dyn Fn(&Values, &ManagerHandle) -> Result<(), serde_json::Error> + Send + Sync>;

/// The running components of a subsystem. It is empty if everything is disabled.
#[derive(Default)]
pub struct SubsystemComponents {
    /// Its controllers.
    pub registrations: Vec<Registration>,
    /// Its observers, inquiries and callers.
    pub outside: ExternalSystems,
    /// The filters of objects that are cached for it.
    pub filters: BTreeMap<StoreId, Filter>,
    /// The tasks beside the controllers.
    pub background: Vec<BackgroundTask>,
    /// Functions that apply changed settings.
    pub reconfigure: Vec<Reconfigure>,
}

impl SubsystemComponents {
    /// Adds the components of another subsystem.
    pub fn extend(&mut self, other: Self) {
        let Self { registrations, outside, filters, background, reconfigure } = other;
        let ExternalSystems { observers, inquiries, callers, call_bounds: _ } = outside;
        self.registrations.extend(registrations);
        self.outside.observers.extend(observers);
        self.outside.inquiries.extend(inquiries);
        self.outside.callers.extend(callers);
        self.filters.extend(filters);
        self.background.extend(background);
        self.reconfigure.extend(reconfigure);
    }

    /// Returns whether nothing runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.registrations.is_empty()
    }
}

impl fmt::Debug for SubsystemComponents {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SubsystemComponents")
            .field("registrations", &self.registrations)
            .finish_non_exhaustive()
    }
}
