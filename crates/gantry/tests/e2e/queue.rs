//! The queue through `gantry operator` on a real Kubernetes: its controllers run the Job, kwok its
//! pods.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::{Nodes, RealCluster};
use gantry_testkit::http::Request;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::shared_operator::{Site, done, manifests};
use crate::shared_process::Operator;

const CONDITION_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";
const TREES: &str = "/apis/quota.codeflare.dev/v1alpha1/namespaces/default/quotasubtrees";
const MERGE: &str = "application/merge-patch+json";

const CONFIG: &str = "\
health: {bindAddress: '0'}
metrics: {bindAddress: '0'}
";

/// An AppWrapper with a Job whose template has no labels.
fn wrapper(name: &str) -> Value {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
        "spec": { "completions": 2, "parallelism": 2, "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": "registry.test/work",
                "resources": { "requests": { "cpu": "500m" } } }],
        } } },
    });
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": { "name": name },
        "spec": {
            "schedulingSpec": { "minAvailable": 2 },
            "resources": { "GenericItems": [{
                "replicas": 1, "generictemplate": job, "completionstatus": "Complete",
                "custompodresources": [{ "replicas": 2, "requests": { "cpu": "500m" } }],
            }] },
        },
    })
}

fn has(wrapper: &Value, condition: &str) -> bool {
    let list = wrapper["status"]["conditions"].as_array().into_iter().flatten();
    list.into_iter().any(|it| it["type"] == condition)
}

async fn start(site: &Site, config: &str) -> Operator {
    let kubeconfig = site.kubeconfig().await;
    let file = site.folder.path().join("gantry.yaml");
    std::fs::write(&file, config).unwrap();
    let (file, kubeconfig) = (file.to_str().unwrap(), kubeconfig.to_str().unwrap());
    Operator::start(&["--config-file", file, "--kubeconfig", kubeconfig])
}

/// Makes the pods of a job succeed, until its AppWrapper is complete.
async fn complete(site: &Site, clock: &Clock, name: &str) -> Value {
    let give_up = clock.moment() + CONDITION_TIMEOUT;
    loop {
        let seen: Value = site.get(&format!("{WRAPPERS}/{name}")).await.json().unwrap();
        if seen["status"]["state"] == "Completed" {
            return seen;
        }
        assert!(clock.moment() < give_up, "{seen:#}");
        let path = format!("/api/v1/namespaces/default/pods?labelSelector=job-name%3D{name}");
        let pods = done(&site.get(&path).await);
        let pods = pods["items"].as_array().unwrap().iter();
        for pod in pods.filter(|it| it["status"]["phase"] == "Running") {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let path = format!("/api/v1/namespaces/default/pods/{name}/status");
            let succeeded = json!({ "status": { "phase": "Succeeded" } });
            // Another client may have been first; only the final state matters.
            let _ = site.admin.send(Request::patch(path, MERGE, &succeeded)).await.unwrap();
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}

/// Scenarios A22, B7 and B8: a wrapped Job runs to its end, though its operator is killed and the
/// next one counts quotas.
#[tokio::test(flavor = "multi_thread")]
async fn a_22_a_wrapped_job_completes_on_kubernetes() {
    let clock = Clock::system();
    let real = RealCluster::plan().controllers().nodes(Nodes::Simulated(2)).start().await.unwrap();
    let _tails = real.tails_on_panic();
    let site = Site::new(real.admin().target(), &clock).await;
    site.apply_file(&manifests().join("optional/quota.yaml")).await;
    site.install_definitions().await;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    site.until(account, |it| it["kind"] == "ServiceAccount").await;
    let union = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gantry-wrapped";
    site.until(union, |it| it["rules"].to_string().contains("batch")).await;
    site.until(WRAPPERS, |it| it["kind"] == "AppWrapperList").await;

    let operator = start(&site, CONFIG).await;
    site.create(WRAPPERS, &wrapper("first")).await;
    let path = format!("{WRAPPERS}/first");
    site.until(&path, |it| has(it, "Dispatched")).await;
    operator.signal(Signal::KILL);
    drop(operator);

    let tree = json!({
        "apiVersion": "quota.codeflare.dev/v1alpha1", "kind": "QuotaSubtree",
        "metadata": { "name": "team", "labels": { "tree": "team" } },
        "spec": { "parent": "nil", "children": [{ "name": "default", "quotas": {
            "disabled": false, "requests": { "cpu": "1500m" },
        } }] },
    });
    site.create(TREES, &tree).await;
    let operator = start(&site, &format!("{CONFIG}mcad: {{quotaEnabled: true}}\n")).await;
    let seen = complete(&site, &clock, "first").await;
    assert_eq!(seen["status"]["Succeeded"], 2, "its pods were found by their label: {seen:#}");
    assert!(has(&seen, "HeadOfLine") && has(&seen, "Completed"), "{seen:#}");

    site.create(WRAPPERS, &wrapper("second")).await;
    let seen = complete(&site, &clock, "second").await;
    assert_eq!(seen["metadata"]["labels"]["team"], "default", "it is charged to a tree: {seen:#}");
    // Its resources are released.
    let free = |it: &Value| !it["status"].to_string().contains("\"1\"");
    site.until(&format!("{TREES}/team"), free).await;
    operator.signal(Signal::TERM);
}
