//! The operator and its manifests on a real Kubernetes.

use std::process::Command;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use serde_json::json;

use crate::shared_metrics::metrics_are_for_readers;
use crate::shared_operator::{Site, config_map, done, rb_1, rb_2, rb_3};

#[tokio::test(flavor = "multi_thread")]
async fn rb_1_to_rb_3_and_cf_3_hold_on_kubernetes() {
    let clock = Clock::system();
    // Its controllers aggregate the roles of what may be wrapped.
    let real = RealCluster::plan().controllers().start().await.unwrap();
    let site = Site::new(real.admin().target(), &clock).await;
    rb_1(&site).await;
    cf_3(&site).await;
    rb_2(&site).await;
    rb_3(&site).await;
    let settings =
        gantry::config::operator::merge_and_check([], Default::default(), &[]).unwrap().values;
    let kinds = gantry::subsystems::needed_kinds(&settings);
    let client = real.admin().client().await.unwrap();
    site.install_definitions().await;
    let found = clock.timeout(Duration::from_secs(60), async {
        let missing = gantry::operator::definitions::missing_definitions;
        while !missing(&client, &clock, &kinds).await.unwrap().is_empty() {
            clock.sleep(Duration::from_millis(20)).await;
        }
    });
    found.await.unwrap();
    metrics_are_for_readers(&site).await;
}

/// The start as far as it goes without definitions, and the configuration it leaves behind.
async fn cf_3(site: &Site) {
    let kubeconfig = site.kubeconfig().await;
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
        command.args(["operator", "--metrics-bind-address=0", "--health-probe-bind-address=0"]);
        command.arg("--kubeconfig").arg(&kubeconfig).env("NAMESPACE", "gantry-system");
        command.stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let both = [start(), start()].map(|child| child.wait_with_output().unwrap());
    for output in &both {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("appwrappers.workload.codeflare.dev (absent)"), "{said}");
    }
    let map = done(&site.get(&config_map("gantry-config")).await);
    let expected = gantry::config::render::defaults().unwrap();
    assert_eq!(map["data"], json!({ "config.yaml": expected }));
}
