use serde_json::json;

use super::*;

fn pod(spec: &Value) -> Pod {
    let metadata = json!({"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00.25Z".parse().unwrap()
}

#[test]
fn a_pin_narrows_every_term_and_widens_none() {
    let pin = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let label = json!({"key": "zone", "operator": "In", "values": ["a", "b"]});
    let exists = json!({"key": "gpu", "operator": "Exists"});
    let other = json!({"key": "metadata.name", "operator": "NotIn", "values": ["n9"]});
    let table = [
        ("nothing was said", json!(null), json!([{"matchFields": [pin]}])),
        ("no terms", json!([]), json!([{"matchFields": [pin]}])),
        (
            "one of two is enough, so both are narrowed",
            json!([{"matchExpressions": [label]}, {"matchExpressions": [exists]}]),
            json!([
                {"matchExpressions": [label], "matchFields": [pin]},
                {"matchExpressions": [exists], "matchFields": [pin]},
            ]),
        ),
        (
            "what was said about the name stays, and comes first",
            json!([{"matchFields": [other]}]),
            json!([{"matchFields": [other, pin]}]),
        ),
        (
            "a term that says nothing matches no node, and goes on so",
            json!([{}, {"matchExpressions": [label]}]),
            json!([{}, {"matchExpressions": [label], "matchFields": [pin]}]),
        ),
    ];
    for (why, terms, expected) in table {
        let required = json!({"nodeSelectorTerms": terms});
        let affinity = match terms.is_null() {
            true => json!({}),
            false => {
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
            }
        };
        let pod = pod(&json!({"affinity": affinity}));
        assert_eq!(Value::Array(pinned_node_terms(&pod, "n1").unwrap()), expected, "{why}");
    }
}

#[test]
fn unknown_affinity_operators_are_not_rewritten() {
    let terms = json!([{"matchExpressions": [{"key": "x", "operator": "Near", "values": ["1"]}]}]);
    let required = json!({"nodeSelectorTerms": terms});
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    let trouble = pinned_node_terms(&pod(&json!({"affinity": affinity})), "n1").unwrap_err();
    assert_eq!(trouble.reason, "UnknownAffinity");
}

#[test]
fn the_gate_is_opened_in_one_fenced_write() {
    let gates = json!([{"name": "other.example.com/x"}, {"name": SCHEDULING_GATE}]);
    let pod = pod(&json!({"schedulingGates": gates}));
    let step = open_gate(&pod, "n1", now()).unwrap();
    let Write::Merge { fence, body, subresource: part, .. } = &step.write else {
        panic!("{step:?}")
    };
    assert_eq!((part, fence), (&Subresource::Main, &pod.metadata.fence()));
    assert!(fence.revision.is_some(), "a concurrent change of the pod is not overwritten");
    assert_eq!(body["spec"]["schedulingGates"], json!([{"name": "other.example.com/x"}]));
    let text = body["metadata"]["annotations"][GATE_OPENED_ANNOTATION].as_str().unwrap();
    assert_eq!(text, r#"{"node":"n1","at":"2026-01-01T00:00:00Z"}"#);
    let nothing = open_gate(&pod, "", now()).unwrap();
    let Write::Merge { body, .. } = &nothing.write else { panic!("{nothing:?}") };
    assert!(body["spec"].get("affinity").is_none(), "a pod that claims nothing goes anywhere");
}

#[test]
fn only_unschedulable_without_nomination_is_a_refusal() {
    let said = |reason: &str, nominated: &str| {
        let mut pod = pod(&json!({}));
        let status = json!({
            "nominatedNodeName": nominated,
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "message": "m"}],
        });
        pod.status = serde_json::from_value(status).unwrap();
        unschedulable_message(&pod)
    };
    assert_eq!(said("Unschedulable", ""), Some("m".to_owned()));
    assert_eq!(said("Unschedulable", "n1"), None, "it pushes others out");
    assert_eq!(said("SchedulingGated", ""), None);
    assert_eq!(said("SchedulerError", ""), None);
}

#[test]
fn foreign_gate_annotations_are_ignored() {
    let mut pod = pod(&json!({}));
    for text in ["", "n1", "{}", r#"{"node":1}"#] {
        pod.metadata.annotations.insert(GATE_OPENED_ANNOTATION.to_owned(), text.to_owned());
        assert_eq!(opened_gate(&pod), None, "{text}");
    }
    let text = r#"{"node":"n1","at":"2026-01-01T00:00:00Z"}"#;
    pod.metadata.annotations.insert(GATE_OPENED_ANNOTATION.to_owned(), text.to_owned());
    assert_eq!(opened_gate(&pod).unwrap().node, "n1");
    assert_eq!(assigned_node(&pod), "n1");
    let later: Timestamp = "2026-01-01T00:00:01Z".parse().unwrap();
    pod.metadata.creation_timestamp = Some(later);
    assert_eq!(opened_gate(&pod), None, "it was copied from a pod of before");
    let step = open_gate(&pod, "n2", now()).unwrap();
    let Write::Merge { body, .. } = &step.write else { panic!("{step:?}") };
    let text = body["metadata"]["annotations"][GATE_OPENED_ANNOTATION].as_str().unwrap().to_owned();
    pod.metadata.annotations.insert(GATE_OPENED_ANNOTATION.to_owned(), text);
    assert_eq!(opened_gate(&pod).unwrap().node, "n2", "a clock that is ahead does not matter");
    pod.spec.scheduling_gates = serde_json::from_value(json!([{"name": SCHEDULING_GATE}])).unwrap();
    assert_eq!(opened_gate(&pod), None, "its gate is there still");
}
