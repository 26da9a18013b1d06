//! Whatever happens to the machine, what was acknowledged is there and nothing is there twice.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::disk::Disk;
use crate::disk::simulated::Fault;
use crate::header::{self, Header};
use crate::log::{self, segment::log_name};
use crate::record::{Operation, Record};

/// One life of the store.
#[derive(Debug, Clone)]
struct StoreRun {
    /// Batches of changes: key, and whether it is deleted.
    batches: Vec<Vec<(u8, bool, usize)>>,
    /// After how many operations of the disk what goes wrong.
    fault: Option<(usize, Fault)>,
    /// Whether it is closed properly if nothing goes wrong.
    closed: bool,
    seed: u64,
}

fn any_run() -> impl Strategy<Value = StoreRun> {
    let change = (0..12_u8, prop::bool::weighted(0.25), 0..700_usize);
    let batches = prop::collection::vec(prop::collection::vec(change, 1..6), 0..14);
    let fault = prop_oneof![
        Just(Fault::PowerLoss),
        Just(Fault::PowerLoss),
        Just(Fault::ShortWrite),
        Just(Fault::SyncError)
    ];
    let fault = prop::option::weighted(0.7, (0..120_usize, fault));
    (batches, fault, any::<bool>(), any::<u64>())
        .prop_map(|(batches, fault, closed, seed)| StoreRun { batches, fault, closed, seed })
}

/// What is known about what must be there.
#[derive(Default)]
struct Model {
    /// Every event that was acknowledged or has been seen after opening.
    expected: BTreeMap<u64, EventSummary>,
    /// Every change that was ever asked for, by its text without the revision.
    requested: BTreeSet<(EventKindOrd, String, String)>,
    issued: usize,
}

type EventKindOrd = bool;

impl Model {
    fn write(&mut self, key: u8, deleted: bool, padding: usize) -> Write {
        self.issued += 1;
        let (key, text) = (format!("k{key}"), format!("{}{}", self.issued, "x".repeat(padding)));
        self.requested.insert((deleted, key.clone(), text.clone()));
        if deleted { delete("s", &key, &text) } else { put("s", &key, &text) }
    }

    /// Checks an opened store against all that is known, and takes note of what is new.
    fn check(&mut self, store: &TestStore) {
        let history = history(store, "s");
        let revisions: Vec<_> = history.iter().map(|event| event.0).collect();
        let last = store.revision().get();
        assert_eq!(revisions, (2..=last).collect::<Vec<_>>(), "no gap and nothing twice");
        for (revision, known) in &self.expected {
            let found = history.iter().find(|event| event.0 == *revision);
            assert_eq!(found, Some(known), "acknowledged or seen, and now gone or changed");
        }
        let mut state = BTreeMap::new();
        let mut texts = BTreeSet::new();
        for (revision, kind, key, value) in &history {
            let text = value.strip_suffix(&format!("@{revision};")).expect("stamped");
            let deleted = *kind == EventKind::Delete;
            assert!(self.requested.contains(&(deleted, key.clone(), text.to_owned())), "invented");
            assert!(texts.insert(text.to_owned()), "made twice");
            match kind {
                EventKind::Put => {
                    let created = state.get(key).map_or(*revision, |(_, created)| *created);
                    state.insert(key.clone(), (value.clone(), created));
                }
                EventKind::Delete => assert!(state.remove(key).is_some(), "nothing to delete"),
            }
        }
        let expected: Vec<_> =
            state.into_iter().map(|(key, (value, created))| (key, value, created)).collect();
        assert_eq!(entries(&store.space("s")), expected);
        self.expected = history.into_iter().map(|event| (event.0, event)).collect();
    }
}

proptest! {
    #[test]
    fn acknowledged_changes_survive(
        lives in prop::collection::vec(any_run(), 1..6)
    ) {
        let options = small(4608);
        let mut disk = SimulatedDisk::default();
        let mut model = Model::default();
        for life in lives {
            if let Some((after, fault)) = life.fault {
                disk.inject_fault(after, fault);
            }
            // A fault may strike while the store is being opened, too.
            if let Ok((store, recovery)) = open(&disk, &options) {
                prop_assert_eq!(recovery.repair, None);
                model.check(&store);
                runtime().block_on(async {
                    for batch in life.batches {
                        let writes = batch.into_iter().map(|(k, d, p)| model.write(k, d, p));
                        let answers = commit_concurrently(&store, writes.collect()).await;
                        for event in answers.into_iter().flatten() {
                            let before = model.expected.insert(event.revision.get(), summarize(&event));
                            assert_eq!(before, None, "a revision was given out twice");
                        }
                    }
                });
                if life.closed {
                    let _ = store.close();
                } else {
                    // The power goes while it is open: first the picture, then the end.
                    let after = disk.crash(life.seed);
                    drop(store.close());
                    disk = after;
                    continue;
                }
            }
            disk = disk.crash(life.seed);
        }
        let (store, _) = open(&disk, &options).expect("a crash never leaves damage behind");
        model.check(&store);
    }
}

/// A broken disk may keep showing what it has lost until the power goes.
#[test]
fn unsynced_batch_is_rewritten() {
    let disk = SimulatedDisk::default();
    let (store, _) = open(&disk, &small(8192)).unwrap();
    runtime().block_on(async {
        store.commit(put("s", "a", "1")).await.unwrap();
        disk.inject_file_fault(&log_name(1), Fault::SyncError);
        let answer = store.commit(put("s", "b", "2")).await;
        assert!(matches!(answer, Err(CommitError::Failed(_))));
    });
    drop(store.close());
    // The process starts again on the same machine and shows what it finds …
    let (store, _) = open(&disk, &small(8192)).unwrap();
    let before = history(&store, "s");
    assert_eq!(before.len(), 2);
    // … so that must be there after the machine itself was stopped.
    for seed in 0..20 {
        let (store, _) = open(&disk.crash(seed), &small(8192)).unwrap();
        assert_eq!(history(&store, "s"), before);
    }
}

/// Power was lost while the first batch of a file was written, and only its second change got to
/// the disk. That file must not be used again: a new first change of the same size would bring the
/// old second one back.
#[test]
fn lost_batch_never_reappears() {
    let mut options = small(8192);
    options.checkpoint_bytes = usize::MAX;
    let disk = SimulatedDisk::default();
    let (store, _) = open(&disk, &options).unwrap();
    let long = "x".repeat(600);
    runtime().block_on(store.commit(put("s", "a", "1"))).unwrap();
    // As it is without the mark that a proper end leaves.
    let disk = {
        let crashed = disk.crash(0);
        drop(store.close());
        crashed
    };
    let id = u64::from_le_bytes(disk.content(&log_name(1))[16..24].try_into().unwrap());
    let header = Header::log(id, 2);
    let lost = |revision: u64, key: &str| {
        let value = format!("{long}@{revision};");
        let (key, value, space) = (key.as_bytes(), value.as_bytes(), "s");
        let (operation, durable, created) = (Operation::Put, 2, revision);
        let mut out = Vec::new();
        Record { operation, revision, durable, created, space, key, value }
            .encode(header.seed(), &mut out);
        out
    };
    let mut bytes = header.encode().to_vec();
    bytes.resize(header::HEADER_BYTES + log::MARK_BYTES + lost(3, "b").len(), 0);
    bytes.extend(lost(4, "c"));
    bytes.resize(8192, 0);
    let mut unused = Header::log(id, 3).encode().to_vec();
    unused.resize(8192, 0);
    for (number, bytes) in [(2, bytes), (3, unused)] {
        if disk.list().unwrap().contains(&log_name(number)) {
            disk.remove(&log_name(number)).unwrap();
        }
        let file = disk.create(&log_name(number)).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync().unwrap();
    }
    disk.sync().unwrap();

    // Power may be lost again, and again, while it is opened.
    for (operation, seed) in (0..40).flat_map(|operation| (0..8).map(move |seed| (operation, seed)))
    {
        let disk = disk.copy();
        disk.inject_fault(operation, Fault::PowerLoss);
        drop(open(&disk, &options).map(|(store, _)| store.close()));
        let (store, _) = open(&disk.crash(seed), &options).unwrap();
        assert_eq!(history(&store, "s").len(), 1, "operation {operation}, seed {seed}");
    }

    let (store, recovery) = open(&disk, &options).unwrap();
    assert_eq!(recovery.torn_tail.map(|cut| cut.changes), Some(1));
    runtime().block_on(store.commit(put("s", "d", &long))).unwrap();
    for seed in 0..20 {
        let (store, _) = open(&disk.crash(seed), &options).unwrap();
        let keys: Vec<_> = history(&store, "s").into_iter().map(|event| event.2).collect();
        assert_eq!(keys, ["a", "d"]);
    }
}

#[test]
fn disk_use_stays_bounded_and_windows_survive() {
    let disk = SimulatedDisk::default();
    let mut options = small(64 << 10);
    options.window = WindowOptions {
        bytes: 20_000,
        space_bytes: 20_000,
        floor_events: 4,
        ceiling_bytes: 40_000,
    };
    let (store, _) = open(&disk, &options).unwrap();
    runtime().block_on(async {
        for round in 0..40 {
            let padding = "x".repeat(1000);
            let writes =
                (0..50).map(|key| put("s", &format!("{key}"), &format!("{round}{padding}")));
            for answer in commit_concurrently(&store, writes.collect()).await {
                answer.unwrap();
            }
        }
    });
    let live = store.stats().live_bytes;
    // Two megabytes were written; a checkpoint may be in progress and keep the log for a while.
    let limit = 3 * (live + 40_000) + 8 * (64 << 10);
    store.close().unwrap();
    assert!(disk.used() < limit, "{} of {limit}", disk.used());
    let before = (history(&store, "s"), entries(&store.space("s")), store.stats());
    let (again, recovery) = open(&disk, &options).unwrap();
    assert!(recovery.checkpoint.is_some());
    assert_eq!((history(&again, "s"), entries(&again.space("s")), again.stats()), before);
    let oldest = store.watch("s", Revision::EMPTY).unwrap_err();
    assert_eq!(again.watch("s", Revision::EMPTY).unwrap_err(), oldest, "the same window");
}
