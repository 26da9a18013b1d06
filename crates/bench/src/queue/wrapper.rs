//! Builds the same jobs for Gantry: AppWrappers around a small custom kind that the job simulator
//! completes.

use serde_json::{Value, json};

use super::shape::{Class, Queue, Shape, cohort_name};

/// The path of AppWrappers.
pub(crate) const APP_WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1";
/// The path of the wrapped jobs.
pub(crate) const PLAYED: &str = "/apis/bench.gantry.dev/v1";
/// The path of CRDs.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The path of quotas. They are read in all namespaces.
pub(crate) const QUOTAS: &str =
    "/apis/quota.codeflare.dev/v1alpha1/namespaces/default/quotasubtrees";
/// The label that holds the class of a job.
pub(crate) const CLASS: &str = "bench.gantry.dev/class";
/// The quota tree, and the label that names a leaf of it.
const TREE: &str = "bench";

/// The CRDs that are served before any job arrives: Gantry's own kinds, and the simulated job.
pub(crate) fn definitions() -> anyhow::Result<Vec<Value>> {
    let ours = gantry_api::object::KINDS.iter();
    let ours = ours.map(|kind| serde_json::to_value(kind.crd()));
    let mut all = ours.collect::<Result<Vec<_>, _>>()?;
    let condition = json!({"type": "object", "properties": {
        "type": {"type": "string"}, "status": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"runtimeMs": {"type": "integer"}}},
        "status": {"type": "object", "properties": {
            "conditions": {"type": "array", "items": condition}}},
    }});
    all.push(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "playedjobs.bench.gantry.dev"},
        "spec": {
            "group": "bench.gantry.dev",
            "names": {"kind": "PlayedJob", "plural": "playedjobs", "singular": "playedjob",
                      "listKind": "PlayedJobList"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    }));
    Ok(all)
}

/// A wrapped job of this class. In a queue it is charged to the queue's quota.
pub(crate) fn app_wrapper(namespace: &str, name: &str, class: &Class, quota: bool) -> Value {
    let mut labels = json!({CLASS: class.name});
    if quota {
        labels[TREE] = json!(namespace);
    }
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1",
        "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "priority": class.priority,
            "resources": {"GenericItems": [{
                "replicas": 1,
                "completionstatus": "Complete",
                "custompodresources": [{
                    "replicas": 1,
                    "requests": {"cpu": class.cpu.to_string()},
                    "limits": {"cpu": class.cpu.to_string()},
                }],
                "generictemplate": {
                    "apiVersion": "bench.gantry.dev/v1",
                    "kind": "PlayedJob",
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": {"runtimeMs": class.runs.as_millis()},
                },
            }]},
        },
    })
}

/// One tree: all CPUs at the root, the cohorts below it, the queues below them. None has a hard
/// limit, which would keep a queue from reclaiming its own quota.
pub(crate) fn quotas(shape: &Shape) -> Vec<Value> {
    let subtree = |name: &str, parent: Option<&str>, children: Vec<Value>| {
        json!({
            "apiVersion": "quota.codeflare.dev/v1alpha1",
            "kind": "QuotaSubtree",
            "metadata": {"name": name, "namespace": "default", "labels": {"tree": TREE}},
            "spec": {"parent": parent.unwrap_or("nil"), "children": children},
        })
    };
    let child = |name: &str, cpu: u64| {
        json!({"name": name, "quotas": {
            "hardLimit": false, "requests": {"cpu": cpu.to_string()}}})
    };
    let (each, all) = shape.cpus();
    let cohorts: Vec<String> = (0..shape.cohorts).map(cohort_name).collect();
    let below = |cohort: &String| {
        let queues = shape.all_queues().into_iter();
        let queues = queues.filter(|queue: &Queue| queue.cohort == *cohort);
        queues.map(|queue| child(&queue.name, shape.quota.into())).collect()
    };
    let mut subtrees = vec![
        subtree("top", None, vec![child("root", all)]),
        subtree("cohorts", Some("root"), cohorts.iter().map(|it| child(it, each)).collect()),
    ];
    subtrees.extend(cohorts.iter().map(|it| subtree(it, Some(it), below(it))));
    subtrees
}

/// Nodes that have so many CPUs together. They have no kubelet.
pub(crate) fn nodes(cpus: u64) -> Vec<Value> {
    const CPUS_PER_NODE: u64 = 20;
    let node = |nth: u64| {
        let capacity = json!({"cpu": CPUS_PER_NODE.to_string(), "memory": "256Gi", "pods": "110"});
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("node-{nth:04}")},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady"}]},
        })
    };
    (0..cpus.div_ceil(CPUS_PER_NODE)).map(node).collect()
}

/// A namespace.
pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_tree_hands_out_what_the_cohorts_own() {
        let all = quotas(&Shape::BASELINE);
        assert_eq!(all.len(), 2 + 5);
        assert_eq!(all[0]["spec"]["children"][0]["quotas"]["requests"]["cpu"], "600");
        assert_eq!(all[1]["spec"]["children"].as_array().map(Vec::len), Some(5));
        assert_eq!(all[1]["spec"]["children"][0]["quotas"]["requests"]["cpu"], "120");
        let last = &all[6]["spec"];
        assert_eq!(last["parent"], "cohort-4");
        assert_eq!(last["children"].as_array().map(Vec::len), Some(6));
        assert_eq!(last["children"][5]["name"], "cq-0-5-cohort-4");
    }

    #[test]
    fn nodes_have_all_the_cpus_that_are_owned() {
        assert_eq!(nodes(600).len(), 30);
        assert_eq!(nodes(0).len(), 0);
    }

    #[test]
    fn a_job_is_an_app_wrapper_that_we_accept() {
        let class = &Shape::BASELINE.classes[0];
        let wrapped = app_wrapper("q", "small-0-0-0", class, true);
        let text = wrapped.to_string();
        let parsed: gantry_api::queue::AppWrapper = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed.spec.priority, 50);
        assert_eq!(wrapped["metadata"]["labels"][TREE], "q");
    }
}
