//! Responses: documents in the requested format, with the common headers.

use bytes::Bytes;
use http::header::X_CONTENT_TYPE_OPTIONS;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode, Uri};
use serde::Serialize as _;
use serde_json::Value;

use crate::request::body::{Body, full};
use crate::request::negotiate::Encoding;
use crate::response::status::StatusError;

pub mod pagination;
pub(crate) mod render;
pub(crate) mod representations;
pub mod status;

/// How documents are written for one caller.
#[derive(Clone, Copy, Debug)]
pub struct OutputStyle {
    /// JSON or YAML.
    pub encoding: Encoding,
    /// With line breaks, for readability.
    pub pretty: bool,
}

impl OutputStyle {
    /// JSON without line breaks.
    pub const PLAIN: Self = Self { encoding: Encoding::Json, pretty: false };

    /// Whether stored bytes can be sent as they are.
    #[must_use]
    pub fn is_plain(self) -> bool {
        self.encoding == Encoding::Json && !self.pretty
    }

    /// Returns the media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self.encoding {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
        }
    }

    /// Serializes a document: in one line with a newline, or in many without, as Kubernetes does.
    ///
    /// # Panics
    /// Never: JSON trees can always be serialized.
    #[must_use]
    pub fn write(self, document: &Value) -> Bytes {
        match self.encoding {
            Encoding::Json if self.pretty => pretty(document),
            Encoding::Json => Bytes::from(format!("{document}\n")),
            Encoding::Yaml => {
                let text = gantry_yaml::write(document);
                Bytes::from(text.expect("trees with text keys can be written as YAML"))
            }
        }
    }
}

fn pretty(document: &Value) -> Bytes {
    let mut text = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b"  ");
    let mut writer = serde_json::Serializer::with_formatter(&mut text, format);
    document.serialize(&mut writer).expect("trees with text keys serialise");
    Bytes::from(text)
}

/// Makes a response with a document.
#[must_use]
pub fn document(status: StatusCode, style: OutputStyle, document: &Value) -> Response<Body> {
    bytes(status, style.content_type(), style.write(document))
}

/// Makes a response with bytes that are a document already.
pub fn bytes(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    with_body(status, content_type, full(bytes))
}

/// Makes a response with JSON that was serialized before, as a line.
#[must_use]
pub fn json_line(status: StatusCode, json: &[u8]) -> Response<Body> {
    let mut line = Vec::with_capacity(json.len() + 1);
    line.extend_from_slice(json);
    line.push(b'\n');
    bytes(status, "application/json", line.into())
}

/// Makes a response with any body.
pub fn with_body(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let control = HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(CACHE_CONTROL, control);
    response
}

/// Makes the response to a client that has the document already.
#[must_use]
pub(crate) fn not_modified() -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    let control = HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(CACHE_CONTROL, control);
    response
}

/// Makes a plain text response, for paths outside the API.
pub fn text(status: StatusCode, words: impl Into<Bytes>) -> Response<Body> {
    bytes(status, "text/plain; charset=utf-8", words.into())
}

/// Makes the response to a request that fails before it is served, outside of the API's own errors.
pub(crate) fn malformed_request(uri: &Uri, words: &str) -> Response<Body> {
    let asked = uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    let words = format!("Internal Server Error: {}: {words}", gantry_schema::quote(asked));
    // The same escaping as in Kubernetes: a browser may show the text as a page.
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut response = text(StatusCode::INTERNAL_SERVER_ERROR, words + "\n");
    let value = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, value);
    response
}

/// Makes the response to an unknown path.
#[must_use]
pub fn page_not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Makes a refusal in the requested format.
#[must_use]
pub fn error(refusal: &StatusError, style: OutputStyle) -> Response<Body> {
    let mut response = document(refusal.code, style, &refusal.document());
    if let Some(seconds) = refusal.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    add_warnings(&mut response, &refusal.warnings);
    response
}

/// Adds warning headers. Each text is added once, and all of them together stay within what clients
/// accept.
pub fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    const MAX_TOTAL_BYTES: usize = 4096;
    const MAX_WARNING_BYTES: usize = 256;
    let mut said: Vec<&str> = Vec::new();
    for warning in warnings {
        if !said.contains(&warning.as_str()) {
            said.push(warning);
        }
    }
    let total: usize = said.iter().map(|warning| warning.chars().count()).sum();
    let mut left = MAX_TOTAL_BYTES;
    for warning in said {
        let length = warning.chars().count();
        let most = if total > MAX_TOTAL_BYTES { MAX_WARNING_BYTES.min(length) } else { length };
        if most > left {
            break;
        }
        left -= most;
        let mut value = String::from("299 - \"");
        for letter in warning.chars().take(most) {
            match letter {
                '"' | '\\' => {
                    value.push('\\');
                    value.push(letter);
                }
                it if it.is_control() => value.push(' '),
                it => value.push(it),
            }
        }
        value.push('"');
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_quoted_and_deduplicated() {
        let mut response = text(StatusCode::OK, "");
        let warnings = ["unknown field \"a\"".to_owned(), "b".to_owned(), "b".to_owned()];
        add_warnings(&mut response, &warnings);
        let said: Vec<_> = response.headers().get_all(WARNING).iter().collect();
        assert_eq!(said, [r#"299 - "unknown field \"a\"""#, r#"299 - "b""#]);
    }

    #[test]
    fn too_many_warnings_are_cut() {
        let mut response = text(StatusCode::OK, "");
        let warnings: Vec<String> =
            (0..40).map(|it| format!("{it:03}{}", "x".repeat(400))).collect();
        add_warnings(&mut response, &warnings);
        let lengths: Vec<usize> =
            response.headers().get_all(WARNING).iter().map(HeaderValue::len).collect();
        assert_eq!(lengths.len(), 16);
        assert!(lengths.iter().all(|it| *it == 256 + 8));
    }
}
