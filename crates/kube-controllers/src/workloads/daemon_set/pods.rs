//! The pods of a daemon set: their target nodes and their content.

use std::sync::Arc;

use gantry_reconcile::labels::Operator;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ByNode, HASH_LABEL};
use crate::view::{DaemonSet, Pod, PodSpec, Toleration};
use crate::workloads::template;

/// The annotation with the number of the template, as the server counts it.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// The label of a pod with that number.
const GENERATION_LABEL: &str = "pod-template-generation";

/// The taints that every daemon tolerates: it belongs to its node, whatever its state.
const DAEMON_TOLERATIONS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// The taint that daemons on the host network tolerate too.
const HOST_NETWORK_TOLERATION: (&str, &str) =
    ("node.kubernetes.io/network-unavailable", "NoSchedule");

fn daemon_tolerations(host_network: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    DAEMON_TOLERATIONS.into_iter().chain(host_network.then_some(HOST_NETWORK_TOLERATION))
}

/// Returns the fields of a template that decide where its pods run.
pub(super) fn pod_spec(template: &Value) -> Option<PodSpec> {
    let mut spec = PodSpec::deserialize(template.get("spec")?).ok()?;
    for (key, effect) in daemon_tolerations(spec.host_network) {
        spec.tolerations.push(Toleration {
            key: key.to_owned(),
            operator: "Exists".to_owned(),
            effect: effect.to_owned(),
            ..Toleration::default()
        });
    }
    Some(spec)
}

/// Returns the number of a set's template.
fn generation(set: &DaemonSet) -> Option<&String> {
    let number = set.metadata.annotations.get(TEMPLATE_GENERATION)?;
    number.parse::<i64>().is_ok().then_some(number)
}

/// Returns whether a pod has the current template.
pub(super) fn is_updated(set: &DaemonSet, hash: &str, pod: &Pod) -> bool {
    let labels = &pod.metadata.labels;
    let same = generation(set).is_some_and(|it| labels.get(GENERATION_LABEL) == Some(it));
    same || labels.get(HASH_LABEL).is_some_and(|it| it == hash)
}

/// Returns the pod for a node.
pub(super) fn pod_body(set: &DaemonSet, hash: &str, node: &str, name: &str) -> Value {
    let mut pod = template::pod::<DaemonSet>(&set.spec.template, &set.metadata, name);
    if let Some(number) = generation(set) {
        pod["metadata"]["labels"][GENERATION_LABEL] = json!(number);
    }
    pod["metadata"]["labels"][HASH_LABEL] = json!(hash);
    let host_network = pod["spec"]["hostNetwork"].as_bool().unwrap_or_default();
    let mut all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for (key, effect) in daemon_tolerations(host_network) {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        let same = |it: &&mut Value| {
            let value = it["value"].as_str().unwrap_or_default();
            it["key"] == key
                && it["operator"] == "Exists"
                && it["effect"] == effect
                && value.is_empty()
        };
        match all.iter_mut().find(same) {
            Some(known) => *known = toleration,
            None => all.push(toleration),
        }
    }
    pod["spec"]["tolerations"] = Value::Array(all);
    let term =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [term]});
    pod
}

/// Returns the node a pod is on, or was created for.
pub(super) fn target_node(pod: &Pod) -> Option<&str> {
    if !pod.spec.node_name.is_empty() {
        return Some(&pod.spec.node_name);
    }
    let required = pod.spec.affinity.node_affinity.required.as_ref()?;
    let mut fields = required.node_selector_terms.iter().flat_map(|it| &it.match_fields);
    let named = fields.find(|it| it.key == "metadata.name" && it.operator == Operator::In)?;
    match named.values.as_slice() {
        [node] => Some(node),
        _ => None,
    }
}

/// Returns pods by node, bound and older ones first. Finished pods that are being deleted are left
/// out.
pub(super) fn by_node(pods: &[Arc<Pod>]) -> ByNode<'_> {
    let mut nodes = ByNode::new();
    for pod in pods {
        if let Some(node) = target_node(pod)
            && !(pod.is_terminal() && pod.metadata.is_terminating())
        {
            nodes.entry(node).or_default().push(pod);
        }
    }
    nodes.values_mut().for_each(|pods| pods.sort_by_cached_key(|pod| age_order(pod)));
    nodes
}

fn age_order(pod: &Pod) -> (bool, Option<Timestamp>, String) {
    let meta = &pod.metadata;
    (pod.spec.node_name.is_empty(), meta.creation_timestamp, meta.name.clone())
}
