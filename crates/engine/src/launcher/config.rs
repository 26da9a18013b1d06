//! The settings of an instance, as requests have them. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The most words of a command line.
const MAX_WORDS: usize = 1024;
/// The port of an engine that names none.
const DEFAULT_PORT: u16 = 8000;

/// The settings of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InstanceConfig {
    pub(super) options: String,
    /// Options that may contain spaces, after the others.
    pub(super) options_list: Option<Vec<String>>,
    pub(super) gpu_uuids: Option<Vec<String>>,
    pub(super) env_vars: Option<BTreeMap<String, String>>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

impl InstanceConfig {
    /// Reads the body of a request. The error is the list of what is wrong with it.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Value> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            let context = json!({"error": error.to_string()});
            json!([{"type": "json_invalid", "loc": ["body", 0], "msg": "JSON decode error",
                    "input": {}, "ctx": context}])
        })?;
        let Value::Object(fields) = &value else {
            return Err(json!([problem(
                "model_attributes_type",
                &["body"],
                "Input should be a valid dictionary or object to extract fields from",
                &value,
            )]));
        };
        let mut problems = Vec::new();
        let options = match fields.get("options") {
            Some(Value::String(options)) => options.clone(),
            Some(other) => {
                problems.push(not_text(&["body", "options"], other));
                String::new()
            }
            None => {
                let at = ["body", "options"];
                problems.push(problem("missing", &at, "Field required", &value));
                String::new()
            }
        };
        let config = Self {
            options,
            options_list: list(fields, "options_list", &mut problems),
            gpu_uuids: list(fields, "gpu_uuids", &mut problems),
            env_vars: map(fields, "env_vars", &mut problems),
            annotations: map(fields, "annotations", &mut problems),
        };
        if config.words().len() > MAX_WORDS {
            let message = format!("at most {MAX_WORDS} words are allowed");
            problems.push(problem("too_long", &["body", "options"], &message, &Value::Null));
        }
        if problems.is_empty() { Ok(config) } else { Err(Value::Array(problems)) }
    }

    /// Returns the words of the command line: options are split at white space, without quoting.
    pub(super) fn words(&self) -> Vec<String> {
        let split = self.options.split_whitespace().map(str::to_owned);
        split.chain(self.options_list.iter().flatten().cloned()).collect()
    }

    /// Returns the port that the engine will listen on; the last one that is named.
    pub(super) fn port(&self) -> u16 {
        let words = self.words();
        let mut port = None;
        for (at, word) in words.iter().enumerate() {
            let value = match word.split_once('=') {
                Some(("--port", value)) => Some(value),
                None if word == "--port" => words.get(at + 1).map(String::as_str),
                Some(_) | None => None,
            };
            port = value.and_then(|it| it.parse().ok()).or(port);
        }
        port.unwrap_or(DEFAULT_PORT)
    }

    /// Returns the same settings with the places of the accelerators in the environment.
    pub(super) fn with_places(mut self, places: Option<&str>) -> Self {
        if let Some(places) = places {
            let variables = self.env_vars.get_or_insert_default();
            variables.insert("CUDA_VISIBLE_DEVICES".to_owned(), places.to_owned());
        }
        self
    }

    /// Adds the settings to the state of an instance.
    pub(super) fn describe(&self, state: &mut Map<String, Value>) {
        state.insert("options".to_owned(), json!(self.options));
        let optional = [
            ("options_list", self.options_list.as_ref().map(|it| json!(it))),
            ("gpu_uuids", self.gpu_uuids.as_ref().map(|it| json!(it))),
            ("env_vars", self.env_vars.as_ref().map(|it| json!(it))),
            ("annotations", self.annotations.as_ref().map(|it| json!(it))),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                state.insert(name.to_owned(), value);
            }
        }
    }
}

fn problem(kind: &str, at: &[&str], message: &str, input: &Value) -> Value {
    json!({"type": kind, "loc": at, "msg": message, "input": input})
}

fn not_text(at: &[&str], input: &Value) -> Value {
    problem("string_type", at, "Input should be a valid string", input)
}

fn list(fields: &Map<String, Value>, name: &str, problems: &mut Vec<Value>) -> Option<Vec<String>> {
    match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::Array(items)) => {
            let text = |(at, item): (usize, &Value)| match item.as_str() {
                Some(text) => text.to_owned(),
                None => {
                    problems.push(not_text(&["body", name, &at.to_string()], item));
                    String::new()
                }
            };
            Some(items.iter().enumerate().map(text).collect())
        }
        Some(other) => {
            let message = "Input should be a valid list";
            problems.push(problem("list_type", &["body", name], message, other));
            None
        }
    }
}

fn map(
    fields: &Map<String, Value>,
    name: &str,
    problems: &mut Vec<Value>,
) -> Option<BTreeMap<String, String>> {
    match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::Object(items)) => {
            let text = |(key, item): (&String, &Value)| {
                let is_variable = !key.is_empty() && !key.contains(['=', '\0']);
                match item.as_str().filter(|it| !it.contains('\0') && is_variable) {
                    Some(text) => (key.clone(), text.to_owned()),
                    None => {
                        problems.push(not_text(&["body", name, key], item));
                        (key.clone(), String::new())
                    }
                }
            };
            Some(items.iter().map(text).collect())
        }
        Some(other) => {
            let message = "Input should be a valid dictionary";
            problems.push(problem("dict_type", &["body", name], message, other));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_and_their_problems_are_listed() {
        let table = [
            (r#"{"options": "--port 1"}"#, None),
            (
                r#"{"options": "", "gpu_uuids": null, "env_vars": {}, "annotations": {"a": "b"}}"#,
                None,
            ),
            (r#"{"options": "", "more": 1}"#, None),
            ("{}", Some(r#""type":"missing","loc":["body","options"],"msg":"Field required""#)),
            (r#"{"options": 1}"#, Some(r#""string_type","loc":["body","options"]"#)),
            (
                r#"{"options": "", "gpu_uuids": "a"}"#,
                Some(r#""list_type","loc":["body","gpu_uuids"]"#),
            ),
            (r#"{"options": "", "gpu_uuids": [1]}"#, Some(r#"["body","gpu_uuids","0"]"#)),
            (r#"{"options": "", "env_vars": {"A": 1}}"#, Some(r#"["body","env_vars","A"]"#)),
            (r#"{"options": "", "env_vars": {"A=": "1"}}"#, Some(r#"["body","env_vars","A="]"#)),
            (r#"{"options": "", "annotations": []}"#, Some(r#""dict_type""#)),
            ("[]", Some(r#""model_attributes_type""#)),
            ("nonsense", Some(r#""json_invalid""#)),
        ];
        for (body, expected) in table {
            match (InstanceConfig::parse(body.as_bytes()), expected) {
                (Ok(_), None) => {}
                (Err(problems), Some(text)) => {
                    assert!(problems.to_string().contains(text), "{body}: {problems}");
                }
                (result, _) => panic!("{body}: {result:?}"),
            }
        }
    }

    #[test]
    fn words_are_split_without_quoting() {
        let config = InstanceConfig {
            options: "--a 'b c'\n  --port=1 --port 2".to_owned(),
            options_list: Some(vec!["--d e".to_owned()]),
            ..InstanceConfig::default()
        };
        assert_eq!(config.words(), ["--a", "'b", "c'", "--port=1", "--port", "2", "--d e"]);
        assert_eq!(config.port(), 2);
        assert_eq!(InstanceConfig::default().port(), DEFAULT_PORT);
    }

    #[test]
    fn as_61_places_replace_what_a_user_wrote_and_nothing_else() {
        let variables = |text: &[(&str, &str)]| -> BTreeMap<String, String> {
            text.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let config = InstanceConfig {
            env_vars: Some(variables(&[("A", "1"), ("CUDA_VISIBLE_DEVICES", "7")])),
            ..InstanceConfig::default()
        };
        let with = config.clone().with_places(Some("0,2")).env_vars;
        assert_eq!(with, Some(variables(&[("A", "1"), ("CUDA_VISIBLE_DEVICES", "0,2")])));
        assert_eq!(config.clone().with_places(None), config);
    }
}
