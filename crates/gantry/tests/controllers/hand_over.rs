//! Two shells, one lease.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gantry_controller::lease::{Settings, Timing};
use gantry_controller::{Meters, Options, ShellError};
use serde_json::Value;

use crate::fan::{MAPS, Running, copies, map, wanted};
use crate::server::{Line, Server, until};

/// Times that nobody waits for: a lease that is given back is free at once.
const LONG: Timing = Timing {
    lease: Duration::from_secs(90),
    renew_deadline: Duration::from_secs(60),
    retry: Duration::from_millis(200),
};

/// Times that a test waits for. A machine on which a request takes longer than the deadline would
/// fail it, so they are not shorter.
const SHORT: Timing = Timing {
    lease: Duration::from_secs(10),
    renew_deadline: Duration::from_secs(8),
    retry: Duration::from_millis(200),
};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/fan";

fn options(line: &std::sync::Arc<Line>, identity: &str, timing: Timing) -> Options {
    let lease = Settings {
        client: line.client(),
        namespace: "default".to_owned(),
        name: "fan".to_owned(),
        identity: identity.to_owned(),
        timing,
    };
    Options { lease: Some(lease), ..Options::default() }
}

async fn holder(server: &Server) -> String {
    let (_, lease) = server.ask("GET", LEASE, &Value::Null).await;
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_hands_over_at_once() {
    let server = Server::start().await;
    let meters = Meters::register(&server.metrics).unwrap();
    let (one, two) = (server.line(1), server.line(2));
    let first = Running::start(&server, &one.client(), options(&one, "one", LONG), &meters);
    // Not what the lease says: the first may not have heard of it yet.
    first.handle.permit().granted().await.unwrap();
    let second = Running::start(&server, &two.client(), options(&two, "two", LONG), &meters);
    server.ask("POST", MAPS, &map("a", 4, "x")).await;
    until("the first works", async || copies(&server).await == wanted("a", 4, "x")).await;
    second.handle.filled().await;
    assert!(second.handle.permit().check().is_err());
    assert_eq!(two.count("POST /api/v1/namespaces/default/configmaps"), 0, "the second does not");
    first.stop().await.unwrap();
    let asked = one.asked.lock().unwrap().clone();
    let last = asked.iter().rfind(|it| !it.starts_with("GET")).unwrap();
    assert!(last.starts_with(&format!("PATCH {LEASE}")), "giving back comes last: {last}");
    assert!(["", "two"].contains(&holder(&server).await.as_str()), "it was given back");
    server.ask("POST", MAPS, &map("b", 2, "x")).await;
    let all = [wanted("a", 4, "x"), wanted("b", 2, "x")].concat();
    until("the second goes on", async || copies(&server).await == all).await;
    let (_, lease) = server.ask("GET", LEASE, &Value::Null).await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    second.stop().await.unwrap();
    assert_eq!(holder(&server).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_cut_off_writes_nothing_more() {
    let server = Server::start().await;
    let meters = Meters::register(&server.metrics).unwrap();
    let (one, two) = (server.line(1), server.line(2));
    let mut first = Running::start(&server, &one.client(), options(&one, "one", SHORT), &meters);
    // Not what the lease says: the first may not have heard of it yet.
    first.handle.permit().granted().await.unwrap();
    let second = Running::start(&server, &two.client(), options(&two, "two", SHORT), &meters);
    second.handle.filled().await;
    one.cut.store(true, Ordering::SeqCst);
    server.ask("POST", MAPS, &map("a", 4, "x")).await;
    let end = first.ended().await;
    let Err(ShellError::Lost(lost)) = end else { panic!("it did not notice: {end:?}") };
    assert_eq!(&*lost.task, "lease");
    // Whatever it still had to say would arrive from now on.
    let arrived = one.asked.lock().unwrap().len();
    one.cut.store(false, Ordering::SeqCst);
    until("the second goes on", async || copies(&server).await == wanted("a", 4, "x")).await;
    assert_eq!(one.asked.lock().unwrap().len(), arrived, "nothing of the first arrived");
    assert_eq!(one.count("POST /api/v1/namespaces/default/configmaps"), 0, "nor before");
    second.stop().await.unwrap();
}
