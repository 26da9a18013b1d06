//! Refusals: what `metav1.Status` says when a request cannot be served.
//!
//! Clients decide by code, reason and causes, and people read the message, so each constructor here
//! is one class of refusal with its exact words.

use gantry_schema::Invalid;
use http::StatusCode;
use serde_json::{Map, Value, json};

/// A request that was not served, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The HTTP status.
    pub code: StatusCode,
    /// The word clients decide by; empty when Kubernetes has none.
    pub reason: &'static str,
    /// What people read.
    pub message: String,
    /// What it is about. Boxed: refusals travel in every `Result`.
    pub details: Option<Box<Details>>,
    /// A token to go on with, when a list expired.
    pub resume: Option<String>,
    /// What else the caller should know.
    pub warnings: Vec<String>,
    /// The whole document, when somebody else has written it.
    pub own: Option<Box<Value>>,
}

/// What a refusal is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// The name of the object.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its resource or kind; which of them depends on the class of the refusal.
    pub kind: String,
    /// Its uid.
    pub uid: String,
    /// What is wrong, one by one.
    pub causes: Vec<Cause>,
    /// When to try again; zero means not said.
    pub retry_after_seconds: u32,
}

/// One thing that is wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cause {
    /// The word clients decide by.
    pub reason: String,
    /// What people read.
    pub message: String,
    /// The field it is about.
    pub field: String,
}

/// A resource in the words of error messages: `deployments.apps`, or `pods`.
#[must_use]
pub fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            resume: None,
            warnings: Vec::new(),
            own: None,
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            ..Details::default()
        }));
        self
    }

    fn without_details(mut self) -> Self {
        self.details = Some(Box::default());
        self
    }

    fn with_causes(mut self, causes: Vec<Cause>) -> Self {
        self.details.get_or_insert_default().causes = causes;
        self
    }

    pub(crate) fn with_retry(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// The object does not exist.
    #[must_use]
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", qualified(group, resource));
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(group, resource, name)
    }

    /// The group is known, but not this version, resource or subresource.
    #[must_use]
    pub fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).without_details()
    }

    /// The resource does not have this verb.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let code = StatusCode::METHOD_NOT_ALLOWED;
        Self::new(code, "MethodNotAllowed", message).without_details()
    }

    /// An object of that name is there already.
    #[must_use]
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, resource));
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(group, resource, name)
    }

    /// No free name was found for a prefix; another try may find one.
    #[must_use]
    pub fn name_not_generated(group: &str, resource: &str, name: &str) -> Self {
        let message = format!(
            "{} \"{name}\" already exists, the server was not able to generate a unique name for the object",
            qualified(group, resource)
        );
        let code = StatusCode::CONFLICT;
        Self::new(code, "AlreadyExists", message).about(group, resource, name).with_retry(1)
    }

    /// The object is not what the caller took it for. `kind` is the resource, or the kind where
    /// Kubernetes says that.
    #[must_use]
    pub fn conflict(group: &str, kind: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            qualified(group, kind)
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(group, kind, name)
    }

    /// Someone wrote the object after the caller read it.
    #[must_use]
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(group, resource, name, why)
    }

    /// Fields that other managers own with another value.
    #[must_use]
    pub fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_causes(causes)
    }

    /// The object breaks its rules.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, faults: &[Invalid]) -> Self {
        let message =
            format!("{} \"{name}\" is invalid: {}", qualified(group, kind), listed(faults));
        let causes = faults.iter().map(Cause::from).collect();
        let code = StatusCode::UNPROCESSABLE_ENTITY;
        Self::new(code, "Invalid", message).about(group, kind, name).with_causes(causes)
    }

    /// The request's options break their rules.
    #[must_use]
    pub fn invalid_options(kind: &str, faults: &[Invalid]) -> Self {
        Self::invalid("meta.k8s.io", kind, "", faults)
    }

    /// The request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// A patch that cannot be applied; the server says no more than that.
    #[must_use]
    pub fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).without_details()
    }

    /// The caller is not known.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// The caller may not do this.
    #[must_use]
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, resource);
        let message = match (what.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{what} is forbidden: {why}"),
            (false, false) => format!("{what} \"{name}\" is forbidden: {why}"),
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(group, resource, name)
    }

    /// Nothing new may be created in this namespace.
    #[must_use]
    pub fn terminating(group: &str, resource: &str, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let cause = Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        };
        Self::forbidden(group, resource, name, &why).with_causes(vec![cause])
    }

    /// The revision asked for is no longer kept. `resume` goes on with what is there now.
    pub fn expired(message: impl Into<String>, resume: Option<String>) -> Self {
        Self { resume, ..Self::new(StatusCode::GONE, "Expired", message) }
    }

    /// The revision asked for has not happened.
    #[must_use]
    pub fn too_new(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {message}"))
            .with_causes(vec![cause])
            .with_retry(1)
    }

    /// The request took too long.
    #[must_use]
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).without_details()
    }

    /// The body is larger than a server takes.
    pub fn too_large(message: impl Into<String>) -> Self {
        let message = format!("Request entity too large: {}", message.into());
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The body is in a form that is not read here.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The body is in a form that no resource reads.
    #[must_use]
    pub fn unroutable_media_type() -> Self {
        Self::unsupported_media_type("415: Unsupported Media Type").without_details()
    }

    /// The answer cannot be given in the form asked for.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The same, decided before the request was looked at.
    #[must_use]
    pub fn not_routable(message: &str) -> Self {
        Self::not_acceptable(message).without_details()
    }

    /// Too much at once.
    #[must_use]
    pub fn too_many(message: &str, cause: Option<Cause>) -> Self {
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        match cause {
            Some(cause) => refusal.with_causes(vec![cause]),
            None => refusal.with_retry(1),
        }
    }

    /// Something inside failed; the text is given as it is.
    pub fn failure(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// Something inside failed, in the words of an internal error.
    #[must_use]
    pub fn internal(error: &str) -> Self {
        let cause = Cause { message: error.to_owned(), ..Cause::default() };
        let message = format!("Internal error occurred: {error}");
        let code = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(code, "InternalError", message).with_causes(vec![cause])
    }

    /// The server cannot serve now.
    #[must_use]
    pub fn unavailable(message: &str) -> Self {
        let code = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(code, "ServiceUnavailable", message).with_retry(1)
    }

    /// Somebody behind the server cannot be reached. Clients are not asked to try again: they would wait for what
    /// nobody listens to.
    #[must_use]
    pub fn unreachable(message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// There is no room for the change. Unlike what is unavailable, this does not pass by itself, so
    /// clients are not asked to try again.
    pub fn insufficient_storage(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "", message)
    }

    /// A webhook's or policy's own verdict.
    #[must_use]
    pub fn verdict(code: StatusCode, reason: &'static str, message: String) -> Self {
        Self::new(code, reason, message)
    }

    /// A refusal in the words of somebody else, who may have words of their own.
    #[must_use]
    pub fn quoted(code: StatusCode, document: Value) -> Self {
        let message = document["message"].as_str().unwrap_or_default().to_owned();
        Self { own: Some(Box::new(document)), ..Self::new(code, "", message) }
    }

    /// How long to wait before another try, if the refusal says so.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        let seconds = match &self.own {
            Some(own) => {
                let said = own["details"]["retryAfterSeconds"].as_u64().unwrap_or(0);
                u32::try_from(said).unwrap_or(u32::MAX)
            }
            None => self.details.as_ref().map_or(0, |details| details.retry_after_seconds),
        };
        (seconds > 0).then_some(seconds)
    }

    /// The document clients get.
    #[must_use]
    pub fn document(&self) -> Value {
        if let Some(own) = &self.own {
            return (**own).clone();
        }
        let mut metadata = Map::new();
        if let Some(resume) = &self.resume {
            metadata.insert("continue".to_owned(), json!(resume));
        }
        let mut document = Map::new();
        document.insert("kind".to_owned(), json!("Status"));
        document.insert("apiVersion".to_owned(), json!("v1"));
        document.insert("metadata".to_owned(), Value::Object(metadata));
        document.insert("status".to_owned(), json!("Failure"));
        document.insert("message".to_owned(), json!(self.message));
        if !self.reason.is_empty() {
            document.insert("reason".to_owned(), json!(self.reason));
        }
        if let Some(details) = &self.details {
            document.insert("details".to_owned(), details.document());
        }
        document.insert("code".to_owned(), json!(self.code.as_u16()));
        Value::Object(document)
    }
}

impl Details {
    fn document(&self) -> Value {
        let mut document = texts(&[
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ]);
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                Value::Object(texts(&[
                    ("reason", &cause.reason),
                    ("message", &cause.message),
                    ("field", &cause.field),
                ]))
            });
            document.insert("causes".to_owned(), causes.collect());
        }
        if self.retry_after_seconds > 0 {
            document.insert("retryAfterSeconds".to_owned(), json!(self.retry_after_seconds));
        }
        Value::Object(document)
    }
}

/// The success of a request that has no object to return.
#[must_use]
pub fn success(group: &str, resource: &str, name: &str, uid: &str) -> Value {
    let details = texts(&[("name", name), ("group", group), ("kind", resource), ("uid", uid)]);
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}

/// The fields that say something.
fn texts(fields: &[(&str, &str)]) -> Map<String, Value> {
    let said = fields.iter().filter(|(_, text)| !text.is_empty());
    said.map(|(name, text)| ((*name).to_owned(), json!(text))).collect()
}

/// Faults in one line; the same words are said once.
fn listed(faults: &[Invalid]) -> String {
    let mut words: Vec<String> = Vec::new();
    for fault in faults {
        let word = fault.to_string();
        if !words.contains(&word) {
            words.push(word);
        }
    }
    match words.as_slice() {
        [only] => only.clone(),
        _ => format!("[{}]", words.join(", ")),
    }
}

impl From<&Invalid> for Cause {
    fn from(fault: &Invalid) -> Self {
        Self {
            reason: fault.reason.word().to_owned(),
            message: fault.message.clone(),
            field: fault.field.clone(),
        }
    }
}
