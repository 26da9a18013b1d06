//! Scheduling constraints of pods: tolerations, affinity and topology spread.

use gantry_reconcile::Selector;
use gantry_reconcile::labels::Requirement;
use serde::Deserialize;

/// A toleration of taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// The taint's key; empty for every one.
    pub key: String,
    /// `Exists`, or `Equal` when empty.
    pub operator: String,
    /// The taint's value.
    pub value: String,
    /// The taint's effect; empty for every one.
    pub effect: String,
    /// For how long the taint is tolerated with effect `NoExecute`, in seconds; without end when
    /// absent.
    pub toleration_seconds: Option<i64>,
}

/// The affinity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Its affinity to nodes.
    pub node_affinity: NodeAffinity,
    /// Its affinity to other pods.
    pub pod_affinity: PodAffinity,
    /// Its anti-affinity to other pods.
    pub pod_anti_affinity: PodAffinity,
}

/// The affinity of a pod to nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// One of these terms must match.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    /// Nodes that match these terms are preferred.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<PreferredSchedulingTerm>,
}

/// A selector that matches nodes by any of its terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms, of which one must match.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// A term that matches nodes that fulfil all of its requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    pub match_expressions: Vec<Requirement>,
    /// Requirements on `metadata.name`.
    pub match_fields: Vec<Requirement>,
}

/// A preference for nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PreferredSchedulingTerm {
    /// The weight of the preference.
    pub weight: i64,
    /// The preferred nodes.
    pub preference: NodeSelectorTerm,
}

/// The affinity or anti-affinity of a pod to other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// All of these terms must hold.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Vec<PodAffinityTerm>,
    /// Nodes for which these terms hold are preferred.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

/// A preference about other pods, with its weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodAffinityTerm {
    /// The weight of the preference.
    pub weight: i64,
    /// The term.
    pub pod_affinity_term: PodAffinityTerm,
}

/// Other pods, and the topology domain that counts as near.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// Which pods; none when absent.
    pub label_selector: Option<Selector>,
    /// In which namespaces.
    pub namespaces: Vec<String>,
    /// Namespaces with these labels are included too.
    pub namespace_selector: Option<Selector>,
    /// Nodes with the same value of this label are in one domain.
    pub topology_key: String,
}

/// How pods spread over topology domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// By how many pods the fullest domain may exceed the emptiest.
    pub max_skew: i64,
    /// Nodes with the same value of this label are in one domain.
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    /// Which pods are counted.
    pub label_selector: Option<Selector>,
    /// How many domains there should be at least.
    pub min_domains: Option<i64>,
    /// Labels whose values pods must share with this one to be counted.
    pub match_label_keys: Vec<String>,
    /// `Ignore` if nodes that the pod cannot be on count as well.
    pub node_affinity_policy: String,
    /// `Honor` if nodes with taints that the pod does not tolerate do not count.
    pub node_taints_policy: String,
}
