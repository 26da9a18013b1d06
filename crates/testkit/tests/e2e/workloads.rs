//! Tests that controllers and simulated nodes together run what kubectl creates.

use super::{http, kubectl, namespace, shared, wait_until};

#[tokio::test]
async fn a_deployment_made_by_kubectl_has_running_pods() {
    let (cluster, _tails) = shared().await;
    let admin = cluster.admin();
    let client = http(admin);
    namespace(&client, "workloads").await;
    let create = "create deployment web --image=registry.example.com/web:1 --replicas=3";
    let mut words: Vec<&str> = create.split(' ').collect();
    words.extend(["-n", "workloads"]);
    let (fine, said) = kubectl(admin, &words);
    assert!(fine, "{said}");
    let (fine, said) = kubectl(
        admin,
        &["-n", "workloads", "rollout", "status", "deployment/web", "--timeout=60s"],
    );
    assert!(fine && said.contains("successfully rolled out"), "{said}");
    let path = "/api/v1/namespaces/workloads/pods?labelSelector=app%3Dweb";
    let answer = wait_until(&client, path, |answer| {
        let pods = answer.json().unwrap();
        let pods = pods["items"].as_array().unwrap();
        pods.len() == 3 && pods.iter().all(|pod| pod["status"]["phase"] == "Running")
    });
    let pods = answer.await.json().unwrap();
    for pod in pods["items"].as_array().unwrap() {
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        assert!(cluster.nodes().iter().any(|known| known == node), "{node}");
    }
}
