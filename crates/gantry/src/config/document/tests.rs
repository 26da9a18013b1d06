//! What is read, what is warned about, and what is refused, with its place.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::config::values::Values;

fn errors(text: &str) -> Vec<String> {
    read(text, "f").1.errors.iter().map(ToString::to_string).collect()
}

fn warnings(text: &str) -> Vec<String> {
    read(text, "f").1.warnings.iter().map(ToString::to_string).collect()
}

fn value(text: &str, key: &str) -> Value {
    let (layer, report) = read(text, "f");
    assert_eq!(report.errors, [], "{text}");
    Values::stack([&layer]).get(key).clone()
}

#[test]
fn cf_4_a_text_lies_on_top_of_the_defaults() {
    let table = [
        ("an empty text", "", "mcad.backoffTime", json!(20)),
        ("a comment", "# nothing\n", "mcad.backoffTime", json!(20)),
        ("a lone null", "null\n", "mcad.backoffTime", json!(20)),
        ("an absent key", "mcad: {preemption: true}", "mcad.backoffTime", json!(20)),
        ("a null", "mcad: {backoffTime: null}", "mcad.backoffTime", json!(20)),
        ("a section without keys", "mcad:\n", "mcad.backoffTime", json!(20)),
        ("a value", "mcad: {backoffTime: 5}", "mcad.backoffTime", json!(5)),
        ("JSON", "{\"mcad\": {\"backoffTime\": 5}}", "mcad.backoffTime", json!(5)),
        ("zero that is itself", "mcad: {backoffTime: 0}", "mcad.backoffTime", json!(0)),
        (
            "zero that is a default",
            "leaderElection: {leaseDuration: 0s}",
            "leaderElection.leaseDuration",
            json!("15s"),
        ),
        (
            "a word in upper case",
            "instascale: {machineSetsStrategy: Duplicate}",
            "instascale.machineSetsStrategy",
            json!("duplicate"),
        ),
        ("letter case of a key", "MCAD: {BackoffTime: 5}", "mcad.backoffTime", json!(5)),
        ("an old boolean", "mcadEnabled: no", "mcadEnabled", json!(false)),
        ("a rate", "clientConnection: {qps: 0.5}", "clientConnection.qps", json!(0.5)),
        (
            "a key of two sections",
            "instascale: {ocmSecretRef: {name: a, namespace: b}}",
            "instascale.ocmSecretRef.name",
            json!("a"),
        ),
    ];
    for (why, text, key, expected) in table {
        assert_eq!(value(text, key), expected, "{why}");
    }
}

#[test]
fn cf_6_each_unknown_key_is_one_warning_with_its_path_and_what_was_meant() {
    let text = "\
mcad:
  backofTime: 3
  zzz: 1
extra:
  backoffTime: 1
backoffTime: 4
";
    let (layer, report) = read(text, "f");
    assert_eq!(layer, Layer::default());
    let said: Vec<_> = report.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "f:2:3: mcad.backofTime: ignored: unknown key; did you mean mcad.backoffTime?",
            "f:3:3: mcad.zzz: ignored: unknown key",
            "f:4:1: extra: ignored: unknown key",
            "f:6:1: backoffTime: ignored: unknown key; did you mean mcad.backoffTime?",
        ]
    );
    assert_eq!(report.unknown, ["mcad.backofTime", "mcad.zzz", "extra", "backoffTime"]);
    assert_eq!(report.errors, []);
}

#[test]
fn keys_without_effect_are_warned_about_once_they_say_something() {
    let said = warnings("kuberay: {a: 1}\nclientConnection: {contentType: ''}\n");
    assert_eq!(said, ["f:1:1: kuberay: has no effect: Gantry does not run KubeRay"]);
    let said = warnings("clientConnection: {contentType: application/json}\n");
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn letter_case_is_forgiven_with_a_warning() {
    assert_eq!(
        warnings("mcad: {backofftime: 5}"),
        ["f:1:8: mcad.backofftime: taken for backoffTime; write it so"]
    );
    let both = "mcad: {backofftime: 5, backoffTime: 6}";
    assert_eq!(value(both, "mcad.backoffTime"), json!(6));
    assert_eq!(
        warnings(both),
        ["f:1:8: mcad.backofftime: ignored: backoffTime is there too; keep one of them"]
    );
}

#[test]
fn cf_5_every_error_is_reported_with_key_value_expectation_and_place() {
    let text = "\
clientConnection:
  qps: fast
mcad:
  backoffTime: -3
  preemption: \"true\"
  agentConfigs: one
instascale:
  machineSetsStrategy: steal
health: true
leaderElection:
  leaseDuration: 15
";
    assert_eq!(
        errors(text),
        [
            "f:2:8: clientConnection.qps: found \"fast\", expected a number",
            "f:4:16: mcad.backoffTime: found -3, expected a whole number from 0 to 2147483647",
            "f:5:15: mcad.preemption: found \"true\", expected true or false, without quotes",
            "f:6:17: mcad.agentConfigs: found \"one\", expected a list of texts",
            "f:8:24: instascale.machineSetsStrategy: found \"steal\", expected reuse or duplicate",
            "f:9:9: health: found a single value, expected a map of keys",
            "f:11:18: leaderElection.leaseDuration: found 15, expected a duration such as 15s, 1m30s or 0s",
        ]
    );
}

#[test]
fn cf_5_texts_that_are_no_configuration_are_refused() {
    let table = [
        ("no YAML", "a: [1\n", "f:1:4: not valid YAML"),
        ("a key twice", "mcad: {}\nmcad: {}\n", "f:2:1: duplicate key \"mcad\""),
        ("a list", "- mcad\n", "f:1:1: found a single value, expected a map of keys"),
        ("a word", "mcad\n", "f:1:1: found a single value, expected a map of keys"),
        ("two documents", "mcad: {}\n---\nmetrics: {}\n", "f:3:1: found a second document"),
    ];
    for (why, text, expected) in table {
        let said = errors(text);
        assert!(said.len() == 1 && said[0].starts_with(expected), "{why}: {said:?}");
    }
}

proptest! {
    /// Whatever a key is given, it is taken, warned about or refused; nothing is lost in between.
    #[test]
    fn nothing_that_is_written_is_lost(
        index in 0..keys::KEYS.len(),
        value in prop_oneof![
            Just(json!(true)), Just(json!(7)), Just(json!(-7)), Just(json!("7s")), Just(json!(":7")),
            Just(json!([])), Just(json!({"a": 1})), Just(json!("leases")), Just(json!(1.5)),
        ],
    ) {
        let key = &keys::KEYS[index];
        let text = key.path.rsplit('.').fold(value.clone(), |inner, name| json!({ name: inner }));
        let (layer, report) = read(&text.to_string(), "f");
        match layer.get(key.path) {
            Some(taken) => {
                prop_assert!(report.errors.is_empty());
                let again = key.path.rsplit('.').fold(taken.clone(), |v, name| json!({ name: v }));
                let (again, _) = read(&again.to_string(), "f");
                prop_assert_eq!(again.get(key.path), Some(taken));
            }
            None => prop_assert!(report.blames(&[key.path]), "{} {}", key.path, value),
        }
    }
}
