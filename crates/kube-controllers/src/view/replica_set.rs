//! ReplicaSets and ReplicationControllers.

use std::collections::BTreeMap;

use gantry_reconcile::{Meta, Resource, Selector, View};
use serde::Deserialize;
use serde_json::Value;

use super::Condition;

/// A ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSet {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: ReplicaSetSpec,
    /// The observed state.
    pub status: ReplicaSetStatus,
}

impl View for ReplicaSet {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The spec of a replica set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetSpec {
    /// The desired number of pods.
    pub replicas: i64,
    /// How long a pod must be ready to count as available, in seconds.
    pub min_ready_seconds: i64,
    /// The selector of its pods; none match when absent.
    pub selector: Option<Selector>,
    /// The template of its pods.
    pub template: Value,
}

impl Default for ReplicaSetSpec {
    fn default() -> Self {
        Self { replicas: 1, min_ready_seconds: 0, selector: None, template: Value::Null }
    }
}

/// The status of a replica set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    /// The number of pods.
    pub replicas: i64,
    /// The number of pods that have all labels of the template.
    pub fully_labeled_replicas: i64,
    /// The number of ready pods.
    pub ready_replicas: i64,
    /// The number of available pods.
    pub available_replicas: i64,
    /// The generation this status is for.
    pub observed_generation: i64,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// A ReplicationController, the predecessor of the ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, from = "WholeReplicationController")]
pub struct ReplicationController {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state. The selector is that of a replica set with the same labels.
    pub spec: ReplicaSetSpec,
    /// The observed state.
    pub status: ReplicaSetStatus,
}

impl View for ReplicationController {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "replicationcontrollers", "ReplicationController");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A ReplicationController as it is serialized.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WholeReplicationController {
    metadata: Meta,
    spec: ReplicationControllerSpec,
    status: ReplicaSetStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReplicationControllerSpec {
    replicas: i64,
    min_ready_seconds: i64,
    selector: Option<BTreeMap<String, String>>,
    template: Value,
}

impl Default for ReplicationControllerSpec {
    fn default() -> Self {
        Self { replicas: 1, min_ready_seconds: 0, selector: None, template: Value::Null }
    }
}

impl From<WholeReplicationController> for ReplicationController {
    fn from(whole: WholeReplicationController) -> Self {
        let WholeReplicationController { metadata, spec, status } = whole;
        // An empty selector selects no pods here, and all of them in a replica set.
        let labels = spec.selector.filter(|labels| !labels.is_empty());
        let selector = labels.map(|match_labels| Selector { match_labels, ..Selector::default() });
        let spec = ReplicaSetSpec {
            replicas: spec.replicas,
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: spec.template,
        };
        Self { metadata, spec, status }
    }
}
