//! Authors of AppWrappers on a real Kubernetes: its webhooks, its users, its answers about rights.

use std::net::TcpListener;
use std::process::Command;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::{Nodes, RealCluster};
use serde_json::Value;

use crate::shared_authors::{config, ds_9, prepare};
use crate::shared_operator::Site;
use crate::shared_process::Operator;

#[tokio::test(flavor = "multi_thread")]
async fn ds_9_unauthorized_authors_get_no_job_on_kubernetes() {
    let clock = Clock::system();
    let real = RealCluster::plan().controllers().nodes(Nodes::Simulated(1)).start().await.unwrap();
    let _tails = real.tails_on_panic();
    let site = Site::new(real.admin().target(), &clock).await;
    site.install_definitions().await;
    let union = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gantry-wrapped";
    site.until(union, |it| it["rules"].to_string().contains("batch")).await;
    let wrappers = "/apis/workload.codeflare.dev/v1beta1/appwrappers";
    site.until(wrappers, |it: &Value| it["kind"] == "AppWrapperList").await;
    prepare(&site).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = site.folder.path().join("gantry.yaml");
    std::fs::write(&file, config(port)).unwrap();
    let kubeconfig = site.kubeconfig().await;
    let place =
        ["--config-file", file.to_str().unwrap(), "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut operator = Operator::start(&place);
    let ask = |arguments: &[&str]| {
        // The operator may read all that it checks, and create reviews.
        let run = Command::new(env!("CARGO_BIN_EXE_gantry")).args(arguments).args(place).output();
        let run = run.unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    };
    ds_9(&site, &clock, &mut operator, ask).await;
}
