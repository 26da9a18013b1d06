//! A configuration that changes under an operator that runs.

use gantry_testkit::http::Request;
use serde_json::{Value, json};

use super::simulation::{allow, start, until_page};
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

/// What `/status` says of the configuration, when it says this.
async fn until_shown(address: &str, wanted: impl Fn(&Value) -> bool) {
    let shown = |_, page: &str| {
        let page: Value = serde_json::from_str(page).unwrap();
        wanted(&page["configuration"])
    };
    until_page(address, "/status", shown).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cf_7_a_file_that_is_replaced_acts_as_far_as_it_can() {
    let (_server, site) = site().await;
    allow(&site).await;
    let ports = "metrics: {bindAddress: '[::1]:0', secureServing: false}\n";
    let (mut operator, folder) = start(&site, &with(ports)).await;
    let (probes, metrics) = (operator.address(), operator.address());
    until_page(&probes, "/readyz", |status, _| status == 200).await;
    let path = folder.path().join("gantry.yaml");
    let replace = |text: &str| {
        let beside = folder.path().join("beside");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, &path).unwrap();
    };
    // Twice before it can be seen: what was there in between is never met.
    replace(&with("clientConnection: {qps: 1}"));
    replace(&with(&format!(
        "{ports}clientConnection: {{qps: 70}}\nlogging: {{verbosity: 1}}\ncontrollers: []"
    )));
    let said = operator.line_with("clientConnection.qps");
    assert!(said.starts_with('I') && said.contains("in force"), "{said}");
    assert!(said.contains("old=\"50\"") && said.contains("new=\"70\""), "{said}");
    operator.line_with("logging.verbosity");
    let said = operator.line_with("restart to apply");
    assert!(said.starts_with('W') && said.contains("key=\"controllers\""), "{said}");
    let waits = json!([{ "key": "controllers", "inForce": null, "wanted": [] }]);
    until_shown(&probes, |it| it["restartToApply"] == waits && it["faults"] == json!([])).await;

    // Nothing of a text that is wrong is used, and everything that is wrong is named.
    replace(&with(
        "clientConnection: {qps: 80}\nmcad: {backoffTime: soon}\nmetrics: {bindAddress: nowhere}",
    ));
    operator.line_with("mcad.backoffTime: found");
    operator.line_with("metrics.bindAddress: found");
    operator.line_with("refused as a whole");
    until_shown(&probes, |it| it["faults"].as_array().is_some_and(|all| all.len() == 2)).await;
    assert_eq!(super::get(&probes, "/readyz").await.0, 200, "it goes on as it was");
    let lines = [
        "gantry_config_changes_total{outcome=\"applied\"} 2\n",
        "gantry_config_changes_total{outcome=\"restart\"} 1\n",
        "gantry_config_faults_total{outcome=\"refused\"} 1\n",
        "gantry_config_waiting_for_restart 1\n",
    ];
    let counted = |_, page: &str| lines.iter().all(|line| page.contains(line));
    until_page(&metrics, "/metrics", counted).await;

    replace(&with(&format!("{ports}clientConnection: {{qps: 80}}")));
    operator.line_with("can be used again");
    let said = operator.line_with("clientConnection.qps");
    assert!(said.contains("old=\"70\"") && said.contains("new=\"80\""), "{said}");
    operator.line_with("no restart is needed");
    until_shown(&probes, |it| it["restartToApply"] == json!([])).await;
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
    until_page(&probes, "/readyz", |status, _| status == 200).await;
    let path = config_map("gantry-config");
    let text = with("metrics: {bindAddress: '0'}\nclientConnection: {burst: 7}");
    let change = json!({ "data": { "any": text } });
    done(&site.admin.send(Request::patch(path.clone(), MERGE, &change)).await.unwrap());
    let said = operator.line_with("clientConnection.burst");
    assert!(said.contains("old=\"100\"") && said.contains("new=\"7\""), "{said}");
    done(&site.admin.send(Request::delete(path.clone())).await.unwrap());
    operator.line_with("is gone; what it said stays in force");
    until_shown(&probes, |it| it["faults"].as_array().is_some_and(|all| all.len() == 1)).await;
    assert_eq!(site.get(&path).await.status.as_u16(), 404, "it is not made again");
}
