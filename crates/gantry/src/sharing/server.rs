//! The API server as these commands use it: one object at a time, each refusal with its meaning.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_sharing::inventory::ObjectKind;
use http::{Method, Request, header};
use serde_json::{Value, json};

/// The name under which everything is applied, whoever runs the command: so each build takes over from
/// the one before.
pub const MANAGER: &str = "gantry-sharing";

/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(30);
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
    pub async fn get(&self, path: &str) -> Result<Option<Value>, Fault> {
        match self.send(Method::GET, path, "application/json", None).await {
            Ok(object) => Ok(Some(object)),
            Err(Fault::NotFound(_)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Applies an object and takes over what others wrote.
    ///
    /// # Errors
    /// The server refused.
    pub async fn apply(&self, kind: ObjectKind, object: &Value) -> Result<Value, Fault> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let query = format!("fieldManager={MANAGER}&force=true{}", self.pretence());
        let path = format!("{}?{query}", kind.path(name));
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(object)).await
    }

    /// Changes fields of an object.
    ///
    /// # Errors
    /// The server refused.
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<Value, Fault> {
        let path = format!("{path}?fieldManager={MANAGER}{}", self.pretence());
        self.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await
    }

    /// Deletes an object, if it is as it was read.
    ///
    /// # Errors
    /// The server refused.
    pub async fn delete(&self, path: &str, resource_version: &str) -> Result<(), Fault> {
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
    pub async fn list(&self, path: &str) -> Result<Vec<Value>, Fault> {
        let mut all = Vec::new();
        let mut next = String::new();
        loop {
            let Some(page) = self.get(&format!("{path}?limit=500{next}")).await? else {
                return Ok(all);
            };
            all.extend(page["items"].as_array().into_iter().flatten().cloned());
            match page["metadata"]["continue"].as_str() {
                Some(more) if !more.is_empty() => next = format!("&continue={more}"),
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
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = self.send(Method::POST, path, "application/json", Some(&review)).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    fn pretence(&self) -> &'static str {
        if self.dry_run { "&dryRun=All" } else { "" }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Value, Fault> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request =
            Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        let request = request.body(body).map_err(|error| Fault::Refused(error.to_string()))?;
        match self.clock.timeout(PATIENCE, self.client.request::<Value>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                let says = status.message.clone();
                Err(match status.code {
                    403 => Fault::Forbidden(says),
                    404 => Fault::NotFound(says),
                    409 => Fault::Conflict(says),
                    _ => Fault::Refused(says),
                })
            }
            Ok(Err(error)) => Err(Fault::NoAnswer(chain(&error))),
            Err(late) => Err(Fault::NoAnswer(late.to_string())),
        }
    }
}

/// An error with its causes, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        source = cause.source();
    }
    said
}
