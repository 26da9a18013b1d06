//! Modules on the embedded cluster: from a manifest to DaemonSets, labels and back.

use super::*;

pub(super) const MODULES: &str = "/apis/ooto.sigs.k8s.io/v1alpha1/namespaces/default/modules";

fn module(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "ooto.sigs.k8s.io/v1alpha1",
        "kind": "Module",
        "metadata": {"name": name},
        "spec": {
            "selector": {"kubernetes.io/os": "linux"},
            "driverContainer": {"container": {
                "command": ["sleep", "infinity"],
                "kernelMappings": [{"regexp": "^.+$", "containerImage": image}],
            }},
            "devicePlugin": {"container": {"image": "example.com/plugin:1"}},
        },
    })
}

/// How many nodes have a label.
fn labelled(nodes: &Value, label: &str) -> usize {
    let nodes = nodes["items"].as_array().unwrap();
    nodes.iter().filter(|it| it["metadata"]["labels"].get(label).is_some()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_84_a_module_is_loaded_and_unloaded() {
    let cluster = Cluster::ephemeral().await;
    let nodes = cluster.get("/api/v1/nodes").await["items"].as_array().unwrap().len() as u64;
    cluster.post(MODULES, &module("hello", "example.com/hello:${KERNEL_FULL_VERSION}")).await;
    let path = format!("{MODULES}/hello");
    let loaded = cluster
        .wait_until(&path, "both parts are ready on every node", |it| {
            it["status"]["driverContainer"]["numberReady"] == nodes
                && it["status"]["devicePlugin"]["numberReady"] == nodes
        })
        .await;
    assert_eq!(loaded["metadata"]["finalizers"], json!(["ooto.sigs.k8s.io/module-finalizer"]));
    let ready = "oot.node.kubernetes.io/default.hello.ready";
    let plugin = "oot.node.kubernetes.io/default.hello.device-plugin-ready";
    for label in [ready, plugin, "oot.node.kubernetes.io/kernel-version.full"] {
        let all = |it: &Value| labelled(it, label) as u64 == nodes;
        cluster.wait_until("/api/v1/nodes", label, all).await;
    }
    let sets = cluster.get(DAEMON_SETS).await;
    let images: Vec<&Value> = sets["items"].as_array().unwrap().iter().collect();
    assert_eq!(images.len(), 2, "{sets}");
    let namespace = cluster.get("/api/v1/namespaces/default").await;
    assert!(namespace["metadata"]["labels"].get("ooto.sigs.k8s.io/contains-modules").is_some());

    let gone = cluster.client.send(Request::delete(&path)).await.unwrap();
    assert!(gone.status.is_success(), "{}", gone.text());
    let is_empty = |it: &Value| it["items"].as_array().is_some_and(Vec::is_empty);
    for path in [MODULES, DAEMON_SETS] {
        cluster.wait_until(path, "nothing is left", is_empty).await;
    }
    let nodes = cluster.get("/api/v1/nodes").await;
    assert_eq!((labelled(&nodes, ready), labelled(&nodes, plugin)), (0, 0));
    let namespace = cluster.get("/api/v1/namespaces/default").await;
    assert!(namespace["metadata"]["labels"].get("ooto.sigs.k8s.io/contains-modules").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_18_what_breaks_a_rule_is_refused_when_it_is_written() {
    let cluster = Cluster::ephemeral().await;
    let mut bad = module("bad", "example.com/hello:1");
    bad["spec"]["driverContainer"]["container"]["kernelMappings"][0]["regexp"] = json!("(");
    let answer = cluster.client.send(Request::post(MODULES, &bad)).await.unwrap();
    assert_eq!(answer.status, 422, "{}", answer.text());
    let text = answer.text();
    assert!(text.contains("kernelMappings[0].regexp: invalid regexp: unclosed group"), "{text}");

    cluster.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    let modules = MODULES.replace("/default/", "/team/");
    cluster.post(&modules, &module("hello", "example.com/hello:1")).await;
    let is_labelled =
        |it: &Value| it["metadata"]["labels"].get("ooto.sigs.k8s.io/contains-modules").is_some();
    let team = "/api/v1/namespaces/team";
    cluster.wait_until(team, "the namespace says that it has Modules", is_labelled).await;
    let kept = cluster.client.send(Request::delete(team)).await.unwrap();
    assert_eq!(kept.status, 403, "{}", kept.text());
    assert!(kept.text().contains("namespace holds Modules; delete them first"), "{}", kept.text());
    let gone = cluster.client.send(Request::delete(format!("{modules}/hello"))).await.unwrap();
    assert!(gone.status.is_success(), "{}", gone.text());
    cluster.wait_until(team, "the label is gone", |it| !is_labelled(it)).await;
    let gone = cluster.client.send(Request::delete(team)).await.unwrap();
    assert!(gone.status.is_success(), "{}", gone.text());
}

/// The registry is asked for an image that has to be built: while it is missing, a Job builds it.
#[tokio::test(flavor = "multi_thread")]
async fn kms_39_a_missing_image_starts_a_build() {
    let cluster = Cluster::ephemeral().await;
    let host = cluster.process.target().base.trim_start_matches("https://").to_owned();
    let image = format!("{host}/default/hello:${{KERNEL_FULL_VERSION}}");
    let mut built = module("hello", &image);
    built["spec"]["driverContainer"]["container"]["build"] =
        json!({"dockerfile": "FROM scratch\nARG KERNEL_FULL_VERSION\n"});
    cluster.post(MODULES, &built).await;
    let jobs = cluster
        .wait_until("/apis/batch/v1/namespaces/default/jobs", "a Job was created", |it| {
            it["items"].as_array().is_some_and(|it| it.len() == 1)
        })
        .await;
    let job = &jobs["items"][0];
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "gantry.dev/gantry:1", "nodes run no builder");
    assert_eq!(pod["serviceAccountName"], "hello-image-jobs");
    let arguments: Vec<&str> = pod["containers"][0]["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    assert!(arguments.contains(&"KERNEL_FULL_VERSION=6.8.0-gantry"), "{arguments:?}");
    let name = job["metadata"]["name"].as_str().unwrap();
    let maps = "/api/v1/namespaces/default/configmaps?labelSelector=ooto.sigs.k8s.io/job-type";
    let exists = |it: &Value| it["items"].as_array().is_some_and(|it| it.len() == 1);
    let maps = cluster.wait_until(maps, "the Dockerfile is there", exists).await;
    assert_eq!(maps["items"][0]["metadata"]["ownerReferences"][0]["name"], name);
    // An image of another namespace is not seen, and nothing is built for it.
    let mut other = module("other", &format!("{host}/kube-system/hello:1"));
    other["spec"]["driverContainer"]["container"]["build"] = json!({"dockerfile": "FROM scratch"});
    cluster.post(MODULES, &other).await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=other";
    let refused = |it: &Value| {
        let mut events = it["items"].as_array().into_iter().flatten();
        events.any(|it| it["reason"] == "ImageCheckFailed")
    };
    cluster.wait_until(events, "the check is refused", refused).await;
    let jobs = cluster.get("/apis/batch/v1/namespaces/default/jobs").await;
    assert_eq!(jobs["items"].as_array().unwrap().len(), 1, "{jobs}");
}
