//! Programs in other languages, made from what is pinned in `testbed`. Without the language there
//! is nothing to test; everything else that goes wrong is a failure.

use std::path::{Path, PathBuf};
use std::process::Command;

use gantry_testkit::programs::Programs;

use super::say;

/// Builds a package of a module below `testbed`, or says that there is no Go. Go's own cache makes
/// the second time quick.
pub(super) fn go(module: &str, package: &str) -> Option<PathBuf> {
    if !there_is("go", "version") {
        say(&format!("skipped: {module}: there is no go"));
        return None;
    }
    let program = cache().join(module);
    let output = Command::new("go")
        .args(["build", "-ldflags", "-s -w", "-o"])
        .args([&program, Path::new(package)])
        .envs([("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local"), ("GOWORK", "off")])
        .env("GOFLAGS", "-mod=readonly -buildvcs=false -trimpath")
        .current_dir(testbed().join(module))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// A folder with the packages that a file below `testbed` pins, or nothing without Python. The
/// folder is named after the file, and recreated when that changes.
pub(super) fn python(requirements: &str) -> Option<PathBuf> {
    if !there_is("python3", "--version") || !there_is("python3", "-mpip --version") {
        say(&format!("skipped: {requirements}: there is no python3 with pip"));
        return None;
    }
    let file = testbed().join(requirements);
    let pinned = std::fs::read_to_string(&file).unwrap();
    let folder = cache().join("python");
    let stamp = folder.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|made| made == pinned) {
        return Some(folder);
    }
    let _ = std::fs::remove_dir_all(&folder);
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps"])
        .args(["--only-binary", ":all:", "--target"])
        .arg(&folder)
        .arg("--requirement")
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(stamp, pinned).unwrap();
    Some(folder)
}

/// Where a program is, for those that are started without our path.
pub(super) fn which(program: &str) -> PathBuf {
    let output = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}

fn there_is(program: &str, question: &str) -> bool {
    let answer = Command::new(program).args(question.split(' ')).output();
    answer.is_ok_and(|answer| answer.status.success())
}

fn testbed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed")
}

/// Beside the folders of the test bed's programs.
fn cache() -> PathBuf {
    let runs = Programs::find().unwrap().runs().to_path_buf();
    let cache = runs.parent().unwrap().join("clients");
    std::fs::create_dir_all(&cache).unwrap();
    cache
}
