//! Compares stored roles and bindings with the expected ones.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::binding::{Binding, Subject};
use crate::escalation::missing;
use crate::rule::rules;

/// The annotation that disables the update of a role or binding when it is `"false"`.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What to do about a stored object.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled {
    /// It holds what is expected, or more.
    UpToDate,
    /// It differs, but its annotation disables updates.
    Protected,
    /// It should be updated to this.
    Update(Value),
    /// It must be recreated: the role of a binding is immutable.
    Recreate,
}

/// Compares a stored role with the expected one: missing rules, labels and annotations are added,
/// and nothing is removed, except that an aggregated role which is expected to have rules of its
/// own stops being aggregated.
#[must_use]
pub fn reconcile_role(stored: &Value, expected: &Value) -> Reconciled {
    let mut wanted = stored.clone();
    merge_metadata(&mut wanted, expected);
    // What Kubernetes expects is small enough to be compared; a role that is too large is left
    // alone.
    let lacking = missing(&rules(stored), &rules(expected)).unwrap_or_default();
    if !lacking.is_empty() {
        let mut all = stored["rules"].as_array().cloned().unwrap_or_default();
        all.extend(lacking.iter().map(crate::Rule::to_value));
        wanted["rules"] = Value::Array(all);
    }
    const SELECTORS: &str = "/aggregationRule/clusterRoleSelectors";
    if expected["aggregationRule"].is_null() {
        wanted.as_object_mut().and_then(|role| role.shift_remove("aggregationRule"));
    } else {
        let list = |role: &Value| {
            role.pointer(SELECTORS).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let mut all = list(stored);
        let lacking: Vec<Value> =
            list(expected).into_iter().filter(|it| !all.contains(it)).collect();
        if !lacking.is_empty() {
            all.extend(lacking);
            wanted["aggregationRule"]["clusterRoleSelectors"] = Value::Array(all);
        }
    }
    outcome(stored, wanted)
}

/// Compares a stored binding with the expected one: missing subjects, labels and annotations are
/// added.
#[must_use]
pub fn reconcile_binding(stored: &Value, expected: &Value) -> Reconciled {
    let (known, should) = (Binding::read(stored), Binding::read(expected));
    if known.role_ref != should.role_ref {
        return if is_protected(stored) { Reconciled::Protected } else { Reconciled::Recreate };
    }
    let mut wanted = stored.clone();
    merge_metadata(&mut wanted, expected);
    let mut all = stored["subjects"].as_array().cloned().unwrap_or_default();
    let before = all.len();
    for subject in expected["subjects"].as_array().into_iter().flatten() {
        let typed = Subject::deserialize(subject).unwrap_or_default();
        if !known.subjects.contains(&typed) && !all.contains(subject) {
            all.push(subject.clone());
        }
    }
    if all.len() > before {
        wanted["subjects"] = Value::Array(all);
    }
    outcome(stored, wanted)
}

fn outcome(stored: &Value, wanted: Value) -> Reconciled {
    if wanted == *stored {
        Reconciled::UpToDate
    } else if is_protected(stored) {
        Reconciled::Protected
    } else {
        Reconciled::Update(wanted)
    }
}

fn is_protected(stored: &Value) -> bool {
    stored["metadata"]["annotations"][AUTOUPDATE] == "false"
}

/// Adds the expected labels and annotations; existing ones stay as they are.
fn merge_metadata(wanted: &mut Value, expected: &Value) {
    for part in ["labels", "annotations"] {
        for (key, value) in expected["metadata"][part].as_object().into_iter().flatten() {
            let texts = &mut wanted["metadata"][part];
            if !texts.is_object() {
                *texts = Value::Object(Map::new());
            }
            if texts.get(key).is_none() {
                texts[key] = value.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(labels: &Value, rules: &Value) -> Value {
        json!({ "metadata": { "name": "a", "labels": labels }, "rules": rules })
    }

    #[test]
    fn roles_get_what_they_lack_and_lose_nothing() {
        let get = json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] });
        let all = json!({ "verbs": ["*"], "apiGroups": [""], "resources": ["pods"] });
        let both = json!({ "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"] });
        let list = json!({ "verbs": ["list"], "apiGroups": [""], "resources": ["pods"] });
        let own = json!({ "a": "own" });
        let table = [
            ("as expected", role(&own, &json!([get])), json!([get]), None),
            ("more than expected", role(&own, &json!([all])), json!([get]), None),
            ("less", role(&own, &json!([get])), json!([both]), Some(json!([get, list]))),
            ("none", role(&own, &Value::Null), json!([get]), Some(json!([get]))),
        ];
        for (why, stored, expected, wanted) in table {
            let expected = role(&json!({ "a": "theirs" }), &expected);
            let outcome = match wanted {
                None => Reconciled::UpToDate,
                Some(rules) => Reconciled::Update(role(&own, &rules)),
            };
            assert_eq!(reconcile_role(&stored, &expected), outcome, "{why}");
        }
        let unlabelled = role(&Value::Null, &json!([get]));
        let labelled = role(&json!({ "a": "b" }), &json!([get]));
        let outcome = Reconciled::Update(labelled.clone());
        assert_eq!(reconcile_role(&unlabelled, &labelled), outcome);
    }

    #[test]
    fn protected_objects_are_left_alone() {
        let keep = |object: Value| {
            let mut object = object;
            object["metadata"]["annotations"] = json!({ AUTOUPDATE: "false" });
            object
        };
        let stored = keep(role(&Value::Null, &json!([])));
        let expected = role(&Value::Null, &json!([{ "verbs": ["get"], "nonResourceURLs": ["/"] }]));
        assert_eq!(reconcile_role(&stored, &expected), Reconciled::Protected);
        let binding = |role: &str| json!({ "metadata": {}, "roleRef": { "name": role } });
        assert_eq!(reconcile_binding(&keep(binding("a")), &binding("b")), Reconciled::Protected);
        assert_eq!(reconcile_binding(&binding("a"), &binding("b")), Reconciled::Recreate);
    }

    #[test]
    fn selectors_are_added_and_a_stray_aggregation_is_ended() {
        let made = |selectors: Value| json!({ "metadata": {}, "aggregationRule": { "clusterRoleSelectors": selectors } });
        let (a, b) = (json!({ "matchLabels": { "a": "1" } }), json!({ "matchLabels": {} }));
        let (stored, expected) = (made(json!([a])), made(json!([b])));
        let outcome = Reconciled::Update(made(json!([a, b])));
        assert_eq!(reconcile_role(&stored, &expected), outcome);
        let plain = json!({ "metadata": {} });
        assert_eq!(reconcile_role(&stored, &plain), Reconciled::Update(plain));
    }

    #[test]
    fn bindings_get_the_subjects_they_lack() {
        let binding = |subjects: Value| json!({ "metadata": {}, "roleRef": { "name": "a" }, "subjects": subjects });
        let (bob, eve) = (json!({ "kind": "User", "name": "b" }), json!({ "name": "e" }));
        let stored = binding(json!([bob]));
        assert_eq!(reconcile_binding(&stored, &binding(json!([bob]))), Reconciled::UpToDate);
        assert_eq!(
            reconcile_binding(&stored, &binding(json!([eve, bob, eve]))),
            Reconciled::Update(binding(json!([bob, eve])))
        );
    }
}
