//! Which failures may pass, and when to try again.

use std::time::Duration;

use gantry_http_client::{ClientError, Phase};
use http::StatusCode;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// The longest wait that a registry can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads the header `Retry-After`: seconds, or a date. A date that has passed is no wait.
#[must_use]
pub fn parse_retry_after(header: &str, now: Timestamp) -> Option<Duration> {
    let header = header.trim();
    if !header.is_empty() && header.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = header.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
    }
    if header.len() > 64 {
        return None;
    }
    let date = DateTimeParser::new().parse_timestamp(header).ok()?;
    let wait = Duration::try_from(date.duration_since(now)).unwrap_or_default();
    Some(wait.min(MAX_RETRY_AFTER))
}

/// Whether a response with this status may be different next time.
pub(super) fn status_may_pass(status: StatusCode) -> bool {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => true,
        // These say what the server is not able to do at all.
        StatusCode::NOT_IMPLEMENTED
        | StatusCode::HTTP_VERSION_NOT_SUPPORTED
        | StatusCode::INSUFFICIENT_STORAGE => false,
        status => status.is_server_error(),
    }
}

/// Whether a request that failed so may succeed next time.
pub(super) fn error_may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Resolve { .. }
        | ClientError::Connect { .. }
        | ClientError::ConnectionLost(_) => true,
        ClientError::Timeout { phase, .. } => match phase {
            Phase::Connect | Phase::Handshake | Phase::Idle => true,
            // The time of the whole operation is over.
            Phase::Total => false,
        },
        ClientError::InvalidUrl { .. }
        | ClientError::AddressRefused { .. }
        | ClientError::Handshake { .. }
        | ClientError::TooLarge { .. }
        | ClientError::TooManyRedirects(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-11-18T10:00:00Z".parse().unwrap();
        let second = Duration::from_secs;
        let table = [
            ("0", Some(second(0))),
            (" 120 ", Some(second(120))),
            ("99999999999999999999999", Some(MAX_RETRY_AFTER)),
            ("Wed, 18 Nov 2026 10:00:30 GMT", Some(second(30))),
            ("Wed, 18 Nov 2026 09:00:00 GMT", Some(second(0))),
            ("Wed, 18 Nov 2099 09:00:00 GMT", Some(MAX_RETRY_AFTER)),
            ("-5", None),
            ("", None),
            ("soon", None),
        ];
        for (header, expected) in table {
            assert_eq!(parse_retry_after(header, now), expected, "{header:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,70}") {
            let _ = parse_retry_after(&text, Timestamp::UNIX_EPOCH);
        }
    }
}
