//! The effective settings, as an operator publishes them and users read them.

use serde_json::Value;
use tokio::task::spawn_blocking;

use super::simulation::wait_for_page;
use super::{Run, gantry_with, site};
use crate::shared_operator::{Site, config_map};
use crate::shared_process::Operator;

const CONFIG: &str = "\
health: {bindAddress: '127.0.0.1:0'}
metrics: {bindAddress: '0'}
mcad: {backoffTime: 5}
";

/// Runs a command with the credentials of an administrator.
async fn run_as_admin(kubeconfig: &std::path::Path, words: &[&str]) -> Run {
    let mut arguments: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
    arguments.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
    let run = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        gantry_with(&arguments, &[], "")
    };
    spawn_blocking(run).await.unwrap()
}

/// The text that is published, when it has this line.
async fn published(site: &Site, line: &str) -> String {
    let text = |it: &Value| it["data"]["config.yaml"].as_str().unwrap_or_default().to_owned();
    let map =
        site.until(&config_map("gantry-config-in-effect"), |it| text(it).contains(line)).await;
    text(&map)
}

#[tokio::test(flavor = "multi_thread")]
async fn cf_8_flags_appear_in_queue_output() {
    let (server, site) = site().await;
    site.install_definitions().await;
    let kubeconfig = site.kubeconfig().await;
    let (folder, file) = super::file(CONFIG);
    let flags = [
        "--config-file",
        &file,
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--headoflineholdingtime=60",
        "--leader-elect",
    ];
    let mut operator = Operator::start(&flags);
    let probes = operator.address();
    wait_for_page(&probes, "/readyz", |status, _| status == 200).await;
    // From a file, from a flag, and the default: each with its source.
    let text =
        published(&site, "  headOfLineHoldingTime: 60 # from --headoflineholdingtime\n").await;
    assert!(text.contains(&format!("  backoffTime: 5 # from {file}:3:8\n")), "{text}");
    assert!(text.contains("  wakeOnRelease: true\n"), "{text}");

    let run = run_as_admin(server.kubeconfig(), &["queue", "-o", "json"]).await;
    assert_eq!(run.code, 0, "{}", run.err);
    let page: Value = serde_json::from_str(&run.out).unwrap();
    let source =
        "the effective settings of ConfigMap gantry-system/gantry-config-in-effect, config.yaml";
    assert_eq!(page["settings"]["source"], source);
    assert_eq!(page["settings"]["values"]["headOfLineHoldingTime"], 60);
    assert_eq!(page["settings"]["values"]["backoffTime"], 5);

    // Changes that take effect while it runs are published; those that need a restart are not.
    let path = folder.path().join("beside");
    std::fs::write(&path, CONFIG.replace("backoffTime: 5", "backoffTime: 9, preemption: true"))
        .unwrap();
    std::fs::rename(&path, &file).unwrap();
    let text = published(&site, "  backoffTime: 9 #").await;
    assert!(text.contains("  preemption: false\n"), "{text}");
}

/// Without the permission everything else works, and the failure is logged.
#[tokio::test(flavor = "multi_thread")]
async fn cf_8_an_operator_that_may_not_publish_goes_on() {
    let (server, site) = site().await;
    site.install_definitions().await;
    let kubeconfig = site.kubeconfig().await;
    let (_folder, file) = super::file(CONFIG);
    let flags =
        ["--config-file", &file, "--config=other", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut operator = Operator::start(&flags);
    let probes = operator.address();
    let line = operator.wait_for_line("could not publish the effective settings");
    assert!(line.contains("may not patch configmaps other-in-effect"), "{line}");
    wait_for_page(&probes, "/readyz", |status, _| status == 200).await;
    let run = run_as_admin(server.kubeconfig(), &["queue", "--config=other"]).await;
    assert!(run.err.contains("with the default settings"), "{}", run.err);
}
