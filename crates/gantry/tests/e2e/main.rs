//! The embedded server and a real Kubernetes; `make e2e` builds what is needed and runs them.
#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod access;
mod authors;
mod device_ledger;
mod dual_pods;
mod flows;
mod kernel_modules;
mod leader_handover;
mod leaves;
mod like_kubernetes;
#[path = "../clients/mask.rs"]
mod mask;
mod operator;
mod queue;
mod scaling;
mod scheduling_gate;
#[path = "../it/shared_authors.rs"]
mod shared_authors;
#[path = "../it/shared_leaves.rs"]
mod shared_leaves;
#[path = "../it/shared_metrics.rs"]
mod shared_metrics;
#[path = "../it/shared_operator.rs"]
mod shared_operator;
#[path = "../it/shared_policies.rs"]
mod shared_policies;
#[path = "../it/shared_process.rs"]
mod shared_process;
#[path = "../it/shared_sharing.rs"]
mod shared_sharing;
mod sharing;
#[path = "../clients/shell.rs"]
#[expect(dead_code, reason = "programs at work are for others")]
mod shell;
mod upstream_controllers;

use std::io::Write as _;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::{EmbeddedServer, Plan};

/// The embedded server.
async fn embedded(clock: &Clock) -> EmbeddedServer {
    Plan::new(env!("CARGO_BIN_EXE_gantry")).start(clock).await.unwrap()
}

/// Prints to the user who runs the tests, past the harness, which captures the output of passing
/// tests.
fn say(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}
