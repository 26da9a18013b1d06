//! The pods of a daemon set: which node they are for and what they are like.

use std::sync::Arc;

use gantry_reconcile::labels::Operator;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ByNode, HASH_LABEL};
use crate::view::{DaemonSet, Pod, PodSpec, Toleration};
use crate::workloads::template;

/// The number of the template, as the server counts it.
const GENERATION: &str = "deprecated.daemonset.template.generation";
/// The label of a pod that carries that number.
const GENERATION_LABEL: &str = "pod-template-generation";

/// What every daemon puts up with: it belongs to its node, whatever becomes of that.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// What daemons on the node's own network put up with too.
const WITHOUT_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

fn tolerated(host_network: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    TOLERATED.into_iter().chain(host_network.then_some(WITHOUT_NETWORK))
}

/// What of a template decides where its pods are.
pub(super) fn spec(template: &Value) -> Option<PodSpec> {
    let mut spec = PodSpec::deserialize(template.get("spec")?).ok()?;
    for (key, effect) in tolerated(spec.host_network) {
        spec.tolerations.push(Toleration {
            key: key.to_owned(),
            operator: "Exists".to_owned(),
            effect: effect.to_owned(),
            ..Toleration::default()
        });
    }
    Some(spec)
}

/// The number of a set's template.
fn generation(set: &DaemonSet) -> Option<&String> {
    let number = set.metadata.annotations.get(GENERATION)?;
    number.parse::<i64>().is_ok().then_some(number)
}

/// Whether a pod has the template as it is now.
pub(super) fn is_updated(set: &DaemonSet, hash: &str, pod: &Pod) -> bool {
    let labels = &pod.metadata.labels;
    let same = generation(set).is_some_and(|it| labels.get(GENERATION_LABEL) == Some(it));
    same || labels.get(HASH_LABEL).is_some_and(|it| it == hash)
}

/// A pod for a node.
pub(super) fn made_for(set: &DaemonSet, hash: &str, node: &str, name: &str) -> Value {
    let mut pod = template::pod::<DaemonSet>(&set.spec.template, &set.metadata, name);
    if let Some(number) = generation(set) {
        pod["metadata"]["labels"][GENERATION_LABEL] = json!(number);
    }
    pod["metadata"]["labels"][HASH_LABEL] = json!(hash);
    let host_network = pod["spec"]["hostNetwork"].as_bool().unwrap_or_default();
    let mut all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for (key, effect) in tolerated(host_network) {
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

/// The node a pod is on, or was made for.
pub(super) fn target(pod: &Pod) -> Option<&str> {
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

/// Pods by node, those first that are there and older. Pods that are over and going count no more.
pub(super) fn by_node(pods: &[Arc<Pod>]) -> ByNode<'_> {
    let mut nodes = ByNode::new();
    for pod in pods {
        if let Some(node) = target(pod)
            && !(pod.is_over() && pod.metadata.is_going())
        {
            nodes.entry(node).or_default().push(pod);
        }
    }
    nodes.values_mut().for_each(|pods| pods.sort_by_cached_key(|pod| age(pod)));
    nodes
}

fn age(pod: &Pod) -> (bool, Option<Timestamp>, String) {
    let meta = &pod.metadata;
    (pod.spec.node_name.is_empty(), meta.creation_timestamp, meta.name.clone())
}
