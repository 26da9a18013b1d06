//! The queue through an operator with its own permissions, on the embedded server: no other
//! controllers run there.

use gantry_testkit::http::Request;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::simulation::{start, wait_for_page};
use super::site;
use crate::shared_operator::{Site, done, manifests};

const CONFIG: &str = "\
health: {bindAddress: '127.0.0.1:0'}
metrics: {bindAddress: '[::1]:0', secureServing: false}
leaderElection: {leaderElect: false}
";
const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";
const JOB: &str = "/apis/batch/v1/namespaces/default/jobs/work";
const MERGE: &str = "application/merge-patch+json";

fn wrapper(name: &str, items: &Value) -> Value {
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": { "name": name }, "spec": { "resources": { "GenericItems": items } },
    })
}

fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "work" },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "registry.test/c" }],
        } } },
    })
}

fn is(state: &'static str) -> impl Fn(&Value) -> bool {
    move |it| it["status"]["state"] == state
}

async fn merge(site: &Site, path: &str, body: &Value) {
    done(&site.admin.send(Request::patch(path, MERGE, body)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn op_18_a_job_completes_though_its_operator_dies() {
    let (_server, site) = site().await;
    site.install_definitions().await;
    let (mut operator, _folder) = start(&site, CONFIG).await;
    let (probes, metrics) = (operator.address(), operator.address());
    wait_for_page(&probes, "/readyz", |status, _| status == 200).await;
    let settings =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" } });
    let items = json!([
        { "generictemplate": job(), "completionstatus": "Complete" },
        { "generictemplate": settings },
    ]);
    site.create(WRAPPERS, &wrapper("a", &items)).await;
    let path = format!("{WRAPPERS}/a");
    let seen = site.until(&path, is("Running")).await;
    let made = done(&site.get(JOB).await);
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], seen["metadata"]["uid"]);
    done(&site.get("/api/v1/namespaces/default/configmaps/settings").await);
    let counted = |_, page: &str| {
        page.contains("gantry_queue_appwrappers{state=\"Running\"} 1\n")
            && page.contains("gantry_queue_evaluations_total{result=\"passed\"} 1\n")
            && page.contains("gantry_queue_dispatch_seconds_count 1\n")
    };
    wait_for_page(&metrics, "/metrics", counted).await;

    operator.signal(Signal::KILL);
    assert!(!operator.wait_for_exit().0.success());
    // The job ends while no operator runs.
    let ended = json!({ "status": {
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z", "succeeded": 1,
        "uncountedTerminatedPods": {}, "terminating": 0, "ready": 0,
        "conditions": [
            { "type": "SuccessCriteriaMet", "status": "True" },
            { "type": "Complete", "status": "True" },
        ],
    } });
    merge(&site, &format!("{JOB}/status"), &ended).await;
    let (operator, _folder) = start(&site, CONFIG).await;
    let seen = site.until(&path, is("Completed")).await;
    assert_eq!(seen["status"]["canrun"], Value::Null, "it gave its reservation back: {seen:#}");
    assert_eq!(done(&site.get(JOB).await)["metadata"]["uid"], made["metadata"]["uid"]);
    operator.signal(Signal::TERM);
    assert_eq!(operator.wait_for_exit().0.code(), Some(0));
}

/// Definitions and permissions that are added while the operator runs are used without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn rb_2_kinds_and_rights_may_come_later() {
    let (_server, site) = site().await;
    site.install_definitions().await;
    let (mut operator, _folder) = start(&site, CONFIG).await;
    let probes = operator.address();
    wait_for_page(&probes, "/readyz", |status, _| status == 200).await;
    let item = |name: &str| {
        json!([{ "generictemplate": {
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name },
    } }])
    };
    let failed = async |name: &str, why: &str| {
        site.create(WRAPPERS, &wrapper(name, &item(name))).await;
        let seen = site.until(&format!("{WRAPPERS}/{name}"), is("Failed")).await;
        let conditions = seen["status"]["conditions"].as_array().unwrap();
        let said = |it: &Value| it["message"].as_str().is_some_and(|it| it.contains(why));
        assert!(conditions.iter().any(said), "{why}: {seen:#}");
    };
    failed("early", "no matches for kind \"Widget\" in version \"example.com/v1\"").await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } } }],
        },
    });
    site.apply(&definition).await;
    failed("barred", "the operator may not list, watch, create, delete widgets.example.com").await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "widgets", "labels": { gantry_queue::subsystem::WRAPPED_LABEL: "true" } },
        "rules": [{ "apiGroups": ["example.com"], "resources": ["widgets"],
            "verbs": ["get", "list", "watch", "create", "delete"] }],
    });
    site.apply(&role).await;
    let union = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gantry-wrapped";
    site.until(union, |it| it["rules"].to_string().contains("example.com")).await;
    site.create(WRAPPERS, &wrapper("late", &item("late"))).await;
    site.until(&format!("{WRAPPERS}/late"), is("Running")).await;
    done(&site.get("/apis/example.com/v1/namespaces/default/widgets/late").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_are_charged_and_reported() {
    let (_server, site) = site().await;
    site.install_definitions().await;
    site.apply_file(&manifests().join("optional/quota.yaml")).await;
    let node = json!({
        "metadata": { "name": "n", "annotations": {} },
        "spec": {},
    });
    site.create("/api/v1/nodes", &node).await;
    let ready = json!({ "status": {
        "allocatable": { "cpu": "64", "memory": "64Gi", "pods": "110" },
        "capacity": { "cpu": "64", "memory": "64Gi", "pods": "110" },
        "conditions": [{ "type": "Ready", "status": "True" }],
    } });
    merge(&site, "/api/v1/nodes/n/status", &ready).await;
    let untainted = json!({ "spec": { "taints": null } });
    merge(&site, "/api/v1/nodes/n", &untainted).await;
    let tree = json!({
        "apiVersion": "quota.codeflare.dev/v1alpha1", "kind": "QuotaSubtree",
        "metadata": { "name": "team", "labels": { "tree": "team" } },
        "spec": { "parent": "nil", "children": [{ "name": "gold", "quotas": {
            "disabled": false, "requests": { "cpu": 4, "memory": 4096, "nvidia.com/gpu": 0 },
        } }] },
    });
    let trees = "/apis/quota.codeflare.dev/v1alpha1/namespaces/default/quotasubtrees";
    site.create(trees, &tree).await;
    let config = format!("{CONFIG}mcad: {{quotaEnabled: true, backoffTime: 1}}\n");
    let (mut operator, _folder) = start(&site, &config).await;
    let probes = operator.address();
    wait_for_page(&probes, "/readyz", |status, _| status == 200).await;
    let create = async |name: &str| {
        let item = json!([{
            "generictemplate": { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } },
            "custompodresources": [{ "replicas": 1, "requests": { "cpu": 3, "memory": 0, "nvidia.com/gpu": 0 } }],
        }]);
        let mut object = wrapper(name, &item);
        object["metadata"]["labels"] = json!({ "team": "gold" });
        site.create(WRAPPERS, &object).await;
    };
    create("first").await;
    site.until(&format!("{WRAPPERS}/first"), is("Running")).await;
    let told = |it: &Value| it["status"]["children"][0]["allocated"]["cpu"] == "3";
    site.until(&format!("{trees}/team"), told).await;
    create("second").await;
    let waits = |it: &Value| {
        let list = it["status"]["conditions"].as_array().into_iter().flatten();
        let quota = |it: &Value| it["type"] == "Backoff" && it["reason"] == "quota limit exceeded";
        list.into_iter().any(quota)
    };
    site.until(&format!("{WRAPPERS}/second"), waits).await;
    site.admin.send(Request::delete(format!("{WRAPPERS}/first"))).await.unwrap();
    site.until(&format!("{WRAPPERS}/second"), is("Running")).await;
}
