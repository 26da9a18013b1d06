//! Replica sets and replication controllers.

use std::collections::BTreeMap;

use gantry_reconcile::{Meta, Resource, Selector, View};
use serde::Deserialize;
use serde_json::Value;

use super::Condition;

/// A replica set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSet {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: ReplicaSetSpec,
    /// What is.
    pub status: ReplicaSetStatus,
}

impl View for ReplicaSet {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What is wanted of a replica set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetSpec {
    /// How many pods there should be.
    pub replicas: i64,
    /// How long a pod must be ready to count as available, in seconds.
    pub min_ready_seconds: i64,
    /// Which pods are meant; none when absent.
    pub selector: Option<Selector>,
    /// What its pods are like.
    pub template: Value,
}

impl Default for ReplicaSetSpec {
    fn default() -> Self {
        Self { replicas: 1, min_ready_seconds: 0, selector: None, template: Value::Null }
    }
}

/// What is true of a replica set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    /// How many pods there are.
    pub replicas: i64,
    /// How many have all labels of the template.
    pub fully_labeled_replicas: i64,
    /// How many are ready.
    pub ready_replicas: i64,
    /// How many have been ready for long enough.
    pub available_replicas: i64,
    /// What was wanted when this was written.
    pub observed_generation: i64,
    /// What is true of it.
    pub conditions: Vec<Condition>,
}

/// As many pods of one template as are wanted, as before there were replica sets.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, from = "WholeReplicationController")]
pub struct ReplicationController {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted. The selector is that of a replica set with the same labels.
    pub spec: ReplicaSetSpec,
    /// What is.
    pub status: ReplicaSetStatus,
}

impl View for ReplicationController {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "replicationcontrollers", "ReplicationController");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A replication controller as it is written.
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
        // An empty selector means no pods here, and all of them in a replica set.
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
