//! Answers: documents in the form the caller asked for, with the headers every answer has.

use bytes::Bytes;
use http::header::X_CONTENT_TYPE_OPTIONS;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode, Uri};
use serde::Serialize as _;
use serde_json::Value;

use crate::body::{Body, full};
use crate::negotiate::Encoding;
use crate::status::Refusal;

/// How documents are written for one caller.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// JSON or YAML.
    pub encoding: Encoding,
    /// With line breaks, for people.
    pub pretty: bool,
}

impl Style {
    /// JSON without line breaks.
    pub const PLAIN: Self = Self { encoding: Encoding::Json, pretty: false };

    /// Whether stored bytes can be sent as they are.
    #[must_use]
    pub fn is_plain(self) -> bool {
        self.encoding == Encoding::Json && !self.pretty
    }

    /// The media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self.encoding {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
        }
    }

    /// Writes a document: in one line with its end, or in many without, as Kubernetes does.
    ///
    /// # Panics
    /// Never: JSON trees can always be written.
    #[must_use]
    pub fn write(self, document: &Value) -> Bytes {
        match self.encoding {
            Encoding::Json if self.pretty => pretty(document),
            Encoding::Json => Bytes::from(format!("{document}\n")),
            Encoding::Yaml => {
                let text = gantry_api::yaml::write(document);
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

/// An answer with a document.
#[must_use]
pub fn document(status: StatusCode, style: Style, document: &Value) -> Response<Body> {
    bytes(status, style.content_type(), style.write(document))
}

/// An answer with bytes that are a document already.
pub fn bytes(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    with_body(status, content_type, full(bytes))
}

/// An answer with JSON that was written before, as a line.
#[must_use]
pub fn line(status: StatusCode, json: &[u8]) -> Response<Body> {
    let mut line = Vec::with_capacity(json.len() + 1);
    line.extend_from_slice(json);
    line.push(b'\n');
    bytes(status, "application/json", line.into())
}

/// An answer with any body.
pub fn with_body(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let control = HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(CACHE_CONTROL, control);
    response
}

/// The answer to a client that has the document already.
#[must_use]
pub(crate) fn not_modified() -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    let control = HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(CACHE_CONTROL, control);
    response
}

/// Plain text, for what is no API.
pub fn text(status: StatusCode, words: impl Into<Bytes>) -> Response<Body> {
    bytes(status, "text/plain; charset=utf-8", words.into())
}

/// The answer to a request that breaks before anyone serves it, in words that no API has.
pub(crate) fn broken(uri: &Uri, words: &str) -> Response<Body> {
    let asked = uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    let words = format!("Internal Server Error: {}: {words}", gantry_schema::quote(asked));
    // As Kubernetes does it: a browser may show the text as a page.
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut response = text(StatusCode::INTERNAL_SERVER_ERROR, words + "\n");
    let value = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, value);
    response
}

/// The answer to a path where nothing is.
#[must_use]
pub fn no_page() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// A refusal in the form the caller asked for.
#[must_use]
pub fn refusal(refusal: &Refusal, style: Style) -> Response<Body> {
    let mut response = document(refusal.code, style, &refusal.document());
    if let Some(seconds) = refusal.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    warn(&mut response, &refusal.warnings);
    response
}

/// Adds what the caller should know. The same words are said once, and all of them together stay
/// within what a client takes.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
    const ALL: usize = 4096;
    const EACH: usize = 256;
    let mut said: Vec<&str> = Vec::new();
    for warning in warnings {
        if !said.contains(&warning.as_str()) {
            said.push(warning);
        }
    }
    let total: usize = said.iter().map(|warning| warning.chars().count()).sum();
    let mut left = ALL;
    for warning in said {
        let length = warning.chars().count();
        let most = if total > ALL { EACH.min(length) } else { length };
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
    fn warnings_are_quoted_and_said_once() {
        let mut response = text(StatusCode::OK, "");
        let warnings = ["unknown field \"a\"".to_owned(), "b".to_owned(), "b".to_owned()];
        warn(&mut response, &warnings);
        let said: Vec<_> = response.headers().get_all(WARNING).iter().collect();
        assert_eq!(said, [r#"299 - "unknown field \"a\"""#, r#"299 - "b""#]);
    }

    #[test]
    fn too_many_warnings_are_cut() {
        let mut response = text(StatusCode::OK, "");
        let warnings: Vec<String> =
            (0..40).map(|it| format!("{it:03}{}", "x".repeat(400))).collect();
        warn(&mut response, &warnings);
        let lengths: Vec<usize> =
            response.headers().get_all(WARNING).iter().map(HeaderValue::len).collect();
        assert_eq!(lengths.len(), 16);
        assert!(lengths.iter().all(|it| *it == 256 + 8));
    }
}
