//! The answers of webhooks, read as the Go client reads them.

use serde_json::Value;

/// The document of an answer. It must be of `kind` in version `wanted`, and may not be in another
/// of those Go `knows`; one that does not say what it is passes, for whoever reads on to find that
/// out.
pub(crate) fn read(
    bytes: &[u8],
    kind: &str,
    wanted: &str,
    knows: &[&str],
) -> Result<Value, String> {
    let words = "couldn't get version/kind; json parse error:";
    let found = |what: &str| {
        Err(format!("{words} json: cannot unmarshal {what} into Go value of type {HEAD}"))
    };
    let document = match gantry_schema::read_json(bytes) {
        Ok((document, _)) => document,
        // Text that is no JSON may still be YAML, and then it is a string.
        Err(_) if bytes.first().is_some_and(begins_a_word) => return found("string"),
        Err(fault) => return Err(format!("{words} {fault}")),
    };
    match &document {
        Value::Object(_) | Value::Null => {}
        Value::Array(_) => return found("array"),
        Value::String(_) => return found("string"),
        Value::Number(_) => return found("number"),
        Value::Bool(_) => return found("bool"),
    }
    let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
    let (said, version) = (text("kind"), text("apiVersion"));
    if (said.is_empty() || said == kind) && (version.is_empty() || version == wanted) {
        return Ok(document);
    }
    let status = said == "Status" && version == "v1";
    if status || (said == kind && knows.contains(&version.as_str())) {
        let short = |version: &str| version.rsplit('/').next().unwrap_or_default().to_owned();
        let (from, to) = (short(&version), short(wanted));
        return Err(format!("converting ({from}.{said}) to ({to}.{kind}): unknown conversion"));
    }
    let (said, version) = (Value::from(said), Value::from(version));
    Err(format!("no kind {said} is registered for version {version} in scheme \"{SCHEME}\""))
}

/// Whether text that begins like this is no attempt at JSON.
fn begins_a_word(byte: &u8) -> bool {
    byte.is_ascii_alphabetic() || *byte == b'<'
}

/// What Go tries to read first.
const HEAD: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                    \"json:\\\"kind,omitempty\\\"\" }";
/// Where Go keeps the kinds that webhooks may answer with.
const SCHEME: &str = "pkg/runtime/scheme.go:110";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_kind_is_told_as_clients_know_it() {
        let table = [
            (r#"{"kind":"R","apiVersion":"g/v1"}"#, None),
            ("{}", None),
            ("null", None),
            (r#"{"kind":"R"}"#, None),
            (
                r#"{"kind":"R","apiVersion":"g/v2"}"#,
                Some("converting (v2.R) to (v1.R): unknown conversion"),
            ),
            (
                "{\"a\":",
                Some("couldn't get version/kind; json parse error: unexpected end of JSON input"),
            ),
            (
                r#"{"kind":"S","apiVersion":"g/v1"}"#,
                Some(
                    "no kind \"S\" is registered for version \"g/v1\" in scheme \"pkg/runtime/scheme.go:110\"",
                ),
            ),
            (
                r#"{"kind":"Status","apiVersion":"v1"}"#,
                Some("converting (v1.Status) to (v1.R): unknown conversion"),
            ),
        ];
        for (text, expected) in table {
            let found = read(text.as_bytes(), "R", "g/v1", &["g/v1", "g/v2"]).err();
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        for (text, what) in
            [("hello", "string"), ("[]", "array"), ("1", "number"), ("<a>", "string")]
        {
            let found = read(text.as_bytes(), "R", "g/v1", &["g/v1"]).unwrap_err();
            assert!(found.contains(&format!("cannot unmarshal {what} into Go value")), "{found}");
        }
    }
}
