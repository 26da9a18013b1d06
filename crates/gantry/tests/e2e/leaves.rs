//! Quota of other namespaces, on a real Kubernetes, with the operator's own account.

use std::net::TcpListener;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::{Nodes, RealCluster};
use gantry_testkit::http::Request;
use serde_json::{Value, json};

use crate::shared_authors::{by, message};
use crate::shared_leaves::{WRAPPERS, config, prepare, qu_12_and_qu_13, wrapper};
use crate::shared_operator::{Site, done};
use crate::shared_process::Operator;

const MERGE: &str = "application/merge-patch+json";

#[tokio::test(flavor = "multi_thread")]
async fn qu_12_and_qu_13_quota_is_enforced_on_kubernetes() {
    let clock = Clock::system();
    let real = RealCluster::plan().controllers().nodes(Nodes::Simulated(1)).start().await.unwrap();
    let _tails = real.tails_on_panic();
    let site = Site::new(real.admin().target(), &clock).await;
    site.install_definitions().await;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    site.until(account, |it| it["kind"] == "ServiceAccount").await;
    let union = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gantry-wrapped";
    site.until(union, |it| it["rules"].to_string().contains("apps")).await;
    for collection in [WRAPPERS, "/apis/quota.codeflare.dev/v1alpha1/quotasubtrees"] {
        site.until(collection, |it: &Value| it["items"].is_array()).await;
    }
    prepare(&site).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = site.folder.path().join("gantry.yaml");
    std::fs::write(&file, config(port)).unwrap();
    let kubeconfig = site.kubeconfig().await;
    let place =
        ["--config-file", file.to_str().unwrap(), "--kubeconfig", kubeconfig.to_str().unwrap()];
    let _operator = Operator::start(&place);
    qu_12_and_qu_13(&site, &clock).await;

    // An AppWrapper that is scaled up after its admission is charged for it, and reports it.
    let grows = wrapper("grows", "default", 1, &json!({ "cpu": "100m" }));
    let answer = site.admin.send(by("bob", Request::post(WRAPPERS, &grows))).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let path = format!("{WRAPPERS}/grows");
    site.until(&path, |it| it["status"]["running"] == 1).await;
    let more = json!({ "spec": { "replicas": 3 } });
    let deployment = "/apis/apps/v1/namespaces/default/deployments/grows";
    done(&site.admin.send(Request::patch(deployment, MERGE, &more)).await.unwrap());
    let said = "its pods ask for more than was admitted (cpu 300m of 100m)";
    site.until(&path, |it| message(it).starts_with(said)).await;
    let leaves = "/apis/quota.codeflare.dev/v1alpha1/namespaces/default/quotasubtrees/leaves";
    site.until(leaves, |it| it["status"]["totalAllocation"]["cpu"] == "300m").await;
}
