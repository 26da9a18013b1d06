//! Valid, warned and rejected configuration texts, with positions.

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
    Values::from_layers(keys::KEYS.as_slice(), [&layer]).get(key).clone()
}

#[test]
fn cf_4_a_document_overrides_the_defaults() {
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
        (
            "an address without quotes",
            "metrics:\n  bindAddress: :8080\n",
            "metrics.bindAddress",
            json!(":8080"),
        ),
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
    assert_eq!(report.unknown_keys, ["mcad.backofTime", "mcad.zzz", "extra", "backoffTime"]);
    assert_eq!(report.errors, []);
}

#[test]
fn keys_without_effect_warn_when_set() {
    let said = warnings("kuberay: {a: 1}\nclientConnection: {contentType: ''}\n");
    assert_eq!(said, ["f:1:1: kuberay: has no effect: Gantry does not run KubeRay"]);
    let said = warnings("clientConnection: {contentType: application/json}\n");
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn wrong_letter_case_is_accepted_with_a_warning() {
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
            "f:9:9: health: found true, expected a map of keys",
            "f:11:18: leaderElection.leaseDuration: found 15, expected a duration such as 15s, 1m30s or 0s",
        ]
    );
}

#[test]
fn cf_5_texts_that_are_no_configuration_are_refused() {
    let table = [
        ("no YAML", "a: [1\n", "f:1:4: not valid YAML"),
        ("a key twice", "mcad: {}\nmcad: {}\n", "f:2:1: duplicate key \"mcad\""),
        ("a list", "- mcad\n", "f:1:1: found a list, expected a map of keys"),
        ("a word", "mcad\n", "f:1:1: found \"mcad\", expected a map of keys"),
        ("two documents", "mcad: {}\n---\nmetrics: {}\n", "f:3:1: found a second document"),
    ];
    for (why, text, expected) in table {
        let said = errors(text);
        assert!(said.len() == 1 && said[0].starts_with(expected), "{why}: {said:?}");
    }
}

proptest! {
    /// Whatever value a key has, it is accepted, warned about or rejected; nothing is lost in
    /// between.
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
            None => prop_assert!(report.has_error_for(&[key.path]), "{} {}", key.path, value),
        }
    }
}

#[test]
fn cf_6_the_originals_switch_of_the_queue_works() {
    for (text, expected) in [
        ("mcad: {enabled: false}", false),
        ("mcad: {enabled: true}", true),
        ("mcad: {Enabled: false}", false),
        ("mcad: {enabled: null}", true),
        ("mcadEnabled: false\nmcad: {enabled: false}", false),
    ] {
        assert_eq!(value(text, "mcadEnabled"), json!(expected), "{text}");
        assert_eq!(value(text, "instascale.enabled"), json!(false), "{text}");
        assert!(read(text, "f").1.unknown_keys.is_empty(), "{text}");
    }
    for text in
        ["mcadEnabled: true\nmcad: {enabled: false}", "mcad: {enabled: false}\nmcadEnabled: true"]
    {
        let said = errors(text);
        let [only] = said.as_slice() else { panic!("{said:?}") };
        assert!(only.contains("mcadEnabled and mcad.enabled are the same; keep one"), "{only}");
    }
    assert_eq!(
        errors("mcad: {enabled: maybe}"),
        ["f:1:17: mcad.enabled: found \"maybe\", expected true or false"]
    );
}

/// A name that several sections have is no hint: following it would enable something else.
#[test]
fn a_hint_stays_in_its_section() {
    for (text, expected) in [
        ("enabled: true", "f:1:1: enabled: ignored: unknown key"),
        ("logging: {enabled: false}", "f:1:11: logging.enabled: ignored: unknown key"),
        ("logging: {name: a}", "f:1:11: logging.name: ignored: unknown key"),
        (
            "operator: {config: {mcad: {}}, health: {}, x: 1}",
            "f:1:1: operator: ignored: unknown key; what is below it belongs at the top: health",
        ),
    ] {
        assert_eq!(warnings(text), [expected], "{text}");
    }
}

#[test]
fn cf_6_a_config_map_manifest_is_read() {
    let map =
        |rest: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n{rest}");
    let text = map("data:\n  config.yaml: |\n    mcad: {backoffTime: 5}\n    other: 1\n");
    assert_eq!(value(&text, "mcad.backoffTime"), json!(5));
    assert_eq!(warnings(&text), ["f, config.yaml:2:1: other: ignored: unknown key"]);
    let one = "cannot use ConfigMap c: exactly one data key must exist, found";
    let table = [
        (map(""), format!("f:1:1: {one} none")),
        (map("data: {a: '', b: ''}\n"), format!("f:1:1: {one} 2: a, b")),
        (
            map("data: {a: ''}\nbinaryData: {c: AA==}\n"),
            format!("f:1:1: {one} 1: a; binaryData does not count (c)"),
        ),
        (
            map("data: {a: {mcad: {}}}\n"),
            "f:4:11: data.a: found a map, expected the configuration as one text".to_owned(),
        ),
        (
            map("data: {a: 'mcad: {backoffTime: x}'}\n"),
            "f, a:1:21: mcad.backoffTime: found \"x\"".to_owned(),
        ),
        (
            map("data: {a: '{apiVersion: v1, kind: ConfigMap, data: {b: \"mcad: {}\"}}'}\n"),
            "f, a:1:1: found an object of kind ConfigMap (v1)".to_owned(),
        ),
    ];
    for (text, expected) in table {
        let said = errors(&text);
        assert!(said.len() == 1 && said[0].starts_with(&expected), "{text}: {said:?}");
    }
}

/// A text that is not the keys of a configuration is rejected as a whole, not ignored key by key.
#[test]
fn cf_6_other_objects_and_other_forms_are_refused() {
    let object = "expected the keys of the configuration, or a ConfigMap with them";
    let table = [
        ("apiVersion: apps/v1\nkind: Deployment\nspec: {}\n", object),
        ("apiVersion: v1\nkind: List\nitems: [{kind: ConfigMap}]\n", object),
        ("apiVersion: v1\nkind: Secret\nstringData: {config.yaml: 'mcad: {}'}\n", object),
        ("- mcad: {}\n", "found a list, expected a map of keys"),
        ("mcad\n", "found \"mcad\", expected a map of keys"),
        ("mcad: [preemption]\n", "mcad: found a list, expected a map of keys"),
        ("mcad: true\n", "mcad: found true, expected a map of keys"),
        ("mcad: {}\nmcad: {preemption: true}\n", "duplicate key \"mcad\""),
        ("mcad: {preemption: true, preemption: false}\n", "duplicate key \"preemption\""),
        ("mcad: {}\n---\nmcad: {preemption: true}\n", "found a second document, expected one"),
    ];
    for (text, expected) in table {
        let said = errors(text);
        assert!(said.len() == 1 && said[0].contains(expected), "{text}: {said:?}");
    }
    // A configuration that also has a kind, as component configurations do.
    let text = "apiVersion: x/v1\nkind: ControllerManagerConfig\nmcad: {backoffTime: 5}\n";
    assert_eq!(value(text, "mcad.backoffTime"), json!(5));
    assert_eq!(read(text, "f").1.unknown_keys, ["apiVersion", "kind"]);
}

#[test]
fn cf_6_a_text_that_sets_nothing_is_warned_about() {
    let said = "f: sets nothing: every value is the default; write keys, or remove it";
    for text in ["", "# nothing\n", "null\n", "---\n"] {
        assert_eq!(warnings(text), [said], "{text:?}");
        assert_eq!(errors(text), [""; 0], "{text:?}");
    }
    assert_eq!(warnings("mcad: {}"), [""; 0]);
}
