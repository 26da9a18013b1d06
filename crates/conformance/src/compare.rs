//! Two transcripts of one case, side by side.

use std::fmt;

use serde_json::Value;
use similar::TextDiff;

use crate::normalise::{NormalisedExchange, normalise};
use crate::transcript::Transcript;

/// A place where two servers parted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name of the case.
    pub case: String,
    /// The number of the exchange, counted from one.
    pub exchange: usize,
    /// Method, path and query of the first transcript's request.
    pub request: String,
    /// A unified diff of the two answers.
    pub diff: String,
}

/// Every exchange in which the two differ, in order.
///
/// Accidents are gone before the comparison, see [`normalise`]. An exchange that only one of them
/// has is a difference as well, and so is another request at the same place.
#[must_use]
pub fn compare(real: &Transcript, other: &Transcript) -> Vec<Difference> {
    let (left, right) = (normalise(real), normalise(other));
    let mut differences = Vec::new();
    for index in 0..left.len().max(right.len()) {
        let (left, right) = (left.get(index), right.get(index));
        if left != right {
            differences.push(Difference {
                case: real.case.clone(),
                exchange: index + 1,
                request: left.or(right).map(|it| it.request.clone()).unwrap_or_default(),
                diff: diff(left, right),
            });
        }
    }
    differences
}

/// A unified diff of two exchanges.
fn diff(left: Option<&NormalisedExchange>, right: Option<&NormalisedExchange>) -> String {
    let (left, right) = (exchange_lines(left), exchange_lines(right));
    let diff = TextDiff::from_lines(&left, &right);
    diff.unified_diff().context_radius(3).header("real", "other").to_string()
}

/// One exchange as lines.
fn exchange_lines(exchange: Option<&NormalisedExchange>) -> String {
    let Some(NormalisedExchange { request, response: answer }) = exchange else {
        return "(no such exchange)\n".to_owned();
    };
    format!("{request}\n{}\n", pretty(answer))
}

/// JSON with one value per line.
fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, exchange, request, diff } = self;
        write!(f, "{case} #{exchange}: {request}\n{diff}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::response::{Body, Response};
    use crate::transcript::{Caller, Exchange, RecordedRequest};

    /// A transcript of GETs with these bodies.
    fn transcript(place: &str, bodies: &[Value]) -> Transcript {
        let mut transcript = Transcript::new("a-case", place, "127.0.0.1:1");
        for body in bodies {
            let path = format!("/api/v1/namespaces/{place}/configmaps/a");
            let request = RecordedRequest {
                caller: Caller::Admin,
                method: "GET".into(),
                path,
                headers: Vec::new(),
                body: None,
            };
            let answer = Response {
                request_line: String::new(),
                status: 200,
                headers: BTreeMap::from([("date".into(), vec![place.into()])]),
                body: Body::Json(body.clone()),
            };
            transcript.exchanges.push(Exchange { request, response: answer });
        }
        transcript
    }

    fn object(revision: &str, data: &str) -> Value {
        json!({ "metadata": { "resourceVersion": revision }, "data": { "a": data } })
    }

    #[test]
    fn volatile_values_are_ignored() {
        let left = transcript("one", &[object("5", "x"), object("5", "x"), object("9", "y")]);
        let right = transcript("two", &[object("71", "x"), object("71", "x"), object("72", "y")]);
        assert_eq!(compare(&left, &right), []);
    }

    #[test]
    fn visible_changes_are_differences() {
        let real = transcript("one", &[object("5", "x"), object("5", "y")]);
        let table = [
            ("another value", vec![object("5", "x"), object("5", "z")], 2),
            ("a revision that should be the same", vec![object("5", "x"), object("6", "y")], 2),
            ("a missing exchange", vec![object("5", "x")], 2),
            ("another exchange", vec![object("5", "x"), object("5", "y"), object("5", "y")], 3),
        ];
        for (why, bodies, exchange) in table {
            let found = compare(&real, &transcript("two", &bodies));
            let places: Vec<usize> = found.iter().map(|it| it.exchange).collect();
            assert_eq!(places, [exchange], "{why}: {found:?}");
        }
        let mut other = transcript("two", &[object("5", "x"), object("5", "y")]);
        other.exchanges[0].response.status = 201;
        assert_eq!(compare(&real, &other).len(), 1, "another status");
        other.exchanges[1].request.path.push_str("?pretty=1");
        assert_eq!(compare(&real, &other).len(), 2, "another request");
    }

    #[test]
    fn a_difference_can_be_read() {
        let real = transcript("one", &[object("5", "x")]);
        let found = compare(&real, &transcript("two", &[object("5", "y")]));
        let printed = found[0].to_string();
        let start = "a-case #1: GET /api/v1/namespaces/{place}/configmaps/a\n--- real\n+++ other\n";
        assert!(printed.starts_with(start), "{printed}");
        assert!(printed.contains("-      \"a\": \"x\"\n+      \"a\": \"y\"\n"), "{printed}");
    }
}
