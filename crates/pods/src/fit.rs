//! Whether a pod may be on a node: taints, node selectors and node affinity.
//!
//! Schedulers, kubelets and the DaemonSet controller must agree on this, or pods are created that
//! cannot be scheduled.

use std::collections::BTreeMap;

use gantry_reconcile::labels::{Operator, Requirement};

use crate::view::{Affinity, Node, NodeSelector, NodeSelectorTerm, Taint, TaintEffect, Toleration};

/// Whether one of these tolerations tolerates a taint.
#[must_use]
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|it| {
        let effect = it.effect.is_empty() || it.effect == taint.effect.as_str();
        let key = it.key.is_empty() || it.key == taint.key;
        let value = match it.operator.as_str() {
            "" | "Equal" => it.value == taint.value,
            "Exists" => true,
            // An operator of a newer server: nothing is tolerated by mistake.
            _ => false,
        };
        effect && key && value
    })
}

/// Returns the first taint of one of these effects that none of the tolerations tolerates.
#[must_use]
pub fn untolerated<'a>(
    taints: &'a [Taint],
    effects: &[TaintEffect],
    tolerations: &[Toleration],
) -> Option<&'a Taint> {
    taints.iter().find(|it| effects.contains(&it.effect) && !tolerates(tolerations, it))
}

/// Whether a taint keeps a pod from being scheduled to a node.
#[must_use]
pub fn has_untolerated_taint(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    let effects = [TaintEffect::NoSchedule, TaintEffect::NoExecute];
    untolerated(taints, &effects, tolerations).is_some()
}

/// Whether a taint repels all ordinary pods: those that are not known to tolerate it.
#[must_use]
pub fn repels_ordinary_pods(taint: &Taint) -> bool {
    let hard = match taint.effect {
        TaintEffect::NoSchedule | TaintEffect::NoExecute => true,
        TaintEffect::PreferNoSchedule => false,
    };
    let usual = taint.key.starts_with("node.kubernetes.io/")
        || matches!(
            taint.key.as_str(),
            "node-role.kubernetes.io/control-plane" | "node-role.kubernetes.io/master"
        );
    hard && usual
}

/// Whether a node has the labels a pod selects and is one of those its affinity requires.
#[must_use]
pub fn matches_node_affinity(
    labels: &BTreeMap<String, String>,
    affinity: &Affinity,
    node: &Node,
) -> bool {
    labels.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
        && affinity.node_affinity.required.as_ref().is_none_or(|it| matches_node(it, node))
}

/// Whether one of the selector's terms matches a node.
#[must_use]
pub fn matches_node(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| matches_term(term, node))
}

/// Whether all requirements of a term match a node. A term without requirements matches no node.
#[must_use]
pub fn matches_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let asks = !term.match_expressions.is_empty() || !term.match_fields.is_empty();
    asks && term.match_expressions.iter().all(|it| it.matches(&node.metadata.labels))
        && term.match_fields.iter().all(|it| matches_field(it, node))
}

/// Matches a requirement on a field. Fields can only be compared with one value.
fn matches_field(field: &Requirement, node: &Node) -> bool {
    let has = if field.key == "metadata.name" { node.metadata.name.as_str() } else { "" };
    let [value] = field.values.as_slice() else { return false };
    match field.operator {
        Operator::In => has == value,
        Operator::NotIn => has != value,
        Operator::Exists
        | Operator::DoesNotExist
        | Operator::Gt
        | Operator::Lt
        | Operator::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node() -> Node {
        let meta = json!({"name": "n1", "labels": {"zone": "a", "cores": "8"}});
        serde_json::from_value(json!({"metadata": meta})).unwrap()
    }

    #[test]
    fn tolerations_match_taints() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoExecute"}))
                .unwrap();
        let table = [
            ("equal by default", json!({"key": "k", "value": "v"}), true),
            ("another value", json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            ("any value", json!({"key": "k", "operator": "Exists"}), true),
            ("any key", json!({"operator": "Exists"}), true),
            ("another key", json!({"key": "l", "operator": "Exists"}), false),
            ("the effect", json!({"operator": "Exists", "effect": "NoExecute"}), true),
            ("another effect", json!({"operator": "Exists", "effect": "NoSchedule"}), false),
            ("an unknown word", json!({"key": "k", "operator": "Near", "value": "v"}), false),
        ];
        for (why, toleration, expected) in table {
            let toleration: Toleration = serde_json::from_value(toleration).unwrap();
            assert_eq!(tolerates(&[toleration], &taint), expected, "{why}");
        }
        assert!(!tolerates(&[], &taint), "nothing is tolerated");
        let taints = [taint.clone()];
        assert_eq!(untolerated(&taints, &[TaintEffect::NoExecute], &[]), Some(&taint));
        assert_eq!(untolerated(&taints, &[TaintEffect::NoSchedule], &[]), None);
    }

    #[test]
    fn node_selectors_match() {
        let expr = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let field = |operator: &str, values: &[&str]| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]});
        let table: [(&str, Vec<Value>, bool); 11] = [
            ("no terms", vec![], false),
            ("an empty term", vec![json!({})], false),
            ("a label", vec![expr("zone", "In", &["b", "a"])], true),
            ("one term of two", vec![expr("zone", "In", &["b"]), field("In", &["n1"])], true),
            ("a number", vec![expr("cores", "Gt", &["4"])], true),
            ("too small a number", vec![expr("cores", "Gt", &["8"])], false),
            ("absent", vec![expr("gpu", "DoesNotExist", &[])], true),
            ("the name", vec![field("In", &["n1"])], true),
            ("another name", vec![field("NotIn", &["n1"])], false),
            ("two names are no comparison", vec![field("In", &["n1", "n2"])], false),
            (
                "all of a term",
                vec![json!({
                    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}],
                })],
                false,
            ),
        ];
        for (why, terms, expected) in table {
            let selector: NodeSelector =
                serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap();
            assert_eq!(matches_node(&selector, &node()), expected, "{why}");
        }
    }

    #[test]
    fn labels_and_affinity_both_count() {
        let affinity = |name: &str| -> Affinity {
            serde_json::from_value(json!({"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
                ]}
            }}))
            .unwrap()
        };
        let labels = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        assert!(matches_node_affinity(&labels("a"), &Affinity::default(), &node()));
        assert!(matches_node_affinity(&labels("a"), &affinity("n1"), &node()));
        assert!(!matches_node_affinity(&labels("b"), &affinity("n1"), &node()));
        assert!(!matches_node_affinity(&labels("a"), &affinity("n2"), &node()));
    }
}
