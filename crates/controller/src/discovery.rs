//! Finds the resource that a server serves for a kind.
//!
//! Objects name their kind by `apiVersion` and `kind`; requests name it by a resource. The
//! discovery document of a group and version (`/apis/GROUP/VERSION`, `/api/VERSION`) says which
//! resource a kind has. [`find`] reads it within limits; [`ResourceList`] decodes one that was
//! fetched by other means.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_reconcile::{ApiPath, InvalidPath, Resource, Scope};
use http::StatusCode;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use crate::read::{self, NoResponse, ReadBounds, ReadError};

/// The limits for reading one discovery document: those of the largest groups have some hundred
/// KiB.
pub const DISCOVERY_BOUNDS: ReadBounds =
    ReadBounds { time: Duration::from_secs(10), bytes: 8 << 20 };

/// A resource as a server describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// How it is addressed, and whether it has a status subresource.
    pub resource: Resource,
    /// The verbs that the server supports for it, such as `list` and `watch`. Whether the caller is
    /// allowed to is another question.
    pub verbs: BTreeSet<String>,
}

impl ServedResource {
    /// Whether the server supports this verb for it.
    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(verb)
    }
}

/// Why the resource of a kind could not be determined.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The `apiVersion` is not a valid group and version, so no server serves it.
    #[error(transparent)]
    InvalidApiVersion(#[from] InvalidPath),
    /// The server refused to describe the group.
    #[error("{message}")]
    Refused {
        /// The HTTP status; never 404, which means that the kind is not served.
        code: StatusCode,
        /// The server's message.
        message: String,
    },
    /// There was no response within the limits.
    #[error(transparent)]
    NoResponse(#[from] NoResponse),
    /// The response is not a discovery document.
    #[error("cannot decode the response as a discovery document")]
    Malformed(#[source] serde_json::Error),
}

impl From<ReadError> for DiscoveryError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Refused { code, message } => Self::Refused { code, message },
            ReadError::NoResponse(no_answer) => Self::NoResponse(no_answer),
            ReadError::InvalidJson(error) => Self::Malformed(error),
        }
    }
}

/// Asks a server for the resource of a kind. `None` when it does not serve the kind.
///
/// # Errors
/// It could not be determined whether the server serves it.
pub async fn find(
    client: &Client,
    clock: &Clock,
    (api_version, kind): (&str, &str),
    bounds: ReadBounds,
) -> Result<Option<ServedResource>, DiscoveryError> {
    let list = list(client, clock, api_version, bounds).await?;
    Ok(list.and_then(|it| it.resource_of(kind)))
}

/// Reads the discovery document of a group and version. `None` when the server does not serve them.
///
/// # Errors
/// It could not be determined whether the server serves it.
pub async fn list(
    client: &Client,
    clock: &Clock,
    api_version: &str,
    bounds: ReadBounds,
) -> Result<Option<ResourceList>, DiscoveryError> {
    let path = ApiPath::version(api_version)?;
    match read::get(client, clock, &path, bounds).await {
        Ok(document) => Ok(Some(ResourceList::read(api_version, &document)?)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The resources of a group and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceList {
    api_version: String,
    resources: Vec<DiscoveredResource>,
}

/// One entry of a discovery document, as far as it is needed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct DiscoveredResource {
    /// `jobs`, or `jobs/status`.
    name: String,
    kind: String,
    /// Servers leave out what is false.
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: BTreeSet<String>,
    #[serde(default, rename = "singularName")]
    singular: String,
    #[serde(default, rename = "shortNames")]
    short: Vec<String>,
}

impl DiscoveredResource {
    /// Whether users may call it by this name, in any letter case.
    fn is_called(&self, name: &str) -> bool {
        let names = [&self.name, &self.kind, &self.singular].into_iter().chain(&self.short);
        names.into_iter().any(|it| it.eq_ignore_ascii_case(name))
    }
}

impl ResourceList {
    /// Decodes the discovery document of a group and version.
    ///
    /// # Errors
    /// The document is not a discovery document.
    pub fn read(api_version: &str, document: &Value) -> Result<Self, DiscoveryError> {
        let resources = Vec::deserialize(&document["resources"]);
        let resources = resources.map_err(DiscoveryError::Malformed)?;
        Ok(Self { api_version: api_version.to_owned(), resources })
    }

    /// The resource of a kind.
    #[must_use]
    pub fn resource_of(&self, kind: &str) -> Option<ServedResource> {
        self.main().find(|it| it.kind == kind).map(|it| self.served(it))
    }

    /// The resource that users mean by a name as `kubectl` accepts it: plural, singular, short, or
    /// the kind.
    #[must_use]
    pub fn resource_called(&self, name: &str) -> Option<ServedResource> {
        self.main().find(|it| it.is_called(name)).map(|it| self.served(it))
    }

    /// All resources, without subresources.
    pub fn resources(&self) -> impl Iterator<Item = ServedResource> {
        self.main().map(|it| self.served(it))
    }

    fn main(&self) -> impl Iterator<Item = &DiscoveredResource> {
        // Subresources such as `jobs/status` have a kind too, often that of another resource.
        self.resources.iter().filter(|it| !it.name.contains('/'))
    }

    fn served(&self, described: &DiscoveredResource) -> ServedResource {
        let DiscoveredResource { name, kind, namespaced, verbs, .. } = described;
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        let status =
            self.resources.iter().any(|it| it.name.strip_prefix(name.as_str()) == Some("/status"));
        let resource = Resource {
            group: Cow::Owned(group.to_owned()),
            version: Cow::Owned(version.to_owned()),
            plural: Cow::Owned(name.clone()),
            kind: Cow::Owned(kind.clone()),
            scope: if *namespaced { Scope::Namespaced } else { Scope::Cluster },
            has_status: status,
        };
        ServedResource { resource, verbs: verbs.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use bytes::Bytes;
    use gantry_process::clock::FakeClock;
    use http::{Request, Response};
    use http_body_util::Full;
    use serde_json::json;

    use super::*;
    use crate::transport::in_process;

    fn document() -> Value {
        json!({"kind": "APIResourceList", "groupVersion": "batch/v1", "resources": [
            {"name": "jobs/status", "kind": "Job", "namespaced": true, "verbs": ["get"]},
            {"name": "jobs", "kind": "Job", "namespaced": true, "verbs": ["create", "list"]},
            {"name": "queues/scale", "kind": "Job", "namespaced": true, "verbs": ["get"]},
            {"name": "queues", "kind": "Queue", "verbs": []},
        ]})
    }

    #[test]
    fn a_kind_is_found_in_the_discovery_document_of_its_group() {
        let list = ResourceList::read("batch/v1", &document()).unwrap();
        let jobs = list.resource_of("Job").unwrap();
        assert_eq!(jobs.resource, Resource::namespaced("batch", "v1", "jobs", "Job"));
        assert!(jobs.has_verb("create") && jobs.has_verb("list") && !jobs.has_verb("get"));
        let queues = list.resource_of("Queue").unwrap();
        assert_eq!((queues.resource.scope, queues.resource.has_status), (Scope::Cluster, false));
        assert_eq!(list.resource_of("CronJob"), None);
        for name in ["Job", "jobs", "JOB"] {
            assert_eq!(list.resource_called(name), Some(jobs.clone()), "{name}");
        }
        assert_eq!(list.resource_called("jobs/status"), None);
        let short = json!({"resources": [
            {"name": "pods", "kind": "Pod", "singularName": "pod", "shortNames": ["po"]},
        ]});
        let short = ResourceList::read("v1", &short).unwrap();
        assert!(short.resource_called("po").is_some() && short.resource_called("p").is_none());
        let all: Vec<String> = list.resources().map(|it| it.resource.to_string()).collect();
        assert_eq!(all, ["jobs.batch", "queues.batch"]);
        let core = ResourceList::read("v1", &document()).unwrap().resource_of("Job").unwrap();
        assert_eq!((&*core.resource.group, &*core.resource.version), ("", "v1"));
    }

    fn server(status: u16, body: &str) -> Client {
        let body = Bytes::from(body.to_owned());
        in_process(move |request: Request<Bytes>| {
            assert_eq!(request.uri().path(), "/apis/batch/v1");
            let mut answer = Response::new(Full::new(body.clone()));
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            async move { answer }
        })
    }

    /// A kind that is not served, a server that refuses and a response that is not a list mean
    /// different things to a caller: only the first says something about the kind.
    #[tokio::test]
    async fn not_served_differs_from_unknown() {
        let clock = Clock::system();
        let ask = async |status, body: &str, kind| {
            let server = server(status, body);
            let found = find(&server, &clock, ("batch/v1", kind), DISCOVERY_BOUNDS).await;
            found.map(|it| it.map(|it| it.resource.to_string()))
        };
        let document = document().to_string();
        assert_eq!(ask(200, &document, "Job").await.unwrap().as_deref(), Some("jobs.batch"));
        assert_eq!(ask(200, &document, "CronJob").await.unwrap(), None);
        assert_eq!(ask(404, r#"{"message": "no such group"}"#, "Job").await.unwrap(), None);
        let refused = ask(403, r#"{"kind": "Status", "message": "may not"}"#, "Job").await;
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, DiscoveryError::Refused { code, message }
                if *code == StatusCode::FORBIDDEN && message == "may not"),
            "{refused}"
        );
        for (why, body) in [
            ("no JSON", "{"),
            ("another document", r#"{"kind": "APIGroup", "versions": []}"#),
            ("no list", r#"{"resources": {}}"#),
            ("no name", r#"{"resources": [{"kind": "Job"}]}"#),
        ] {
            let found = ask(200, body, "Job").await;
            assert!(matches!(found, Err(DiscoveryError::Malformed(_))), "{why}: {found:?}");
        }
    }

    #[tokio::test]
    async fn invalid_api_versions_are_not_requested() {
        let asked = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&asked);
        let server = in_process(move |_: Request<Bytes>| {
            seen.store(true, Ordering::Relaxed);
            async { Response::new(Full::<Bytes>::default()) }
        });
        let clock = Clock::system();
        for api_version in
            ["", "/v1", "a/b/c", "../v1", "batch/../v1", "v1?watch=true", "batch/v1#"]
        {
            let found = find(&server, &clock, (api_version, "Job"), DISCOVERY_BOUNDS).await;
            assert!(
                matches!(found, Err(DiscoveryError::InvalidApiVersion(_))),
                "{api_version:?}: {found:?}"
            );
        }
        assert!(!asked.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_document_is_read_within_its_bounds() {
        let bounds = ReadBounds { time: Duration::from_secs(5), bytes: 64 };
        let (server, clock) = (server(200, &document().to_string()), Clock::system());
        let large = find(&server, &clock, ("batch/v1", "Job"), bounds).await;
        assert!(
            matches!(large, Err(DiscoveryError::NoResponse(NoResponse::TooLarge(64)))),
            "{large:?}"
        );
        let silent =
            in_process(|_: Request<Bytes>| std::future::pending::<Response<Full<Bytes>>>());
        let hand = FakeClock::at(jiff::Timestamp::UNIX_EPOCH);
        let clock = hand.clock();
        let (late, ()) = tokio::join!(
            find(&silent, &clock, ("batch/v1", "Job"), bounds),
            hand.advance(bounds.time + Duration::from_secs(1)),
        );
        assert!(
            matches!(late, Err(DiscoveryError::NoResponse(NoResponse::TimedOut(_)))),
            "{late:?}"
        );
    }
}
