//! Two managers that compete for one lease.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gantry_controller::lease::{LeaseSettings, Timing};
use gantry_controller::{ControllerMetrics, ManagerError, ManagerOptions};
use serde_json::Value;

use crate::copy_controller::{MAPS, RunningController, copies, expected_copies, map};
use crate::server::{FaultyTransport, Server, wait_until};

/// Times that no test waits for: a released lease is free at once.
const LONG_LEASE: Timing = Timing {
    lease: Duration::from_secs(90),
    renew_deadline: Duration::from_secs(60),
    retry: Duration::from_millis(200),
};

/// Times that a test waits for. A machine on which a request takes longer than the deadline would
/// fail it, so they are not shorter.
const SHORT_LEASE: Timing = Timing {
    lease: Duration::from_secs(10),
    renew_deadline: Duration::from_secs(8),
    retry: Duration::from_millis(200),
};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/fan";

fn options(
    line: &std::sync::Arc<FaultyTransport>,
    identity: &str,
    timing: Timing,
) -> ManagerOptions {
    let lease = LeaseSettings {
        client: line.client(),
        namespace: "default".to_owned(),
        name: "fan".to_owned(),
        identity: identity.to_owned(),
        timing,
    };
    ManagerOptions { lease: Some(lease), ..ManagerOptions::default() }
}

async fn holder(server: &Server) -> String {
    let (_, lease) = server.request("GET", LEASE, &Value::Null).await;
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_leader_releases_the_lease() {
    let server = Server::start().await;
    let meters = ControllerMetrics::register(&server.metrics).unwrap();
    let (one, two) = (server.faulty_transport(1), server.faulty_transport(2));
    let first =
        RunningController::start(&server, &one.client(), options(&one, "one", LONG_LEASE), &meters);
    // Not what the lease says: the first manager may not have observed it yet.
    first.handle.permit().granted().await.unwrap();
    let second =
        RunningController::start(&server, &two.client(), options(&two, "two", LONG_LEASE), &meters);
    server.request("POST", MAPS, &map("a", 4, "x")).await;
    wait_until("the first works", async || copies(&server).await == expected_copies("a", 4, "x"))
        .await;
    second.handle.wait_for_cache_sync().await;
    assert!(second.handle.permit().check().is_err());
    assert_eq!(two.count("POST /api/v1/namespaces/default/configmaps"), 0, "the second does not");
    first.stop().await.unwrap();
    let asked = one.requests.lock().unwrap().clone();
    let last = asked.iter().rfind(|it| !it.starts_with("GET")).unwrap();
    assert!(last.starts_with(&format!("PATCH {LEASE}")), "giving back comes last: {last}");
    assert!(["", "two"].contains(&holder(&server).await.as_str()), "it was given back");
    server.request("POST", MAPS, &map("b", 2, "x")).await;
    let all = [expected_copies("a", 4, "x"), expected_copies("b", 2, "x")].concat();
    wait_until("the second goes on", async || copies(&server).await == all).await;
    let (_, lease) = server.request("GET", LEASE, &Value::Null).await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    second.stop().await.unwrap();
    assert_eq!(holder(&server).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnected_leader_stops_writing() {
    let server = Server::start().await;
    let meters = ControllerMetrics::register(&server.metrics).unwrap();
    let (one, two) = (server.faulty_transport(1), server.faulty_transport(2));
    let mut first = RunningController::start(
        &server,
        &one.client(),
        options(&one, "one", SHORT_LEASE),
        &meters,
    );
    // Not what the lease says: the first manager may not have observed it yet.
    first.handle.permit().granted().await.unwrap();
    let second = RunningController::start(
        &server,
        &two.client(),
        options(&two, "two", SHORT_LEASE),
        &meters,
    );
    second.handle.wait_for_cache_sync().await;
    one.disconnected.store(true, Ordering::SeqCst);
    server.request("POST", MAPS, &map("a", 4, "x")).await;
    let end = first.wait_for_exit().await;
    let Err(ManagerError::TaskLost(lost)) = end else { panic!("it did not notice: {end:?}") };
    assert_eq!(&*lost.task, "lease");
    // Any outstanding write would arrive from now on.
    let arrived = one.requests.lock().unwrap().len();
    one.disconnected.store(false, Ordering::SeqCst);
    wait_until("the second goes on", async || {
        copies(&server).await == expected_copies("a", 4, "x")
    })
    .await;
    assert_eq!(one.requests.lock().unwrap().len(), arrived, "nothing of the first arrived");
    assert_eq!(one.count("POST /api/v1/namespaces/default/configmaps"), 0, "nor before");
    second.stop().await.unwrap();
}
