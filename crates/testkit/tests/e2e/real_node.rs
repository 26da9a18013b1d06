//! Tests that a real kubelet and containerd run a pod, and that nothing of it remains. Where the
//! machine does not support it, the tests print that and why.

use std::fs;
use std::path::Path;

use gantry_testkit::cluster::{IMAGE, Nodes, RealCluster, StartError};
use gantry_testkit::http::{Request, Response};
use serde_json::json;

use super::killed::ClusterProcess;
use super::{http, kubectl, print_line, wait_until};

const PODS: &str = "/api/v1/namespaces/default/pods";
const POD: &str = "/api/v1/namespaces/default/pods/hello";

/// Returns whether a test can run, and prints the reason if not.
fn can_run_real_node(test: &str) -> bool {
    match Nodes::Real.check() {
        Err(StartError::Unfit(reason)) => {
            print_line(&format!("skipped: {test}: {reason}"));
            false
        }
        checked => {
            checked.unwrap();
            true
        }
    }
}

#[tokio::test]
async fn a_pod_runs_and_its_log_is_read() {
    if !can_run_real_node("a_pod_runs_and_its_log_is_read") {
        return;
    }
    let plan = RealCluster::plan().nodes(Nodes::Real);
    let cluster = Box::pin(plan.start()).await.unwrap();
    print_line(&format!("a cluster with controllers and a real node took {:.1?}", cluster.took()));
    let client = http(cluster.admin());
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "hello"},
        "spec": {
            "hostNetwork": true,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "hello",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", "echo it runs on $NODE; sleep 1000"],
                "env": [{
                    "name": "NODE",
                    "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
                }],
                "resources": {"limits": {"memory": "64Mi"}},
            }],
        },
    });
    let answer = client.send(Request::post(PODS, &pod)).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let running = |answer: &Response| {
        let pod = answer.json().unwrap();
        pod["status"]["phase"] == "Running"
            && pod["status"]["containerStatuses"][0]["ready"] == true
    };
    wait_until(&client, POD, running).await;
    let (fine, said) = kubectl(cluster.admin(), &["exec", "hello", "--", "cat", "/proc/1/cgroup"]);
    assert!(fine && !said.is_empty(), "{said}");
    let line = format!("it runs on {}\n", cluster.nodes()[0]);
    wait_until(&client, &format!("{POD}/log"), |answer| answer.text() == line).await;
    let (fine, said) = kubectl(cluster.admin(), &["logs", "hello"]);
    assert!(fine && said == line, "{said}");

    let name = cgroup(&cluster.folder());
    assert!(members(&name) >= 2, "what was asked for, and what holds the pod together");
    let (fine, said) = kubectl(cluster.admin(), &["delete", "pod", "hello", "--timeout=60s"]);
    assert!(fine, "{said}");
    assert_eq!(members(&name), 0, "the pod is gone");

    // Another pod is left running, so that the end of the cluster has something to stop.
    let answer = client.send(Request::post(PODS, &pod)).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    wait_until(&client, POD, running).await;
    let folder = cluster.folder();
    drop(cluster);
    assert_nothing_is_left(&folder);
}

#[test]
fn the_next_start_removes_a_real_node_that_kill_9_left() {
    if !can_run_real_node("the_next_start_removes_a_real_node_that_kill_9_left") {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let mut victim = ClusterProcess::start(&cache, &["--nodes=real"]);
    victim.kill_with_its_guard();
    assert_eq!(victim.running(), 7, "their guard was killed, too");
    let next = ClusterProcess::start(&cache, &[]);
    assert_eq!(victim.running(), 0);
    assert_nothing_is_left(&victim.folder);
    next.finish();
}

/// No folder, no control group, no process in one, no mount.
fn assert_nothing_is_left(folder: &Path) {
    assert!(!folder.exists(), "{}", folder.display());
    let name = cgroup(folder);
    assert_eq!(members(&name), 0);
    let root = Path::new("/sys/fs/cgroup");
    let below = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    for place in below.chain([root.to_path_buf()]) {
        assert!(!place.join(&name).exists(), "{name} in {}", place.display());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(folder.to_str().unwrap()), "{mounts}");
}

/// The name of the control groups of the run in `folder`.
fn cgroup(folder: &Path) -> String {
    format!("gantry-{}", folder.file_name().unwrap().to_str().unwrap())
}

/// How many processes are in control groups of that name.
fn members(name: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let groups = processes.filter_map(|it| fs::read_to_string(it.path().join("cgroup")).ok());
    groups.filter(|groups| groups.contains(name)).count()
}
