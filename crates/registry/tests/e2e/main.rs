//! Our client against Debian's registry, and clients of others against the embedded registry.
//!
//! `apt-get install docker-registry skopeo buildah` installs what they need; a test whose program
//! is missing prints `skipped:` and why.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

#[path = "../it/embedded.rs"]
#[expect(dead_code, reason = "faults are not needed here")]
mod embedded;
mod foreign_clients;
mod foreign_registry;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the path of a program; without it, prints why the test is skipped.
fn program(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/local/bin", "/usr/sbin", "/bin"];
    let found = folders.iter().map(|it| Path::new(it).join(name)).find(|it| it.is_file());
    if found.is_none() {
        // Past the harness, which captures what a passing test prints.
        let line = format!("skipped: {name} is not installed; apt-get install {name}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    found
}

/// Runs a program with a home of its own; returns whether it succeeded, and its output.
async fn run(program: &Path, home: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("HOME", home).env("TMPDIR", home);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("XDG_RUNTIME_DIR", home);
    command.stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs a program that must succeed.
async fn succeed(program: &Path, home: &Path, arguments: &[&str]) -> String {
    let (success, output) = run(program, home, arguments).await;
    assert!(success, "{} {arguments:?}: {output}", program.display());
    output
}
