//! Decodes the responses of webhooks as the Go client does.

use serde_json::Value;

/// Decodes the document of a response. It must be of `kind` in version `wanted`, and may not be in
/// another version that Go `knows`; one without a kind is accepted here and left to the caller.
pub(crate) fn read_review(
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
        // Text that is not JSON may still be YAML, and then it is a string.
        Err(_) if bytes.first().is_some_and(starts_like_text) => return found("string"),
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
    Err(format!("no kind {said} is registered for version {version} in scheme \"{SCHEME_SOURCE}\""))
}

/// Whether text that begins like this is not an attempt at JSON.
fn starts_like_text(byte: &u8) -> bool {
    byte.is_ascii_alphabetic() || *byte == b'<'
}

/// The type that Go decodes first.
const HEAD: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                    \"json:\\\"kind,omitempty\\\"\" }";
/// The source position of Go's scheme, which its errors contain.
const SCHEME_SOURCE: &str = "pkg/runtime/scheme.go:110";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_of_another_kind_have_go_error_messages() {
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
            let found = read_review(text.as_bytes(), "R", "g/v1", &["g/v1", "g/v2"]).err();
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        for (text, what) in
            [("hello", "string"), ("[]", "array"), ("1", "number"), ("<a>", "string")]
        {
            let found = read_review(text.as_bytes(), "R", "g/v1", &["g/v1"]).unwrap_err();
            assert!(found.contains(&format!("cannot unmarshal {what} into Go value")), "{found}");
        }
    }
}
