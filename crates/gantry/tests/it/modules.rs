//! `gantry modules`: signs and verifies kernel modules, in files and in images.

use std::path::{Path, PathBuf};

use gantry_oci::build::ImageBuilder;
use gantry_oci::layer::NewEntry;
use gantry_oci::layout::{Layout, save_image};
use gantry_oci::{MemoryBlobs, Platform};
use jiff::Timestamp;
use serde_json::Value;

use super::gantry;
use crate::embedded_registry::Embedded;

const MODULE: &str = "/opt/lib/modules/6.1.0-55-cloud-amd64/hello.ko";

/// A file of the fixtures that the kernel's own `sign-file` made.
fn fixture(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kmod/tests/fixtures");
    root.join(name).to_str().unwrap().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn kms_51_sign_file_writes_what_the_tool_of_the_kernel_writes() {
    let folder = tempfile::tempdir().unwrap();
    let signed = folder.path().join("signed.ko");
    for digest in ["sha256", "sha384", "sha512"] {
        for (key, certificate) in [("pkcs8.pem", "pem"), ("pkcs1.pem", "der")] {
            let run = gantry(&[
                "modules",
                "sign-file",
                digest,
                &fixture(&format!("keys/rsa2048.{key}")),
                &fixture(&format!("certificates/rsa2048.{certificate}")),
                &fixture("sample.ko"),
                text(&signed),
            ]);
            assert_eq!(run.code, 0, "{}", run.err);
            let expected = fixture(&format!("signed/rsa2048.{digest}.ko"));
            assert_eq!(std::fs::read(&signed).unwrap(), std::fs::read(expected).unwrap());
        }
    }
}

#[test]
fn kms_55_a_module_is_signed_in_place_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let module = folder.path().join("driver.ko");
    std::fs::copy(fixture("sample.ko"), &module).unwrap();
    let (key, certificate) =
        (fixture("keys/rsa2048.encrypted.pem"), fixture("certificates/rsa2048.pem"));
    let pin = folder.path().join("pin");
    std::fs::write(&pin, "correct horse\n").unwrap();
    let sign = |options: &[&str]| {
        let words = [&key, &certificate, text(&module)];
        gantry(&[&["modules", "sign-file", "sha256"][..], &words, options].concat())
    };
    let run = sign(&[]);
    assert_eq!(run.code, 5, "the key is encrypted: {}", run.err);
    assert!(run.err.contains("is encrypted"), "{}", run.err);
    assert_eq!(std::fs::read(&module).unwrap(), std::fs::read(fixture("sample.ko")).unwrap());
    let run = sign(&["-p", "--pin-file", text(&pin)]);
    assert_eq!(run.code, 0, "{}", run.err);
    let once = std::fs::read(&module).unwrap();
    assert_eq!(once, std::fs::read(fixture("signed/rsa2048.sha256.ko")).unwrap());
    let message = std::fs::read(folder.path().join("driver.ko.p7s")).unwrap();
    assert!(once.windows(message.len()).any(|part| part == message), "-p writes the signature");
    let run = sign(&["--pin-file", text(&pin)]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("already signed by this key"), "{}", run.err);
    assert_eq!(std::fs::read(&module).unwrap(), once);
}

#[test]
fn kms_54_and_kms_61_each_mistake_has_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes.ko");
    std::fs::write(&notes, "no module").unwrap();
    let damaged = folder.path().join("damaged.ko");
    let mut bytes = std::fs::read(fixture("signed/rsa2048.sha256.ko")).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let key = fixture("keys/rsa2048.pkcs8.pem");
    let (ours, theirs) = (fixture("certificates/rsa2048.pem"), fixture("certificates/rsa3072.pem"));
    let (module, signed) = (fixture("sample.ko"), fixture("signed/rsa2048.sha256.ko"));
    let copy = folder.path().join("out.ko");
    let table: [(&str, &[&str], i32, &str); 8] = [
        (
            "a key of another certificate",
            &["sign-file", "sha256", &key, &theirs, &module, text(&copy)],
            5,
            "does not match the certificate",
        ),
        ("a weak digest", &["sign-file", "sha1", &key, &ours, &module, text(&copy)], 5, "too weak"),
        (
            "a digest that does not exist",
            &["sign-file", "md5", &key, &ours, &module, text(&copy)],
            2,
            "md5",
        ),
        (
            "no module",
            &["sign-file", "sha256", &key, &ours, text(&notes), text(&copy)],
            6,
            "notes.ko",
        ),
        ("signed", &["verify", "--cert-file", &ours, &signed], 0, "yes"),
        ("not trusted", &["verify", "--cert-file", &theirs, &signed], 8, "not trusted"),
        ("not signed", &["verify", "--cert-file", &ours, &module], 8, "not signed"),
        ("changed", &["verify", "--cert-file", &ours, text(&damaged)], 8, "does not match"),
    ];
    for (why, words, code, says) in table {
        let run = gantry(&[&["modules"], words].concat());
        assert_eq!(run.code, code, "{why}: {}{}", run.out, run.err);
        assert!(run.err.contains(says) || run.out.contains(says), "{why}: {}{}", run.out, run.err);
        assert!(!copy.exists(), "{why}: nothing is written");
    }
}

/// A layout with an image that has one module.
fn layout(folder: &Path) -> PathBuf {
    let content = std::fs::read(fixture("sample.ko")).unwrap();
    let mut blobs = MemoryBlobs::default();
    let platform = Platform::linux("amd64").unwrap();
    let manifest = ImageBuilder::from_scratch(platform, Timestamp::UNIX_EPOCH)
        .layer(vec![NewEntry::file(MODULE, content, 0o644)], "test")
        .unwrap()
        .build(&mut blobs)
        .unwrap();
    let path = folder.join("unsigned");
    let mut layout = Layout::create(&path).unwrap();
    save_image(&blobs, &mut layout, &manifest.descriptor(), Some("v1")).unwrap();
    path
}

fn sign(more: &[&str]) -> super::Run {
    let (key, certificate) =
        (fixture("keys/rsa2048.pkcs8.pem"), fixture("certificates/rsa2048.pem"));
    let words = ["modules", "sign", "--key-file", &key, "--cert-file", &certificate];
    gantry(&[&words[..], &["-o", "json"], more].concat())
}

#[test]
fn kms_58_images_in_files_are_signed_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let unsigned = layout(folder.path());
    let mut digests = Vec::new();
    for name in ["one", "two"] {
        let (out, archive) = (folder.path().join(name), folder.path().join("image.tar"));
        let (input, output) = (text(&unsigned), text(&out));
        let files = ["--oci-layout-in", input, "--oci-layout-out", output];
        let more = ["--oci-archive", text(&archive), "--file", "/opt/lib/modules/*/hello.ko"];
        let run = sign(&[&files[..], &more, &["--source-date-epoch", "1700000000"]].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        let result: Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!(result["files"][0]["path"], MODULE);
        assert_eq!(result["files"][0]["result"], "signed");
        let image = Layout::open(&out).unwrap().image(None).unwrap().digest().to_string();
        assert_eq!(result["image"], image.as_str());
        assert!(std::fs::metadata(&archive).unwrap().len() > 0);
        digests.push(image);
    }
    assert_eq!(digests[0], digests[1]);
    // The archive is read again: what is in it is signed, and stays as it is.
    let archive = folder.path().join("image.tar");
    let from = ["--archive-in", text(&archive), "--file", "/opt/lib/modules/*/hello.ko"];
    let run = sign(&[&from[..], &["--no-push"]].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let result: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(result["image"], digests[0].as_str());
    assert_eq!(result["files"][0]["result"], "already-signed");
    let verify = |certificate: &str| {
        let words = ["modules", "verify", "--cert-file", &fixture(certificate)];
        gantry(&[&words[..], &from].concat())
    };
    assert_eq!(verify("certificates/rsa2048.pem").code, 0);
    assert_eq!(verify("certificates/rsa3072.pem").code, 8);
    std::fs::write(&archive, "not a tar").unwrap();
    let run = verify("certificates/rsa2048.pem");
    assert_eq!(run.code, 3, "{}", run.err);
    assert!(run.err.contains("could not read the image in"), "{}", run.err);
    let missing = ["--oci-layout-in", text(&unsigned), "--no-push", "--file", "/opt/none.ko"];
    let run = sign(&missing);
    assert_eq!(run.code, 4, "{}", run.err);
    assert!(run.err.contains("/opt/none.ko matches no file"), "{}", run.err);
}

/// An image goes from one repository to another, with credentials and a private authority; a user
/// without permission to push changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn kms_60_images_in_registries_are_pulled_signed_and_pushed() {
    let registry = Embedded::tls().await;
    let folder = tempfile::tempdir().unwrap();
    let address = registry.address;
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, &registry.authority.own.certificate).unwrap();
    let auth = |name: &str, password: &str| {
        let path = folder.path().join(name);
        let entry = serde_json::json!({"username": "anna", "password": password});
        let file = serde_json::json!({"auths": {address.to_string(): entry}});
        std::fs::write(&path, file.to_string()).unwrap();
        path
    };
    let (right, wrong) = (auth("right.json", "right"), auth("wrong.json", "wrong"));
    let unsigned = layout(folder.path());
    let image = |name: &str| format!("{address}/{name}");
    let run = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
        let ca = text(&authority).to_owned();
        tokio::task::spawn_blocking(move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            sign(&[&words[..], &["--ca-file", &ca, "--file", MODULE]].concat())
        })
    };
    // The unsigned image gets there by being signed with no change: by pushing a layout.
    let (from, to) = (image("team/driver:v1-signed"), image("other/driver:v1"));
    let push =
        ["--oci-layout-in", text(&unsigned), "--signed-image", &from, "--auth-file", text(&right)];
    let first = run(&push).await.unwrap();
    assert_eq!(first.code, 0, "{}", first.err);
    let again = ["--unsigned-image", &from, "--signed-image", &to, "--auth-file", text(&right)];
    let second = run(&again).await.unwrap();
    assert_eq!(second.code, 0, "{}", second.err);
    let (first, second): (Value, Value) =
        (serde_json::from_str(&first.out).unwrap(), serde_json::from_str(&second.out).unwrap());
    assert_eq!(second["files"][0]["result"], "already-signed");
    let digest = |it: &Value| it["image"].as_str().unwrap().split_once('@').unwrap().1.to_owned();
    assert_eq!(digest(&first), digest(&second), "an image that is signed keeps its digest");

    let refused = ["--unsigned-image", &from, "--signed-image", &to, "--auth-file", text(&wrong)];
    let refused = run(&refused).await.unwrap();
    assert_eq!(refused.code, 3, "{}", refused.err);
    let forbidden = image("forbidden/driver:v1");
    let push = ["--unsigned-image", &from, "--signed-image", &forbidden];
    let push = run(&[&push[..], &["--auth-file", text(&right)]].concat()).await.unwrap();
    assert_eq!(push.code, 7, "{}", push.err);
    let repositories = registry.registry.storage().repositories().unwrap();
    let names: Vec<String> = repositories.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["other/driver", "team/driver"]);
}

/// Tools that collect diagnostic data start a program called `gather` in an image.
#[test]
fn kms_91_the_program_gathers_when_it_is_called_so() {
    let folder = tempfile::tempdir().unwrap();
    let gather = folder.path().join("gather");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gantry"), &gather).unwrap();
    let run = |words: &[&str]| {
        let output = std::process::Command::new(&gather).args(words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, help) = run(&["--help"]);
    assert_eq!(code, Some(0), "{help}");
    assert!(help.contains("gantry modules gather") && help.contains("errors.txt"), "{help}");
    // Nothing is written before a cluster has answered.
    let output = folder.path().join("out");
    let nowhere = folder.path().join("kubeconfig");
    let (code, text) =
        run(&["--output", output.to_str().unwrap(), "--kubeconfig", nowhere.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("kubeconfig"), "{text}");
    assert!(!output.exists());
}
