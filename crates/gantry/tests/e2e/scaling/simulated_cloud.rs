//! The back ends that create nodes: a small controller that simulates the machine API of OpenShift,
//! and the cloud behind the pools of a managed cluster.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::http::Request;
use gantry_testkit::ocm::OcmServer;
use serde_json::{Map, Value, json};

use crate::shared_operator::Site;

pub(super) const API: &str = "/apis/machine.openshift.io/v1beta1";
pub(super) const NAMESPACE: &str = "openshift-machine-api";
pub(super) const SET_LABEL: &str = "machine.openshift.io/cluster-api-machineset";
const DELETE_FIRST: &str = "machine.openshift.io/cluster-api-delete-machine";
const FINALIZER: &str = "machine.machine.openshift.io";
/// The label of a node that names its pool.
const POOL: &str = "hypershift.openshift.io/nodePool";
const NODES: &str = "/api/v1/nodes";
const MERGE: &str = "application/merge-patch+json";
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Lists the objects of a kind.
pub(super) async fn list(site: &Site, path: &str) -> Vec<Value> {
    let list = site.get(path).await.json().unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Sends a write that may have been done already, or be about a deleted object.
async fn send(site: &Site, request: Request) {
    let answer = site.admin.send(request).await.unwrap();
    let fine = answer.status.is_success() || [404, 409].contains(&answer.status.as_u16());
    assert!(fine, "{} {}", answer.status, answer.text());
}

async fn merge(site: &Site, path: String, body: &Value) {
    send(site, Request::patch(path, MERGE, body)).await;
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// A node with eight accelerators, which kwok brings up.
async fn make_node(site: &Site, name: &str, labels: &Map<String, Value>, more: Value) {
    let has = json!({"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8"});
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "labels": labels,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": more},
        "status": {"capacity": has, "allocatable": has},
    });
    node["metadata"]["labels"]["kubernetes.io/hostname"] = json!(name);
    send(site, Request::post(NODES, &node)).await;
}

/// Creates machines for sets and nodes for machines, and deletes both, for ever.
pub(super) async fn run_machine_api(site: &Site, clock: &Clock) {
    loop {
        let (sets, machines) = (
            list(site, &format!("{API}/machinesets")).await,
            list(site, &format!("{API}/machines")).await,
        );
        for machine in &machines {
            advance_machine(site, machine).await;
        }
        for set in sets.iter().filter(|it| it["metadata"]["deletionTimestamp"].is_null()) {
            reconcile_set(site, set, &machines).await;
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}

/// One step in the life of a machine: ordered, created, in use; or deleted, its node before it.
async fn advance_machine(site: &Site, machine: &Value) {
    let place = format!("{API}/namespaces/{NAMESPACE}/machines/{}", name(machine));
    if machine["metadata"]["deletionTimestamp"].is_string() {
        send(site, Request::delete(format!("{NODES}/{}", name(machine)))).await;
        merge(site, place, &json!({"metadata": {"finalizers": null}})).await;
        return;
    }
    let status = match machine["status"]["phase"].as_str().unwrap_or_default() {
        "" => json!({"phase": "Provisioning"}),
        "Provisioning" => json!({"phase": "Provisioned"}),
        "Provisioned" => {
            let instance = &machine["spec"]["providerSpec"]["value"]["instanceType"];
            let labels =
                Map::from_iter([("node.kubernetes.io/instance-type".to_owned(), instance.clone())]);
            let taints = machine["spec"]["taints"].clone();
            make_node(site, name(machine), &labels, taints).await;
            json!({"phase": "Running", "nodeRef": {"kind": "Node", "name": name(machine)}})
        }
        _ => return,
    };
    merge(site, format!("{place}/status"), &json!({ "status": status })).await;
}

/// Gives a set the machines it requests. Marked machines are deleted first.
async fn reconcile_set(site: &Site, set: &Value, machines: &[Value]) {
    let selector = set["spec"]["selector"]["matchLabels"].as_object().unwrap();
    let is_selected = |it: &&Value| {
        selector.iter().all(|(key, value)| it["metadata"]["labels"].get(key) == Some(value))
            && it["metadata"]["deletionTimestamp"].is_null()
    };
    let mut mine: Vec<&Value> = machines.iter().filter(is_selected).collect();
    let wanted = usize::try_from(set["spec"]["replicas"].as_u64().unwrap()).unwrap();
    mine.sort_by_key(|it| it["metadata"]["annotations"].get(DELETE_FIRST).is_none());
    for machine in mine.iter().take(mine.len().saturating_sub(wanted)) {
        send(
            site,
            Request::delete(format!("{API}/namespaces/{NAMESPACE}/machines/{}", name(machine))),
        )
        .await;
    }
    let names: Vec<String> =
        (0..).map(|nth| format!("{}-{nth}", name(set))).take(2 * wanted + mine.len()).collect();
    // A name is not used again before its machine is deleted.
    let free =
        names.iter().filter(|it| machines.iter().all(|machine| name(machine) != it.as_str()));
    for name in free.take(wanted.saturating_sub(mine.len())) {
        send(
            site,
            Request::post(format!("{API}/namespaces/{NAMESPACE}/machines"), &machine(set, name)),
        )
        .await;
    }
    let status = json!({
        "replicas": mine.len(), "fullyLabeledReplicas": mine.len(),
        "observedGeneration": set["metadata"]["generation"],
    });
    if status.as_object().unwrap().iter().any(|(key, value)| set["status"].get(key) != Some(value))
    {
        let place = format!("{API}/namespaces/{NAMESPACE}/machinesets/{}/status", name(set));
        merge(site, place, &json!({ "status": status })).await;
    }
}

fn machine(set: &Value, name: &str) -> Value {
    let mut machine = json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
        "metadata": set["spec"]["template"]["metadata"], "spec": set["spec"]["template"]["spec"],
    });
    machine["metadata"]["name"] = json!(name);
    machine["metadata"]["finalizers"] = json!([FINALIZER]);
    machine["metadata"]["ownerReferences"] = json!([{
        "apiVersion": set["apiVersion"], "kind": set["kind"], "name": self::name(set),
        "uid": set["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    machine
}

/// Creates nodes for the pools of the service, with their labels, for ever.
pub(super) async fn run_cloud(site: &Site, service: &OcmServer, clock: &Clock) {
    loop {
        let nodes = list(site, &format!("{NODES}?labelSelector={POOL}")).await;
        let mut wanted = Vec::new();
        for pool in service.pools() {
            let id = pool["id"].as_str().unwrap().to_owned();
            let mut labels = pool["labels"].as_object().cloned().unwrap_or_default();
            labels.insert(POOL.to_owned(), json!(id));
            for nth in 0..pool["replicas"].as_u64().unwrap() {
                let node = format!("{id}-{nth}");
                if nodes.iter().all(|it| name(it) != node) {
                    make_node(site, &node, &labels, json!(null)).await;
                }
                wanted.push(node);
            }
        }
        for node in nodes.iter().filter(|it| !wanted.iter().any(|wanted| wanted == name(it))) {
            send(site, Request::delete(format!("{NODES}/{}", name(node)))).await;
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}
