//! Routing metadata: labels and annotations that a launcher has while its instance serves.

use std::collections::BTreeMap;

use gantry_api::meta::{label_key_problem, label_value_problem};
use gantry_api::models::ModelServer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::labels::RESERVED_PREFIXES;
use crate::view::ActuationPod;

/// The labels and annotations of a launcher whose instance serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoutingMetadata {
    /// The labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl RoutingMetadata {
    /// The routing metadata of a config.
    #[must_use]
    pub fn of(server: &ModelServer) -> Self {
        Self { labels: server.labels.clone(), annotations: server.annotations.clone() }
    }

    /// What is wrong with it for this pod: keys that are no keys, reserved, or in use with another
    /// value, and values that are no label values. A key with the same value was written before.
    #[must_use]
    pub fn problems(
        &self,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, value) in &self.labels {
            if let Some(problem) = label_value_problem(value) {
                problems.push(format!("labels[{key}]: {value:?} {problem}"));
            }
        }
        let maps =
            [("labels", &self.labels, labels), ("annotations", &self.annotations, annotations)];
        for (name, map, present) in maps {
            for (key, value) in map {
                let reserved = RESERVED_PREFIXES.into_iter().find(|it| key.starts_with(it));
                if let Some(problem) = label_key_problem(key) {
                    problems.push(format!("{name}[{key}]: {problem}"));
                } else if let Some(prefix) = reserved {
                    problems.push(format!("{name}[{key}]: keys with \"{prefix}\" are reserved"));
                } else if present.get(key).is_some_and(|it| it != value) {
                    problems.push(format!(
                        "{name}[{key}]: the launcher has another value; use a key that its \
                         LauncherConfig does not set"
                    ));
                }
            }
        }
        problems
    }

    /// Whether a launcher has all of it.
    #[must_use]
    pub fn is_applied_to(&self, pod: &ActuationPod) -> bool {
        let has = |map: &BTreeMap<String, String>, present: &BTreeMap<String, String>| {
            map.iter().all(|(key, value)| present.get(key) == Some(value))
        };
        has(&self.labels, &pod.metadata.labels) && has(&self.annotations, &pod.metadata.annotations)
    }

    /// Whether a launcher has any of it.
    #[must_use]
    pub fn is_partly_applied_to(&self, pod: &ActuationPod) -> bool {
        let any = |map: &BTreeMap<String, String>, present: &BTreeMap<String, String>| {
            map.keys().any(|key| present.contains_key(key))
        };
        any(&self.labels, &pod.metadata.labels) || any(&self.annotations, &pod.metadata.annotations)
    }

    /// Adds it to the fields of a patch.
    pub fn add_to(&self, labels: &mut Map<String, Value>, annotations: &mut Map<String, Value>) {
        let text = |(key, value): (&String, &String)| (key.clone(), Value::from(value.clone()));
        labels.extend(self.labels.iter().map(text));
        annotations.extend(self.annotations.iter().map(text));
    }

    /// Adds its removal to the fields of a patch.
    pub fn remove_in(&self, labels: &mut Map<String, Value>, annotations: &mut Map<String, Value>) {
        labels.extend(self.labels.keys().map(|key| (key.clone(), Value::Null)));
        annotations.extend(self.annotations.keys().map(|key| (key.clone(), Value::Null)));
    }
}
