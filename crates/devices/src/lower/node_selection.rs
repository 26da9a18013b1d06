//! Decides which nodes reach a pool.

use std::collections::BTreeMap;

use gantry_api::devices::PoolSpec;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

/// A node's name and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLabels {
    /// Name of the node.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// Whether a node reaches the devices of a pool. A pool that specifies no nodes is reached by none.
pub(super) fn reaches(node: &NodeLabels, pool: &PoolSpec) -> bool {
    pool.all_nodes
        || pool.node_name.as_ref().is_some_and(|name| *name == node.name)
        || pool.node_selector.as_ref().is_some_and(|selector| matches_selector(selector, node))
}

/// Whether any term of a selector matches a node. An empty term matches none.
pub(crate) fn matches_selector(selector: &NodeSelector, node: &NodeLabels) -> bool {
    selector.node_selector_terms.iter().any(|term| matches_term(term, node))
}

fn matches_term(term: &NodeSelectorTerm, node: &NodeLabels) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let label = |key: &str| node.labels.get(key).map(String::as_str);
    // The only field of a node that can be selected by.
    let field = |key: &str| (key == "metadata.name").then_some(node.name.as_str());
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|want| matches_requirement(want, label(&want.key)))
        && fields.iter().all(|want| matches_requirement(want, field(&want.key)))
}

/// Whether a value meets a requirement, as in Kubernetes. An unknown operator is met by nothing.
fn matches_requirement(want: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = want.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    match want.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers(value, values).is_some_and(|(have, bound)| have > bound),
        "Lt" => numbers(value, values).is_some_and(|(have, bound)| have < bound),
        _ => false,
    }
}

/// Parses a label's value and the only value it is compared with as integers.
fn numbers(value: Option<&str>, values: &[String]) -> Option<(i64, i64)> {
    let [bound] = values else { return None };
    Some((value?.parse().ok()?, bound.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node() -> NodeLabels {
        let labels = [("zone", "a"), ("rank", "7"), ("word", "seven")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        NodeLabels { name: "node-a".to_owned(), labels: labels.into() }
    }

    fn reached(pool: &Value) -> bool {
        reaches(&node(), &serde_json::from_value(pool.clone()).unwrap())
    }

    #[test]
    fn a_pool_is_reached_in_one_of_three_ways() {
        let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a"]},
        ]}]});
        let table = [
            ("its node", json!({"driver": "d", "nodeName": "node-a"}), true),
            ("another node", json!({"driver": "d", "nodeName": "node-b"}), false),
            ("every node", json!({"driver": "d", "allNodes": true}), true),
            ("no node at all", json!({"driver": "d"}), false),
            ("a selector", json!({"driver": "d", "nodeSelector": selector}), true),
        ];
        for (why, pool, expected) in table {
            assert_eq!(reached(&pool), expected, "{why}");
        }
    }

    #[test]
    fn selectors_are_read_as_kubernetes_does() {
        let want = |key: &str, operator: &str, values: &[&str]| json!([{"key": key, "operator": operator, "values": values}]);
        let table = [
            ("a value in the list", want("zone", "In", &["b", "a"]), true),
            ("a value not in the list", want("zone", "In", &["b"]), false),
            ("no value", want("disk", "In", &["b"]), false),
            ("excluded", want("zone", "NotIn", &["a"]), false),
            ("no value is in no list", want("disk", "NotIn", &["a"]), true),
            ("there", want("zone", "Exists", &[]), true),
            ("not there", want("zone", "DoesNotExist", &[]), false),
            ("greater", want("rank", "Gt", &["6"]), true),
            ("not greater than itself", want("rank", "Gt", &["7"]), false),
            ("less", want("rank", "Lt", &["8"]), true),
            ("a word is no number", want("word", "Lt", &["8"]), false),
            ("an unknown operator", want("zone", "Is", &["a"]), false),
        ];
        for (why, expressions, expected) in table {
            let selector = json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]});
            assert_eq!(
                reached(&json!({"driver": "d", "nodeSelector": selector})),
                expected,
                "{why}"
            );
        }
        let terms = |terms: Value| {
            reached(&json!({"driver": "d", "nodeSelector": {"nodeSelectorTerms": terms}}))
        };
        let field = |name| json!({"matchFields": want("metadata.name", "In", &[name])});
        assert!(terms(json!([field("node-a")])), "a field");
        assert!(terms(json!([field("node-b"), field("node-a")])), "any term will do");
        assert!(!terms(json!([{}])), "an empty term is true of nothing");
        assert!(!terms(json!([])), "no term is true of nothing");
    }
}
