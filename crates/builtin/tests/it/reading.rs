//! Compares typed reading with Kubernetes' decoder and encoder.

use gantry_builtin::{kind_type, read};
use serde::Deserialize;
use serde_json::Value;

use crate::golden;

#[derive(Deserialize)]
struct Outcome {
    kind: String,
    text: String,
    json: Option<Value>,
    error: Option<String>,
    strict: Option<String>,
}

/// Checks dropped fields, rejected values, and the messages.
#[test]
fn texts_are_read_as_kubernetes_reads_them() {
    let outcomes: Vec<Outcome> = golden(include_bytes!("golden/read.json.gz"));
    assert!(outcomes.len() > 60);
    for outcome in outcomes {
        let words: Vec<&str> = outcome.kind.split('/').collect();
        let (group, version, kind) = match words[..] {
            [version, kind] => ("", version, kind),
            [group, version, kind] => (group, version, kind),
            _ => unreachable!("a kind has two or three words"),
        };
        let id = kind_type(group, version, kind).unwrap();
        let read = read(id, serde_json::from_str(&outcome.text).unwrap());
        if let Some(error) = outcome.error {
            assert_eq!(read.map_err(|fault| fault.to_string()), Err(error), "{}", outcome.text);
            continue;
        }
        let read = read.unwrap();
        let expected = outcome.json.unwrap();
        assert_eq!(read.value.to_string(), expected.to_string(), "{}", outcome.text);
        let unknown: Vec<String> =
            read.unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        let strict = if unknown.is_empty() {
            None
        } else {
            Some(format!("strict decoding error: {}", unknown.join(", ")))
        };
        assert_eq!(strict, outcome.strict, "{}", outcome.text);
    }
}
