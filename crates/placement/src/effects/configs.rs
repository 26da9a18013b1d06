//! Reads what configures devices.
//!
//! Users name the objects, so every read is bounded in time and size. Why an object cannot be read is an
//! answer like any other, and the pod that waits shows it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_controller::discovery::{self, DiscoveryError};
use gantry_controller::outside::{Later, Responder, ResponderContext};
use gantry_controller::read::{self, Bounds, NoAnswer, ReadError};
use gantry_process::clock::{Clock, Moment};
use gantry_reconcile::{ApiPath, InvalidPath, Scope};
use kube::Client;
use serde_json::Value;

use crate::config::{CONFIG_LABEL, ConfigObject, Reference};

/// How long what is known about a kind is used.
const KIND_FRESH: Duration = Duration::from_secs(10);
/// How many kinds are remembered. Past it all are forgotten: those in use come back at once.
const KINDS_REMEMBERED: usize = 256;
/// What one read may take. An object of which 10 KiB are copied has at most 256 KiB of annotations, and
/// about as much that says who wrote its fields.
const OBJECT_BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), bytes: 1 << 20 };
/// The same for what describes a kind: definitions have schemas.
const KIND_BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), bytes: 4 << 20 };

/// Reads objects that configure devices, with the rights of its client.
pub struct ConfigReader {
    client: Client,
    clock: Clock,
    kinds: Mutex<BTreeMap<KindName, Known>>,
}

impl fmt::Debug for ConfigReader {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ConfigReader({} kinds known)", self.kinds().len())
    }
}

impl Responder<ConfigObject> for ConfigReader {
    fn answer<'a>(
        &'a self,
        reference: &'a Reference,
        _: &'a ResponderContext,
    ) -> Later<'a, Result<ConfigObject, String>> {
        Box::pin(async move { Ok(self.read(reference).await) })
    }
}

impl ConfigReader {
    /// What an object says, or why it cannot be copied.
    async fn read(&self, reference: &Reference) -> ConfigObject {
        match self.get(reference).await {
            Ok(object) => ConfigObject::Found(object),
            Err(Unread::NotFound) => ConfigObject::NotFound,
            Err(Unread::Problem(problem)) => {
                tracing::debug!(?reference, problem, "could not read what configures devices");
                ConfigObject::Problem(problem)
            }
        }
    }
}

/// Group and version, kind, and whether its definition has to carry the label.
type KindName = (String, String, bool);

/// What is known about a kind: the path of a namespace's objects needs its plural name.
#[derive(Clone, Debug)]
struct Known {
    since: Moment,
    plural: String,
}

/// Why an object is not copied: it is not there, or it cannot be.
#[derive(Debug)]
enum Unread {
    NotFound,
    Problem(String),
}

impl From<InvalidPath> for Unread {
    fn from(invalid: InvalidPath) -> Self {
        Self::Problem(format!("cannot be addressed: {invalid}"))
    }
}

impl From<DiscoveryError> for Unread {
    fn from(error: DiscoveryError) -> Self {
        let error = match error {
            DiscoveryError::InvalidApiVersion(invalid) => return invalid.into(),
            DiscoveryError::Refused { code, message } => ReadError::Refused { code, message },
            DiscoveryError::NoAnswer(no_answer) => no_answer.into(),
            DiscoveryError::Malformed(error) => ReadError::Garbled(error),
        };
        unread(&error, KIND_BOUNDS)
    }
}

impl ConfigReader {
    /// A reader that knows no kind yet.
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, kinds: Mutex::default() }
    }

    /// What an object says.
    async fn get(&self, reference: &Reference) -> Result<Value, Unread> {
        let Reference { api_version, kind, namespace, name, .. } = reference;
        let plural = match (api_version.as_str(), kind.as_str()) {
            ("v1", "ConfigMap") => "configmaps".to_owned(),
            _ => self.plural(reference).await?,
        };
        let path = ApiPath::object(api_version, namespace, &plural, name)?;
        let object = read::get(&self.client, &self.clock, &path, OBJECT_BOUNDS).await;
        object.map_err(|error| unread(&error, OBJECT_BOUNDS))
    }

    /// The plural name of the kind of an object that may be copied.
    async fn plural(&self, reference: &Reference) -> Result<String, Unread> {
        let Reference { api_version, kind, .. } = reference;
        let name = (api_version.clone(), kind.clone(), reference.needs_label());
        let now = self.clock.moment();
        if let Some(known) = self.kinds().get(&name).filter(|it| now - it.since < KIND_FRESH) {
            return Ok(known.plural.clone());
        }
        let plural = self.find(reference).await?;
        let mut kinds = self.kinds();
        if kinds.len() >= KINDS_REMEMBERED {
            kinds.clear();
        }
        kinds.insert(name, Known { since: now, plural: plural.clone() });
        Ok(plural)
    }

    async fn find(&self, reference: &Reference) -> Result<String, Unread> {
        let Reference { api_version, kind, .. } = reference;
        let kind = (api_version.as_str(), kind.as_str());
        let served = discovery::find(&self.client, &self.clock, kind, KIND_BOUNDS).await?;
        let served = served.map(|it| it.resource).filter(|it| it.scope == Scope::Namespaced);
        let plural = served.ok_or(Unread::NotFound)?.plural.into_owned();
        if reference.needs_label() {
            self.check_label(api_version, &plural).await?;
        }
        Ok(plural)
    }

    /// Whether objects of a kind may be copied into claims of users.
    async fn check_label(&self, api_version: &str, plural: &str) -> Result<(), Unread> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let definition = format!("{plural}.{group}");
        let refused = || {
            Unread::Problem(format!(
                "may not be copied into the claim: CustomResourceDefinition {definition} does not \
                 have the label {CONFIG_LABEL}: \"true\"; ask an administrator to set it, or use a \
                 ConfigMap"
            ))
        };
        let all = ApiPath::from_static("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
        let path = all.item(&definition)?;
        let found = match read::get(&self.client, &self.clock, &path, KIND_BOUNDS).await {
            // The kind of an aggregated server has no definition that could say so.
            Err(error) if error.is_not_found() => return Err(refused()),
            found => found.map_err(|error| unread(&error, KIND_BOUNDS))?,
        };
        match found["metadata"]["labels"][CONFIG_LABEL] == "true" {
            true => Ok(()),
            false => Err(refused()),
        }
    }

    // No code of others runs under the lock, so a poisoned one is still good.
    fn kinds(&self) -> MutexGuard<'_, BTreeMap<KindName, Known>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a read failed, for the user whose claim waits.
fn unread(error: &ReadError, bounds: Bounds) -> Unread {
    let Bounds { time, bytes } = bounds;
    Unread::Problem(match error {
        ReadError::Refused { .. } if error.is_not_found() => return Unread::NotFound,
        ReadError::Refused { message, .. } if error.is_forbidden() => format!(
            "may not be read by the allocator; ask an administrator to grant it the verb get, or use \
             a ConfigMap: {message}"
        ),
        ReadError::Refused { message, .. } => format!("could not be read: {message}"),
        ReadError::NoAnswer(NoAnswer::TooLarge(_)) => {
            format!("is too large: more than {bytes} bytes were sent; use a smaller object")
        }
        ReadError::NoAnswer(NoAnswer::Late(_)) => {
            format!("could not be read within {} seconds; it is tried again", time.as_secs())
        }
        ReadError::NoAnswer(error) => format!("could not be read; it is tried again: {error}"),
        ReadError::Garbled(error) => format!("could not be read: the answer is no JSON: {error}"),
    })
}

#[cfg(test)]
mod tests;
