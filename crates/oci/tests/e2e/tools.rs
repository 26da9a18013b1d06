//! The programs that tests run.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// Whether all these programs are there; if not, says so.
pub(crate) fn available(test: &str, programs: &[&str]) -> bool {
    for program in programs {
        if Command::new(program).arg("--version").output().is_err() {
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {program} is not installed");
            return false;
        }
    }
    true
}

/// Runs a program and returns what it prints.
pub(crate) fn run(directory: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Unpacks an image of the layout `layout` in `directory` with umoci, also where tests do not run
/// as root.
pub(crate) fn unpack(directory: &Path, image: &str, bundle: &str) {
    run(directory, "umoci", &["unpack", "--rootless", "--image", image, bundle]);
}
