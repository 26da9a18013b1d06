//! A request before it is sent, as cases write it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_testkit::http::Request;
use http::{HeaderName, HeaderValue, Method};
use serde_json::Value;

use super::NAMESPACE_PLACEHOLDER;
use crate::case::CaseError;
use crate::transcript::{Caller, RecordedRequest};

/// A request. `{ns}` in its path, its headers and its body stands for the case's namespace.
#[derive(Clone, Debug)]
pub struct RequestSpec {
    caller: Caller,
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<String>,
}

/// The media type of protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The forms of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// A list of operations.
    Json,
    /// Objects merge, everything else replaces.
    Merge,
    /// Lists merge by the keys of their types.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// Its media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

impl RequestSpec {
    /// A request without headers or body.
    pub fn new(method: &'static str, path: impl Into<String>) -> Self {
        let party = Caller::Admin;
        Self { caller: party, method, path: path.into(), headers: Vec::new(), body: None }
    }

    /// A GET.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    /// A POST of JSON.
    pub fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new("POST", path).json(body)
    }

    /// A PUT of JSON.
    pub fn put(path: impl Into<String>, body: &Value) -> Self {
        Self::new("PUT", path).json(body)
    }

    /// A PATCH.
    pub fn patch(path: impl Into<String>, form: PatchType, body: &Value) -> Self {
        Self::new("PATCH", path).text(form.media_type(), body.to_string())
    }

    /// A DELETE without options.
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path)
    }

    /// The same without credentials.
    #[must_use]
    pub fn anonymously(mut self) -> Self {
        self.caller = Caller::Anonymous;
        self
    }

    /// The same with a JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.text("application/json", body.to_string())
    }

    /// The same with any body.
    #[must_use]
    pub fn text(self, media_type: &str, body: impl Into<String>) -> Self {
        self.untyped_body(body).header("content-type", media_type)
    }

    /// The same with a body in protobuf, written here in base64. No `{ns}` is found in it.
    #[must_use]
    pub fn protobuf(self, base64: &str) -> Self {
        self.text(PROTOBUF, base64)
    }

    /// The same with a body and no word on what it is.
    #[must_use]
    pub fn untyped_body(mut self, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The same with an Accept header.
    #[must_use]
    pub fn accept(self, media_types: &str) -> Self {
        self.header("accept", media_types)
    }

    /// The same as a Table.
    #[must_use]
    pub fn table(self) -> Self {
        self.accept("application/json;as=Table;v=v1;g=meta.k8s.io")
    }

    /// The same with a header, which may be repeated. Its name is in lower case.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// What goes into the transcript, with the namespace filled in.
    pub(super) fn resolve(self, place: &str) -> RecordedRequest {
        let fill = |text: &str| text.replace(NAMESPACE_PLACEHOLDER, place);
        RecordedRequest {
            caller: self.caller,
            method: self.method.to_owned(),
            path: fill(&self.path),
            headers: self.headers.iter().map(|(name, it)| ((*name).to_owned(), fill(it))).collect(),
            body: self.body.as_deref().map(fill),
        }
    }
}

/// A request for the wire.
pub(super) fn to_http_request(sent: &RecordedRequest) -> Result<Request, CaseError> {
    let unsendable = |what: &str| CaseError::InvalidRequest { what: what.to_owned() };
    let method: Method = sent.method.parse().map_err(|_| unsendable(&sent.method))?;
    let mut request = Request::new(method, sent.path.clone());
    for (name, value) in &sent.headers {
        let header: HeaderName = name.parse().map_err(|_| unsendable(name))?;
        let value: HeaderValue = value.parse().map_err(|_| unsendable(value))?;
        request = request.append_header(header, value);
    }
    let binary = sent.headers.iter().any(|(name, it)| name == "content-type" && it == PROTOBUF);
    Ok(match &sent.body {
        Some(body) if binary => {
            request.body(STANDARD.decode(body).map_err(|_| unsendable("a body in base64"))?)
        }
        Some(body) => request.body(body.clone()),
        None => request,
    })
}
