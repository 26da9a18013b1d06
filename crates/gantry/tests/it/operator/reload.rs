//! A configuration that changes under an operator that runs.

use gantry_testkit::http::Request;
use serde_json::{Value, json};

use super::simulation::{allow, start, wait_for_page};
use super::site;
use crate::shared_operator::{config_map, done, namespace};
use crate::shared_process::Operator;

const COMMON: &str = "\
mcadEnabled: false
simulation: {enabled: true}
health: {bindAddress: '127.0.0.1:0'}
";
const MERGE: &str = "application/merge-patch+json";

fn with(rest: &str) -> String {
    format!("{COMMON}{rest}\n")
}

/// Waits until the configuration in `/status` matches.
async fn wait_for_status(address: &str, wanted: impl Fn(&Value) -> bool) {
    let shown = |_, page: &str| {
        let page: Value = serde_json::from_str(page).unwrap();
        wanted(&page["configuration"])
    };
    wait_for_page(address, "/status", shown).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cf_7_a_file_that_is_replaced_acts_as_far_as_it_can() {
    let (_server, site) = site().await;
    allow(&site).await;
    let ports = "metrics: {bindAddress: '[::1]:0', secureServing: false}\n";
    let (mut operator, folder) = start(&site, &with(ports)).await;
    let (probes, metrics) = (operator.address(), operator.address());
    wait_for_page(&probes, "/readyz", |status, _| status == 200).await;
    let path = folder.path().join("gantry.yaml");
    let replace = |text: &str| {
        let beside = folder.path().join("beside");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, &path).unwrap();
    };
    // Changed twice between two reads: the intermediate text is never used.
    replace(&with("clientConnection: {qps: 1}"));
    replace(&with(&format!(
        "{ports}clientConnection: {{qps: 70}}\nlogging: {{verbosity: 1}}\ncontrollers: []"
    )));
    let said = operator.wait_for_line("clientConnection.qps");
    assert!(said.starts_with('I') && said.contains("in effect"), "{said}");
    assert!(said.contains("old=\"50\"") && said.contains("new=\"70\""), "{said}");
    operator.wait_for_line("logging.verbosity");
    let said = operator.wait_for_line("restart to apply");
    assert!(said.starts_with('W') && said.contains("key=\"controllers\""), "{said}");
    let waits = json!([{ "key": "controllers", "inForce": null, "wanted": [] }]);
    wait_for_status(&probes, |it| it["restartToApply"] == waits && it["faults"] == json!([])).await;

    // Nothing of an invalid text is used, and every error is reported.
    replace(&with(
        "clientConnection: {qps: 80}\nmcad: {backoffTime: soon}\nmetrics: {bindAddress: nowhere}",
    ));
    operator.wait_for_line("mcad.backoffTime: found");
    operator.wait_for_line("metrics.bindAddress: found");
    operator.wait_for_line("rejected as a whole");
    wait_for_status(&probes, |it| it["faults"].as_array().is_some_and(|all| all.len() == 2)).await;
    assert_eq!(super::get(&probes, "/readyz").await.0, 200, "it goes on as it was");
    let lines = [
        "gantry_config_changes_total{outcome=\"applied\"} 2\n",
        "gantry_config_changes_total{outcome=\"restart\"} 1\n",
        "gantry_config_faults_total{outcome=\"refused\"} 1\n",
        "gantry_config_waiting_for_restart 1\n",
    ];
    let counted = |_, page: &str| lines.iter().all(|line| page.contains(line));
    wait_for_page(&metrics, "/metrics", counted).await;

    replace(&with(&format!("{ports}clientConnection: {{qps: 80}}")));
    operator.wait_for_line("valid again");
    let said = operator.wait_for_line("clientConnection.qps");
    assert!(said.contains("old=\"70\"") && said.contains("new=\"80\""), "{said}");
    operator.wait_for_line("no restart is needed");
    wait_for_status(&probes, |it| it["restartToApply"] == json!([])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cf_7_a_config_map_is_followed_and_its_end_changes_nothing() {
    let (_server, site) = site().await;
    allow(&site).await;
    let text = with("metrics: {bindAddress: '0'}");
    let map = json!({ "metadata": { "name": "gantry-config" }, "data": { "any": text } });
    site.create(&format!("{}/configmaps", namespace()), &map).await;
    let kubeconfig = site.kubeconfig().await;
    let mut operator = Operator::start(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
    let probes = operator.address();
    wait_for_page(&probes, "/readyz", |status, _| status == 200).await;
    let path = config_map("gantry-config");
    let text = with("metrics: {bindAddress: '0'}\nclientConnection: {burst: 7}");
    let change = json!({ "data": { "any": text } });
    done(&site.admin.send(Request::patch(path.clone(), MERGE, &change)).await.unwrap());
    let said = operator.wait_for_line("clientConnection.burst");
    assert!(said.contains("old=\"100\"") && said.contains("new=\"7\""), "{said}");
    done(&site.admin.send(Request::delete(path.clone())).await.unwrap());
    operator.wait_for_line("deleted; its values stay in effect");
    wait_for_status(&probes, |it| it["faults"].as_array().is_some_and(|all| all.len() == 1)).await;
    assert_eq!(site.get(&path).await.status.as_u16(), 404, "it is not made again");
}
