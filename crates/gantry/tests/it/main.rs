//! The binary as its users meet it: real processes, real files.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot start its own binary should fail loudly"
)]

mod access;
mod actuation;
mod actuation_commands;
#[cfg(feature = "scenarios")]
mod actuation_scenarios;
mod bad_input;
mod broken_webhooks;
mod cluster;
mod commands;
mod conformance;
mod contention;
mod devices;
mod dual_pods;
#[path = "../../../registry/tests/it/embedded.rs"]
#[expect(dead_code, reason = "faults are not needed here")]
mod embedded_registry;
mod merge_kubeconfig;
mod modules;
mod operator;
mod queue;
mod quotas;
mod requirements;
#[cfg(feature = "scenarios")]
mod shared_actuation;
mod shared_authors;
mod shared_leaves;
mod shared_metrics;
mod shared_operator;
mod shared_policies;
mod shared_process;
mod shared_sharing;
mod sharing;
mod unreachable_cluster;
mod up;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a run left behind.
struct Run {
    code: i32,
    out: String,
    err: String,
}

fn gantry(arguments: &[&str]) -> Run {
    gantry_with(arguments, &[], "")
}

fn gantry_with(arguments: &[&str], environment: &[(&str, &str)], input: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gantry"))
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input closes the pipe early.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `gantry check` on one file with this content.
fn check(content: &[u8]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input.yaml");
    std::fs::write(&file, content).unwrap();
    let mut run = gantry(&["check", file.to_str().unwrap()]);
    let prefix = format!("{}/", folder.path().display());
    run.err = run.err.replace(&prefix, "");
    run.out = run.out.replace(&prefix, "");
    run
}

fn manifests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../api/tests/manifests"))
}
