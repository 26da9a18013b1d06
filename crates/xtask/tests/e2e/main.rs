//! The container image of the binary, read and run by programs of others.
#![expect(clippy::unwrap_used, reason = "all of this is tests")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Says why a test is skipped, past the harness, which captures the output of passing tests.
fn skip(why: &str) {
    let test = "the_image_is_read_and_run_by_others";
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

/// The binary that cargo builds beside this test.
fn binary() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent()?.parent()?.join("gantry");
    binary.exists().then_some(binary)
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn write_image(binary: &Path, output: &Path) -> String {
    let words = ["image", "--tag", "v1", "--binary"];
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(words)
        .arg(binary)
        .arg("--output")
        .arg(output)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    let digest = text.lines().find_map(|line| line.strip_prefix("digest")).unwrap();
    digest.trim().to_owned()
}

#[test]
fn the_image_is_read_and_run_by_others() {
    for program in ["skopeo", "umoci"] {
        if Command::new(program).arg("--version").output().is_err() {
            return skip(&format!("{program} is not installed"));
        }
    }
    if run(Path::new("/"), "id", &["-u"]).trim() != "0" {
        return skip("only root may chroot");
    }
    let Some(binary) = binary() else {
        return skip("there is no binary; cargo build -p gantry builds it");
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let digest = write_image(&binary, &root.join("image.tar"));

    let image = "oci-archive:image.tar:v1";
    let inspected: Value = serde_json::from_str(&run(root, "skopeo", &["inspect", image])).unwrap();
    assert_eq!(inspected["Digest"], digest.as_str());
    assert_eq!(inspected["Os"], "linux");
    assert_eq!(inspected["Labels"]["org.opencontainers.image.title"], "gantry");

    std::fs::write(root.join("policy.json"), r#"{"default":[{"type":"insecureAcceptAnything"}]}"#)
        .unwrap();
    run(root, "skopeo", &["--policy", "policy.json", "copy", image, "oci:layout:v1"]);
    run(root, "umoci", &["unpack", "--image", "layout:v1", "bundle"]);
    let bundle: Value =
        serde_json::from_slice(&std::fs::read(root.join("bundle/config.json")).unwrap()).unwrap();
    assert_eq!(bundle["process"]["user"]["uid"], 65532);
    let command = bundle["process"]["args"][0].as_str().unwrap();

    // Nothing of this machine is visible to the program but the kernel.
    let user = "--userspec=65532:65532";
    let said = run(root, "chroot", &[user, "bundle/rootfs", command, "--version"]);
    let outside = run(root, binary.to_str().unwrap(), &["--version"]);
    assert_eq!(said, outside);
    assert!(said.starts_with("gantry "), "{said}");
}
