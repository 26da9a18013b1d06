//! Keeps values of Secrets out of what is gathered.
//!
//! Objects and logs may hold copies of Secrets: annotations with the manifest that was applied,
//! environment variables, arguments, log lines. Fields that are known to hold copies are dropped,
//! and the values of all Secrets that could be read are searched for in everything else.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Annotations with a copy of the manifest.
const COPIES: [&str; 1] = ["kubectl.kubernetes.io/last-applied-configuration"];
/// What stands in place of the value of an environment variable.
const OMITTED: &str = "<not gathered>";
/// Shorter texts are not searched for: they occur everywhere.
const MIN_SEARCHED_BYTES: usize = 4;
/// Shorter texts are searched for as words only.
const MIN_PART_BYTES: usize = 8;
/// Shorter lines of longer values are not searched for alone.
const MIN_LINE_BYTES: usize = 16;
/// Keys of Secrets that are no secret: service account tokens hold the name of their namespace.
const PUBLIC_KEYS: [&str; 1] = ["namespace"];
/// The type of Secrets with [`PUBLIC_KEYS`].
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

/// The values that must not be gathered.
#[derive(Default)]
pub(super) struct Redaction {
    /// Text to look for, and which Secret and key it is from.
    values: BTreeMap<String, String>,
}

impl std::fmt::Debug for Redaction {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Redaction({} values)", self.values.len())
    }
}

impl Redaction {
    /// Adds the values of a Secret, and returns what may be gathered of it: its name, its type and
    /// the names of its keys.
    pub(super) fn add_secret(&mut self, secret: &Value) -> Value {
        let text = |pointer: &str| secret.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let mut keys = Vec::new();
        for (key, value) in secret["data"].as_object().into_iter().flatten() {
            keys.push(key.as_str());
            let is_public = text("/type") == TOKEN_TYPE && PUBLIC_KEYS.contains(&key.as_str());
            if is_public {
                continue;
            }
            let label = format!("<Secret {namespace}/{name} {key}>");
            let encoded = value.as_str().unwrap_or("");
            self.add(encoded, &label);
            let Ok(bytes) = STANDARD.decode(encoded) else { continue };
            let Ok(text) = String::from_utf8(bytes) else { continue };
            self.add_value(&text, &label);
        }
        serde_json::json!({"name": name, "type": text("/type"), "keys": keys})
    }

    /// Adds a value, its lines, and the credentials in it.
    fn add_value(&mut self, value: &str, label: &str) {
        self.add(value, label);
        for line in value.lines().filter(|line| line.trim().len() >= MIN_LINE_BYTES) {
            self.add(line, label);
        }
        if let Ok(document) = serde_json::from_str::<Value>(value) {
            self.add_credentials(&document, label);
        }
    }

    /// Adds the credentials in a file of registry credentials, or another document.
    fn add_credentials(&mut self, document: &Value, label: &str) {
        match document {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), value) {
                        ("auth", Value::String(text)) => {
                            self.add(text, label);
                            let decoded = STANDARD.decode(text).ok().map(String::from_utf8);
                            let Some(Ok(pair)) = decoded else { continue };
                            self.add(&pair, label);
                            self.add(pair.split_once(':').map_or("", |(_, word)| word), label);
                        }
                        ("password" | "identitytoken" | "registrytoken", Value::String(text)) => {
                            self.add(text, label);
                        }
                        _ => self.add_credentials(value, label),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|it| self.add_credentials(it, label)),
            _ => {}
        }
    }

    /// Adds a text, and how it is written inside of a JSON text.
    fn add(&mut self, text: &str, label: &str) {
        let text = text.trim();
        if text.len() < MIN_SEARCHED_BYTES {
            return;
        }
        let quoted = Value::from(text).to_string();
        for form in [text, &quoted[1..quoted.len() - 1]] {
            self.values.entry(form.to_owned()).or_insert_with(|| label.to_owned());
        }
    }

    /// The text without the values.
    pub(super) fn clean_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        // Longer ones first: a value may hold another one.
        let mut values: Vec<_> = self.values.iter().filter(|(it, _)| text.contains(*it)).collect();
        values.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        for (value, label) in values {
            let cleaned = match value.len() < MIN_PART_BYTES {
                true => replace_words(&text, value, label),
                false => text.replace(value, label),
            };
            text = Cow::Owned(cleaned);
        }
        text
    }

    /// Removes copies and values from an object.
    pub(super) fn clean_object(&self, object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        drop_copies(object);
        self.clean(object);
    }

    fn clean(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(cleaned) = self.clean_text(text) {
                    *text = cleaned;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|it| self.clean(it)),
            Value::Object(fields) => {
                let old = std::mem::take(fields);
                for (name, mut value) in old {
                    self.clean(&mut value);
                    fields.insert(self.clean_text(&name).into_owned(), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Removes annotations with copies of manifests, and the values of environment variables, at any
/// depth: templates have both as well.
fn drop_copies(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_copies),
        Value::Object(fields) => {
            if let Some(annotations) = fields.get_mut("annotations").and_then(Value::as_object_mut)
            {
                COPIES.iter().for_each(|it| drop(annotations.remove(*it)));
            }
            for variable in
                fields.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten()
            {
                if variable["value"].as_str().is_some_and(|it| !it.is_empty()) {
                    variable["value"] = OMITTED.into();
                }
            }
            fields.values_mut().for_each(drop_copies);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces a text where it stands as a word.
fn replace_words(text: &str, word: &str, with: &str) -> String {
    let is_part = |it: char| it.is_alphanumeric();
    let (mut result, mut rest, mut before) = (String::new(), text, None);
    while let Some(at) = rest.find(word) {
        let (left, right) = (&rest[..at], &rest[at + word.len()..]);
        let is_joined = left.chars().next_back().or(before).is_some_and(is_part)
            || right.chars().next().is_some_and(is_part);
        result.push_str(left);
        result.push_str(if is_joined { word } else { with });
        before = word.chars().next_back();
        rest = right;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(kind: &str, data: &[(&str, &[u8])]) -> Value {
        let data: serde_json::Map<String, Value> = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into()))
            .collect();
        json!({"metadata": {"name": "s", "namespace": "n",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "type": kind, "data": data})
    }

    #[test]
    fn kms_91_a_secret_is_its_name_type_and_keys() {
        let mut redaction = Redaction::default();
        let kept = redaction.add_secret(&secret("Opaque", &[("pin", b"p1n"), ("key", b"k\0\xff")]));
        assert_eq!(kept, json!({"name": "s", "type": "Opaque", "keys": ["pin", "key"]}));
        assert!(!format!("{redaction:?}").contains("p1n"));
    }

    #[test]
    fn kms_91_values_are_found_in_every_form() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nshort\n-----END KEY-----\n";
        let auth = STANDARD.encode("bob:hunter22");
        let docker = json!({"auths": {"quay.io": {"username": "bob", "password": "hunter22",
            "auth": auth, "identitytoken": "idtok-123"}}});
        let docker = docker.to_string();
        let mut redaction = Redaction::default();
        let data: [(&str, &[u8]); 4] = [
            ("key", key.as_bytes()),
            (".dockerconfigjson", docker.as_bytes()),
            ("word", b"cat's"),
            ("quoted", b"a\"b\\c\"d"),
        ];
        redaction.add_secret(&secret("Opaque", &data));
        let encoded = STANDARD.encode(key);
        for text in [
            key,
            "log: MIIEvQIBADANBgkqhkiG was read",
            &encoded,
            &docker,
            &auth,
            "login with hunter22 failed",
            "token=idtok-123;",
            "the cat's",
            "bob:hunter22",
            "{\"text\":\"a\\\"b\\\\c\\\"d\"}",
        ] {
            let cleaned = redaction.clean_text(text);
            assert!(cleaned.contains("<Secret n/s "), "{text} is kept: {cleaned}");
            let values =
                ["MIIEvQ", "hunter22", "idtok", &auth, &encoded[..20], "cat's", "a\"b", "a\\\"b"];
            for value in values {
                assert!(!cleaned.contains(value), "{value} is in {cleaned}");
            }
        }
        assert_eq!(redaction.clean_text("cat'sup and concat's"), "cat'sup and concat's");
        assert_eq!(redaction.clean_text("nothing"), "nothing");
    }

    #[test]
    fn kms_91_odd_documents_are_cleaned_as_well() {
        let mut redaction = Redaction::default();
        redaction.add_secret(&secret("Opaque", &[("k", b"topsecret")]));
        for odd in [json!([]), json!("topsecret"), json!(null), json!({"metadata": "topsecret"})] {
            let mut cleaned = odd;
            redaction.clean_object(&mut cleaned);
            assert!(!cleaned.to_string().contains("topsecret"), "{cleaned}");
        }
        let nothing = redaction.add_secret(&json!({"data": {"a": 1}, "metadata": []}));
        assert_eq!(nothing, json!({"name": "", "type": "", "keys": ["a"]}));
    }

    #[test]
    fn kms_91_the_namespace_of_a_token_is_no_secret() {
        let mut redaction = Redaction::default();
        let data: [(&str, &[u8]); 2] = [("namespace", b"drivers"), ("token", b"eyJhbGciOi")];
        redaction.add_secret(&secret(TOKEN_TYPE, &data));
        assert_eq!(redaction.clean_text("drivers"), "drivers");
        assert_eq!(redaction.clean_text("eyJhbGciOi"), "<Secret n/s token>");
    }

    #[test]
    fn kms_91_objects_lose_copies_of_manifests_and_environment() {
        let mut redaction = Redaction::default();
        redaction.add_secret(&secret("Opaque", &[("k", b"topsecret")]));
        let applied = json!({"kubectl.kubernetes.io/last-applied-configuration": "topsecret",
            "topsecret": "x", "kept": "y"});
        let variables = json!([{"name": "A", "value": "anything"}, {"name": "B", "value": ""},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        let mut object = json!({
            "metadata": {"managedFields": [], "annotations": applied},
            "spec": {"template": {"metadata": {"annotations": applied},
                "spec": {"containers": [{"env": variables, "args": ["--pw=topsecret", 1, true]}]}}},
        });
        redaction.clean_object(&mut object);
        let left = json!({"<Secret n/s k>": "x", "kept": "y"});
        let expected = json!({
            "metadata": {"annotations": left},
            "spec": {"template": {"metadata": {"annotations": left},
                "spec": {"containers": [{"env": [{"name": "A", "value": OMITTED},
                    {"name": "B", "value": ""}, variables[2]],
                    "args": ["--pw=<Secret n/s k>", 1, true]}]}}},
        });
        assert_eq!(object, expected);
    }
}
