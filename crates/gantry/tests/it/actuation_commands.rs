//! `gantry dual-pods-controller` and `gantry launcher-populator` as processes of their own.

use std::net::SocketAddr;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;
use gantry_testkit::http::{Client, Protocol, Request};
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;

use crate::shared_process::Operator;
use crate::{Run, gantry};

/// How long anything may take on a busy machine. It only ensures that a test ends.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

async fn run(words: &[&str]) -> Run {
    let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
    let run = move || gantry(&words.iter().map(String::as_str).collect::<Vec<_>>());
    spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn as_41_kinds_that_are_not_defined_end_the_controllers_with_78() {
    let clock = Clock::system();
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&clock).await.unwrap();
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    for (command, kind) in [
        ("dual-pods-controller", "inferenceserverconfigs.fma.llm-d.ai"),
        ("launcher-populator", "launcherpopulationpolicies.fma.llm-d.ai"),
    ] {
        let ended = run(&[command, "--namespace", "default", "--kubeconfig", kubeconfig]).await;
        assert_eq!(ended.code, 78, "{}", ended.err);
        let errors: Vec<&str> = ended.err.lines().filter(|it| it.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{}", ended.err);
        assert!(errors[0].contains("does not serve fma.llm-d.ai/v1alpha1"), "{}", errors[0]);
        assert!(errors[0].contains(kind) && errors[0].contains("gantry crds"), "{}", errors[0]);
    }
}

#[test]
fn a_namespace_is_required() {
    for command in ["dual-pods-controller", "launcher-populator"] {
        let ended = gantry(&[command]);
        assert_eq!(ended.code, 1, "{}", ended.err);
        assert!(ended.err.contains("--namespace: \"\""), "{}", ended.err);
        assert!(ended.err.contains("name the namespace to work in"), "{}", ended.err);
    }
}

/// The address at which a process listens, as its log says.
async fn address(operator: &mut Operator, server: &str, clock: &Clock) -> SocketAddr {
    let began = clock.moment();
    loop {
        let said = operator.said();
        let line = said
            .lines()
            .find(|it| it.contains("listening") && it.contains(&format!("server=\"{server}\"")));
        let found = line.and_then(|it| it.split("address=").nth(1));
        if let Some(text) = found {
            let text = text.split_whitespace().next().unwrap().trim_matches('"');
            let address: SocketAddr = text.parse().unwrap();
            return SocketAddr::new([127, 0, 0, 1].into(), address.port());
        }
        assert!(clock.moment() - began < CONDITION_TIMEOUT, "no {server}:\n{said}");
        clock.sleep(POLL_INTERVAL).await;
    }
}

async fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn as_33_both_controllers_can_be_scraped_and_stop_cleanly() {
    let clock = Clock::system();
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).whole_cluster();
    let plan = plan.flag("--ephemeral").flag("--no-actuation");
    let server = plan.start(&clock).await.unwrap();
    let client = Client::new(server.target(), Protocol::Http1, clock.clone()).unwrap();
    let config = json!({
        "metadata": {"name": "bad"},
        "spec": {"maxInstances": 1, "podTemplate": {"spec": {"containers": [
            {"name": "main", "image": "l"}]}}},
    });
    let path = "/apis/fma.llm-d.ai/v1alpha1/namespaces/default/launcherconfigs";
    let answer = client.send(Request::post(path, &config)).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let flags = [
        "--namespace=default",
        "--kubeconfig",
        kubeconfig,
        "--metrics-port=0",
        "--debug-port=0",
        "-v=2",
    ];
    for command in ["dual-pods-controller", "launcher-populator"] {
        let mut operator = Operator::start_command(command, &flags);
        let metrics = address(&mut operator, "metrics", &clock).await;
        let began = clock.moment();
        // The gauge of a LauncherConfig is there once the caches are filled.
        let line = "fma_launcher_pod_count{lcfg_name=\"bad\",phase=\"stale\"} 0";
        loop {
            let text = page(metrics, "/metrics").await;
            if text.contains(line) {
                break;
            }
            assert!(clock.moment() - began < CONDITION_TIMEOUT, "{text}\n{}", operator.said());
            clock.sleep(POLL_INTERVAL).await;
        }
        assert!(page(metrics, "/readyz").await.starts_with("HTTP/1.1 200"));
        let debug = address(&mut operator, "debug", &clock).await;
        let state = page(debug, "/debug/state").await;
        assert!(state.contains("\"controllers\"") && state.contains(command), "{state}");
        operator.signal(Signal::TERM);
        let status = spawn_blocking(move || {
            let status = operator.child.wait().unwrap();
            (status, operator.said())
        });
        let (status, said) = status.await.unwrap();
        assert!(status.success(), "{command}: {status}\n{said}");
    }
    // What is wrong with the object is in its status.
    let object = client.send(Request::get(format!("{path}/bad"))).await.unwrap();
    let object: serde_json::Value = object.json().unwrap();
    assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);
    let error = object["status"]["errors"][0].as_str().unwrap();
    assert!(error.contains("inference-server"), "{error}");
}
