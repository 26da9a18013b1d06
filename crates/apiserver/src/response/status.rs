//! API errors: the `metav1.Status` of a request that cannot be served.
//!
//! Clients decide by code, reason and causes, and people read the message, so each constructor here
//! is one class of error with its exact words.

use gantry_schema::FieldError;
use http::StatusCode;
use serde_json::{Map, Value, json};

/// A request that was not served, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusError {
    /// The HTTP status.
    pub code: StatusCode,
    /// The CamelCase reason for clients; empty when Kubernetes has none.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// The details. Boxed: errors are part of every `Result`.
    pub details: Option<Box<Details>>,
    /// A continue token, when a list expired.
    pub continue_token: Option<String>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// The whole document, when it comes from elsewhere.
    pub verbatim: Option<Box<Value>>,
}

/// The details of an error.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// The name of the object.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its resource or kind; which of them depends on the class of the error.
    pub kind: String,
    /// Its UID.
    pub uid: String,
    /// The causes.
    pub causes: Vec<Cause>,
    /// Seconds after which to retry; zero means not set.
    pub retry_after_seconds: u32,
}

/// A single cause of an error.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cause {
    /// The CamelCase reason for clients.
    pub reason: String,
    /// The message for people.
    pub message: String,
    /// The field it is about.
    pub field: String,
}

/// Formats a resource for error messages: `deployments.apps`, or `pods`.
#[must_use]
pub fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

impl StatusError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
            warnings: Vec::new(),
            verbatim: None,
        }
    }

    fn with_object(mut self, group: &str, kind: &str, name: &str) -> Self {
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
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with_object(group, resource, name)
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

    /// An object of that name exists already.
    #[must_use]
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, resource));
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with_object(group, resource, name)
    }

    /// No free name was found for a prefix; a retry may find one.
    #[must_use]
    pub fn name_not_generated(group: &str, resource: &str, name: &str) -> Self {
        let message = format!(
            "{} \"{name}\" already exists, the server was not able to generate a unique name for \
             the object",
            qualified(group, resource)
        );
        let code = StatusCode::CONFLICT;
        Self::new(code, "AlreadyExists", message).with_object(group, resource, name).with_retry(1)
    }

    /// The object is not in the expected state. `kind` is the resource, or the kind where
    /// Kubernetes uses that.
    #[must_use]
    pub fn conflict(group: &str, kind: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            qualified(group, kind)
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_object(group, kind, name)
    }

    /// The object was changed after the caller read it.
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

    /// The object is invalid.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, faults: &[FieldError]) -> Self {
        let message =
            format!("{} \"{name}\" is invalid: {}", qualified(group, kind), join_errors(faults));
        let causes = faults.iter().map(Cause::from).collect();
        let code = StatusCode::UNPROCESSABLE_ENTITY;
        Self::new(code, "Invalid", message).with_object(group, kind, name).with_causes(causes)
    }

    /// The request's options are invalid.
    #[must_use]
    pub fn invalid_options(kind: &str, faults: &[FieldError]) -> Self {
        Self::invalid("meta.k8s.io", kind, "", faults)
    }

    /// The request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// A patch that cannot be applied; the server gives no details.
    #[must_use]
    pub fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).without_details()
    }

    /// The caller is not authenticated.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// The caller is not authorized.
    #[must_use]
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, resource);
        let message = match (what.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{what} is forbidden: {why}"),
            (false, false) => format!("{what} \"{name}\" is forbidden: {why}"),
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with_object(group, resource, name)
    }

    /// No objects can be created in this namespace, because it is terminating.
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

    /// The requested revision is no longer available. `resume` continues with the current state.
    pub fn expired(message: impl Into<String>, resume: Option<String>) -> Self {
        Self { continue_token: resume, ..Self::new(StatusCode::GONE, "Expired", message) }
    }

    /// The requested revision is in the future.
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

    /// The body is larger than the limit.
    pub fn too_large(message: impl Into<String>) -> Self {
        let message = format!("Request entity too large: {}", message.into());
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The body is in a format that this resource does not support.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The body is in a format that no resource supports.
    #[must_use]
    pub fn unroutable_media_type() -> Self {
        Self::unsupported_media_type("415: Unsupported Media Type").without_details()
    }

    /// The response is not available in the requested format.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// As above, decided before the request was parsed.
    #[must_use]
    pub fn not_routable(message: &str) -> Self {
        Self::not_acceptable(message).without_details()
    }

    /// There are too many requests.
    #[must_use]
    pub fn too_many(message: &str, cause: Option<Cause>) -> Self {
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        match cause {
            Some(cause) => refusal.with_causes(vec![cause]),
            None => refusal.with_retry(1),
        }
    }

    /// An internal error with the text as it is.
    pub fn failure(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// An internal error, in the words of Kubernetes.
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

    /// A backend of the server cannot be reached. Clients are not asked to retry: nothing listens
    /// there.
    #[must_use]
    pub fn unreachable(message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// There is no space left for the change. Unlike an unavailable server, this does not end by
    /// itself, so clients are not asked to retry.
    pub fn insufficient_storage(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "", message)
    }

    /// The refusal of a webhook or policy.
    #[must_use]
    pub fn denial(code: StatusCode, reason: &'static str, message: String) -> Self {
        Self::new(code, reason, message)
    }

    /// The error of another component, in its own words.
    #[must_use]
    pub fn from_document(code: StatusCode, document: Value) -> Self {
        let message = document["message"].as_str().unwrap_or_default().to_owned();
        Self { verbatim: Some(Box::new(document)), ..Self::new(code, "", message) }
    }

    /// Returns how long to wait before a retry, if the error says so.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        let seconds = match &self.verbatim {
            Some(own) => {
                let said = own["details"]["retryAfterSeconds"].as_u64().unwrap_or(0);
                u32::try_from(said).unwrap_or(u32::MAX)
            }
            None => self.details.as_ref().map_or(0, |details| details.retry_after_seconds),
        };
        (seconds > 0).then_some(seconds)
    }

    /// Returns the document for clients.
    #[must_use]
    pub fn document(&self) -> Value {
        if let Some(own) = &self.verbatim {
            return (**own).clone();
        }
        let mut metadata = Map::new();
        if let Some(resume) = &self.continue_token {
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
        let mut document = non_empty_fields(&[
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ]);
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                Value::Object(non_empty_fields(&[
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

/// Returns the success status of a request that has no object to return.
#[must_use]
pub fn success(group: &str, resource: &str, name: &str, uid: &str) -> Value {
    let details =
        non_empty_fields(&[("name", name), ("group", group), ("kind", resource), ("uid", uid)]);
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}

/// Returns the fields that are set.
fn non_empty_fields(fields: &[(&str, &str)]) -> Map<String, Value> {
    let said = fields.iter().filter(|(_, text)| !text.is_empty());
    said.map(|(name, text)| ((*name).to_owned(), json!(text))).collect()
}

/// Joins errors in one line; each text once.
fn join_errors(faults: &[FieldError]) -> String {
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

impl From<&FieldError> for Cause {
    fn from(fault: &FieldError) -> Self {
        Self {
            reason: fault.reason.as_str().to_owned(),
            message: fault.message.clone(),
            field: fault.field.clone(),
        }
    }
}
