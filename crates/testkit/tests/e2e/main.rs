//! Tests against a real Kubernetes; `make e2e` builds what is needed and runs them.
//!
//! Tests share one cluster and keep apart by namespace, because a start takes seconds. A test that
//! needs another cluster starts its own.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod access;
mod definitions;
mod kernels;
mod killed;
mod manifests;
mod real_node;
mod start;
mod workloads;

use std::io::Write as _;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::{Nodes, RealCluster, TailsOnPanic, User};
use gantry_testkit::http::{Client, Protocol, Request, Response};
use serde_json::json;
use tokio::sync::OnceCell;

/// How long anything here may take on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The cluster that tests share: controllers and two simulated nodes. It ends with the process.
async fn shared() -> (&'static RealCluster, TailsOnPanic<'static>) {
    static SHARED: OnceCell<RealCluster> = OnceCell::const_new();
    let start = || async {
        let plan = RealCluster::plan().controllers().nodes(Nodes::Simulated(2));
        let cluster = plan.start().await.unwrap();
        print_line(&format!(
            "a cluster with controllers and two nodes took {:.1?}",
            cluster.took()
        ));
        cluster
    };
    let cluster = SHARED.get_or_init(start).await;
    (cluster, cluster.tails_on_panic())
}

/// Prints a line for the user, bypassing the harness, which captures what a passing test prints.
fn print_line(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

/// A raw client for a user.
fn http(user: &User) -> Client {
    user.http(Protocol::Http1, Clock::system()).unwrap()
}

/// Creates a namespace, unless it exists.
async fn namespace(client: &Client, name: &str) {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let answer = client.send(Request::post("/api/v1/namespaces", &body)).await.unwrap();
    assert!([201, 409].contains(&answer.status.as_u16()), "{}", answer.text());
}

/// Polls until the answer is as expected.
async fn wait_until(client: &Client, path: &str, holds: impl Fn(&Response) -> bool) -> Response {
    let clock = Clock::system();
    let deadline = clock.moment() + WAIT_TIMEOUT;
    loop {
        let answer = client.send(Request::get(path)).await.unwrap();
        if holds(&answer) {
            return answer;
        }
        assert!(clock.moment() < deadline, "timed out: {path}: {}", answer.text());
        clock.sleep(Duration::from_millis(50)).await;
    }
}

/// Runs kubectl as a user and returns its output, whether or not it succeeded.
fn kubectl(user: &User, arguments: &[&str]) -> (bool, String) {
    let output = user.kubectl().args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}
