//! Groups of simulated nodes: an AppWrapper that needs more nodes gets them, and they are removed
//! afterwards.

use gantry_testkit::embedded::Plan;
use gantry_testkit::http::Request;
use serde_json::{Value, json};

use super::{Cluster, JOBS};

const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";
const GRANT_RECORD: &str = "/api/v1/namespaces/kube-system/configmaps/gantry-scaling";
const NODES: &str = "/api/v1/nodes";

/// One node with accelerators, and two more on demand.
const SHAPES: &str = "\
nodes:
- {name: plain, cpu: 8, memory: 32Gi}
- name: gpu
  max: 2
  accelerators: {nvidia.com/gpu: {count: 8}}
";

/// Two pods with eight accelerators each. The Job is suspended, so that the test has time to check.
fn wrapper(name: &str) -> Value {
    let takes = json!({"cpu": "1", "nvidia.com/gpu": "8"});
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "labels": {"orderedinstance": "gpu"}},
        "spec": {"resources": {"GenericItems": [{
            "completionstatus": "Complete",
            "custompodresources": [{"replicas": 2, "requests": takes, "limits": takes}],
            "generictemplate": {
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                "spec": {
                    "suspend": true, "parallelism": 2, "completions": 2,
                    "template": {"spec": {
                        "restartPolicy": "Never",
                        "containers": [{
                            "name": "main", "image": "example.com/train:1",
                            "resources": {"requests": takes, "limits": takes},
                        }],
                    }},
                },
            },
        }]}},
    })
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn d_4_a_job_gets_two_nodes_of_a_group_and_gives_them_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nodes.yaml");
    std::fs::write(&file, SHAPES).unwrap();
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral");
    let plan = plan.flag("--nodes").flag(file.to_str().unwrap());
    let cluster = Cluster::start(plan).await;
    assert_eq!(names(&cluster.get(NODES).await), ["gpu-0", "plain-0"]);

    for (job, is_deleted) in [("completes", false), ("deleted", true)] {
        let path = format!("{WRAPPERS}/{job}");
        cluster.post(WRAPPERS, &wrapper(job)).await;
        cluster.wait_until(&path, "ran", |it| it["status"]["state"] == "Running").await;
        let marked = format!("{NODES}?labelSelector={job}%3D{job}%2C{job}-default%3D{job}-default");
        let marked = names(&cluster.get(&marked).await);
        assert_eq!(marked.len(), 2, "{marked:?}");
        assert!(marked.iter().all(|it| it.starts_with("gpu-") && it != "gpu-0"), "{marked:?}");

        match is_deleted {
            true => drop(cluster.client.send(Request::delete(path.clone())).await.unwrap()),
            false => {
                let on = json!({"spec": {"suspend": false}});
                cluster.merge(&format!("{JOBS}/{job}"), &on).await;
                let completed = |it: &Value| it["status"]["state"] == "Completed";
                cluster.wait_until(&path, "completed", completed).await;
            }
        }
        let as_before = |it: &Value| names(it) == ["gpu-0", "plain-0"];
        cluster.wait_until(NODES, "were given back", as_before).await;
        let empty = |it: &Value| it["data"].as_object().is_none_or(|it| it.is_empty());
        cluster.wait_until(GRANT_RECORD, "was settled", empty).await;
        let free = |it: &Value| it["metadata"]["finalizers"].is_null();
        cluster.wait_until(&path, "was let go", free).await;
    }
}
