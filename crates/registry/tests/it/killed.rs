//! A registry that is killed while clients push to it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use gantry_oci::{Digest, MediaType};
use gantry_process::clock::Clock;
use gantry_testkit::http::SendError;
use serde_json::json;

use crate::registry_process::{RawClient, RegistryProcess};

const KILLS: usize = 25;
const PUSHERS: usize = 6;
/// The longest time from the first request to the kill.
const LONGEST_ROUND: Duration = Duration::from_millis(250);
/// How many of the contents of earlier rounds are read again after each kill; all are at the end.
const SAMPLE: usize = 40;

/// A client that pushes to a repository of its own, one request at a time, and what it knows.
struct Pusher {
    repository: String,
    random: fastrand::Rng,
    /// What the registry has acknowledged.
    blobs: BTreeMap<Digest, Bytes>,
    manifests: BTreeMap<Digest, Bytes>,
    tags: BTreeMap<String, Digest>,
    /// What was sent when the registry was killed, and was not acknowledged.
    cut: Option<Cut>,
    counts: Counts,
}

/// A push without a response.
enum Cut {
    /// A blob, and the location of its upload if it is known.
    Blob(Bytes, Option<String>),
    /// A manifest under a tag.
    Manifest(String, Bytes),
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    acknowledged: usize,
    cut_at_once: usize,
    cut_in_chunks: usize,
    cut_manifests: usize,
    stored_without_response: usize,
}

impl Pusher {
    fn new(number: usize, seed: u64) -> Self {
        Self {
            repository: format!("team-{number}/image"),
            random: fastrand::Rng::with_seed(seed.wrapping_add(number as u64)),
            blobs: BTreeMap::new(),
            manifests: BTreeMap::new(),
            tags: BTreeMap::new(),
            cut: None,
            counts: Counts::default(),
        }
    }

    fn content(&mut self) -> Bytes {
        let length = self.random.usize(1..600_000);
        let mut bytes = vec![0; length];
        self.random.fill(&mut bytes);
        bytes.into()
    }

    /// Pushes until there is no response.
    async fn push_until_killed(&mut self, client: &RawClient) {
        loop {
            let content = self.content();
            match self.random.u8(0..3) {
                0 => self.push_at_once(client, content).await,
                _ => self.push_in_chunks(client, content).await,
            }
            if self.cut.is_some() {
                return;
            }
            if self.random.bool() {
                self.push_manifest(client).await;
            }
            if self.cut.is_some() {
                return;
            }
        }
    }

    async fn push_at_once(&mut self, client: &RawClient, content: Bytes) {
        match client.push_at_once(&self.repository, &content).await {
            Ok(response) => {
                assert_eq!(response.status, 201, "{}", response.text());
                self.acknowledge(content);
            }
            Err(_) => {
                self.counts.cut_at_once += 1;
                self.cut = Some(Cut::Blob(content, None));
            }
        }
    }

    async fn push_in_chunks(&mut self, client: &RawClient, content: Bytes) {
        let mut location = None;
        match self.send_chunks(client, &content, &mut location).await {
            Ok(()) => self.acknowledge(content),
            Err(_) => {
                self.counts.cut_in_chunks += 1;
                self.cut = Some(Cut::Blob(content, location));
            }
        }
    }

    async fn send_chunks(
        &mut self,
        client: &RawClient,
        content: &Bytes,
        location: &mut Option<String>,
    ) -> Result<(), SendError> {
        let upload = client.start_upload(&self.repository).await?;
        *location = Some(upload.clone());
        let mut first = 0;
        // The last bytes may come with the request that finishes the upload.
        let last = self.random.usize(..=content.len());
        while first < last {
            let end = last.min(first + self.random.usize(1..200_000));
            let response = client.send_chunk(&upload, first, content.slice(first..end)).await?;
            assert_eq!(response.status, 202, "{}", response.text());
            first = end;
        }
        let response = client.finish_upload(&upload, content, content.slice(first..)).await?;
        assert_eq!(response.status, 201, "{}", response.text());
        Ok(())
    }

    fn acknowledge(&mut self, content: Bytes) {
        self.counts.acknowledged += 1;
        self.blobs.insert(Digest::sha256(&content), content);
    }

    /// Pushes an image of a few blobs under a new tag, or under one that exists.
    async fn push_manifest(&mut self, client: &RawClient) {
        let mut layers = Vec::new();
        for _ in 0..3 {
            let at = self.random.usize(..self.blobs.len());
            layers.extend(self.blobs.iter().nth(at));
        }
        let describe = |(digest, content): &(&Digest, &Bytes)| {
            json!({"mediaType": MediaType::OciLayer.as_str(), "digest": digest.as_str(),
                "size": content.len()})
        };
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MediaType::OciManifest.as_str(),
            "config": describe(&layers[0]),
            "layers": layers.iter().map(describe).collect::<Vec<_>>(),
            "annotations": {"number": self.random.u64(..).to_string()},
        });
        let bytes = Bytes::from(manifest.to_string());
        let tag = format!("v{}", self.random.u8(0..8));
        match client.put_manifest(&self.repository, &tag, &bytes).await {
            Ok(response) => {
                assert_eq!(response.status, 201, "{}", response.text());
                self.counts.acknowledged += 1;
                let digest = Digest::sha256(&bytes);
                self.manifests.insert(digest.clone(), bytes);
                self.tags.insert(tag, digest);
            }
            Err(_) => {
                self.counts.cut_manifests += 1;
                self.cut = Some(Cut::Manifest(tag, bytes));
            }
        }
    }

    /// Checks what a registry serves that was started again, and pushes what was cut.
    async fn check(&mut self, client: &RawClient, sample: usize) {
        self.settle(client).await;
        let path = |kind: &str, name: &str| format!("/v2/{}/{kind}/{name}", self.repository);
        let mut random = self.random.fork();
        let mut chosen = |count: usize| random.usize(..count.max(1)) < sample;
        let count = self.blobs.len();
        for (digest, content) in self.blobs.iter().filter(|_| chosen(count)) {
            let response = client.get(&path("blobs", digest.as_str())).await.unwrap();
            assert_eq!(response.status, 200, "{digest} was acknowledged");
            assert!(response.body == *content, "{digest} has other bytes");
        }
        for (digest, content) in &self.manifests {
            let response = client.get(&path("manifests", digest.as_str())).await.unwrap();
            assert_eq!(response.status, 200, "{digest} was acknowledged");
            assert_eq!(response.body, *content);
        }
        let listed = client.get(&path("tags", "list")).await.unwrap();
        let expected: Vec<&String> = self.tags.keys().collect();
        if listed.status == 200 {
            assert_eq!(listed.json().unwrap()["tags"], json!(expected));
        } else {
            assert!(self.tags.is_empty() && self.blobs.is_empty(), "{}", listed.text());
        }
        for (tag, digest) in &self.tags {
            let response = client.get(&path("manifests", tag)).await.unwrap();
            assert_eq!(response.headers["docker-content-digest"], digest.as_str(), "{tag}");
            assert_eq!(response.body, self.manifests[digest], "{tag}");
        }
    }

    /// Finds out what became of a push without a response: all of it or nothing. Then repeats it.
    async fn settle(&mut self, client: &RawClient) {
        match self.cut.take() {
            None => {}
            Some(Cut::Blob(content, location)) => {
                let digest = Digest::sha256(&content);
                let path = format!("/v2/{}/blobs/{digest}", self.repository);
                let stored = client.get(&path).await.unwrap();
                if stored.status == 200 {
                    assert!(stored.body == content, "a part of {digest} is served");
                    self.counts.stored_without_response += 1;
                } else {
                    assert_eq!(stored.status, 404, "{}", stored.text());
                }
                if let Some(location) = location {
                    let response = client.get(&location).await.unwrap();
                    assert_eq!(response.status, 404, "uploads end with the process");
                    let code = &response.json().unwrap()["errors"][0]["code"];
                    assert_eq!(code, "BLOB_UPLOAD_UNKNOWN");
                }
                let again = client.push_at_once(&self.repository, &content).await.unwrap();
                assert_eq!(again.status, 201, "{}", again.text());
                self.acknowledge(content);
            }
            Some(Cut::Manifest(tag, bytes)) => {
                let digest = Digest::sha256(&bytes);
                let path = format!("/v2/{}/manifests/{tag}", self.repository);
                let found = client.get(&path).await.unwrap();
                if found.status == 200 && found.body == bytes {
                    self.counts.stored_without_response += 1;
                } else {
                    let before = self.tags.get(&tag).map(|it| &self.manifests[it]);
                    let served = (found.status == 200).then_some(&found.body);
                    assert_eq!(served, before, "{tag} is what it was before: {}", found.text());
                }
                let again = client.put_manifest(&self.repository, &tag, &bytes).await.unwrap();
                assert_eq!(again.status, 201, "{}", again.text());
                self.manifests.insert(digest.clone(), bytes);
                self.tags.insert(tag, digest);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reg_20_what_was_acknowledged_survives_every_kill() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("registry");
    let (seed, clock) = (fastrand::u64(..), Clock::system());
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pushers: Vec<Pusher> = (0..PUSHERS).map(|it| Pusher::new(it, seed)).collect();
    for _ in 0..KILLS {
        let process = RegistryProcess::start(&directory);
        let client = process.client();
        join_all(pushers.iter_mut().map(|it| it.check(&client, SAMPLE))).await;
        let delay = LONGEST_ROUND.mul_f64(random.f64());
        let kill = async {
            clock.sleep(delay).await;
            process.kill();
        };
        let pushes = join_all(pushers.iter_mut().map(|it| it.push_until_killed(&client)));
        let _ = tokio::join!(kill, pushes);
    }
    let process = RegistryProcess::start(&directory);
    let client = process.client();
    join_all(pushers.iter_mut().map(|it| it.check(&client, usize::MAX))).await;
    let temporary = std::fs::read_dir(directory.join("temporary")).unwrap().count();
    assert_eq!(temporary, 0, "what was cut leaves no files");
    let total = pushers.iter().map(|it| it.counts).fold(Counts::default(), |sum, it| Counts {
        acknowledged: sum.acknowledged + it.acknowledged,
        cut_at_once: sum.cut_at_once + it.cut_at_once,
        cut_in_chunks: sum.cut_in_chunks + it.cut_in_chunks,
        cut_manifests: sum.cut_manifests + it.cut_manifests,
        stored_without_response: sum.stored_without_response + it.stored_without_response,
    });
    println!("{KILLS} kills, {total:?}");
    assert!(total.acknowledged > 0 && total.cut_at_once > 0 && total.cut_in_chunks > 0);
}
