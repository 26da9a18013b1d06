//! LauncherPopulationPolicy: how many idle launchers each node has.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ObservedStatus;
use crate::finding::Findings;
use crate::kind::Trust;
use crate::object::object;
use crate::quantity::Quantity;
use gantry_yaml::node::Path;

object! {
    /// LauncherPopulationPolicy says how many launchers of which configuration stand by on each
    /// node it selects.
    pub struct LauncherPopulationPolicy {
        /// The nodes and the counts.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<LauncherPopulationPolicySpec>,
        /// What the controllers have to say.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<ObservedStatus>,
    }
    group: "fma.llm-d.ai",
    version: "v1alpha1",
    plural: "launcherpopulationpolicies",
    scope: Namespaced,
    short_names: &["lpp"],
    status: true,
    trust: Trust::Tenant,
}

/// The nodes and the counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LauncherPopulationPolicySpec {
    /// The nodes this policy is about.
    pub enhanced_node_selector: NodeSelector,
    /// How many launchers each of those nodes holds, one entry per LauncherConfig.
    #[schemars(
        extend(
            "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["launcherConfigName"]
        )
    )]
    pub count_for_launcher: Vec<LauncherCount>,
}

/// Nodes by label and by what they have to give.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    /// Labels of the nodes. Empty selects every node.
    #[schemars(schema_with = "crate::kubernetes::label_selector")]
    pub label_selector: LabelSelector,
    /// Bounds on what a node has allocatable, by resource. A node without the resource does not
    /// match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable_resources: BTreeMap<String, ResourceRange>,
}

/// An amount between two bounds, both included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceRange {
    /// Least amount; absent means no lower bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Quantity>,
    /// Greatest amount; absent means no upper bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Quantity>,
}

/// Launchers of one configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LauncherCount {
    /// Name of the LauncherConfig, in the same namespace.
    pub launcher_config_name: String,
    /// How many launchers per node. A negative number counts as 0.
    pub launcher_count: i32,
}

impl LauncherPopulationPolicy {
    /// Checks what the schema does not. The server accepts all of it, so these are warnings.
    pub fn validate(&self, findings: &mut Findings) {
        let path = Path::of("spec");
        let Some(spec) = &self.spec else {
            findings.warn(&path, "absent: the policy selects nothing");
            return;
        };
        for (index, count) in spec.count_for_launcher.iter().enumerate() {
            if count.launcher_count < 0 {
                findings.warn(
                    &path.key("countForLauncher").index(index).key("launcherCount"),
                    format!("{} is negative and counts as 0", count.launcher_count),
                );
            }
        }
        for (name, range) in &spec.enhanced_node_selector.allocatable_resources {
            if let (Some(min), Some(max)) = (&range.min, &range.max)
                && min > max
            {
                let path = path.join("enhancedNodeSelector.allocatableResources").key(name);
                findings.warn(&path, format!("min {min} is more than max {max}: no node matches"));
            }
        }
    }
}
