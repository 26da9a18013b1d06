//! Refusals as `Status` objects of the Kubernetes API, which every client understands.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::body::{self, Body};

/// Why a request was refused before it was interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestRejection {
    /// The body is larger than the limit.
    BodyTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The body came too slowly.
    BodyTooSlow,
    /// The connection broke before the body was complete; the client does not see this response.
    BodyBroken,
    /// The path and query are longer than the limit.
    UrlTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// There are as many concurrent requests as allowed.
    TooManyRequests,
    /// The request exceeded its time limit.
    Timeout,
    /// The server is stopping.
    Stopping,
}

impl RequestRejection {
    /// Returns the response for the refusal.
    #[must_use]
    pub fn response(self) -> Response<Body> {
        let (code, reason, message) = self.status_fields();
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        match self {
            // Upstream's time-out error has empty details.
            Self::Timeout => status["details"] = json!({}),
            Self::TooManyRequests | Self::Stopping => {
                status["details"] = json!({"retryAfterSeconds": 1});
            }
            Self::BodyTooLarge { .. }
            | Self::BodyTooSlow
            | Self::BodyBroken
            | Self::UrlTooLong { .. } => {}
        }
        let mut response = Response::new(body::full(format!("{status}\n")));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        match self {
            Self::TooManyRequests | Self::Stopping => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::BodyTooLarge { .. }
            | Self::BodyTooSlow
            | Self::BodyBroken
            | Self::UrlTooLong { .. }
            | Self::Timeout => {}
        }
        response
    }

    /// Returns status code, reason and message. Clients act on the first two.
    fn status_fields(self) -> (StatusCode, &'static str, String) {
        match self {
            Self::BodyTooLarge { limit } => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "RequestEntityTooLarge",
                format!("Request entity too large: limit is {limit}"),
            ),
            Self::BodyTooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                "Timeout",
                "Timeout: the request body did not arrive in time".to_owned(),
            ),
            Self::BodyBroken => {
                (StatusCode::BAD_REQUEST, "BadRequest", "the request body broke off".to_owned())
            }
            Self::UrlTooLong { limit } => (
                StatusCode::URI_TOO_LONG,
                "RequestURITooLong",
                format!("Request URI too long: limit is {limit}"),
            ),
            Self::TooManyRequests => (
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                "the server has received too many requests, please try again later".to_owned(),
            ),
            Self::Timeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "Timeout",
                "Timeout: request did not complete within the allotted timeout".to_owned(),
            ),
            Self::Stopping => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                "the server is currently unable to handle the request".to_owned(),
            ),
        }
    }

    /// Returns the value of the metric label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::BodyTooSlow => "body_too_slow",
            Self::BodyBroken => "body_broken",
            Self::UrlTooLong { .. } => "url_too_long",
            Self::TooManyRequests => "too_many",
            Self::Timeout => "deadline",
            Self::Stopping => "stopping",
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn refusals_are_status_objects() {
        let head = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure""#;
        let table = [
            (
                RequestRejection::BodyTooLarge { limit: 3_145_728 },
                r#""message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413}"#,
                None,
            ),
            (
                RequestRejection::TooManyRequests,
                r#""message":"the server has received too many requests, please try again later","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":1}}"#,
                Some("1"),
            ),
            (
                RequestRejection::Timeout,
                r#""message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","code":504,"details":{}}"#,
                None,
            ),
            (
                RequestRejection::Stopping,
                r#""message":"the server is currently unable to handle the request","reason":"ServiceUnavailable","code":503,"details":{"retryAfterSeconds":1}}"#,
                Some("1"),
            ),
            (
                RequestRejection::UrlTooLong { limit: 16_384 },
                r#""message":"Request URI too long: limit is 16384","reason":"RequestURITooLong","code":414}"#,
                None,
            ),
        ];
        for (refusal, tail, retry) in table {
            let (parts, body) = refusal.response().into_parts();
            let text = body.collect().await.unwrap().to_bytes();
            assert_eq!(text, format!("{head},{tail}\n"), "{refusal:?}");
            let have = parts.headers.get(RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(have, retry, "{refusal:?}");
            assert_eq!(parts.headers[CONTENT_TYPE], "application/json");
        }
    }
}
