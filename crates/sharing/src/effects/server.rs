//! The API server as these commands use it: one object at a time, each refusal with its meaning.

use std::time::Duration;

use gantry_controller::discovery::{self, DiscoveryError, ResourceList};
use gantry_controller::read::{self, Bounds, ReadError};
use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_reconcile::{ApiPath, InvalidPath, Parameter};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::inventory::ObjectKind;

/// The name under which everything is applied, whoever runs the command: so each build takes over from
/// the one before.
pub const MANAGER: &str = "gantry-sharing";

/// What one call may take: a page of objects of the usual size is some MiB.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), bytes: 256 << 20 };
/// How often fields of an object are given up that others write at the same time.
const DISOWN_ATTEMPTS: usize = 10;
/// How many objects a page has.
const PAGE_SIZE: u32 = 500;
/// How long to wait before looking again at what is on its way.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A server, and whether it only validates what is written (dry run).
#[derive(Clone)]
pub struct Server {
    client: kube::Client,
    clock: Clock,
    dry_run: bool,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { client: _, clock: _, dry_run } = self;
        f.debug_struct("Server").field("dry_run", dry_run).finish_non_exhaustive()
    }
}

/// Why a call did not do what it should, by what is done about it.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The caller lacks a right.
    #[error("{0}")]
    Forbidden(String),
    /// Somebody was in between: look again.
    #[error("{0}")]
    Conflict(String),
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// The server refused for another reason.
    #[error("{0}")]
    Refused(String),
    /// There was no answer.
    #[error("the API server does not answer: {0}")]
    NoAnswer(String),
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

impl Server {
    /// The server behind a client.
    #[must_use]
    pub fn new(client: kube::Client, clock: Clock, dry_run: bool) -> Self {
        Self { client, clock, dry_run }
    }

    /// The same server, which only validates what is written.
    #[must_use]
    pub fn as_dry_run(&self) -> Self {
        Self { dry_run: true, ..self.clone() }
    }

    /// The clock that waiting is measured by.
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

    /// Reads an object; nothing if it is not there.
    ///
    /// # Errors
    /// The server did not say.
    pub async fn get(&self, path: &ApiPath) -> Result<Option<Value>, RequestError> {
        match self.send(Method::GET, path, "application/json", None).await {
            Ok(object) => Ok(Some(object)),
            Err(RequestError::NotFound(_)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Reads an object of a kind; nothing if it is not there.
    ///
    /// # Errors
    /// The server did not say, or no object can have this name.
    pub async fn find(&self, kind: ObjectKind, name: &str) -> Result<Option<Value>, RequestError> {
        self.get(&kind.path(name)?).await
    }

    /// Reads which resources a group and version have; nothing if the server does not serve them.
    ///
    /// # Errors
    /// The server did not say.
    pub async fn resources(&self, api_version: &str) -> Result<Option<ResourceList>, RequestError> {
        let bounds = discovery::DISCOVERY_BOUNDS;
        let read = discovery::list(&self.client, &self.clock, api_version, bounds).await;
        read.map_err(|error| match error {
            DiscoveryError::InvalidApiVersion(invalid) => invalid.into(),
            DiscoveryError::Refused { code, message } => RequestError::refused(code, message),
            error @ (DiscoveryError::NoAnswer(_) | DiscoveryError::Malformed(_)) => {
                RequestError::NoAnswer(error_chain(&error))
            }
        })
    }

    /// Applies an object and takes over what others wrote.
    ///
    /// # Errors
    /// The server refused.
    pub async fn apply(&self, kind: ObjectKind, object: &Value) -> Result<Value, RequestError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = kind.path(name)?.with(Parameter::FieldManager(MANAGER)).with(Parameter::Force);
        let path = self.with_dry_run(path);
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(object)).await
    }

    /// Gives up the contents of an object that was just applied, so that whoever applies the same object by
    /// other means need not take it over by force: what a shared object says is decided by the rules of
    /// sharing, not by who wrote it first. One field that can never differ stays ours, because a server takes
    /// an object whose fields nobody owns for one from before there were owners, and owns it itself.
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
                // Somebody was in between: what they own now stays theirs.
                Err(RequestError::Conflict(_)) => match self.find(kind, name).await? {
                    Some(found) => object = found,
                    None => return Ok(()),
                },
                Err(RequestError::NotFound(_)) => return Ok(()),
                answer => return answer.map(|_| ()),
            }
        }
        Err(RequestError::Conflict(format!("others change {name} all the time")))
    }

    /// Changes fields of an object.
    ///
    /// # Errors
    /// The server refused.
    pub async fn merge(&self, path: &ApiPath, patch: &Value) -> Result<Value, RequestError> {
        let path = self.with_dry_run(path.clone().with(Parameter::FieldManager(MANAGER)));
        self.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await
    }

    /// Deletes an object, if it is as it was read.
    ///
    /// # Errors
    /// The server refused.
    pub async fn delete(&self, path: &ApiPath, resource_version: &str) -> Result<(), RequestError> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        options["preconditions"] = json!({"resourceVersion": resource_version});
        // Where there is a body, a server does not look at the query.
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        self.send(Method::DELETE, path, "application/json", Some(&options)).await.map(|_| ())
    }

    /// All objects of a collection, page by page; nothing if there is no such collection.
    ///
    /// # Errors
    /// The server did not say.
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
    /// The server did not say.
    pub async fn may(
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
        let sent = read::send(&self.client, &self.clock, method, path, (kind, body), BOUNDS).await;
        sent.map_err(|error| match error {
            ReadError::Refused { code, message } => RequestError::refused(code, message),
            error @ (ReadError::NoAnswer(_) | ReadError::Garbled(_)) => {
                RequestError::NoAnswer(error_chain(&error))
            }
        })
    }
}

/// The owners of an object's fields, where ours owns nothing that others may write; nothing if it does not
/// now.
fn without_contents(owners: &Value) -> Option<Value> {
    let kept = json!({"f:spec": {"f:group": {}}});
    let mut owners = owners.as_array()?.clone();
    let ours = |it: &&mut Value| it["manager"] == MANAGER && it["operation"] == "Apply";
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
    async fn resources_that_are_not_served_are_told_apart_from_those_that_may_not_be_read() {
        let document = r#"{"resources": [{"name": "things", "kind": "Thing"},
            {"name": "things/status", "kind": "Thing"}]}"#;
        let table = [
            (200, document, Ok(Some(1))),
            (404, "{}", Ok(None)),
            (403, r#"{"message": "may not"}"#, Err("may not")),
            (500, r#"{"message": "broken"}"#, Err("broken")),
            (200, "{}", Err("the API server does not answer: cannot read the answer as a ")),
        ];
        for (status, body, expected) in table {
            let client = transport::in_process(move |_: Request<Bytes>| {
                let mut answer = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
                *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                std::future::ready(answer)
            });
            let server = Server::new(client, Clock::system(), false);
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
