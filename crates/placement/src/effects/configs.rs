//! Reads the objects that configure devices.
//!
//! Users name the objects, so every read is bounded in time and size. The reason why an object
//! cannot be read is a result like any other, and the pending pod shows it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_controller::discovery::{self, DiscoveryError};
use gantry_controller::external::{BoxFuture, Responder, ResponderContext};
use gantry_controller::read::{self, NoResponse, ReadBounds, ReadError};
use gantry_process::clock::{Clock, Moment};
use gantry_reconcile::{ApiPath, InvalidPath, Scope};
use kube::Client;
use serde_json::Value;

use crate::config::{CONFIG_LABEL, ConfigObject, DeviceConfigReference};

/// How long the discovered facts about a kind are cached.
const KIND_CACHE_TTL: Duration = Duration::from_secs(10);
/// How many kinds are cached. Beyond that the cache is cleared: kinds in use are read again at
/// once.
const MAX_CACHED_KINDS: usize = 256;
/// The limits of one read. An object of which 10 KiB are copied has at most 256 KiB of annotations,
/// and about as much `managedFields`.
const OBJECT_READ_LIMITS: ReadBounds = ReadBounds { time: Duration::from_secs(10), bytes: 1 << 20 };
/// The limits of a read that describes a kind: CustomResourceDefinitions contain schemas.
const KIND_READ_LIMITS: ReadBounds = ReadBounds { time: Duration::from_secs(10), bytes: 4 << 20 };

/// Reads objects that configure devices, with the rights of its client.
pub struct ConfigReader {
    client: Client,
    clock: Clock,
    kinds: Mutex<BTreeMap<KindName, CachedKind>>,
}

impl fmt::Debug for ConfigReader {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ConfigReader({} kinds known)", self.kinds().len())
    }
}

impl Responder<ConfigObject> for ConfigReader {
    fn answer<'a>(
        &'a self,
        reference: &'a DeviceConfigReference,
        _: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<ConfigObject, String>> {
        Box::pin(async move { Ok(self.read(reference).await) })
    }
}

impl ConfigReader {
    /// Reads an object, or returns why it cannot be copied.
    async fn read(&self, reference: &DeviceConfigReference) -> ConfigObject {
        match self.get(reference).await {
            Ok(object) => ConfigObject::Found(object),
            Err(ReadFailure::NotFound) => ConfigObject::NotFound,
            Err(ReadFailure::Problem(problem)) => {
                tracing::debug!(
                    ?reference,
                    problem,
                    "could not read a device configuration object"
                );
                ConfigObject::Problem(problem)
            }
        }
    }
}

/// Group and version, kind, and whether its definition must have the label.
type KindName = (String, String, bool);

/// The cached facts about a kind: the path of a namespaced object needs the plural name.
#[derive(Clone, Debug)]
struct CachedKind {
    cached_at: Moment,
    plural: String,
}

/// Why an object is not copied: it does not exist, or it cannot be copied.
#[derive(Debug)]
enum ReadFailure {
    NotFound,
    Problem(String),
}

impl From<InvalidPath> for ReadFailure {
    fn from(invalid: InvalidPath) -> Self {
        Self::Problem(format!("cannot be addressed: {invalid}"))
    }
}

impl From<DiscoveryError> for ReadFailure {
    fn from(error: DiscoveryError) -> Self {
        let error = match error {
            DiscoveryError::InvalidApiVersion(invalid) => return invalid.into(),
            DiscoveryError::Refused { code, message } => ReadError::Refused { code, message },
            DiscoveryError::NoResponse(no_answer) => no_answer.into(),
            DiscoveryError::Malformed(error) => ReadError::InvalidJson(error),
        };
        read_failure(&error, KIND_READ_LIMITS)
    }
}

impl ConfigReader {
    /// Creates a reader with an empty cache.
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, kinds: Mutex::default() }
    }

    /// Reads an object.
    async fn get(&self, reference: &DeviceConfigReference) -> Result<Value, ReadFailure> {
        let DeviceConfigReference { api_version, kind, namespace, name, .. } = reference;
        let plural = match (api_version.as_str(), kind.as_str()) {
            ("v1", "ConfigMap") => "configmaps".to_owned(),
            _ => self.plural(reference).await?,
        };
        let path = ApiPath::object(api_version, namespace, &plural, name)?;
        let object = read::get(&self.client, &self.clock, &path, OBJECT_READ_LIMITS).await;
        object.map_err(|error| read_failure(&error, OBJECT_READ_LIMITS))
    }

    /// Returns the plural name of the kind of an object that may be copied.
    async fn plural(&self, reference: &DeviceConfigReference) -> Result<String, ReadFailure> {
        let DeviceConfigReference { api_version, kind, .. } = reference;
        let name = (api_version.clone(), kind.clone(), reference.needs_label());
        let now = self.clock.moment();
        if let Some(known) =
            self.kinds().get(&name).filter(|it| now - it.cached_at < KIND_CACHE_TTL)
        {
            return Ok(known.plural.clone());
        }
        let plural = self.discover_plural(reference).await?;
        let mut kinds = self.kinds();
        if kinds.len() >= MAX_CACHED_KINDS {
            kinds.clear();
        }
        kinds.insert(name, CachedKind { cached_at: now, plural: plural.clone() });
        Ok(plural)
    }

    async fn discover_plural(
        &self,
        reference: &DeviceConfigReference,
    ) -> Result<String, ReadFailure> {
        let DeviceConfigReference { api_version, kind, .. } = reference;
        let kind = (api_version.as_str(), kind.as_str());
        let served = discovery::find(&self.client, &self.clock, kind, KIND_READ_LIMITS).await?;
        let served = served.map(|it| it.resource).filter(|it| it.scope == Scope::Namespaced);
        let plural = served.ok_or(ReadFailure::NotFound)?.plural.into_owned();
        if reference.needs_label() {
            self.check_label(api_version, &plural).await?;
        }
        Ok(plural)
    }

    /// Checks that objects of a kind may be copied into claims of users.
    async fn check_label(&self, api_version: &str, plural: &str) -> Result<(), ReadFailure> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let definition = format!("{plural}.{group}");
        let refused = || {
            ReadFailure::Problem(format!(
                "may not be copied into the claim: CustomResourceDefinition {definition} does not \
                 have the label {CONFIG_LABEL}: \"true\"; ask an administrator to set it, or use a \
                 ConfigMap"
            ))
        };
        let all = ApiPath::from_static("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
        let path = all.item(&definition)?;
        let found = match read::get(&self.client, &self.clock, &path, KIND_READ_LIMITS).await {
            // A kind of an aggregated API server has no definition that could have the label.
            Err(error) if error.is_not_found() => return Err(refused()),
            found => found.map_err(|error| read_failure(&error, KIND_READ_LIMITS))?,
        };
        match found["metadata"]["labels"][CONFIG_LABEL] == "true" {
            true => Ok(()),
            false => Err(refused()),
        }
    }

    // No caller's code runs under the lock, so a poisoned lock still guards consistent data.
    fn kinds(&self) -> MutexGuard<'_, BTreeMap<KindName, CachedKind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes why a read failed, for the user whose claim is pending.
fn read_failure(error: &ReadError, bounds: ReadBounds) -> ReadFailure {
    let ReadBounds { time, bytes } = bounds;
    ReadFailure::Problem(match error {
        ReadError::Refused { .. } if error.is_not_found() => return ReadFailure::NotFound,
        ReadError::Refused { message, .. } if error.is_forbidden() => format!(
            "may not be read by the allocator; ask an administrator to grant it the verb get, or \
             use a ConfigMap: {message}"
        ),
        ReadError::Refused { message, .. } => format!("could not be read: {message}"),
        ReadError::NoResponse(NoResponse::TooLarge(_)) => {
            format!("is too large: more than {bytes} bytes were sent; use a smaller object")
        }
        ReadError::NoResponse(NoResponse::TimedOut(_)) => {
            format!("could not be read within {} seconds; the read is retried", time.as_secs())
        }
        ReadError::NoResponse(error) => format!("could not be read; the read is retried: {error}"),
        ReadError::InvalidJson(error) => {
            format!("could not be read: the response is not JSON: {error}")
        }
    })
}

#[cfg(test)]
mod tests;
