//! skopeo and buildah against the embedded registry.

use std::fs;
use std::path::Path;

use gantry_oci::{Digest, MediaType};
use serde_json::{Value, json};

use super::embedded::Embedded;
use super::{program, run, succeed};

/// Writes an image as a directory in the layout of OCI, with the tag `v1`.
fn write_layout(folder: &Path) {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let store = |bytes: &[u8]| {
        let digest = Digest::sha256(bytes);
        fs::write(blobs.join(digest.hex()), bytes).unwrap();
        (digest, bytes.len())
    };
    // An empty archive: two blocks of zeros.
    let (layer, layer_size) = store(&[0; 1024]);
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer.as_str()]},
    });
    let (config, config_size) = store(config.to_string().as_bytes());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MediaType::OciManifest.as_str(),
        "config": {"mediaType": MediaType::OciConfig.as_str(), "digest": config.as_str(),
            "size": config_size},
        "layers": [{"mediaType": MediaType::OciLayer.as_str(), "digest": layer.as_str(),
            "size": layer_size}],
    });
    let (manifest, manifest_size) = store(manifest.to_string().as_bytes());
    let index = json!({
        "schemaVersion": 2,
        "manifests": [{"mediaType": MediaType::OciManifest.as_str(), "digest": manifest.as_str(),
            "size": manifest_size, "annotations": {"org.opencontainers.image.ref.name": "v1"}}],
    });
    fs::write(folder.join("index.json"), index.to_string()).unwrap();
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reg_22_skopeo_pushes_pulls_lists_and_deletes() {
    let Some(skopeo) = program("skopeo") else { return };
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    write_layout(&home.join("layout"));
    let layout = format!("oci:{}:v1", home.join("layout").display());
    for tls in [false, true] {
        let server = if tls { Embedded::tls().await } else { Embedded::plain().await };
        let certificates = home.join(format!("certificates-{tls}"));
        fs::create_dir(&certificates).unwrap();
        fs::write(certificates.join("ca.crt"), &server.authority.own.certificate).unwrap();
        let certificates = certificates.display().to_string();
        let flag = |side: &str| match tls {
            true => format!("--{side}cert-dir={certificates}"),
            false => format!("--{side}tls-verify=false"),
        };
        let image = |name: &str| format!("docker://{}/{name}", server.address);
        let (to, from, plain) = (flag("dest-"), flag("src-"), flag(""));
        let skopeo = |arguments: Vec<String>| {
            let all = std::iter::once("--insecure-policy".to_owned()).chain(arguments);
            let (skopeo, home) = (skopeo.clone(), home.to_owned());
            let all: Vec<String> = all.collect();
            async move {
                let all: Vec<&str> = all.iter().map(String::as_str).collect();
                run(&skopeo, &home, &all).await
            }
        };
        let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        // A token of a service account is the password of any user.
        let target = image("team/app:v1");
        let push = ["copy", &to, "--dest-creds=any:right", &layout, &target];
        let (done, output) = skopeo(words(&push)).await;
        assert!(done, "{output}");
        let again = image("team/app:v2");
        let push = ["copy", &to, "--dest-creds=other:right", "--format=v2s2", &layout, &again];
        let (done, output) = skopeo(words(&push)).await;
        assert!(done, "{output}");
        let raw = ["inspect", "--raw", &plain, "--creds=any:right", &again];
        let (done, output) = skopeo(words(&raw)).await;
        assert!(done, "{output}");
        let manifest: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(manifest["mediaType"], MediaType::DockerManifest.as_str());
        let inspect = ["inspect", &plain, "--creds=any:right", &target];
        let (done, output) = skopeo(words(&inspect)).await;
        assert!(done && output.contains("\"amd64\""), "{output}");
        let (done, output) =
            skopeo(words(&["list-tags", &plain, "--creds=any:right", &image("team/app")])).await;
        assert!(done && output.contains("\"v1\"") && output.contains("\"v2\""), "{output}");
        let mounted = image("other:v1");
        let both =
            ["copy", &from, &to, "--src-creds=a:right", "--dest-creds=a:right", &target, &mounted];
        let (done, output) = skopeo(words(&both)).await;
        assert!(done, "{output}");
        let local = format!("dir:{}", home.join(format!("pulled-{tls}")).display());
        let pull = ["copy", &from, "--src-creds=a:right", &mounted, &local];
        let (done, output) = skopeo(words(&pull)).await;
        assert!(done, "{output}");
        let (done, output) = skopeo(words(&["delete", &plain, "--creds=any:right", &again])).await;
        assert!(done, "{output}");
        let (done, output) = skopeo(words(&inspect_of(&plain, &again))).await;
        assert!(!done && output.contains("manifest unknown"), "{output}");
        // Refusals are understood.
        let wrong = ["inspect", &plain, "--creds=any:wrong", &target];
        let (done, output) = skopeo(words(&wrong)).await;
        assert!(!done && output.contains("unauthorized"), "{output}");
        let denied = image("forbidden/x:v1");
        let push = ["copy", &to, "--dest-creds=any:right", &layout, &denied];
        let (done, output) = skopeo(words(&push)).await;
        assert!(!done && output.contains("403 (Forbidden)"), "{output}");
        let none = ["inspect", "--no-creds", &plain, &target];
        let (done, output) = skopeo(words(&none)).await;
        assert!(!done, "{output}");
    }
}

fn inspect_of<'a>(flag: &'a str, image: &'a str) -> [&'a str; 4] {
    ["inspect", flag, "--creds=any:right", image]
}

#[tokio::test(flavor = "multi_thread")]
async fn reg_22_buildah_pushes_and_pulls() {
    let Some(buildah) = program("buildah") else { return };
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let server = Embedded::plain().await;
    let path = |name: &str| home.join(name).display().to_string();
    fs::write(path("policy"), r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).unwrap();
    fs::write(path("file"), "content").unwrap();
    let (root, runroot, policy) = (path("root"), path("runroot"), path("policy"));
    let store = ["--root", &root, "--runroot", &runroot, "--storage-driver", "vfs"];
    let policy = format!("--signature-policy={policy}");
    let (success, output) = run(&buildah, home, &[&store[..], &["from", "scratch"]].concat()).await;
    if !success {
        // Containers need permissions that a test may not have.
        eprintln!("skipped: buildah cannot work here: {}", output.trim());
        return;
    }
    let container = output.lines().last().unwrap().trim().to_owned();
    let image = format!("docker://{}/built:v1", server.address);
    let file = path("file");
    let steps: [&[&str]; 5] = [
        &["copy", &container, &file, "/file"],
        &["commit", &policy, &container, "localhost/built"],
        &["push", &policy, "--tls-verify=false", "--creds=any:right", "localhost/built", &image],
        &["rmi", "--all", "--force"],
        &["pull", &policy, "--tls-verify=false", "--creds=any:right", &image],
    ];
    for step in steps {
        succeed(&buildah, home, &[&store[..], step].concat()).await;
    }
    let lines = server.lines();
    let pushed = lines.iter().any(|it| it == "PUT /v2/built/manifests/v1");
    assert!(pushed, "{lines:?}");
}
