//! The settings in effect, as an operator publishes them and people read them.

use serde_json::Value;
use tokio::task::spawn_blocking;

use super::simulation::until_page;
use super::{Run, gantry_with, site};
use crate::shared_operator::{Site, config_map};
use crate::shared_process::Operator;

const CONFIG: &str = "\
health: {bindAddress: '127.0.0.1:0'}
metrics: {bindAddress: '0'}
mcad: {backoffTime: 5}
";

/// Runs a command with the credentials of an administrator.
async fn ask(kubeconfig: &std::path::Path, words: &[&str]) -> Run {
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
async fn cf_8_flags_reach_those_who_look_at_the_queue() {
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
    until_page(&probes, "/readyz", |status, _| status == 200).await;
    // In a file, from a flag, and the default: each with where it is from.
    let text =
        published(&site, "  headOfLineHoldingTime: 60 # from --headoflineholdingtime\n").await;
    assert!(text.contains(&format!("  backoffTime: 5 # from {file}:3:8\n")), "{text}");
    assert!(text.contains("  wakeOnRelease: true\n"), "{text}");

    let run = ask(server.kubeconfig(), &["queue", "-o", "json"]).await;
    assert_eq!(run.code, 0, "{}", run.err);
    let page: Value = serde_json::from_str(&run.out).unwrap();
    let source =
        "the settings in effect of ConfigMap gantry-system/gantry-config-in-effect, config.yaml";
    assert_eq!(page["settings"]["source"], source);
    assert_eq!(page["settings"]["values"]["headOfLineHoldingTime"], 60);
    assert_eq!(page["settings"]["values"]["backoffTime"], 5);

    // What changes while it runs is published; what needs a restart is not in effect.
    let path = folder.path().join("beside");
    std::fs::write(&path, CONFIG.replace("backoffTime: 5", "backoffTime: 9, preemption: true"))
        .unwrap();
    std::fs::rename(&path, &file).unwrap();
    let text = published(&site, "  backoffTime: 9 #").await;
    assert!(text.contains("  preemption: false\n"), "{text}");
}

/// Without the right nothing else suffers, and it is said.
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
    let line = operator.line_with("could not publish the settings in effect");
    assert!(line.contains("may not patch configmaps other-in-effect"), "{line}");
    until_page(&probes, "/readyz", |status, _| status == 200).await;
    let run = ask(server.kubeconfig(), &["queue", "--config=other"]).await;
    assert!(run.err.contains("by the default settings"), "{}", run.err);
}
