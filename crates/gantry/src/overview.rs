//! Renders the state of a cluster on one screen: what runs, what is held, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use gantry_api::quantity::Quantity;
use gantry_columns::align;
use serde::Serialize;
use serde_json::Value;

/// The objects an overview is computed from.
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    /// The URL of the server.
    pub server: String,
    /// The context that was used, if any.
    pub context: Option<String>,
    /// The kubeconfig file.
    pub kubeconfig: Option<String>,
    /// The server's version.
    pub version: String,
    /// The namespace, if only one was read.
    pub namespace: Option<String>,
    /// Nodes, if they may be read.
    pub nodes: Option<Vec<Value>>,
    /// Pods.
    pub pods: Vec<Value>,
    /// Objects of other kinds, by kind.
    pub others: BTreeMap<String, Vec<Value>>,
    /// The number of objects of each of Gantry's own kinds.
    pub own: BTreeMap<String, u64>,
    /// The status page of the process that runs the controllers, if it has one.
    pub process: Option<Value>,
}

/// The overview of a cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    server: String,
    context: Option<String>,
    kubeconfig: Option<String>,
    version: String,
    namespace: Option<String>,
    nodes: Option<NodeCounts>,
    resources: Vec<ResourceUsage>,
    pods: BTreeMap<String, usize>,
    workloads: Vec<WorkloadCounts>,
    own: BTreeMap<String, u64>,
    controllers: Option<u64>,
    held: Vec<HeldObject>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeCounts {
    ready: usize,
    not_ready: usize,
    unschedulable: usize,
}

/// How much of a resource is requested, and how much there is.
#[derive(Clone, Debug, Serialize)]
struct ResourceUsage {
    name: String,
    used: String,
    total: String,
}

#[derive(Clone, Debug, Serialize)]
struct WorkloadCounts {
    kind: String,
    well: usize,
    all: usize,
}

/// An object that is held or not in its desired state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct HeldObject {
    object: String,
    reason: String,
    message: String,
}

impl Overview {
    /// Computes the overview.
    #[must_use]
    pub fn from_snapshot(seen: &ClusterSnapshot) -> Self {
        let mut pods = BTreeMap::new();
        for pod in &seen.pods {
            let phase = text(pod, "/status/phase");
            let phase = if is_terminating(pod) { "Terminating" } else { phase };
            *pods.entry(phase.to_owned()).or_default() += 1;
        }
        let process = seen.process.as_ref();
        let controllers = process.and_then(|it| it["controllers"].as_u64());
        Self {
            server: seen.server.clone(),
            context: seen.context.clone(),
            kubeconfig: seen.kubeconfig.clone(),
            version: seen.version.clone(),
            namespace: seen.namespace.clone(),
            nodes: seen.nodes.as_deref().map(nodes),
            resources: amounts(seen),
            pods,
            workloads: workloads(&seen.others),
            own: seen.own.iter().filter(|(_, count)| **count > 0).map(owned).collect(),
            controllers,
            held: held_objects(seen),
        }
    }

    /// Renders the screen, with at most `lines` held objects.
    #[must_use]
    pub fn render(&self, lines: usize) -> String {
        let Self { server, context, kubeconfig, version, nodes, resources, pods, .. } = self;
        let Self { namespace, workloads, own, controllers, held, .. } = self;
        let mut rows = vec![("cluster", format!("{server} ({version})"))];
        match (context, kubeconfig) {
            (Some(context), Some(file)) => rows.push(("context", format!("{context} of {file}"))),
            (Some(context), None) => rows.push(("context", context.clone())),
            (None, Some(file)) => rows.push(("kubeconfig", file.clone())),
            (None, None) => {}
        }
        if let Some(count) = controllers {
            rows.push(("controllers", format!("{count} running")));
        }
        rows.extend(nodes.as_ref().map(|it| ("nodes", it.to_string())));
        rows.extend(namespace.as_ref().map(|it| ("namespace", it.clone())));
        let amounts: Vec<String> = resources.iter().map(ToString::to_string).collect();
        if !amounts.is_empty() {
            rows.push(("requested", amounts.join("   ")));
        }
        let counts: Vec<String> =
            pods.iter().map(|(phase, count)| format!("{count} {}", phase.to_lowercase())).collect();
        let none = || "none".to_owned();
        rows.push(("pods", if counts.is_empty() { none() } else { counts.join(", ") }));
        for WorkloadCounts { kind, well, all } in workloads {
            rows.push((kind, format!("{well} of {all} healthy")));
        }
        let own: Vec<String> = own.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        if !own.is_empty() {
            rows.push(("objects", own.join(", ")));
        }
        let mut page = String::new();
        // Writing to a `String` cannot fail.
        for (name, text) in rows {
            let _ = writeln!(page, "{name:<13} {text}");
        }
        let _ = match held.len() {
            0 => writeln!(page, "nothing is held"),
            count => writeln!(page, "{count} held:"),
        };
        let held_rows = held.iter().take(lines).map(|HeldObject { object, reason, message }| {
            [format!("  {object}"), format!("{reason}: {message}")]
        });
        page.push_str(&align(&held_rows.collect::<Vec<_>>(), 2));
        if held.len() > lines {
            let left = held.len() - lines;
            let _ = writeln!(page, "  and {left} more; show them with: gantry status -o wide");
        }
        page
    }
}

impl fmt::Display for NodeCounts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ready, not_ready, unschedulable } = self;
        write!(to, "{ready} ready")?;
        if *not_ready > 0 {
            write!(to, ", {not_ready} not ready")?;
        }
        if *unschedulable > 0 {
            write!(to, ", {unschedulable} cordoned")?;
        }
        Ok(())
    }
}

impl fmt::Display for ResourceUsage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}/{}", self.name, self.used, self.total)
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn is_terminating(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|it| it["type"] == kind)
}

fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|it| it["status"] == status)
}

fn name(kind: &str, object: &Value) -> String {
    let name = text(object, "/metadata/name");
    match text(object, "/metadata/namespace") {
        "" => format!("{kind}/{name}"),
        namespace => format!("{kind}/{name} -n {namespace}"),
    }
}

fn nodes(nodes: &[Value]) -> NodeCounts {
    let ready = nodes.iter().filter(|node| has_condition(node, "Ready", "True")).count();
    let cordoned = nodes.iter().filter(|node| node["spec"]["unschedulable"] == true).count();
    NodeCounts { ready, not_ready: nodes.len() - ready, unschedulable: cordoned }
}

/// Sums what running and pending pods request, beside what nodes have.
fn amounts(seen: &ClusterSnapshot) -> Vec<ResourceUsage> {
    let mut totals: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut used: BTreeMap<&str, Quantity> = BTreeMap::new();
    for node in seen.nodes.iter().flatten() {
        add(&mut totals, node.pointer("/status/allocatable"));
    }
    let alive = |pod: &&Value| {
        !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
            && !text(pod, "/spec/nodeName").is_empty()
    };
    for pod in seen.pods.iter().filter(alive) {
        for container in list(pod, "/spec/containers") {
            add(&mut used, container.pointer("/resources/requests"));
        }
    }
    let shown = |(name, total): (&&str, &Quantity)| ResourceUsage {
        name: (*name).to_owned(),
        used: used.get(name).map_or_else(|| "0".to_owned(), ToString::to_string),
        total: total.to_string(),
    };
    // The number of pods and the disk are rarely what is short.
    let telling = |name: &str| {
        !matches!(name, "pods" | "ephemeral-storage") && !name.starts_with("hugepages-")
    };
    totals.iter().filter(|(name, _)| telling(name)).map(shown).collect()
}

fn add<'a>(sums: &mut BTreeMap<&'a str, Quantity>, amounts: Option<&'a Value>) {
    for (name, amount) in amounts.and_then(Value::as_object).into_iter().flatten() {
        // The server validated quantities when they were written.
        let Ok(amount) = Quantity::parse(amount.as_str().unwrap_or_default()) else { continue };
        let sum = sums.get(name.as_str()).map_or(Ok(amount), |sum| sum.checked_add(amount));
        if let Ok(sum) = sum {
            sums.insert(name, sum);
        }
    }
}

fn owned((kind, count): (&String, &u64)) -> (String, u64) {
    (kind.clone(), *count)
}

fn workloads(others: &BTreeMap<String, Vec<Value>>) -> Vec<WorkloadCounts> {
    let all = others.iter().filter(|(_, objects)| !objects.is_empty());
    let row = |(kind, objects): (&String, &Vec<Value>)| WorkloadCounts {
        kind: kind.clone(),
        well: objects.iter().filter(|object| is_healthy(kind, object)).count(),
        all: objects.len(),
    };
    all.map(row).collect()
}

/// Returns whether a workload is in its desired state.
fn is_healthy(kind: &str, object: &Value) -> bool {
    let wanted = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    let seen =
        number(object, "/status/observedGeneration") >= number(object, "/metadata/generation");
    match kind {
        "deployments" => {
            seen && number(object, "/status/availableReplicas") >= wanted
                && number(object, "/status/updatedReplicas") >= wanted
        }
        "statefulsets" => seen && number(object, "/status/readyReplicas") >= wanted,
        "daemonsets" => {
            let wanted = number(object, "/status/desiredNumberScheduled");
            seen && number(object, "/status/numberAvailable") >= wanted
        }
        "jobs" => {
            !has_condition(object, "Failed", "True") && !has_condition(object, "Suspended", "True")
        }
        _ => true,
    }
}

/// Collects the objects that are not in their desired state, each once.
fn held_objects(seen: &ClusterSnapshot) -> Vec<HeldObject> {
    let mut lines = BTreeSet::new();
    let process = seen.process.iter().flat_map(|it| list(it, "/held"));
    let process = process.filter(|it| {
        seen.namespace.as_ref().is_none_or(|namespace| it["namespace"] == namespace.as_str())
    });
    for held in process {
        let object = serde_json::json!({"metadata": {
            "name": held["name"], "namespace": held["namespace"],
        }});
        lines.insert(HeldObject {
            object: name(&text(held, "/kind").to_lowercase(), &object),
            reason: text(held, "/reason").to_owned(),
            message: text(held, "/message").to_owned(),
        });
    }
    let mut tell = |kind: &str, object: &Value, why: &Value| {
        lines.insert(HeldObject {
            object: name(kind, object),
            reason: text(why, "/reason").to_owned(),
            message: text(why, "/message").to_owned(),
        });
    };
    for node in seen.nodes.iter().flatten().filter(|node| !has_condition(node, "Ready", "True")) {
        let unknown =
            serde_json::json!({"reason": "NotReady", "message": "the node has no Ready condition"});
        tell("node", node, condition(node, "Ready").unwrap_or(&unknown));
    }
    for pod in &seen.pods {
        if let Some(why) = condition(pod, "PodScheduled").filter(|it| it["status"] == "False") {
            tell("pod", pod, why);
        }
        let running = text(pod, "/status/phase") == "Running" && !is_terminating(pod);
        if let Some(why) = condition(pod, "Ready").filter(|it| running && it["status"] == "False") {
            tell("pod", pod, why);
        }
        let containers = ["/status/initContainerStatuses", "/status/containerStatuses"];
        for container in containers.iter().flat_map(|it| list(pod, it)) {
            let why = container.pointer("/state/waiting");
            let plain = |why: &&Value| {
                matches!(text(why, "/reason"), "ContainerCreating" | "PodInitializing" | "")
            };
            if let Some(why) = why.filter(|why| !plain(why)) {
                tell("pod", pod, why);
            }
        }
    }
    for (kind, sign, status) in [
        ("deployments", "Progressing", "False"),
        ("deployments", "ReplicaFailure", "True"),
        ("jobs", "Failed", "True"),
        ("jobs", "Suspended", "True"),
    ] {
        for object in seen.others.get(kind).into_iter().flatten() {
            if let Some(why) = condition(object, sign).filter(|it| it["status"] == status) {
                tell(kind.trim_end_matches('s'), object, why);
            }
        }
    }
    lines.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot() -> ClusterSnapshot {
        let node = |name: &str, ready: &str| {
            json!({
                "metadata": {"name": name},
                "spec": {"unschedulable": name == "c"},
                "status": {
                    "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "example.com/gpu": "4"},
                    "conditions": [{"type": "Ready", "status": ready, "reason": "NodeStatusUnknown",
                                    "message": "Kubelet stopped posting node status."}],
                },
            })
        };
        let pod = |name: &str, node: &str, phase: &str| {
            json!({
                "metadata": {"name": name, "namespace": "n"},
                "spec": {"nodeName": node, "containers": [
                    {"resources": {"requests": {"cpu": "500m", "example.com/gpu": "1"}}},
                    {"resources": {"requests": {"cpu": "1"}}},
                ]},
                "status": {"phase": phase},
            })
        };
        let mut waiting = pod("big", "", "Pending");
        waiting["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."}]);
        let mut broken = pod("loop", "a", "Running");
        broken["status"]["containerStatuses"] = json!([{"state": {"waiting": {
            "reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}}]);
        let deployment = json!({
            "metadata": {"name": "web", "namespace": "n", "generation": 2},
            "spec": {"replicas": 2},
            "status": {"observedGeneration": 2, "availableReplicas": 2, "updatedReplicas": 1},
        });
        ClusterSnapshot {
            server: "https://127.0.0.1:6443".to_owned(),
            context: Some("gantry".to_owned()),
            kubeconfig: Some("/k".to_owned()),
            version: "v1.34.10".to_owned(),
            namespace: None,
            nodes: Some(vec![node("a", "True"), node("b", "Unknown"), node("c", "True")]),
            pods: vec![waiting.clone(), broken, pod("done", "a", "Succeeded")],
            others: BTreeMap::from([("deployments".to_owned(), vec![deployment])]),
            own: BTreeMap::from([("AppWrapper".to_owned(), 2), ("Module".to_owned(), 0)]),
            process: Some(json!({"controllers": 2, "held": [{
                "kind": "Pod", "namespace": "n", "name": "big", "reason": "Unschedulable",
                "message": "0/3 nodes are available: 3 Insufficient cpu."}]})),
        }
    }

    #[test]
    fn one_screen_says_what_runs_and_what_is_held() {
        let page = Overview::from_snapshot(&snapshot()).render(2);
        let expected = "\
cluster       https://127.0.0.1:6443 (v1.34.10)
context       gantry of /k
controllers   2 running
nodes         2 ready, 1 not ready, 1 cordoned
requested     cpu 1500m/24   example.com/gpu 1/12   memory 0/96Gi
pods          1 pending, 1 running, 1 succeeded
deployments   0 of 1 healthy
objects       2 AppWrapper
3 held:
  node/b        NodeStatusUnknown: Kubelet stopped posting node status.
  pod/big -n n  Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.
  and 1 more; show them with: gantry status -o wide
";
        assert_eq!(page, expected);
    }

    #[test]
    fn pods_that_run_and_are_not_ready_are_held() {
        let pod = |name: &str, ready: &str, phase: &str| {
            json!({"metadata": {"name": name, "namespace": "n"}, "status": {"phase": phase,
                "conditions": [{"type": "Ready", "status": ready, "reason": "ContainersNotReady",
                                "message": "containers with unready status: [e]"}]}})
        };
        let pods = vec![
            pod("well", "True", "Running"),
            pod("sick", "False", "Running"),
            pod("done", "False", "Succeeded"),
        ];
        let held =
            Overview::from_snapshot(&ClusterSnapshot { pods, ..ClusterSnapshot::default() }).held;
        assert_eq!(held.len(), 1, "{held:?}");
        assert_eq!(
            (held[0].object.as_str(), held[0].reason.as_str()),
            ("pod/sick -n n", "ContainersNotReady")
        );
    }

    #[test]
    fn a_user_of_one_namespace_has_a_screen_without_nodes() {
        let seen = ClusterSnapshot {
            nodes: None,
            namespace: Some("team-a".to_owned()),
            ..ClusterSnapshot::default()
        };
        let page = Overview::from_snapshot(&seen).render(9);
        assert!(page.contains("namespace     team-a\n") && !page.contains("nodes"), "{page}");
    }

    #[test]
    fn an_empty_cluster_has_a_screen_too() {
        let page = Overview::from_snapshot(&ClusterSnapshot::default()).render(9);
        assert!(page.contains("pods          none\nnothing is held\n"), "{page}");
    }
}
