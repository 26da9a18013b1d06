//! Starting a subsystem: what it is given, and what of it runs.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use gantry_controller::{Actor, Filter, Handle, Outside, Seat};
use gantry_process::clock::Clock;
use gantry_process::metrics::Metrics;
use gantry_process::tasks::Tasks;
use gantry_reconcile::Place;
use kube::Client;

use crate::settings::Values;

/// What a subsystem is given when it starts.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The settings, checked.
    pub values: &'a Values,
    /// Where the controllers run.
    pub host: Host,
    /// The namespace of what the subsystem keeps for itself: the operator's own, or `kube-system`. It is not known
    /// to every operator, and only some subsystems need it.
    pub namespace: &'a (dyn Fn() -> Result<String, StartError> + Sync),
    /// The clock.
    pub clock: &'a Clock,
    /// Where its metrics are registered.
    pub metrics: &'a Metrics,
    /// How it reaches the API server.
    pub clients: &'a dyn Clients,
    /// Whether a controller is switched on by itself.
    pub runs: &'a (dyn Fn(&str) -> bool + Sync),
    /// What the host offers to single subsystems.
    pub offers: &'a Offers,
}

impl fmt::Debug for Setup<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Setup({:?})", self.host)
    }
}

/// Where the controllers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Beside an API server in the same process: each account has rights of its own there, and writes can be
    /// made in the name of a user.
    Embedded,
    /// Against a cluster, with the rights of the operator.
    Cluster,
}

/// Makes clients in the name of accounts.
pub trait Clients: Sync {
    /// A client that writes in the name of an account. On a cluster it is the operator's, and writes only while
    /// the operator leads.
    ///
    /// # Errors
    /// The credentials cannot be used.
    fn writer(&self, account: &Identity) -> Result<Client, StartError>;

    /// A client that reads and asks in the name of an account, whether the operator leads or not.
    ///
    /// # Errors
    /// The credentials cannot be used.
    fn reader(&self, account: &Identity) -> Result<Client, StartError>;
}

/// Who a subsystem is to the embedded server; on a cluster it is nobody but the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: String,
    /// The groups of that user.
    pub groups: Vec<String>,
    /// Whether it writes in the name of the users that its requests carry.
    pub for_users: bool,
}

impl Identity {
    /// The user of an account, in the group of the same name.
    #[must_use]
    pub fn account(name: &str) -> Self {
        Self { user: name.to_owned(), groups: vec![name.to_owned()], for_users: false }
    }

    /// The same, writing in the name of users where the host can.
    #[must_use]
    pub fn for_users(self) -> Self {
        Self { for_users: true, ..self }
    }
}

impl Setup<'_> {
    /// Who writes in the name of an account: its client, who owns the fields, and whom events come from.
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
        Ok(Arc::new(match (self.host, account.for_users) {
            (Host::Embedded, true) => actor.acting_for_users(),
            (Host::Embedded, false) | (Host::Cluster, _) => actor,
        }))
    }
}

/// What a host offers to single subsystems, by type: each knows what it looks for, and does without what is not
/// there.
#[derive(Default)]
pub struct Offers(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl Offers {
    /// The same, with one more; there is one of each type.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, offer: T) -> Self {
        self.0.insert(TypeId::of::<T>(), Box::new(offer));
        self
    }

    /// What is offered of a type.
    #[must_use]
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl fmt::Debug for Offers {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Offers({})", self.0.len())
    }
}

/// Why a subsystem cannot start.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

/// A start that is under way.
pub type Starting<'a> = Pin<Box<dyn Future<Output = Result<Parts, StartError>> + Send + 'a>>;

/// Begins work that goes on beside the controllers.
pub type Background = Box<dyn FnOnce(&mut Tasks, &Handle) + Send>;

/// Lets other settings apply from now on.
pub type Reconfigure = Arc<dyn Fn(&Values, &Handle) -> Result<(), serde_json::Error> + Send + Sync>;

/// What of a subsystem runs. What is switched off has none.
#[derive(Default)]
pub struct Parts {
    /// Its controllers.
    pub seats: Vec<Seat>,
    /// Its observers, inquiries and callers.
    pub outside: Outside,
    /// Which objects of a kind are cached for it.
    pub filters: BTreeMap<Place, Filter>,
    /// What goes on beside the controllers.
    pub background: Vec<Background>,
    /// Apply settings that changed.
    pub reconfigure: Vec<Reconfigure>,
}

impl Parts {
    /// Adds those of another subsystem.
    pub fn extend(&mut self, other: Self) {
        let Self { seats, outside, filters, background, reconfigure } = other;
        let Outside { observers, inquiries, callers, call_bounds: _ } = outside;
        self.seats.extend(seats);
        self.outside.observers.extend(observers);
        self.outside.inquiries.extend(inquiries);
        self.outside.callers.extend(callers);
        self.filters.extend(filters);
        self.background.extend(background);
        self.reconfigure.extend(reconfigure);
    }

    /// Whether nothing runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Parts").field("seats", &self.seats).finish_non_exhaustive()
    }
}
