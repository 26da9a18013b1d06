//! Persistent volumes, as their users meet them.

use super::*;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn of_class(mut claim: Value, class: &str) -> Value {
    claim["spec"]["storageClassName"] = json!(class);
    claim
}

fn pod(name: &str, source: &Value) -> Value {
    let mut volume = json!({"name": "v"});
    for (field, value) in source.as_object().unwrap() {
        volume[field] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "example.com/db:1",
                "volumeMounts": [{"name": "v", "mountPath": "/data"}]}],
            "volumes": [volume],
        },
    })
}

fn uses(claim: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": claim}})
}

fn is_phase(phase: &'static str) -> impl Fn(&Value) -> bool {
    move |it| it["status"]["phase"] == phase
}

fn is_gone(answer: &Value) -> bool {
    answer["reason"] == "NotFound"
}

impl Cluster {
    async fn remove(&self, path: &str) {
        let answer = self.client.send(Request::delete(path)).await.unwrap();
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
    }

    /// Waits for an event about an object.
    async fn event(&self, about: &str, reason: &str) -> String {
        let path = "/api/v1/namespaces/default/events";
        let is_it = |it: &Value| it["involvedObject"]["name"] == about && it["reason"] == reason;
        let find =
            |list: &Value| list["items"].as_array().unwrap().iter().find(|it| is_it(it)).cloned();
        let list = self.wait_until(path, reason, |list| find(list).is_some()).await;
        find(&list).unwrap()["message"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_bound_and_stay_while_they_are_used() {
    let cluster = Cluster::ephemeral().await;
    cluster.post(CLAIMS, &claim("data")).await;
    let data = format!("{CLAIMS}/data");
    let bound = cluster.wait_until(&data, "was bound", is_phase("Bound")).await;
    assert_eq!(bound["spec"]["storageClassName"], "standard");
    assert_eq!(bound["status"]["capacity"]["storage"], "1Gi");
    let volume = format!("{VOLUMES}/{}", bound["spec"]["volumeName"].as_str().unwrap());
    cluster.wait_until(&volume, "was bound", is_phase("Bound")).await;
    let message = cluster.event("data", "ProvisioningSucceeded").await;
    assert!(message.starts_with("Successfully provisioned volume pvc-"), "{message}");

    cluster.post(PODS, &pod("db", &uses("data"))).await;
    cluster.wait_until(&format!("{PODS}/db"), "ran", is_phase("Running")).await;
    cluster.remove(&data).await;
    let status = "/gantry/status";
    let in_use = |page: &Value| {
        let held = page["held"].as_array().unwrap();
        held.iter().any(|it| it["name"] == "data" && it["reason"] == "InUse")
    };
    cluster.wait_until(status, "told what keeps the claim", in_use).await;
    assert!(cluster.get(&data).await["metadata"]["deletionTimestamp"].is_string());
    cluster.remove(&format!("{PODS}/db")).await;
    cluster.wait_until(&data, "went", is_gone).await;
    cluster.wait_until(&volume, "went", is_gone).await;

    // A pod whose claim does not exist reports it, and continues when it does.
    cluster.post(PODS, &pod("early", &uses("later"))).await;
    let early = format!("{PODS}/early");
    let waits = |it: &Value| {
        let message = it["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        message.contains(": persistentvolumeclaim \"later\" not found. ")
    };
    cluster.wait_until(&early, "said why it waits", waits).await;
    cluster.post(CLAIMS, &claim("later")).await;
    cluster.wait_until(&early, "ran", is_phase("Running")).await;

    // A namespace with a claim can be deleted.
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "temporary"}});
    cluster.post("/api/v1/namespaces", &space).await;
    let there = "/api/v1/namespaces/temporary/persistentvolumeclaims";
    cluster.post(there, &claim("data")).await;
    cluster.wait_until(&format!("{there}/data"), "was bound", is_phase("Bound")).await;
    cluster.remove("/api/v1/namespaces/temporary").await;
    cluster.wait_until("/api/v1/namespaces/temporary", "went", is_gone).await;
    cluster.stop(Signal::TERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_get_the_volumes_they_claim() {
    let cluster = Cluster::ephemeral().await;
    let late = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
        "provisioner": "volumes.gantry.dev", "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.post(CLASSES, &late).await;
    let mut template = claim("data");
    template["spec"]["storageClassName"] = json!("late");
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": super::template("db", "example.com/db:1"),
            "volumeClaimTemplates": [template],
        },
    });
    cluster.post(SETS, &set).await;
    let ready = |it: &Value| it["status"]["readyReplicas"] == 2;
    cluster.wait_until(&format!("{SETS}/db"), "was ready", ready).await;
    for number in 0..2 {
        let claim = cluster.get(&format!("{CLAIMS}/data-db-{number}")).await;
        assert_eq!(claim["status"]["phase"], "Bound", "{claim:#}");
        let pod = cluster.get(&format!("{PODS}/db-{number}")).await;
        let selected = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
        assert_eq!(*selected, pod["spec"]["nodeName"]);
    }

    // The claim of an ephemeral volume is deleted with its pod.
    let spec = claim("x")["spec"].clone();
    let source = json!({"ephemeral": {"volumeClaimTemplate": {"spec": spec}}});
    cluster.post(PODS, &pod("scratch", &source)).await;
    cluster.wait_until(&format!("{PODS}/scratch"), "ran", is_phase("Running")).await;
    let made = format!("{CLAIMS}/scratch-v");
    assert_eq!(cluster.get(&made).await["status"]["phase"], "Bound");
    cluster.remove(&format!("{PODS}/scratch")).await;
    cluster.wait_until(&made, "went", is_gone).await;

    // External provisioners are waited for, and pre-provisioned volumes are bound.
    let foreign = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "foreign"},
        "provisioner": "example.com/nfs",
    });
    cluster.post(CLASSES, &foreign).await;
    cluster.post(CLAIMS, &of_class(claim("foreign"), "foreign")).await;
    let message = cluster.event("foreign", "ExternalProvisioning").await;
    assert!(message.contains("by the external provisioner 'example.com/nfs' or"), "{message}");
    cluster.post(CLAIMS, &of_class(claim("own"), "")).await;
    let own = format!("{CLAIMS}/own");
    cluster.wait_until(&own, "waited", is_phase("Pending")).await;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "by-hand"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"},
            "hostPath": {"path": "/data"}, "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    cluster.post(VOLUMES, &volume).await;
    cluster.wait_until(&own, "was bound", is_phase("Bound")).await;
    cluster.remove(&own).await;
    cluster.wait_until(&format!("{VOLUMES}/by-hand"), "was released", is_phase("Released")).await;
    cluster.stop(Signal::TERM).await;
}
