//! Where pods want to be.

use gantry_reconcile::Selector;
use gantry_reconcile::labels::Requirement;
use serde::Deserialize;

/// A taint that is put up with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// The taint; empty for every one.
    pub key: String,
    /// `Exists`, or `Equal` when empty.
    pub operator: String,
    /// The taint's value.
    pub value: String,
    /// The taint's effect; empty for every one.
    pub effect: String,
    /// For how long, with effect `NoExecute`; for ever when absent.
    pub toleration_seconds: Option<i64>,
}

/// Where a pod wants to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// By nodes.
    pub node_affinity: NodeAffinity,
    /// Near other pods.
    pub pod_affinity: PodAffinity,
    /// Far from other pods.
    pub pod_anti_affinity: PodAffinity,
}

/// Which nodes a pod wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// One of these must do.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    /// These are better.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<Preferred>,
}

/// Nodes of which one of some things is true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// One of these must be true.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Nodes of which all of this is true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// About labels.
    pub match_expressions: Vec<Requirement>,
    /// About `metadata.name`.
    pub match_fields: Vec<Requirement>,
}

/// Nodes that are better.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Preferred {
    /// By how much.
    pub weight: i64,
    /// Which.
    pub preference: NodeSelectorTerm,
}

/// Other pods to be near to, or far from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// All of these must be so.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Vec<PodAffinityTerm>,
    /// These are better.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<Weighted>,
}

/// A wish about other pods, and how strong it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Weighted {
    /// How strong.
    pub weight: i64,
    /// The wish.
    pub pod_affinity_term: PodAffinityTerm,
}

/// Other pods, and what counts as near.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// Which pods; none when absent.
    pub label_selector: Option<Selector>,
    /// In which namespaces.
    pub namespaces: Vec<String>,
    /// In namespaces with these labels too.
    pub namespace_selector: Option<Selector>,
    /// Nodes with the same value of this label are near each other.
    pub topology_key: String,
}

/// How pods spread over parts of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint {
    /// By how many the fullest part may exceed the emptiest.
    pub max_skew: i64,
    /// Nodes with the same value of this label are one part.
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    /// Which pods are counted.
    pub label_selector: Option<Selector>,
    /// How many parts there should be at least.
    pub min_domains: Option<i64>,
    /// Labels whose values pods must share with this one to be counted.
    pub match_label_keys: Vec<String>,
    /// `Ignore` when nodes the pod cannot be on count as well.
    pub node_affinity_policy: String,
    /// `Honor` when nodes with taints the pod does not put up with do not count.
    pub node_taints_policy: String,
}
