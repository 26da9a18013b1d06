//! A client of registries.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gantry_http_client::{self as http_client, AddressPolicy, PlainHttp, Resolve, SystemResolver};
use gantry_oci::{Registry, Repository};
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::Backoff;

mod blob_reader;
mod challenge;
mod error;
mod exchange;
mod listings;
mod location;
mod manifests;
mod push;
mod retry;
mod tokens;

pub use blob_reader::BlobReader;
pub use challenge::{Challenge, parse_challenges};
pub use error::{Operation, RegistryError, RequestSubject};
pub use manifests::{ManifestHead, PulledManifest};
pub use push::{BlobPush, BlobSource, FileSource, PushOutcome, ReadFuture};
pub use retry::parse_retry_after;

use crate::credentials::{Credential, CredentialFile, candidates};
use tokens::TokenCache;

/// How a client calls registries.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// What requests name as their `User-Agent`.
    pub user_agent: &'static str,
    /// Files of credentials, in the order in which they are tried.
    pub credentials: Vec<CredentialFile>,
    /// Settings of registries, by their names (`quay.io`, `localhost:5000`, `docker.io`).
    pub registries: BTreeMap<String, RegistrySettings>,
    /// Settings of all others.
    pub default_registry: RegistrySettings,
    /// Which addresses may be called.
    pub addresses: AddressPolicy,
    /// Finds the addresses of hosts.
    pub resolver: Arc<dyn Resolve>,
    /// The longest time of an operation on manifests and tags, with all its retries.
    pub time: Duration,
    /// The longest time that pulling or pushing one blob may take, with all its retries.
    pub blob_time: Duration,
    /// The longest time in which a registry neither sends nor accepts a byte.
    pub idle: Duration,
    /// How often a request is sent again after a failure that may pass.
    pub retries: u32,
    /// The delays between them.
    pub backoff: Backoff,
    /// How many bytes of a blob are sent with one request; this much is held in memory.
    pub chunk_bytes: usize,
    /// The largest manifest, and the largest page of tags.
    pub manifest_bytes: usize,
}

impl ClientSettings {
    /// Returns the strictest settings: HTTPS with the roots of the machine, no credentials, no
    /// loopback.
    #[must_use]
    pub fn new(user_agent: &'static str) -> Self {
        Self {
            user_agent,
            credentials: Vec::new(),
            registries: BTreeMap::new(),
            default_registry: RegistrySettings::default(),
            addresses: AddressPolicy::NoLoopback,
            resolver: Arc::new(SystemResolver),
            time: Duration::from_secs(60),
            blob_time: Duration::from_secs(60 * 60),
            idle: Duration::from_secs(30),
            retries: 4,
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(15)),
            chunk_bytes: 4 << 20,
            manifest_bytes: 4 << 20,
        }
    }
}

/// How one registry is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrySettings {
    /// How its certificate is verified.
    pub verification: TlsVerification,
    /// What happens if it does not speak TLS.
    pub fallback: Fallback,
    /// Registries that are asked before it when something is pulled, in this order.
    pub mirrors: Vec<Mirror>,
}

/// How the certificate of a registry is verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsVerification {
    /// With the roots of the machine.
    #[default]
    System,
    /// With the roots of the machine and those of a bundle of PEM.
    Bundle(Bytes),
    /// Not at all: an attacker on the network can read credentials and replace what is pulled by
    /// tag.
    Skip,
}

/// What happens if a registry does not speak TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// The request fails.
    #[default]
    None,
    /// It is sent without TLS. Everybody on the way can read credentials and content.
    PlainHttp,
}

/// A registry that has copies of the repositories of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The mirror. Its own settings say how it is called.
    pub registry: Registry,
    /// What comes before the path of a repository there; may be empty.
    pub prefix: String,
}

/// Pulls from and pushes to registries. Clones share connections and tokens.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    clock: Clock,
    settings: ClientSettings,
    random: Mutex<fastrand::Rng>,
    endpoints: Mutex<BTreeMap<String, Arc<Endpoint>>>,
    tokens: TokenCache,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.settings.user_agent;
        f.debug_struct("Client").field("user_agent", &name).finish_non_exhaustive()
    }
}

/// Connections to one registry.
#[derive(Debug)]
struct Endpoint {
    /// The host and port.
    server: String,
    http: http_client::Client,
    fallback: Fallback,
    /// Whether the registry was found not to speak TLS.
    plain: Mutex<bool>,
}

/// A place where a repository is: the registry itself, or a mirror.
#[derive(Clone, Debug)]
struct Source {
    repository: Repository,
    endpoint: Arc<Endpoint>,
}

/// An operation on one repository of one registry, over all its requests.
#[derive(Debug)]
struct Call {
    source: Source,
    subject: RequestSubject,
    /// What tokens must allow.
    scope: String,
    /// What is tried, in this order; without credentials a single `None`.
    credentials: Vec<Option<Credential>>,
    /// The index of the credential that the registry has accepted last.
    accepted: AtomicUsize,
    deadline: Moment,
}

/// Registries whose connections are kept; beyond it, all are made again.
const MAX_ENDPOINTS: usize = 256;

impl Client {
    /// Makes a client without connections. `random` spreads retries.
    #[must_use]
    pub fn new(clock: Clock, random: fastrand::Rng, settings: ClientSettings) -> Self {
        Self(Arc::new(Inner {
            tokens: TokenCache::new(clock.clone()),
            clock,
            settings,
            random: Mutex::new(random),
            endpoints: Mutex::default(),
        }))
    }

    /// Checks that a registry is there and accepts the credentials for it.
    ///
    /// # Errors
    /// As [`RegistryError`] says.
    pub async fn ping(&self, repository: &Repository) -> Result<(), RegistryError> {
        let call =
            self.call(repository, Operation::Ping, String::new(), "", self.0.settings.time)?;
        let request = exchange::RequestSpec::get(call.url("/v2/")?);
        self.expect_success(&call, self.send(&call, &request).await?).map(drop)
    }

    /// Returns where something can be pulled from: the mirrors, then the registry itself.
    fn sources(&self, repository: &Repository) -> Result<Vec<Repository>, RegistryError> {
        let settings = self.registry_settings(repository.registry());
        let mut sources = Vec::new();
        for Mirror { registry, prefix } in &settings.mirrors {
            let path = match prefix.trim_matches('/') {
                "" => repository.path().to_owned(),
                prefix => format!("{prefix}/{}", repository.path()),
            };
            let found = format!("{registry}/{path}").parse::<Repository>();
            sources.push(found.map_err(|error| RegistryError::InvalidMirror(error.to_string()))?);
        }
        sources.push(repository.clone());
        Ok(sources)
    }

    fn registry_settings(&self, registry: &Registry) -> &RegistrySettings {
        let settings = &self.0.settings;
        settings.registries.get(registry.as_str()).unwrap_or(&settings.default_registry)
    }

    /// Prepares an operation on a repository. `item` is what it is about.
    fn call(
        &self,
        repository: &Repository,
        operation: Operation,
        scope: String,
        item: &str,
        time: Duration,
    ) -> Result<Call, RegistryError> {
        let subject = RequestSubject::new(repository, operation, item);
        let credentials = candidates(&self.0.settings.credentials, repository)
            .map_err(|source| RegistryError::Credentials { source })?;
        let mut credentials: Vec<_> = credentials.into_iter().map(Some).collect();
        if credentials.is_empty() {
            credentials.push(None);
        }
        let endpoint = self.endpoint(repository.registry(), &subject)?;
        Ok(Call {
            source: Source { repository: repository.clone(), endpoint },
            subject,
            scope,
            credentials,
            accepted: AtomicUsize::new(0),
            deadline: self.0.clock.moment() + time,
        })
    }

    fn endpoint(
        &self,
        registry: &Registry,
        subject: &RequestSubject,
    ) -> Result<Arc<Endpoint>, RegistryError> {
        let mut endpoints = lock(&self.0.endpoints);
        if let Some(endpoint) = endpoints.get(registry.as_str()) {
            return Ok(Arc::clone(endpoint));
        }
        let RegistrySettings { verification, fallback, mirrors: _ } =
            self.registry_settings(registry);
        let settings = &self.0.settings;
        let mut http = http_client::Settings::new(settings.user_agent);
        http.roots = match verification {
            TlsVerification::System => http_client::Roots::System,
            TlsVerification::Bundle(pem) => http_client::Roots::SystemAndBundle(pem.clone()),
            TlsVerification::Skip => http_client::Roots::Unverified,
        };
        http.plain_http = match fallback {
            Fallback::None => PlainHttp::Never,
            Fallback::PlainHttp => PlainHttp::Anywhere,
        };
        http.addresses = settings.addresses;
        http.resolver = Arc::clone(&settings.resolver);
        http.timeouts.idle = settings.idle;
        http.limits.redirects = MAX_REDIRECTS;
        let made = http_client::Client::new(self.0.clock.clone(), http);
        let http = made.map_err(|error| RegistryError::Protocol {
            at: Box::new(subject.clone()),
            why: error.to_string(),
        })?;
        if endpoints.len() >= MAX_ENDPOINTS {
            endpoints.clear();
        }
        let (server, fallback) = (registry.server().to_owned(), *fallback);
        let endpoint = Arc::new(Endpoint { server, http, fallback, plain: Mutex::new(false) });
        endpoints.insert(registry.as_str().to_owned(), Arc::clone(&endpoint));
        Ok(endpoint)
    }

    /// Waits before the next attempt, or reports that there is no time for it.
    async fn back_off(&self, failures: u32, at_least: Duration, deadline: Moment) -> bool {
        let delay = self.0.settings.backoff.delay(failures, &mut lock(&self.0.random));
        let until = self.0.clock.moment() + delay.max(at_least);
        if until >= deadline {
            return false;
        }
        self.0.clock.sleep_until(until).await;
        true
    }
}

/// Redirects that are followed for one request; registries send blobs from elsewhere with one.
const MAX_REDIRECTS: usize = 5;

impl Call {
    fn repository(&self) -> &Repository {
        &self.source.repository
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// The scope of a token for a repository.
fn scope(repository: &Repository, actions: &str) -> String {
    format!("repository:{}:{actions}", repository.path())
}

/// The values are consistent after every statement that changes them, so a poisoned lock is still
/// usable.
fn lock<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
