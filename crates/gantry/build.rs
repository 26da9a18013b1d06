//! Facts about the build that `gantry version` prints.

#![expect(clippy::disallowed_methods, reason = "cargo speaks to build scripts through variables")]

use std::process::Command;

fn main() {
    fact("GANTRY_COMMIT", git(&["rev-parse", "--short=12", "HEAD"]).as_deref());
    fact("GANTRY_COMMIT_DATE", git(&["show", "--no-patch", "--format=%cs", "HEAD"]).as_deref());
    fact("GANTRY_RUSTC", rustc().as_deref());
    fact("GANTRY_TARGET", std::env::var("TARGET").ok().as_deref());
    fact("GANTRY_PROFILE", std::env::var("PROFILE").ok().as_deref());
    // A commit moves HEAD or the branch it names; nothing else changes these facts.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}

fn fact(name: &str, value: Option<&str>) {
    println!("cargo::rustc-env={name}={}", value.unwrap_or("unknown"));
}

fn git(arguments: &[&str]) -> Option<String> {
    output(Command::new("git").args(arguments))
}

fn rustc() -> Option<String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    output(Command::new(rustc).arg("--version"))
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
