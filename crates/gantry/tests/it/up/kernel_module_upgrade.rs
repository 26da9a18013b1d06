//! Ordered upgrades on the embedded cluster.

use serde_json::{Value, json};

use super::kernel_modules::MODULES;
use super::{BUDGETS, Cluster, DEPLOYMENTS, PODS};
use gantry_testkit::http::Request;

const NODE: &str = "/api/v1/nodes/node-0";
const WANTED: &str = "oot.node.kubernetes.io/version-module.default.hello";
const DRIVER: &str = "beta.oot.node.kubernetes.io/version-driver.default.hello";
const PLUGIN: &str = "beta.oot.node.kubernetes.io/version-plugin.default.hello";
const READY: &str = "oot.node.kubernetes.io/default.hello.version.ready";

fn label<'a>(node: &'a Value, name: &str) -> &'a str {
    node["metadata"]["labels"][name].as_str().unwrap_or_default()
}

/// The fields of a Module that a version changes.
fn driver(version: &str) -> Value {
    json!({"spec": {"driverContainer": {"container": {
        "version": version, "containerImage": format!("example.com/hello:{version}"),
    }}}})
}

/// A pod that uses a device is evicted before its driver changes, as far as its budget allows it.
#[tokio::test(flavor = "multi_thread")]
async fn kms_82_device_users_are_evicted_when_their_budget_allows_it() {
    let cluster = Cluster::ephemeral().await;
    let mut module = json!({
        "apiVersion": "ooto.sigs.k8s.io/v1alpha1",
        "kind": "Module",
        "metadata": {
            "name": "hello",
            "annotations": {"ooto.sigs.k8s.io/drain-resources": "example.com/drained"},
        },
        "spec": {
            "selector": {"kubernetes.io/os": "linux"},
            "devicePlugin": {"container": {
                "image": "gantry.dev/device-plugin",
                "args": ["--resource", "example.com/drained", "--count", "1"],
            }},
        },
    });
    module["spec"]["driverContainer"] = json!({"container": {
        "command": ["sleep", "infinity"], "kernelMappings": [{"regexp": "^.+$"}],
        "version": "1", "containerImage": "example.com/hello:1",
    }});
    cluster.post(MODULES, &module).await;
    let want = |version: &str| json!({"metadata": {"labels": {WANTED: version}}});
    cluster.merge(NODE, &want("1")).await;
    let has_device = |it: &Value| it["status"]["allocatable"]["example.com/drained"] == "1";
    cluster.wait_until(NODE, "its device is there", has_device).await;

    let limits = json!({"example.com/drained": "1"});
    let user = json!({
        "metadata": {"name": "user", "labels": {"app": "user"}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "user"}},
            "template": {
                "metadata": {"labels": {"app": "user"}},
                "spec": {"containers": [{
                    "name": "main", "image": "a", "resources": {"limits": limits},
                }]},
            },
        },
    });
    cluster.post(DEPLOYMENTS, &user).await;
    let deployment = format!("{DEPLOYMENTS}/user");
    let is_ready = |it: &Value| it["status"]["readyReplicas"] == 1;
    cluster.wait_until(&deployment, "it uses the device", is_ready).await;
    let budget = json!({
        "metadata": {"name": "tight"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "user"}}},
    });
    cluster.post(BUDGETS, &budget).await;
    let tight = format!("{BUDGETS}/tight");
    let is_counted = |it: &Value| it["status"]["currentHealthy"] == 1;
    cluster.wait_until(&tight, "the budget counts the pod", is_counted).await;

    cluster.merge(&format!("{MODULES}/hello"), &driver("2")).await;
    cluster.merge(NODE, &want("2")).await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=hello";
    let words = "The disruption budget tight needs 1 healthy pods and has 1 currently";
    let is_blocked = |it: &Value| {
        it["items"].as_array().into_iter().flatten().any(|it| {
            it["reason"] == "DrainBlocked"
                && it["message"].as_str().is_some_and(|it| it.contains(words))
        })
    };
    cluster.wait_until(events, "the refusal is reported", is_blocked).await;
    let node = cluster.get(NODE).await;
    assert_eq!((label(&node, DRIVER), label(&node, PLUGIN), label(&node, READY)), ("1", "", "1"));
    let pods = format!("{PODS}?labelSelector=app%3Duser");
    let before = cluster.get(&pods).await["items"].as_array().unwrap().clone();
    assert_eq!(before.len(), 1, "{before:?}");
    assert!(before[0]["metadata"]["deletionTimestamp"].is_null(), "{:#}", before[0]);

    let gone = cluster.client.send(Request::delete(&tight)).await.unwrap();
    assert!(gone.status.is_success(), "{}", gone.text());
    cluster.wait_until(NODE, "version 2 is ready", |it| label(it, READY) == "2").await;
    let uid = &before[0]["metadata"]["uid"];
    let is_replaced = |it: &Value| {
        let mut pods = it["items"].as_array().into_iter().flatten();
        pods.all(|it| it["metadata"]["uid"] != *uid)
    };
    cluster.wait_until(&pods, "the pod was evicted", is_replaced).await;
    cluster.wait_until(&deployment, "its successor uses the device", is_ready).await;
    let evicted = |it: &Value| {
        it["items"].as_array().into_iter().flatten().any(|it| it["reason"] == "DeviceUserEvicted")
    };
    cluster.wait_until(events, "the eviction is reported", evicted).await;
}
