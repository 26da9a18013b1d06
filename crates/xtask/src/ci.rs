//! Every step of CI, the same for a developer and for the server.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::generate::{self, Mode};
use crate::tidy;
use crate::tree::Tree;
use crate::workspace;

/// The steps in order, quickest refusal first; tests last because they take longest.
const STEPS: &[Step] = &[
    Step { name: "fmt", job: StepAction::Program(&["cargo", "fmt", "--all", "--check"]) },
    Step {
        name: "clippy",
        job: StepAction::Program(&[
            "cargo",
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ]),
    },
    Step { name: "gen --check", job: StepAction::Gen },
    Step { name: "tidy", job: StepAction::Tidy },
    Step { name: "doc", job: StepAction::Program(&["make", "--no-print-directory", "doc"]) },
    Step { name: "make test", job: StepAction::Program(&["make", "--no-print-directory", "test"]) },
    Step { name: "make e2e", job: StepAction::Program(&["make", "--no-print-directory", "e2e"]) },
];

/// A step that must succeed.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Its name in the log.
    name: &'static str,
    /// What it does.
    job: StepAction,
}

/// What a step does.
#[derive(Debug, Clone, Copy)]
enum StepAction {
    /// Runs a program in the workspace root; its exit status decides.
    Program(&'static [&'static str]),
    /// Compares generated files.
    Gen,
    /// Checks the repository's rules.
    Tidy,
}

/// Runs every step; false if one failed, in which case the rest did not run.
pub(crate) fn run(root: &Path, out: &mut impl Write) -> anyhow::Result<bool> {
    let target = std::env::current_exe().ok().and_then(|program| target_directory(&program));
    run_these(STEPS, elapsed(), out, |step, out| match step.job {
        StepAction::Program(words) => program(root, target.as_deref(), words),
        StepAction::Gen => generate::run(&Tree::read(root)?, Mode::Check, out),
        StepAction::Tidy => tidy::run(root, out),
    })
}

/// Checks that every crate of the workspace builds alone, with what its own manifest names: in a
/// build of all crates, features that one crate asks for serve the others too. It is no step of
/// CI: dependencies are built once for each set of features, which takes a quarter of an hour.
pub(crate) fn check_each_crate(root: &Path, out: &mut impl Write) -> anyhow::Result<bool> {
    let target = std::env::current_exe().ok().and_then(|program| target_directory(&program));
    let mut failed = Vec::new();
    for package in workspace::packages(root)? {
        let words = ["cargo", "check", "--quiet", "--package", &package.name];
        if !program(root, target.as_deref(), &words)? {
            failed.push(package.name);
        }
    }
    if !failed.is_empty() {
        writeln!(out, "these crates do not build alone: {}", failed.join(", "))?;
    }
    Ok(failed.is_empty())
}

/// Time since this call; steps take minutes, so a monotonic clock is all we need.
#[expect(clippy::disallowed_methods, reason = "this is the edge: the time goes into a log line")]
fn elapsed() -> impl FnMut() -> Duration {
    let start = Instant::now();
    move || start.elapsed()
}

/// Runs `steps` until one fails, with a line before and a line with the time after each.
fn run_these<W: Write>(
    steps: &[Step],
    mut clock: impl FnMut() -> Duration,
    out: &mut W,
    mut perform: impl FnMut(&Step, &mut W) -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    for step in steps {
        let start = clock();
        writeln!(out, "==> {}", step.name)?;
        out.flush()?;
        let passed = perform(step, out).with_context(|| format!("step {} broke", step.name))?;
        let took = clock().saturating_sub(start).as_secs_f64();
        let word = if passed { "" } else { ", failed" };
        writeln!(out, "==> {} … {took:.1} s{word}", step.name)?;
        if !passed {
            return Ok(false);
        }
    }
    let total = clock().as_secs_f64();
    writeln!(out, "==> all {} steps passed … {total:.1} s", steps.len())?;
    Ok(true)
}

/// Runs one program in `root` with our output; true if it succeeded.
fn program(root: &Path, target: Option<&Path>, words: &[&str]) -> anyhow::Result<bool> {
    let [name, arguments @ ..] = words else {
        anyhow::bail!("a step names no program");
    };
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root);
    if let Some(target) = target {
        command.env("CARGO_TARGET_DIR", target);
    }
    let status = command.status().with_context(|| format!("could not run {name}"))?;
    Ok(status.success())
}

/// The target directory this program was built in, for the steps to build in as well.
///
/// Without it, `cargo xtask ci` would use `target` and `make test` the cache folder, and
/// everything would be built twice.
fn target_directory(program: &Path) -> Option<PathBuf> {
    let target = program.parent()?.parent()?;
    // Cargo marks its target directory, and nothing else we could be in, with this file.
    target.join("CACHEDIR.TAG").exists().then(|| target.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs three steps of which the one called `bad` fails; a second passes at each look.
    fn run_three(names: [&'static str; 3]) -> (bool, String) {
        let steps = names.map(|name| Step { name, job: StepAction::Tidy });
        let mut now = 0.0;
        let clock = move || {
            now += 1.0;
            Duration::from_secs_f64(now)
        };
        let mut out = Vec::new();
        let passed = run_these(&steps, clock, &mut out, |step, _| Ok(step.name != "bad"));
        (passed.unwrap(), String::from_utf8(out).unwrap())
    }

    #[test]
    fn each_step_is_timed() {
        let (passed, log) = run_three(["a", "b", "c"]);
        assert!(passed);
        let expected = "\
==> a\n==> a … 1.0 s\n==> b\n==> b … 1.0 s\n==> c\n==> c … 1.0 s\n==> all 3 steps passed … 7.0 s\n";
        assert_eq!(log, expected);
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let (passed, log) = run_three(["a", "bad", "c"]);
        assert!(!passed);
        assert_eq!(log, "==> a\n==> a … 1.0 s\n==> bad\n==> bad … 1.0 s, failed\n");
    }

    #[test]
    fn the_steps_are_those_of_the_house_in_order() {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        let quick = ["fmt", "clippy", "gen --check", "tidy", "doc"];
        assert_eq!(names, [&quick[..], &["make test", "make e2e"]].concat());
    }

    #[test]
    fn a_program_is_judged_by_its_status_and_builds_beside_us() {
        let root = tempfile::tempdir().unwrap();
        let target = Path::new("/somewhere");
        let shell = ["sh", "-c", "test \"$CARGO_TARGET_DIR\" = /somewhere"];
        assert!(program(root.path(), Some(target), &shell).unwrap());
        assert!(!program(root.path(), None, &["false"]).unwrap());
        assert!(program(root.path(), None, &["no-such-program-anywhere"]).is_err());
        assert!(program(root.path(), None, &[]).is_err());
    }

    #[test]
    fn the_target_directory_is_recognised_by_its_mark() {
        let target = tempfile::tempdir().unwrap();
        let ours = target.path().join("debug/xtask");
        assert_eq!(target_directory(&ours), None);
        std::fs::write(target.path().join("CACHEDIR.TAG"), "").unwrap();
        assert_eq!(target_directory(&ours), Some(target.path().to_path_buf()));
    }
}
