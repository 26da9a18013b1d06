//! The embedded server and a real Kubernetes; `make e2e` builds what is needed and runs them.
#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod access;
mod authors;
mod dual_pods;
mod flows;
mod gate;
mod guests;
mod hand_over;
mod holds;
mod leaves;
mod like_kubernetes;
#[path = "../clients/mask.rs"]
mod mask;
mod operator;
mod queue;
mod scaling;
#[path = "../it/shared_authors.rs"]
mod shared_authors;
#[path = "../it/shared_leaves.rs"]
mod shared_leaves;
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

use std::io::Write as _;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::{Embedded, Plan};

/// The embedded server.
async fn embedded(clock: &Clock) -> Embedded {
    Plan::new(env!("CARGO_BIN_EXE_gantry")).start(clock).await.unwrap()
}

/// Tells whoever runs the tests, past the harness, which holds back what a passing test prints.
fn say(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}
