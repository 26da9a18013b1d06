//! Renders configurations as text: the one that is created, and the effective one.

use gantry_yaml::{self as yaml, WriteError};
use serde_json::{Value, json};

use super::values::{Origin, Values};

/// Renders the text of a ConfigMap that is created because there is none: the defaults, as the
/// original wrote them. Values that stand for a default are kept as such, and follow it when it
/// changes.
///
/// # Errors
/// None is known.
pub fn defaults() -> Result<String, WriteError> {
    yaml::write(&json!({
        "clientConnection": { "burst": 100, "qps": 50 },
        "health": {
            "bindAddress": ":8081",
            "livenessEndpointName": "healthz",
            "readinessEndpointName": "readyz",
        },
        "instascale": { "enabled": false, "maxScaleoutAllowed": 5 },
        "leaderElection": {
            "leaderElect": null,
            "leaseDuration": "0s",
            "renewDeadline": "0s",
            "resourceLock": "",
            "resourceName": "",
            "resourceNamespace": "",
            "retryPeriod": "0s",
        },
        "mcad": {},
        "metrics": { "bindAddress": "127.0.0.1:8080" },
    }))
}

/// Renders every value that is set, in the order of the keys, with a comment that names its source.
/// The text is itself a configuration with the same meaning.
///
/// # Errors
/// None is known.
pub fn effective(values: &Values) -> Result<String, WriteError> {
    let mut text = String::new();
    let mut open: Vec<&str> = Vec::new();
    for (key, value, origin) in values.iter().filter(|(_, value, _)| !value.is_null()) {
        let mut sections: Vec<&str> = key.path.split('.').collect();
        let name = sections.pop().unwrap_or_default();
        let shared = open.iter().zip(&sections).take_while(|(a, b)| a == b).count();
        for (depth, section) in sections.iter().enumerate().skip(shared) {
            text.push_str(&format!("{}{section}:\n", "  ".repeat(depth)));
        }
        let indent = "  ".repeat(sections.len());
        text.push_str(&format!("{indent}{name}: {}", inline(value)?));
        if *origin != Origin::Default {
            // A file name may contain line breaks; a comment ends at the end of the line.
            let origin: String = origin.to_string().chars().filter(|c| !c.is_control()).collect();
            text.push_str(&format!(" # from {origin}"));
        }
        text.push('\n');
        open = sections;
    }
    Ok(text)
}

/// Renders a value on one line. JSON is YAML, and scalars are more readable as YAML.
fn inline(value: &Value) -> Result<String, WriteError> {
    Ok(match value {
        Value::Array(_) | Value::Object(_) => value.to_string(),
        // Unusual spaces and line breaks would be lost without quotes.
        Value::String(text) if !text.chars().all(|c| c.is_ascii_graphic()) => value.to_string(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {
            yaml::write(value)?.trim_end_matches('\n').to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{document, keys};
    use proptest::prelude::*;

    /// The text of a ConfigMap that the operator creates.
    const LANDED: &str = "\
clientConnection:
  burst: 100
  qps: 50
health:
  bindAddress: \":8081\"
  livenessEndpointName: healthz
  readinessEndpointName: readyz
instascale:
  enabled: false
  maxScaleoutAllowed: 5
leaderElection:
  leaderElect: null
  leaseDuration: 0s
  renewDeadline: 0s
  resourceLock: \"\"
  resourceName: \"\"
  resourceNamespace: \"\"
  retryPeriod: 0s
mcad: {}
metrics:
  bindAddress: 127.0.0.1:8080
";

    #[test]
    fn cf_3_the_created_text_is_the_landed_one() {
        assert_eq!(defaults().unwrap(), LANDED);
    }

    #[test]
    fn cf_3_the_created_text_changes_nothing() {
        let (layer, report) = document::read(&defaults().unwrap(), "x");
        assert_eq!(report, crate::config::values::ConfigReport::default());
        let (with, without) = (
            Values::from_layers(keys::KEYS.as_slice(), [&layer]),
            Values::from_layers(keys::KEYS.as_slice(), []),
        );
        for ((key, with, _), (_, without, _)) in with.iter().zip(without.iter()) {
            assert_eq!(with, without, "{}", key.path);
        }
    }

    #[test]
    fn the_effective_text_names_its_sources() {
        let text =
            "mcad:\n  backoffTime: 7\n  agentConfigs: [\"a b\"]\ncontrollers: {queue: true}\n";
        let (layer, _) = document::read(text, "gantry.yaml");
        let text = effective(&Values::from_layers(keys::KEYS.as_slice(), [&layer])).unwrap();
        for line in [
            "clientConnection:\n  qps: 50\n  burst: 100\n",
            "metrics:\n  bindAddress: 127.0.0.1:8080\n  secureServing: true\n",
            "  backoffTime: 7 # from gantry.yaml:2:3\n",
            "  agentConfigs: [\"a b\"] # from gantry.yaml:3:3\n",
            "\ncontrollers: {\"queue\":true} # from gantry.yaml:4:1\n",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
        assert!(!text.contains("ocmSecretRef"), "{text}");
    }

    proptest! {
        /// Whatever texts the values hold, the printed text has the same meaning.
        #[test]
        fn the_effective_text_is_read_back(
            file in "\\PC{0,20}", source in "\\PC{0,9}", flag: bool, count in 0..i32::MAX,
            list in prop::collection::vec("\\PC{0,9}", 0..3),
        ) {
            let written = json!({
                "clientConnection": { "kubeconfig": file, "qps": count },
                "mcad": { "preemption": flag, "agentConfigs": list },
                "instascale": { "ocmSecretRef": { "name": "a", "namespace": "b" } },
            });
            let (layer, report) = document::read(&written.to_string(), &source);
            prop_assert!(report.errors.is_empty(), "{:?}", report);
            let values = Values::from_layers(keys::KEYS.as_slice(), [&layer]);
            let text = effective(&values).unwrap();
            let (again, report) = document::read(&text, "x");
            prop_assert!(report.errors.is_empty() && report.unknown_keys.is_empty(), "{:?}", report);
            let again = Values::from_layers(keys::KEYS.as_slice(), [&again]);
            for key in keys::KEYS.iter() {
                prop_assert_eq!(again.get(key.path), values.get(key.path), "{}", text);
            }
        }
    }
}
