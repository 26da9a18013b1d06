//! A client of the API server for these commands: one object at a time, with typed errors.

use std::time::Duration;

use gantry_controller::discovery::{self, DiscoveryError, ResourceList};
use gantry_controller::read::{self, ReadBounds, ReadError};
use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_reconcile::{ApiPath, InvalidPath, Parameter};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::inventory::ObjectKind;

/// The field manager of all applies, whichever user runs the command: so each build takes over from
/// the one before.
pub const FIELD_MANAGER: &str = "gantry-sharing";

/// The limits of one request: a page of objects of the usual size is some MiB.
const REQUEST_BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(30), bytes: 256 << 20 };
/// How often the release of an object's fields is retried while others write it.
const DISOWN_ATTEMPTS: usize = 10;
/// The number of objects per page.
const PAGE_SIZE: u32 = 500;
/// The interval at which pending changes are checked again.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A client, and whether the server only validates what is written (dry run).
#[derive(Clone)]
pub struct ClusterClient {
    client: kube::Client,
    clock: Clock,
    dry_run: bool,
}

impl std::fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { client: _, clock: _, dry_run } = self;
        f.debug_struct("Server").field("dry_run", dry_run).finish_non_exhaustive()
    }
}

/// Why a request failed, by what can be done about it.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The caller lacks a permission.
    #[error("{0}")]
    Forbidden(String),
    /// Another writer was first: read again.
    #[error("{0}")]
    Conflict(String),
    /// The object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The server refused for another reason.
    #[error("{0}")]
    Refused(String),
    /// There was no response.
    #[error("the API server does not respond: {0}")]
    NoResponse(String),
}

impl From<InvalidPath> for RequestError {
    fn from(invalid: InvalidPath) -> Self {
        Self::Refused(invalid.to_string())
    }
}

impl RequestError {
    fn refused(code: StatusCode, message: String) -> Self {
        match code {
            StatusCode::FORBIDDEN => Self::Forbidden(message),
            StatusCode::NOT_FOUND => Self::NotFound(message),
            StatusCode::CONFLICT => Self::Conflict(message),
            _ => Self::Refused(message),
        }
    }
}

impl ClusterClient {
    /// A client of a server.
    #[must_use]
    pub fn new(client: kube::Client, clock: Clock, dry_run: bool) -> Self {
        Self { client, clock, dry_run }
    }

    /// The same client as a dry run: the server only validates what is written.
    #[must_use]
    pub fn as_dry_run(&self) -> Self {
        Self { dry_run: true, ..self.clone() }
    }

    /// The clock for timeouts.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether the server only validates what is written.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The namespace of the caller's context.
    #[must_use]
    pub fn own_namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// Reads an object; `None` if it does not exist.
    ///
    /// # Errors
    /// The request failed.
    pub async fn get(&self, path: &ApiPath) -> Result<Option<Value>, RequestError> {
        match self.send(Method::GET, path, "application/json", None).await {
            Ok(object) => Ok(Some(object)),
            Err(RequestError::NotFound(_)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Reads an object of a kind; `None` if it does not exist.
    ///
    /// # Errors
    /// The request failed, or the name is not valid.
    pub async fn find(&self, kind: ObjectKind, name: &str) -> Result<Option<Value>, RequestError> {
        self.get(&kind.path(name)?).await
    }

    /// Reads the resources of a group and version; `None` if the server does not serve them.
    ///
    /// # Errors
    /// The request failed.
    pub async fn resources(&self, api_version: &str) -> Result<Option<ResourceList>, RequestError> {
        let bounds = discovery::DISCOVERY_BOUNDS;
        let read = discovery::list(&self.client, &self.clock, api_version, bounds).await;
        read.map_err(|error| match error {
            DiscoveryError::InvalidApiVersion(invalid) => invalid.into(),
            DiscoveryError::Refused { code, message } => RequestError::refused(code, message),
            error @ (DiscoveryError::NoResponse(_) | DiscoveryError::Malformed(_)) => {
                RequestError::NoResponse(error_chain(&error))
            }
        })
    }

    /// Applies an object with force, which takes over the fields of other managers.
    ///
    /// # Errors
    /// The server refused.
    pub async fn apply(&self, kind: ObjectKind, object: &Value) -> Result<Value, RequestError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path =
            kind.path(name)?.with(Parameter::FieldManager(FIELD_MANAGER)).with(Parameter::Force);
        let path = self.with_dry_run(path);
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(object)).await
    }

    /// Releases the fields of an object that was just applied, so that users who apply the same
    /// object by other means need not force: the content of a shared object is decided by the rules
    /// of sharing, not by which manager wrote it first. One field that can never differ stays ours,
    /// because a server takes an object whose fields have no owner for one from before there were
    /// owners, and owns it itself.
    ///
    /// # Errors
    /// The server refused.
    pub async fn disown(&self, kind: ObjectKind, applied: &Value) -> Result<(), RequestError> {
        if self.dry_run {
            return Ok(());
        }
        let name = applied["metadata"]["name"].as_str().unwrap_or_default();
        let mut object = applied.clone();
        for _ in 0..DISOWN_ATTEMPTS {
            let Some(owners) = without_contents(&object["metadata"]["managedFields"]) else {
                return Ok(());
            };
            let revision = &object["metadata"]["resourceVersion"];
            let patch = json!({"metadata": {"resourceVersion": revision, "managedFields": owners}});
            match self.merge(&kind.path(name)?, &patch).await {
                // Another writer was first: the fields it owns now stay with it.
                Err(RequestError::Conflict(_)) => match self.find(kind, name).await? {
                    Some(found) => object = found,
                    None => return Ok(()),
                },
                Err(RequestError::NotFound(_)) => return Ok(()),
                answer => return answer.map(|_| ()),
            }
        }
        Err(RequestError::Conflict(format!(
            "{name} is constantly changed by others; try again later"
        )))
    }

    /// Changes fields of an object by a merge patch.
    ///
    /// # Errors
    /// The server refused.
    pub async fn merge(&self, path: &ApiPath, patch: &Value) -> Result<Value, RequestError> {
        let path = self.with_dry_run(path.clone().with(Parameter::FieldManager(FIELD_MANAGER)));
        self.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await
    }

    /// Deletes an object, if it still has the revision at which it was read.
    ///
    /// # Errors
    /// The server refused.
    pub async fn delete(&self, path: &ApiPath, resource_version: &str) -> Result<(), RequestError> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        options["preconditions"] = json!({"resourceVersion": resource_version});
        // With a body, a server ignores the query.
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        self.send(Method::DELETE, path, "application/json", Some(&options)).await.map(|_| ())
    }

    /// All objects of a collection, page by page; empty if there is no such collection.
    ///
    /// # Errors
    /// The request failed.
    pub async fn list(&self, path: &ApiPath) -> Result<Vec<Value>, RequestError> {
        let mut all = Vec::new();
        let mut next = path.clone().with(Parameter::Limit(PAGE_SIZE));
        loop {
            let Some(page) = self.get(&next).await? else { return Ok(all) };
            all.extend(page["items"].as_array().into_iter().flatten().cloned());
            match page["metadata"]["continue"].as_str() {
                Some(more) if !more.is_empty() => {
                    next = path.clone().with(Parameter::Limit(PAGE_SIZE));
                    next = next.with(Parameter::Continue(more));
                }
                _ => return Ok(all),
            }
        }
    }

    /// Whether the caller may do this to an object.
    ///
    /// # Errors
    /// The request failed.
    pub async fn is_allowed(
        &self,
        verb: &str,
        kind: ObjectKind,
        name: &str,
    ) -> Result<bool, RequestError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": kind.group(), "resource": kind.plural(), "name": name,
            }},
        });
        let path = ApiPath::from_static("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let answer = self.send(Method::POST, &path, "application/json", Some(&review)).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// The path of a write, with the parameter for a dry run if this is one.
    fn with_dry_run(&self, path: ApiPath) -> ApiPath {
        if self.dry_run { path.with(Parameter::DryRun) } else { path }
    }

    async fn send(
        &self,
        method: Method,
        path: &ApiPath,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Value, RequestError> {
        let sent =
            read::send(&self.client, &self.clock, method, path, (kind, body), REQUEST_BOUNDS).await;
        sent.map_err(|error| match error {
            ReadError::Refused { code, message } => RequestError::refused(code, message),
            error @ (ReadError::NoResponse(_) | ReadError::InvalidJson(_)) => {
                RequestError::NoResponse(error_chain(&error))
            }
        })
    }
}

/// The `managedFields` of an object without the fields that others may write in our entry; `None`
/// if our entry has none.
fn without_contents(owners: &Value) -> Option<Value> {
    let kept = json!({"f:spec": {"f:group": {}}});
    let mut owners = owners.as_array()?.clone();
    let ours = |it: &&mut Value| it["manager"] == FIELD_MANAGER && it["operation"] == "Apply";
    let ours = owners.iter_mut().find(ours).filter(|it| it["fieldsV1"] != kept)?;
    ours["fieldsV1"] = kept;
    Some(Value::Array(owners))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use gantry_controller::transport;
    use http::{Request, Response};
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn unserved_resources_differ_from_forbidden() {
        let document = r#"{"resources": [{"name": "things", "kind": "Thing"},
            {"name": "things/status", "kind": "Thing"}]}"#;
        let table = [
            (200, document, Ok(Some(1))),
            (404, "{}", Ok(None)),
            (403, r#"{"message": "may not"}"#, Err("may not")),
            (500, r#"{"message": "broken"}"#, Err("broken")),
            (200, "{}", Err("the API server does not respond: cannot decode the response as a ")),
        ];
        for (status, body, expected) in table {
            let client = transport::in_process(move |_: Request<Bytes>| {
                let mut answer = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
                *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                std::future::ready(answer)
            });
            let server = ClusterClient::new(client, Clock::system(), false);
            let found = server.resources("a.test/v1").await;
            let forbidden = matches!(found, Err(RequestError::Forbidden(_)));
            assert_eq!(forbidden, status == 403);
            match (found.map(|it| it.map(|it| it.resources().count())), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{status} {body}"),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().starts_with(expected), "{status} {body}: {error}");
                }
                (found, expected) => panic!("{status} {body}: {found:?}, not {expected:?}"),
            }
        }
    }
}
