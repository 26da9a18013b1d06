//! Turns responses without success status into errors, in the words of the Go client.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// The longest error text of a server that is repeated.
const MAX_ERROR_TEXT: usize = 2048;

/// Returns `Ok` if a call succeeded, otherwise the error text.
pub(crate) fn check_response(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(), String> {
    if (200..=206).contains(&status.as_u16()) {
        return Ok(());
    }
    // A server that responds with a Kubernetes `Status` is quoted.
    if let Ok(Value::Object(said)) = serde_json::from_slice::<Value>(body)
        && said.get("kind").is_some_and(|kind| kind == "Status")
        && said.get("apiVersion").is_some_and(|version| version == "v1")
        && said.get("status").is_some_and(|status| status != "Success")
    {
        let message = said.get("message").and_then(Value::as_str).unwrap_or_default();
        return Err(message.to_owned());
    }
    Err(status_message(status.as_u16(), &text(headers, body)))
}

/// Returns the body, if it is plain text.
fn text(headers: &HeaderMap, body: &[u8]) -> String {
    let kind = headers.get(CONTENT_TYPE).map_or("text/", |it| it.to_str().unwrap_or_default());
    if !kind.starts_with("text/") {
        return "unknown".to_owned();
    }
    let end = body.len().min(MAX_ERROR_TEXT);
    String::from_utf8_lossy(&body[..end]).trim().to_owned()
}

fn status_message(code: u16, said: &str) -> String {
    let words = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 if said.is_empty() || said == "unknown" => {
            "the server was unable to respond with a content type that the client supports"
        }
        403 | 406 | 415 => said,
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be \
             processing the request"
        }
        500.. => {
            let said = Value::from(said);
            return format!(
                "an error on the server ({said}) has prevented the request from succeeding"
            );
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more \
                 information"
            );
        }
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn error_responses_have_go_client_messages() {
        let json = "application/json";
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}"#;
        let table = [
            (200, json, "", Ok(())),
            (201, json, "", Ok(())),
            (
                302,
                "text/plain",
                "over there",
                Err(
                    "the server responded with the status code 302 but did not return more information",
                ),
            ),
            (404, "text/plain", "x", Err("the server could not find the requested resource")),
            (403, "text/plain", " keep out\n", Err("keep out")),
            (
                500,
                "text/plain",
                "bo\"om\n",
                Err(
                    "an error on the server (\"bo\\\"om\") has prevented the request from succeeding",
                ),
            ),
            (
                500,
                json,
                "{}",
                Err(
                    "an error on the server (\"unknown\") has prevented the request from succeeding",
                ),
            ),
            (500, json, status, Err("no")),
            (503, json, "", Err("the server is currently unable to handle the request")),
        ];
        for (code, kind, body, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            let status = StatusCode::from_u16(code).unwrap();
            let found = check_response(status, &headers, body.as_bytes());
            assert_eq!(found, expected.map_err(str::to_owned), "{code} {body}");
        }
    }
}
