//! The storage on a disk that crashes and fills up, and garbage collection.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gantry_process::clock::{Clock, FakeClock};
use proptest::prelude::*;
use serde_json::json;

use super::uploads::{Leases, UploadError, UploadLimits, Uploads};
use super::*;
use simulated_disk::SimulatedDisk;

mod simulated_disk;

const HOUR: Duration = Duration::from_secs(3600);

fn start() -> Timestamp {
    "2026-11-18T10:00:00Z".parse().unwrap()
}

fn name(text: &str) -> RepositoryName {
    text.parse().unwrap()
}

/// A storage on a simulated disk with uploads and a clock.
struct TestStorage {
    disk: SimulatedDisk,
    storage: Storage,
    uploads: Uploads,
    hand: FakeClock,
}

impl TestStorage {
    fn new() -> Self {
        Self::open(SimulatedDisk::new()).unwrap()
    }

    fn open(disk: SimulatedDisk) -> Result<Self, StorageError> {
        let hand = FakeClock::at(start());
        let storage = Storage::on_disk(Arc::new(disk.clone()), StorageLimits::default())?;
        let limits = UploadLimits { open: 4, idle: HOUR };
        let uploads = Uploads::new(hand.clock(), limits, fastrand::Rng::with_seed(7));
        Ok(Self { disk, storage, uploads, hand })
    }

    fn clock(&self) -> Clock {
        self.hand.clock()
    }

    fn advance(&self, duration: Duration) {
        self.hand.jump_to(self.clock().moment() + duration);
    }

    fn push_blob(&self, repository: &str, content: &[u8]) -> Result<Digest, UploadError> {
        let upload = self.uploads.start(&self.storage, &name(repository))?;
        let half = content.len() / 2;
        upload.append(&self.storage, 0, &content[..half])?;
        upload.append(&self.storage, half as u64, &content[half..])?;
        let digest = Digest::sha256(content);
        self.uploads.finish(&self.storage, &upload, &digest)?;
        Ok(digest)
    }

    /// Stores a manifest with one layer, which is pushed before.
    fn push_image(&self, repository: &str, layer: &str, tag: &str) -> Result<Digest, UploadError> {
        let layer = self.push_blob(repository, layer.as_bytes())?;
        let body = json!({"schemaVersion": 2, "config": {"digest": layer.as_str()}});
        Ok(self.put(repository, &body, Some(tag))?)
    }

    fn put(
        &self,
        repository: &str,
        body: &serde_json::Value,
        tag: Option<&str>,
    ) -> Result<Digest, StorageError> {
        let bytes = Bytes::from(body.to_string());
        let content = ManifestContent::parse(&bytes, None).unwrap();
        let digest = Digest::sha256(&bytes);
        let media_type = content.media_type.as_str().to_owned();
        let manifest = StoredManifest { digest: digest.clone(), media_type, bytes };
        let tag: Option<Tag> = tag.map(|it| it.parse().unwrap());
        let now = self.clock().now();
        let repository = name(repository);
        self.storage.put_manifest(&repository, &manifest, &content, tag.as_ref(), now)?;
        Ok(digest)
    }

    fn collect(&self, untagged_after: Option<Duration>) -> Result<GarbageReport, StorageError> {
        let settings = GarbageCollection { untagged_after, minimum_age: HOUR };
        self.storage.collect_garbage(settings, self.clock().now(), |_| false)
    }

    fn observe(&self) -> Observed {
        let mut observed = Observed::default();
        for repository in self.storage.repositories().unwrap() {
            for tag in self.storage.tags(&repository).unwrap().unwrap_or_default() {
                let digest = self.storage.tag(&repository, &tag.parse().unwrap()).unwrap().unwrap();
                observed.tags.insert((repository.to_string(), tag), digest);
            }
            for (digest, _) in self.storage.manifests(&repository).unwrap() {
                let manifest = self.storage.manifest(&repository, &digest).unwrap().unwrap();
                assert_eq!(Digest::sha256(&manifest.bytes), digest, "content of a manifest");
                observed.manifests.insert((repository.to_string(), digest));
            }
            for link in self.storage.names(&RepositoryPart::Blobs.of(&repository)).unwrap() {
                let digest = digest_of_link(&link).unwrap();
                let blob = self.storage.blob(&repository, &digest).unwrap().unwrap();
                let bytes = blob.file.read_at(0, usize::MAX).unwrap();
                assert_eq!(Digest::sha256(&bytes), digest, "content of a blob");
                observed.blobs.insert((repository.to_string(), digest));
            }
        }
        observed
    }
}

/// What a client can see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Observed {
    tags: BTreeMap<(String, String), Digest>,
    manifests: BTreeSet<(String, Digest)>,
    blobs: BTreeSet<(String, Digest)>,
}

impl Observed {
    /// Checks that everything is as before or after one step, whatever was in progress.
    fn check_between(&self, before: &Self, after: &Self) -> Result<(), TestCaseError> {
        let tags: BTreeSet<_> =
            [self, before, after].iter().flat_map(|it| it.tags.keys()).collect();
        for tag in tags {
            let found = self.tags.get(tag);
            let expected = [before.tags.get(tag), after.tags.get(tag)];
            prop_assert!(expected.contains(&found), "tag {:?}: {:?}", tag, found);
        }
        let sets = [
            (&self.manifests, &before.manifests, &after.manifests),
            (&self.blobs, &before.blobs, &after.blobs),
        ];
        for (found, before, after) in sets {
            let both: BTreeSet<_> = before.intersection(after).cloned().collect();
            let either: BTreeSet<_> = before.union(after).cloned().collect();
            prop_assert!(found.is_superset(&both), "lost {:?}", both.difference(found));
            prop_assert!(found.is_subset(&either), "back {:?}", found.difference(&either));
        }
        // Every tag means a manifest that is there.
        for ((repository, _), digest) in &self.tags {
            prop_assert!(self.manifests.contains(&(repository.clone(), digest.clone())));
        }
        Ok(())
    }
}

/// One request.
#[derive(Clone, Copy, Debug)]
enum Step {
    PushBlob(u8),
    PushImage(u8, u8),
    Mount(u8),
    DeleteTag(u8),
    DeleteManifest(u8),
    DeleteRepository,
    Collect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0_u8..2).prop_map(Step::PushBlob),
        (0_u8..2, 0_u8..2).prop_map(|(layer, tag)| Step::PushImage(layer, tag)),
        (0_u8..2, 0_u8..2).prop_map(|(layer, tag)| Step::PushImage(layer, tag)),
        (0_u8..2).prop_map(Step::Mount),
        (0_u8..2).prop_map(Step::DeleteTag),
        (0_u8..2).prop_map(Step::DeleteManifest),
        Just(Step::DeleteRepository),
        Just(Step::Collect),
    ];
    prop::collection::vec(step, 1..7)
}

fn layer(number: u8) -> String {
    format!("layer {number}").repeat(10)
}

impl TestStorage {
    fn run(&self, step: Step) -> Result<(), UploadError> {
        let main = name("team/main");
        // Old enough to be collected by the next step.
        self.advance(2 * HOUR);
        match step {
            Step::PushBlob(number) => {
                self.push_blob("team/main", layer(number).as_bytes())?;
            }
            Step::PushImage(number, tag) => {
                self.push_image("team/main", &layer(number), &format!("v{tag}"))?;
            }
            Step::Mount(number) => {
                let digest = Digest::sha256(layer(number).as_bytes());
                let now = self.clock().now();
                self.storage.mount_blob(&main, &name("other"), &digest, now)?;
            }
            Step::DeleteTag(tag) => {
                self.storage.delete_tag(&main, &format!("v{tag}").parse().unwrap())?;
            }
            Step::DeleteManifest(number) => {
                let config = Digest::sha256(layer(number).as_bytes());
                let body = json!({"schemaVersion": 2, "config": {"digest": config.as_str()}});
                let digest = Digest::sha256(body.to_string().as_bytes());
                self.storage.delete_manifest(&main, &digest)?;
            }
            Step::DeleteRepository => {
                self.storage.delete_repository(&main)?;
            }
            Step::Collect => {
                self.collect(Some(HOUR))?;
            }
        }
        Ok(())
    }
}

/// Files that nothing refers to.
fn leftovers(disk: &SimulatedDisk, observed: &Observed) -> Vec<String> {
    let linked: BTreeSet<String> = observed
        .manifests
        .iter()
        .chain(&observed.blobs)
        .map(|(_, digest)| blob_path(digest))
        .collect();
    let files = disk.all_files();
    let is_left = |path: &&String| {
        path.starts_with(TEMPORARY) || (path.starts_with("blobs/") && !linked.contains(*path))
    };
    files.keys().filter(is_left).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever is done, and wherever the process dies, everything that was acknowledged is there,
    /// what was in progress is there or not, and the next start leaves no file that nothing needs.
    #[test]
    fn reg_14_a_crash_between_any_two_file_operations_loses_nothing(steps in steps(), seed: u64) {
        let reference = TestStorage::new();
        let opened = reference.disk.changes();
        let mut states = vec![reference.observe()];
        for step in &steps {
            reference.run(*step).unwrap();
            states.push(reference.observe());
        }
        let mut random = fastrand::Rng::with_seed(seed);
        for crash in opened + 1..=reference.disk.changes() {
            let test = TestStorage::new();
            test.disk.crash_at(crash);
            let done = steps.iter().take_while(|step| test.run(**step).is_ok()).count();
            prop_assert!(done < steps.len(), "the crash at {} was not noticed", crash);
            let disk = test.disk.after_crash(&mut random);
            let again = TestStorage::open(disk.clone()).unwrap();
            let found = again.observe();
            found.check_between(&states[done], &states[done + 1])?;
            prop_assert_eq!(leftovers(&disk, &found), Vec::<String>::new());
        }
    }

    /// A full disk is reported as such, changes nothing that was acknowledged, and the same request
    /// succeeds when there is space again.
    #[test]
    fn reg_15_a_full_disk_refuses_and_keeps_everything(steps in steps(), part in 0.0..1.0_f64) {
        let reference = TestStorage::new();
        let opened = reference.disk.changes();
        let mut states = vec![reference.observe()];
        for step in &steps {
            reference.run(*step).unwrap();
            states.push(reference.observe());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a part of a small number"
        )]
        let at = opened + 1 + ((reference.disk.changes() - opened) as f64 * part) as u64;
        let test = TestStorage::new();
        test.disk.full_at(Some(at));
        let mut failed = None;
        for (index, step) in steps.iter().enumerate() {
            if let Err(error) = test.run(*step) {
                let full = matches!(error, UploadError::Storage(StorageError::Full { .. }));
                prop_assert!(full, "{}", error);
                failed = Some((index, *step));
                break;
            }
        }
        test.disk.full_at(None);
        if let Some((index, step)) = failed {
            test.observe().check_between(&states[index], &states[index + 1])?;
            test.run(step).unwrap();
            prop_assert_eq!(&test.observe(), &states[index + 1]);
        }
        prop_assert_eq!(test.uploads.count(), failed.map_or(0, |_| test.uploads.count()));
    }
}

#[test]
fn reg_14_a_crash_while_opening_is_repaired_by_the_next_start() {
    let whole = TestStorage::new().disk.changes();
    let mut random = fastrand::Rng::with_seed(3);
    for crash in 1..=whole {
        let disk = SimulatedDisk::new();
        disk.crash_at(crash);
        assert!(TestStorage::open(disk.clone()).is_err(), "crash at {crash}");
        let test = TestStorage::open(disk.after_crash(&mut random)).unwrap();
        test.push_image("a", "x", "v1").unwrap();
    }
}

#[test]
fn reg_3_uploads_continue_only_where_they_end_and_are_limited() {
    let test = TestStorage::new();
    let repository = name("a");
    let upload = test.uploads.start(&test.storage, &repository).unwrap();
    assert_eq!(upload.append(&test.storage, 0, b"abc").unwrap(), 3);
    let error = upload.append(&test.storage, 0, b"abc").unwrap_err();
    assert!(matches!(error, UploadError::WrongOffset { expected: 3, found: 0 }));
    assert!(test.uploads.find(&name("b"), &upload.id).is_err(), "of another repository");
    let wrong = Digest::sha256(b"x");
    let error = test.uploads.finish(&test.storage, &upload, &wrong).unwrap_err();
    assert!(matches!(error, UploadError::DigestMismatch { .. }));
    assert!(test.uploads.find(&repository, &upload.id).is_err(), "it is over");
    assert!(test.storage.blob(&repository, &wrong).unwrap().is_none());

    let open: Vec<_> =
        (0..4).map(|_| test.uploads.start(&test.storage, &repository).unwrap()).collect();
    let error = test.uploads.start(&test.storage, &repository).unwrap_err();
    assert!(matches!(error, UploadError::TooMany { limit: 4 }));
    test.advance(HOUR / 2);
    test.uploads.find(&repository, &open[0].id).unwrap();
    test.advance(HOUR / 2);
    test.uploads.start(&test.storage, &repository).unwrap();
    assert_eq!(test.uploads.count(), 2, "those that are idle were removed");
    test.uploads.cancel(&test.storage, &open[0]);
    let temporary = test.disk.all_files().into_keys().filter(|it| it.starts_with(TEMPORARY));
    assert_eq!(temporary.count(), 1);
    let error = open[0].append(&test.storage, 0, b"late").unwrap_err();
    assert!(matches!(error, UploadError::Unknown));
}

#[test]
fn reg_16_an_upload_goes_on_after_the_disk_was_full() {
    let test = TestStorage::new();
    let upload = test.uploads.start(&test.storage, &name("a")).unwrap();
    upload.append(&test.storage, 0, b"0123").unwrap();
    test.disk.full_at(Some(0));
    let error = upload.append(&test.storage, 4, b"4567").unwrap_err();
    assert!(matches!(error, UploadError::Storage(StorageError::Full { .. })), "{error}");
    test.disk.full_at(None);
    assert_eq!(upload.append(&test.storage, 4, b"4567").unwrap(), 8);
    let digest = Digest::sha256(b"01234567");
    test.uploads.finish(&test.storage, &upload, &digest).unwrap();
    let blob = test.storage.blob(&name("a"), &digest).unwrap().unwrap();
    assert_eq!(blob.file.read_at(0, 100).unwrap(), b"01234567", "without what was half written");
}

#[test]
fn reg_3_sha512_uploads_are_verified_too() {
    let test = TestStorage::new();
    let upload = test.uploads.start(&test.storage, &name("a")).unwrap();
    upload.append(&test.storage, 0, b"abc").unwrap();
    let digest = Digest::compute(Algorithm::Sha512, b"abc");
    test.uploads.finish(&test.storage, &upload, &digest).unwrap();
    assert_eq!(test.storage.blob(&name("a"), &digest).unwrap().unwrap().size, 3);
    let again = TestStorage::open(test.disk).unwrap();
    assert!(again.storage.blob(&name("a"), &digest).unwrap().is_some());
}

#[test]
fn reg_17_limits_of_repositories_and_manifests() {
    let disk = SimulatedDisk::new();
    let mut test = TestStorage::open(disk).unwrap();
    test.storage.limits =
        StorageLimits { repositories: 2, manifests_per_repository: 2, ..StorageLimits::default() };
    test.push_image("a", "1", "v1").unwrap();
    test.push_image("a", "2", "v2").unwrap();
    test.push_image("a", "2", "v2").unwrap();
    let error = test.push_image("a", "3", "v1").unwrap_err().to_string();
    assert_eq!(
        error,
        "the registry has reached its limit of 2 manifests in a repository; remove some, or raise \
         the limit"
    );
    let error = test.push_image("a", "2", "v3").unwrap_err().to_string();
    assert!(error.contains("2 tags in a repository"), "{error}");
    test.push_blob("b", b"x").unwrap();
    let error = test.push_blob("c", b"x").unwrap_err().to_string();
    assert!(error.contains("2 repositories"), "{error}");
    test.storage.limits.blob_bytes = 3;
    let error = test.push_blob("b", b"long").unwrap_err();
    assert!(matches!(error, UploadError::TooLarge { limit: 3 }));
}

#[test]
fn reg_18_garbage_collection_keeps_what_tags_need_and_what_is_new() {
    let test = TestStorage::new();
    let kept = test.push_image("a", "kept", "v1").unwrap();
    let old = test.push_image("a", "old", "v2").unwrap();
    let new = test.push_image("a", "new", "v2").unwrap();
    // An index, of which only the tag of the index remains; and a signature of a kept image.
    let child = test.push_image("a", "child", "child").unwrap();
    let body = json!({"schemaVersion": 2, "manifests": [{"digest": child.as_str()}]});
    let index = test.put("a", &body, Some("multi")).unwrap();
    test.storage.delete_tag(&name("a"), &"child".parse().unwrap()).unwrap();
    let config = test.push_blob("a", b"signature").unwrap();
    let about = |subject: &Digest| {
        json!({"schemaVersion": 2, "config": {"digest": config.as_str()},
            "subject": {"digest": subject.as_str()}})
    };
    let signature = test.put("a", &about(&kept), None).unwrap();
    let lost_signature = test.put("a", &about(&old), None).unwrap();
    let unused = test.push_blob("a", b"unused").unwrap();
    let manifests = |test: &TestStorage| -> BTreeSet<Digest> {
        test.storage.manifests(&name("a")).unwrap().into_iter().map(|(digest, _)| digest).collect()
    };
    let all = manifests(&test);
    assert_eq!(test.collect(Some(HOUR)).unwrap(), GarbageReport::default(), "all of it is new");
    test.advance(HOUR);
    let fresh = test.push_blob("a", b"fresh").unwrap();
    let report = test.collect(None).unwrap();
    assert_eq!((report.manifests, report.links), (0, 1), "without an age, untagged ones stay");
    assert_eq!(manifests(&test), all);
    assert!(test.storage.blob(&name("a"), &unused).unwrap().is_none());
    assert!(test.storage.blob(&name("a"), &fresh).unwrap().is_some());
    let report = test.collect(Some(HOUR)).unwrap();
    assert_eq!((report.manifests, report.links, report.contents), (2, 1, 3));
    assert!(report.bytes > 0);
    assert_eq!(manifests(&test), [kept, new, child, index, signature].into());
    assert!(!manifests(&test).contains(&lost_signature));
    assert_eq!(test.collect(Some(HOUR)).unwrap(), GarbageReport::default(), "nothing is left");
}

#[test]
fn reg_18_leased_and_shared_contents_stay() {
    let test = TestStorage::new();
    let leases = Leases::new(test.clock(), HOUR);
    let digest = test.push_blob("a", b"x").unwrap();
    let now = test.clock().now();
    assert!(test.storage.mount_blob(&name("a"), &name("b"), &digest, now).unwrap());
    assert!(!test.storage.mount_blob(&name("c"), &name("d"), &digest, now).unwrap());
    test.advance(HOUR);
    leases.renew(&digest);
    let collect = |test: &TestStorage, leases: &Leases| {
        let settings = GarbageCollection::default();
        let now = test.clock().now();
        test.storage.collect_garbage(settings, now, |it| leases.is_leased(it)).unwrap()
    };
    assert_eq!(collect(&test, &leases), GarbageReport::default());
    test.storage.delete_blob(&name("a"), &digest).unwrap();
    assert_eq!(collect(&test, &leases), GarbageReport::default(), "the other one has it still");
    test.advance(HOUR);
    let report = collect(&test, &leases);
    assert_eq!((report.links, report.contents, report.bytes), (1, 1, 1));
}

#[test]
fn reg_18_an_unreadable_manifest_protects_its_repository() {
    let test = TestStorage::new();
    let digest = test.push_image("a", "x", "v1").unwrap();
    test.storage.write(&blob_directory(Algorithm::Sha256), digest.hex(), b"damaged").unwrap();
    test.advance(2 * HOUR);
    let report = test.collect(Some(HOUR)).unwrap();
    assert_eq!(report.unreadable, [name("a")]);
    assert_eq!((report.manifests, report.links, report.contents), (0, 0, 0));
}

#[test]
fn reg_19_a_directory_has_one_process_and_one_format() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Storage::open(folder.path(), StorageLimits::default());
    let first = open().unwrap();
    assert!(matches!(open().unwrap_err(), StorageError::Locked));
    drop(first);
    let again = open().unwrap();
    drop(again);
    std::fs::write(folder.path().join(FORMAT_FILE), "gantry-registry/9").unwrap();
    assert_eq!(
        open().unwrap_err().to_string(),
        "cannot use the directory of the registry: its format is \"gantry-registry/9\", not \
         \"gantry-registry/1\""
    );
}

#[test]
fn a_blob_is_read_as_a_stream_of_its_own_repository() {
    use std::io::Read as _;
    let test = TestStorage::new();
    let content: Vec<u8> = (0..200_000_u32).map(|it| it.to_le_bytes()[0]).collect();
    let digest = test.push_blob("team/driver", &content).unwrap();
    let mut blob = test.storage.open_blob(&name("team/driver"), &digest).unwrap().unwrap();
    assert_eq!(blob.size(), 200_000);
    // It stays readable when it is removed meanwhile.
    assert!(test.storage.delete_blob(&name("team/driver"), &digest).unwrap());
    let mut read = Vec::new();
    blob.read_to_end(&mut read).unwrap();
    assert!(read == content, "{} bytes", read.len());
    let other = test.push_blob("team/other", b"x").unwrap();
    assert!(test.storage.open_blob(&name("team/driver"), &other).unwrap().is_none());
}
