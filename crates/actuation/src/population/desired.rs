//! How many launchers policies ask for.

use std::sync::Arc;

use gantry_pods::view::Node;

use crate::view::{LauncherPopulationPolicy, PopulationSpec};

/// How many launchers of a LauncherConfig a node should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desired {
    /// No policy says anything.
    None,
    /// The greatest count of the policies that select the node.
    Count(usize),
    /// A policy cannot be understood: nothing is created, and nothing deleted.
    HandsOff,
}

impl Desired {
    /// The number.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            Self::Count(count) => count,
            Self::None | Self::HandsOff => 0,
        }
    }
}

/// How many launchers these policies ask for.
#[must_use]
pub fn desired_launchers(
    policies: &[Arc<LauncherPopulationPolicy>],
    node: &Node,
    config: &str,
) -> Desired {
    let mut desired = Desired::None;
    for spec in policies.iter().filter_map(|it| it.spec.as_ref()) {
        let mut counts = spec.count_for_launcher.iter();
        let Some(count) = counts.find(|it| it.launcher_config_name == config) else { continue };
        if spec.selector_problem().is_some() {
            return Desired::HandsOff;
        }
        if !spec.selects(node) {
            continue;
        }
        let count = usize::try_from(count.launcher_count).unwrap_or(0);
        desired = Desired::Count(desired.count().max(count));
    }
    desired
}

impl PopulationSpec {
    /// What is wrong with the label selector; `None` if nothing is.
    #[must_use]
    pub fn selector_problem(&self) -> Option<String> {
        use gantry_reconcile::labels::Operator;
        let path = "spec.enhancedNodeSelector.labelSelector.matchExpressions";
        let expressions = self.enhanced_node_selector.label_selector.match_expressions.iter();
        expressions.enumerate().find_map(|(place, it)| {
            let takes_values = match it.operator {
                Operator::In | Operator::NotIn => true,
                Operator::Exists | Operator::DoesNotExist => false,
                Operator::Gt | Operator::Lt | Operator::Unknown => {
                    return Some(format!(
                        "{path}[{place}].operator: use In, NotIn, Exists or DoesNotExist"
                    ));
                }
            };
            (takes_values == it.values.is_empty()).then(|| {
                let remedy = if takes_values { "name at least one" } else { "remove them" };
                format!("{path}[{place}].values: {remedy}")
            })
        })
    }

    /// Whether the policy selects a node.
    #[must_use]
    pub fn selects(&self, node: &Node) -> bool {
        let selector = &self.enhanced_node_selector;
        let allocatable = &node.status.allocatable;
        selector.label_selector.matches(&node.metadata.labels)
            && selector.allocatable_resources.iter().all(|(name, bounds)| {
                allocatable.get(name).is_some_and(|amount| {
                    bounds.min.as_ref().is_none_or(|it| amount >= it)
                        && bounds.max.as_ref().is_none_or(|it| amount <= it)
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(labels: &Value, resources: &Value, count: i32) -> Arc<LauncherPopulationPolicy> {
        let spec = json!({
            "enhancedNodeSelector": {"labelSelector": labels, "allocatableResources": resources},
            "countForLauncher": [{"launcherConfigName": "lc", "launcherCount": count}],
        });
        Arc::new(serde_json::from_value(json!({ "spec": spec })).unwrap())
    }

    #[test]
    fn as_50_nodes_are_selected_by_labels_and_resources() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1", "labels": {"gpu": "yes"}},
            "status": {"allocatable": {"nvidia.com/gpu": "4", "memory": "1Gi"}},
        }))
        .unwrap();
        let gpus = |bounds: &Value| json!({ "nvidia.com/gpu": bounds });
        let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
        let table = [
            (json!({}), json!({}), Desired::Count(2)),
            (json!({"matchLabels": {"gpu": "yes"}}), json!({}), Desired::Count(2)),
            (json!({"matchLabels": {"gpu": "no"}}), json!({}), Desired::None),
            (json!({}), gpus(&json!({})), Desired::Count(2)),
            (json!({}), gpus(&json!({"min": 4})), Desired::Count(2)),
            (json!({}), gpus(&json!({"min": 5})), Desired::None),
            (json!({}), gpus(&json!({"max": "4"})), Desired::Count(2)),
            (json!({}), gpus(&json!({"max": 3})), Desired::None),
            (json!({}), json!({"a.b/c": {}}), Desired::None),
            (
                json!({}),
                json!({"nvidia.com/gpu": {"min": 1, "max": 8}, "memory": {"min": "2Gi"}}),
                Desired::None,
            ),
            (unknown, json!({}), Desired::HandsOff),
        ];
        for (labels, resources, expected) in table {
            let policies = [policy(&labels, &resources, 2)];
            let found = desired_launchers(&policies, &node, "lc");
            assert_eq!(found, expected, "{labels} {resources}");
        }
        let several = [1, 3, -4].map(|count| policy(&json!({}), &json!({}), count));
        assert_eq!(desired_launchers(&several, &node, "lc"), Desired::Count(3));
        assert_eq!(desired_launchers(&several[2..], &node, "lc"), Desired::Count(0));
        assert_eq!(desired_launchers(&several, &node, "other"), Desired::None);
        let empty = Arc::new(LauncherPopulationPolicy::default());
        assert_eq!(desired_launchers(&[empty], &node, "lc"), Desired::None);
    }
}
