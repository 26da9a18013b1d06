//! The API server as these commands use it: one object at a time, each refusal with its meaning.

use std::time::Duration;

use gantry_controller::read::{self, Bounds, ReadError};
use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_reconcile::{ApiPath, InvalidPath, Parameter};
use http::Method;
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
const PAGE: u32 = 500;
/// How long to wait before looking again at what is on its way.
pub const PAUSE: Duration = Duration::from_millis(100);

/// A server, and whether it is only to pretend.
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
pub enum Fault {
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

impl From<InvalidPath> for Fault {
    fn from(invalid: InvalidPath) -> Self {
        Self::Refused(invalid.to_string())
    }
}

impl Server {
    /// The server behind a client.
    #[must_use]
    pub fn new(client: kube::Client, clock: Clock, dry_run: bool) -> Self {
        Self { client, clock, dry_run }
    }

    /// The same server, which only pretends.
    #[must_use]
    pub fn pretending(&self) -> Self {
        Self { dry_run: true, ..self.clone() }
    }

    /// The clock that waiting is measured by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether the server only pretends.
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
    pub async fn get(&self, path: &ApiPath) -> Result<Option<Value>, Fault> {
        match self.send(Method::GET, path, "application/json", None).await {
            Ok(object) => Ok(Some(object)),
            Err(Fault::NotFound(_)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Reads an object of a kind; nothing if it is not there.
    ///
    /// # Errors
    /// The server did not say, or no object can have this name.
    pub async fn find(&self, kind: ObjectKind, name: &str) -> Result<Option<Value>, Fault> {
        self.get(&kind.path(name)?).await
    }

    /// Applies an object and takes over what others wrote.
    ///
    /// # Errors
    /// The server refused.
    pub async fn apply(&self, kind: ObjectKind, object: &Value) -> Result<Value, Fault> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = kind.path(name)?.with(Parameter::FieldManager(MANAGER)).with(Parameter::Force);
        let path = self.pretence(path);
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(object)).await
    }

    /// Gives up the contents of an object that was just applied, so that whoever applies the same object by
    /// other means need not take it over by force: what a shared object says is decided by the rules of
    /// sharing, not by who wrote it first. One field that can never differ stays ours, because a server takes
    /// an object whose fields nobody owns for one from before there were owners, and owns it itself.
    ///
    /// # Errors
    /// The server refused.
    pub async fn disown(&self, kind: ObjectKind, applied: &Value) -> Result<(), Fault> {
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
                Err(Fault::Conflict(_)) => match self.find(kind, name).await? {
                    Some(found) => object = found,
                    None => return Ok(()),
                },
                Err(Fault::NotFound(_)) => return Ok(()),
                answer => return answer.map(|_| ()),
            }
        }
        Err(Fault::Conflict(format!("others change {name} all the time")))
    }

    /// Changes fields of an object.
    ///
    /// # Errors
    /// The server refused.
    pub async fn merge(&self, path: &ApiPath, patch: &Value) -> Result<Value, Fault> {
        let path = self.pretence(path.clone().with(Parameter::FieldManager(MANAGER)));
        self.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await
    }

    /// Deletes an object, if it is as it was read.
    ///
    /// # Errors
    /// The server refused.
    pub async fn delete(&self, path: &ApiPath, resource_version: &str) -> Result<(), Fault> {
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
    pub async fn list(&self, path: &ApiPath) -> Result<Vec<Value>, Fault> {
        let mut all = Vec::new();
        let mut next = path.clone().with(Parameter::Limit(PAGE));
        loop {
            let Some(page) = self.get(&next).await? else { return Ok(all) };
            all.extend(page["items"].as_array().into_iter().flatten().cloned());
            match page["metadata"]["continue"].as_str() {
                Some(more) if !more.is_empty() => {
                    next = path.clone().with(Parameter::Limit(PAGE));
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
    pub async fn may(&self, verb: &str, kind: ObjectKind, name: &str) -> Result<bool, Fault> {
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

    /// The path of a write, which is only checked where the server pretends.
    fn pretence(&self, path: ApiPath) -> ApiPath {
        if self.dry_run { path.with(Parameter::DryRun) } else { path }
    }

    async fn send(
        &self,
        method: Method,
        path: &ApiPath,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Value, Fault> {
        let sent = read::send(&self.client, &self.clock, method, path, (kind, body), BOUNDS).await;
        sent.map_err(|error| match error {
            ReadError::Refused { code, message } => match code.as_u16() {
                403 => Fault::Forbidden(message),
                404 => Fault::NotFound(message),
                409 => Fault::Conflict(message),
                _ => Fault::Refused(message),
            },
            error @ (ReadError::NoAnswer(_) | ReadError::Garbled(_)) => {
                Fault::NoAnswer(error_chain(&error))
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
