//! Validates ConfigMaps and Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gantry_schema::FieldError;
use serde_json::{Map, Value};

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::tree::{at, entries, flag, is_empty, put, remove, same, set_default, text};

/// The limit on all values together: it leaves space for the rest of the object in a store that
/// takes 1.5 MiB.
const MAX_DATA_BYTES: usize = 1 << 20;

pub(crate) const CONFIG_MAP_RULES: Rules = Rules {
    validate: |object| validate_config_map(object).into_vec(),
    validate_update: |new, old| {
        check_immutable(new, old, &["data", "binaryData"], validate_config_map(new))
    },
    ..Rules::NONE
};

pub(crate) const SECRET_RULES: Rules = Rules {
    default: default_secret,
    validate: |object| validate_secret(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = FieldErrors::new();
        faults.immutable(new, old, &Path::new(""), "type");
        let mut all = faults.into_vec();
        all.extend(check_immutable(new, old, &["data"], FieldErrors::new()));
        all.extend(validate_secret(new).into_vec());
        all
    },
    ..Rules::NONE
};

/// Checks that an object marked immutable does not change, and stays marked.
fn check_immutable(new: &Value, old: &Value, fields: &[&str], own: FieldErrors) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    if flag(old, "immutable") {
        let detail = "field is immutable when `immutable` is set";
        if !flag(new, "immutable") {
            faults.forbidden(Path::new("immutable"), detail);
        }
        for field in fields.iter().filter(|field| !same(new, old, field)) {
            faults.forbidden(Path::new(field), detail);
        }
    }
    let mut all = faults.into_vec();
    all.extend(own.into_vec());
    all
}

/// Returns the decoded length of a base64 text.
fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

fn validate_config_map(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let mut size = 0;
    for (key, value) in entries(object, "data") {
        let path = Path::new("data").key(key);
        faults.invalid_text(&path, key, names::config_key(key));
        if at(object, "binaryData").get(key).is_some() {
            faults.value(path, key.as_str(), "duplicate of key present in binaryData");
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(object, "binaryData") {
        faults.invalid_text(&Path::new("binaryData").key(key), key, names::config_key(key));
        size += value.as_str().map_or(0, decoded_len);
    }
    if size > MAX_DATA_BYTES {
        // kube-apiserver reports no field name for the object as a whole.
        faults.add(FieldError::too_long("[]", MAX_DATA_BYTES));
    }
    faults
}

/// Moves `stringData` to `data`; `stringData` is write-only.
fn default_secret(object: &mut Value) {
    if let Some(Value::Object(texts)) = remove(object, "stringData")
        && !texts.is_empty()
    {
        let mut data: Map<String, Value> =
            at(object, "data").as_object().cloned().unwrap_or_default();
        for (key, value) in texts {
            data.insert(key, Value::from(STANDARD.encode(value.as_str().unwrap_or_default())));
        }
        put(object, "data", Value::Object(data));
    }
    set_default(object, "type", "Opaque");
}

/// Keys that a type of Secret must have. If the flag is set, one of them is enough.
const REQUIRED_KEYS_BY_TYPE: [(&str, &[&str], bool); 3] = [
    ("kubernetes.io/basic-auth", &["username", "password"], true),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"], false),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"], false),
];

fn validate_secret(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let path = Path::new("data");
    let mut size = 0;
    for (key, value) in entries(object, "data") {
        faults.invalid_text(&path.key(key), key, names::config_key(key));
        size += value.as_str().map_or(0, decoded_len);
    }
    if size > MAX_DATA_BYTES {
        faults.add(FieldError::too_long(path.clone(), MAX_DATA_BYTES));
    }
    let has = |key: &str| at(object, "data").get(key).is_some();
    let kind = text(object, "type");
    for (name, keys, one_is_enough) in REQUIRED_KEYS_BY_TYPE {
        if name == kind && !(one_is_enough && keys.iter().any(|key| has(key))) {
            for key in keys.iter().filter(|key| !has(key)) {
                faults.required(path.key(key), "");
            }
        }
    }
    match kind {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let annotations = at(object, "metadata.annotations");
            if annotations.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
                faults.required(Path::new("metadata.annotations").key(key), "");
            }
        }
        "kubernetes.io/dockerconfigjson" => check_json(object, ".dockerconfigjson", &mut faults),
        "kubernetes.io/dockercfg" => check_json(object, ".dockercfg", &mut faults),
        _ => {}
    }
    faults
}

fn check_json(object: &Value, key: &str, faults: &mut FieldErrors) {
    let path = Path::new("data").key(key);
    let data = at(object, "data");
    let Some(text) = data.get(key).and_then(Value::as_str).filter(|_| !is_empty(object, "data"))
    else {
        faults.required(path, "");
        return;
    };
    let bytes = STANDARD.decode(text).unwrap_or_default();
    if serde_json::from_slice::<Map<String, Value>>(&bytes).is_err() {
        let detail = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(byte) if *byte != b'{' => {
                let letter = char::from(*byte);
                format!("invalid character '{letter}' looking for beginning of value")
            }
            Some(_) | None => "unexpected end of JSON input".to_owned(),
        };
        faults.value(path, "<secret contents redacted>", &detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        /// Whatever text a secret brings, its data stands for exactly that text.
        #[test]
        fn text_survives_as_data(text in ".{0,40}") {
            let mut secret = json!({ "stringData": { "k": text } });
            default_secret(&mut secret);
            let data = secret["data"]["k"].as_str().unwrap();
            prop_assert_eq!(STANDARD.decode(data).unwrap(), text.as_bytes());
            prop_assert_eq!(decoded_len(data), text.len());
        }
    }

    #[test]
    fn total_data_size_is_limited() {
        let half = "x".repeat(MAX_DATA_BYTES / 2);
        let object = json!({ "data": { "a": half, "b": half } });
        assert_eq!(validate_config_map(&object).into_vec(), []);
        let object = json!({ "data": { "a": half, "b": half, "c": "x" } });
        let said = "[]: Too long: may not be more than 1048576 bytes";
        assert_eq!(validate_config_map(&object).into_vec()[0].to_string(), said);
    }
}
