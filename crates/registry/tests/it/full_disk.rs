//! A registry whose disk is really full.

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use gantry_oci::{Digest, MediaType};
use gantry_testkit::http::{Request, Response};
use serde_json::json;

use crate::content;
use crate::registry_process::{RawClient, RegistryProcess};

/// Mounts a small file system at the first argument, where nobody else sees it, and runs a command
/// there twice.
const SCRIPT: &str = r#"
mount -t tmpfs -o size=24m,mode=700 none "$0" && head -c 8m /dev/zero >"$0/ballast" || exit 1
"$@"
"$@"
"#;

const REPOSITORY: &str = "team/image";
const BLOB_BYTES: usize = 1_000_000;
/// More than fits.
const MAX_BLOBS: usize = 30;

fn small_disk(script: &str, mounted: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(mounted);
    command
}

/// The content number `number`, which differs from all others.
fn blob(number: usize) -> Bytes {
    content(BLOB_BYTES + number)
}

/// Checks the response to a push for which there is no space.
fn assert_full(response: &Response) {
    assert_eq!(response.status, 507, "{}", response.text());
    let error = response.json().unwrap()["errors"][0].clone();
    assert_eq!(error["code"], "UNKNOWN");
    let message = error["message"].as_str().unwrap();
    let expected = "the disk of the registry is full; remove images and collect garbage, or make \
                    it larger";
    assert!(message.ends_with(expected), "{message}");
}

/// The images that were acknowledged.
#[derive(Default)]
struct Acknowledged {
    blobs: Vec<Bytes>,
    manifests: Vec<(String, Bytes)>,
}

impl Acknowledged {
    /// Pushes a blob and an image with it; the response that refuses one of them.
    async fn push(&mut self, client: &RawClient) -> Result<(), Response> {
        let content = blob(self.blobs.len());
        let response = client.push_at_once(REPOSITORY, &content).await.unwrap();
        if response.status != 201 {
            return Err(response);
        }
        self.blobs.push(content.clone());
        let layer = json!({"mediaType": MediaType::OciLayer.as_str(), "size": content.len(),
            "digest": Digest::sha256(&content).as_str()});
        let manifest = json!({"schemaVersion": 2, "mediaType": MediaType::OciManifest.as_str(),
            "config": layer, "layers": [layer]});
        let (tag, bytes) =
            (format!("v{}", self.manifests.len()), Bytes::from(manifest.to_string()));
        let response = client.put_manifest(REPOSITORY, &tag, &bytes).await.unwrap();
        if response.status != 201 {
            return Err(response);
        }
        self.manifests.push((tag, bytes));
        Ok(())
    }

    async fn check(&self, client: &RawClient) {
        for content in &self.blobs {
            let path = format!("/v2/{REPOSITORY}/blobs/{}", Digest::sha256(content));
            let response = client.get(&path).await.unwrap();
            assert!(response.status == 200 && response.body == *content, "{path}");
        }
        for (tag, bytes) in &self.manifests {
            let path = format!("/v2/{REPOSITORY}/manifests/{tag}");
            let response = client.get(&path).await.unwrap();
            assert!(response.status == 200 && response.body == *bytes, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reg_21_a_full_disk_refuses_pushes_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = folder.path().join("small");
    std::fs::create_dir(&mounted).unwrap();
    let tried = small_disk("mount -t tmpfs -o size=1m none \"$0\"", &mounted).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        println!("skipped: this system lets nobody but root mount a small file system");
        return;
    }
    let mut command = small_disk(SCRIPT, &mounted);
    command.arg(std::env::current_exe().unwrap());
    let mut process = RegistryProcess::start_in(command, &mounted.join("registry"));
    let client = process.client();
    let mut acknowledged = Acknowledged::default();
    let refused = loop {
        match acknowledged.push(&client).await {
            Ok(()) => assert!(acknowledged.blobs.len() < MAX_BLOBS, "all of it fitted"),
            Err(response) => break response,
        }
    };
    println!("{} images fitted, then: {}", acknowledged.manifests.len(), refused.text());
    assert_full(&refused);
    assert!(acknowledged.manifests.len() > 5);
    // What was refused in one request leaves nothing behind, however often a client repeats it.
    for _ in 0..5 {
        assert_full(&acknowledged.push(&client).await.unwrap_err());
    }
    assert_eq!(names(&process, &mounted, "registry/temporary"), Vec::<String>::new());
    acknowledged.check(&client).await;

    // An upload in chunks stays at the last byte that was stored, and says where that is.
    let large = content(4 * BLOB_BYTES);
    let location = client.start_upload(REPOSITORY).await.unwrap();
    let mut offset = 0;
    let refused = loop {
        let chunk = large.slice(offset..offset + 300_000);
        let response = client.send_chunk(&location, offset, chunk).await.unwrap();
        if response.status != 202 {
            break response;
        }
        offset += 300_000;
    };
    assert_full(&refused);
    // A part of the chunk may have been stored; it is said exactly how much.
    let status = client.get(&location).await.unwrap();
    let range = status.headers["range"].to_str().unwrap().to_owned();
    let received = match range.split_once('-').unwrap().1.parse::<usize>().unwrap() {
        0 => 0,
        last => last + 1,
    };
    assert!((offset..offset + 300_000).contains(&received), "{range} after {offset}");
    acknowledged.check(&client).await;

    // Images can be removed on a full disk.
    let (tag, _) = acknowledged.manifests.pop().unwrap();
    let path = format!("/v2/{REPOSITORY}/manifests/{tag}");
    assert_eq!(client.send(Request::delete(path)).await.unwrap().status, 202);

    // There is free space again, and no restart is needed.
    std::fs::remove_file(inside(&process, &mounted).join("ballast")).unwrap();
    let rest = large.slice(received..);
    let response = client.send_chunk(&location, received, rest).await.unwrap();
    assert_eq!(response.status, 202, "{}", response.text());
    let response = client.finish_upload(&location, &large, Bytes::new()).await.unwrap();
    assert_eq!(response.status, 201, "{}", response.text());
    acknowledged.blobs.push(large);
    acknowledged.push(&client).await.unwrap();
    acknowledged.check(&client).await;

    // Full once more, and killed: a start needs no space, and finds everything.
    while acknowledged.push(&client).await.is_ok() {
        assert!(acknowledged.blobs.len() < 2 * MAX_BLOBS, "all of it fitted");
    }
    process.kill();
    process.wait_for_restart();
    acknowledged.check(&process.client()).await;
}

/// The small file system as the process sees it.
fn inside(process: &RegistryProcess, mounted: &Path) -> PathBuf {
    let root = Path::new("/proc").join(process.pid.to_string()).join("root");
    root.join(mounted.strip_prefix("/").unwrap())
}

fn names(process: &RegistryProcess, mounted: &Path, directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(inside(process, mounted).join(directory)).unwrap();
    entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
}
