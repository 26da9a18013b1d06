//! The kubelet: when pods and nodes change.

use jiff::SignedDuration;

use super::*;
use crate::{Kubelet, KubeletNode, KubeletNodes, KubeletPod, PodLifecycle};

const PODS: Resource = <KubeletPod as View>::RESOURCE;
const NODES: Resource = <KubeletNode as View>::RESOURCE;

fn pod(name: &str, node: &str) -> (Resource, Value) {
    (PODS, json!({"metadata": {"namespace": "n", "name": name}, "spec": {"nodeName": node}}))
}

fn phase(stage: &mut TestCluster<'_>, name: &str) -> String {
    let pod = stage.server().get(&PODS, &Key::new("n", name));
    let phase = |pod: &Value| pod["status"]["phase"].as_str().unwrap_or("Pending").to_owned();
    pod.map_or_else(|| "gone".to_owned(), phase)
}

/// Starts after a second and exits after five, by the name of the pod.
fn timed(pod: &KubeletPod) -> PodLifecycle {
    let made = pod.metadata.creation_timestamp.unwrap();
    let after = |seconds| made.checked_add(SignedDuration::from_secs(seconds)).ok();
    let exit_code = match pod.metadata.name.as_str() {
        "well" => Some(0),
        "badly" => Some(1),
        _ => None,
    };
    let node_is_lost = pod.metadata.name == "lost";
    PodLifecycle { starts_at: after(1), exit_code, ends_at: after(5), node_is_lost }
}

#[test]
fn pods_start_end_and_are_removed_in_their_time() {
    let kubelet =
        Kubelet { nodes: KubeletNodes::Required, lifecycle: timed, reports_termination: true };
    let controllers: [&dyn Controller; 2] = [&kubelet, &Kubelet::REPORTS_NODES];
    let node = (NODES, json!({"metadata": {"name": "a"}}));
    let mut objects = vec![node, pod("unbound", ""), pod("nowhere", "none")];
    objects.extend(["well", "badly", "stays", "lost"].map(|it| pod(it, "a")));
    let scenario = Scenario { controllers: &controllers, objects, ..Scenario::default() };
    let mut stage = TestCluster::new(&scenario);
    let names = ["unbound", "nowhere", "well", "badly", "stays", "lost"];
    let phases = |stage: &mut TestCluster<'_>| names.map(|it| phase(stage, it));
    stage.advance(Duration::ZERO).unwrap();
    assert_eq!(phases(&mut stage), ["Pending"; 6], "nothing starts at once");
    stage.advance(Duration::from_secs(2)).unwrap();
    let started = ["Pending", "Pending", "Running", "Running", "Running", "Running"];
    assert_eq!(phases(&mut stage), started);
    stage.advance(Duration::from_secs(4)).unwrap();
    let ended = ["Pending", "Pending", "Succeeded", "Failed", "Running", "Running"];
    assert_eq!(phases(&mut stage), ended);
    for name in names {
        stage.server().delete(&PODS, &Key::new("n", name), Propagation::Background);
    }
    stage.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(phase(&mut stage, "stays"), "gone");
    assert_ne!(phase(&mut stage, "lost"), "gone", "its node is unreachable");
}

#[test]
fn pods_run_wherever_they_are_where_nodes_do_not_matter() {
    let scenario = Scenario {
        controllers: &[&Kubelet::RUNS_ALL],
        objects: vec![pod("a", "")],
        script: vec![Box::new(|server: &mut Server| {
            server.delete(&PODS, &Key::new("n", "a"), Propagation::Background);
        })],
        ..Scenario::default()
    };
    let mut stage = TestCluster::new(&scenario);
    stage.advance(Duration::ZERO).unwrap();
    assert_eq!(phase(&mut stage, "a"), "Running");
    scenario.prove(0..4, |server| json!(server.list(&PODS).len())).unwrap();
}
