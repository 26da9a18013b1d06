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
const GROUP: &str = "fma.llm-d.ai/v1alpha1";

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
        "apiVersion": GROUP, "kind": "LauncherConfig", "metadata": {"name": "bad"},
        "spec": {"maxInstances": 1, "podTemplate": {"spec": {"containers": [
            {"name": "main", "image": "l"}]}}},
    });
    let path = "/apis/fma.llm-d.ai/v1alpha1/namespaces/default/launcherconfigs";
    let answer = client.send(Request::post(path, &config)).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    let server_config = json!({
        "apiVersion": GROUP, "kind": "InferenceServerConfig", "metadata": {"name": "a"},
        "spec": {"launcherConfigName": "bad", "modelServerConfig": {"port": 8005}},
    });
    let servers_path = "/apis/fma.llm-d.ai/v1alpha1/namespaces/default/inferenceserverconfigs";
    let answer = client.send(Request::post(servers_path, &server_config)).await.unwrap();
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
    // The gauges of objects are there once the caches are filled, and each in one process only.
    let (servers, launchers) = (
        "fma_isc_count{launcher_config_name=\"bad\"} 1",
        "fma_launcher_pod_count{lcfg_name=\"bad\",phase=\"stale\"} 0",
    );
    let (config_path, server_path) = (format!("{path}/bad"), format!("{servers_path}/a"));
    for (command, own, other, object) in [
        ("dual-pods-controller", servers, "fma_launcher_pod_count", &server_path),
        ("launcher-populator", launchers, "fma_isc_count", &config_path),
    ] {
        let mut operator = Operator::start_command(command, &flags);
        let metrics = address(&mut operator, "metrics", &clock).await;
        let began = clock.moment();
        loop {
            let text = page(metrics, "/metrics").await;
            if text.contains(own) {
                assert!(!text.contains(other), "{text}");
                break;
            }
            assert!(clock.moment() - began < CONDITION_TIMEOUT, "{text}\n{}", operator.said());
            clock.sleep(POLL_INTERVAL).await;
        }
        assert!(page(metrics, "/readyz").await.starts_with("HTTP/1.1 200"));
        // What is wrong with the object is in its status.
        let object = loop {
            let answer = client.send(Request::get(object)).await.unwrap();
            let object: serde_json::Value = answer.json().unwrap();
            if object["status"]["observedGeneration"] == object["metadata"]["generation"] {
                break object;
            }
            assert!(clock.moment() - began < CONDITION_TIMEOUT, "{object}\n{}", operator.said());
            clock.sleep(POLL_INTERVAL).await;
        };
        let error = object["status"]["errors"][0].as_str().unwrap();
        assert!(error.contains("inference-server"), "{error}");
        let debug = address(&mut operator, "debug", &clock).await;
        let state = page(debug, "/debug/state").await;
        let (_, body) = state.split_once("\r\n\r\n").unwrap();
        let state: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((&state["ready"], &state["leading"]), (&json!(true), &json!(true)), "{state}");
        assert!(state["controllers"].as_u64().is_some_and(|count| count > 1), "{state}");
        operator.signal(Signal::TERM);
        let status = spawn_blocking(move || {
            let status = operator.child.wait().unwrap();
            (status, operator.said())
        });
        let (status, said) = status.await.unwrap();
        assert!(status.success(), "{command}: {status}\n{said}");
    }
}

/// Definitions that are deleted end a controller that runs, with the same line and code.
#[tokio::test(flavor = "multi_thread")]
async fn as_41_kinds_that_are_deleted_end_a_running_controller_with_78() {
    let clock = Clock::system();
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).whole_cluster();
    let server = plan.flag("--ephemeral").flag("--no-actuation").start(&clock).await.unwrap();
    let client = Client::new(server.target(), Protocol::Http1, clock.clone()).unwrap();
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let flags =
        ["--namespace=default", "--kubeconfig", kubeconfig, "--metrics-port=0", "--debug-port=0"];
    let mut operator = Operator::start_command("launcher-populator", &flags);
    let metrics = address(&mut operator, "metrics", &clock).await;
    let began = clock.moment();
    while !page(metrics, "/readyz").await.starts_with("HTTP/1.1 200") {
        assert!(clock.moment() - began < CONDITION_TIMEOUT, "{}", operator.said());
        clock.sleep(POLL_INTERVAL).await;
    }
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/\
                      launcherpopulationpolicies.fma.llm-d.ai";
    let answer = client.send(Request::delete(definition)).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    let ended = spawn_blocking(move || {
        let status = operator.child.wait().unwrap();
        operator.read.extend(operator.lines.iter());
        (status, operator.said())
    });
    let (status, said) = ended.await.unwrap();
    assert_eq!(status.code(), Some(78), "{said}");
    let line = said.lines().find(|it| it.starts_with("error: ")).unwrap();
    assert!(line.contains("these kinds in fma.llm-d.ai/v1alpha1: launcherpop"), "{line}");
}

/// The lease of a controller.
async fn lease(client: &Client, name: &str) -> serde_json::Value {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/{name}");
    client.send(Request::get(path)).await.unwrap().json().unwrap()
}

/// Waits until a process has logged this.
async fn logged(operator: &mut Operator, text: &str, clock: &Clock) {
    let began = clock.moment();
    while !operator.said().contains(text) {
        let late = clock.moment() - began > CONDITION_TIMEOUT;
        assert!(!late, "no {text:?} in\n{}", operator.said());
        clock.sleep(POLL_INTERVAL).await;
    }
}

/// Waits until a page has this line.
async fn shows(operator: &mut Operator, line: &str, clock: &Clock) {
    let metrics = address(operator, "metrics", clock).await;
    let began = clock.moment();
    loop {
        let text = page(metrics, "/metrics").await;
        if text.lines().any(|it| it == line) {
            return;
        }
        assert!(clock.moment() - began < CONDITION_TIMEOUT, "no {line}:\n{text}");
        clock.sleep(POLL_INTERVAL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g_15_one_of_two_replicas_works_and_the_other_takes_over() {
    let clock = Clock::system();
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).whole_cluster();
    let server = plan.flag("--ephemeral").flag("--no-actuation").start(&clock).await.unwrap();
    let client = Client::new(server.target(), Protocol::Http1, clock.clone()).unwrap();
    let path = "/apis/fma.llm-d.ai/v1alpha1/namespaces/default/launcherconfigs";
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let flags = [
        "--namespace=default",
        "--kubeconfig",
        kubeconfig,
        "--metrics-port=0",
        "--debug-port=0",
        "--leader-elect",
        "--leader-elect-lease-duration=4s",
        "--leader-elect-renew-deadline=2s",
        "--leader-elect-retry-period=200ms",
    ];
    for command in ["dual-pods-controller", "launcher-populator"] {
        let mut first = Operator::start_command(command, &flags);
        logged(&mut first, "acquired the lease", &clock).await;
        let held = lease(&client, command).await["spec"]["holderIdentity"].clone();
        assert!(held.as_str().is_some_and(|it| it.contains('_')), "{held}");
        let mut second = Operator::start_command(command, &flags);
        let metrics = address(&mut second, "metrics", &clock).await;
        let began = clock.moment();
        while !page(metrics, "/readyz").await.starts_with("HTTP/1.1 200") {
            assert!(clock.moment() - began < CONDITION_TIMEOUT, "{}", second.said());
            clock.sleep(POLL_INTERVAL).await;
        }
        shows(&mut second, "gantry_controller_leading 0", &clock).await;
        assert_eq!(lease(&client, command).await["spec"]["holderIdentity"], held);

        // It is killed: its lease expires, and the other works.
        first.signal(Signal::KILL);
        logged(&mut second, "acquired the lease", &clock).await;
        shows(&mut second, "gantry_controller_leading 1", &clock).await;
        assert_ne!(lease(&client, command).await["spec"]["holderIdentity"], held);
        if command == "launcher-populator" {
            let config = json!({
                "apiVersion": GROUP, "kind": "LauncherConfig", "metadata": {"name": "lc"},
                "spec": {"maxInstances": 1},
            });
            let answer = client.send(Request::post(path, &config)).await.unwrap();
            assert!(answer.status.is_success(), "{}", answer.text());
            let began = clock.moment();
            loop {
                let object = client.send(Request::get(format!("{path}/lc"))).await.unwrap();
                let object: serde_json::Value = object.json().unwrap();
                if object["status"]["errors"][0].is_string() {
                    break;
                }
                assert!(clock.moment() - began < CONDITION_TIMEOUT, "{object}");
                clock.sleep(POLL_INTERVAL).await;
            }
        }

        // It is stopped: the lease is free at once.
        second.signal(Signal::TERM);
        let status = spawn_blocking(move || second.child.wait().unwrap()).await.unwrap();
        assert!(status.success(), "{command}: {status}");
        assert_eq!(lease(&client, command).await["spec"]["holderIdentity"], "");
    }
}

#[test]
fn times_of_an_election_without_a_safe_order_are_refused() {
    let flags = ["--namespace=x", "--leader-elect", "--leader-elect-renew-deadline=20s"];
    let ended = gantry(&[&["launcher-populator"][..], &flags].concat());
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("--leader-elect-renew-deadline"), "{}", ended.err);
}
