//! Somebody removed files by hand: what is left of a store is never taken for more than it is.

use std::collections::BTreeMap;

use super::*;
use crate::checkpoint;
use crate::disk::Disk;
use crate::disk::simulated::Fault;
use crate::header::{self, Header};
use crate::log::segment::{is_spare, log_name, log_number, spare_name};
use crate::record;

type Entries = Vec<(String, String, u64)>;

/// A store that has been through something, and what it held after every change.
struct StoreHistory {
    why: &'static str,
    disk: SimulatedDisk,
    options: Options,
    states: BTreeMap<u64, Entries>,
}

impl StoreHistory {
    fn new(why: &'static str, checkpoint_bytes: usize) -> Self {
        let mut options = small(4608);
        options.checkpoint_bytes = checkpoint_bytes;
        let moments = BTreeMap::from([(Revision::EMPTY.get(), Vec::new())]);
        Self { why, disk: SimulatedDisk::default(), options, states: moments }
    }

    /// Opens it, makes changes, and closes it or not.
    fn run(mut self, changes: usize, closed: bool) -> Self {
        let (store, _) = open(&self.disk, &self.options).unwrap();
        self.states.insert(store.revision().get(), entries(&store.space("s")));
        self.states.extend(change(&store, changes));
        if closed {
            store.close().unwrap();
        } else {
            let left = self.disk.copy();
            store.close().unwrap();
            self.disk = left;
        }
        self
    }

    /// Loses a file in the middle of the log, and what came after it.
    fn repaired(mut self) -> Self {
        let names = self.disk.list().unwrap();
        let logs: Vec<_> = names.iter().filter(|name| log_number(name).is_some()).collect();
        self.disk.remove(logs[logs.len() / 2]).unwrap();
        self.options.damage = OnDamage::Repair;
        let past = self.run(3, true);
        Self { options: Options { damage: OnDamage::Refuse, ..past.options.clone() }, ..past }
    }
}

/// Makes changes and returns what was there after each.
fn change(store: &TestStore, changes: usize) -> Vec<(u64, Entries)> {
    runtime().block_on(async {
        let mut moments = Vec::new();
        for change in 0..changes {
            let text = format!("{change}{}", "x".repeat(100 + change % 7));
            let made = store.commit(put("s", &format!("k{}", change % 9), &text)).await.unwrap();
            moments.push((made.revision.get(), entries(&store.space("s"))));
        }
        moments
    })
}

fn histories() -> Vec<StoreHistory> {
    let (often, never) = (1, usize::MAX);
    vec![
        StoreHistory::new("nothing was ever written", never).run(0, true),
        StoreHistory::new("one change", never).run(1, false),
        StoreHistory::new("a long log, closed", never).run(60, true),
        StoreHistory::new("a long log, not closed", never).run(60, false),
        StoreHistory::new("checkpoints, closed", often).run(60, true),
        StoreHistory::new("checkpoints, not closed", often).run(60, false),
        StoreHistory::new("some checkpoints", 6000).run(90, false),
        StoreHistory::new("a checkpoint of nothing", never).run(0, false).run(0, true),
        StoreHistory::new("a checkpoint of nothing, and changes", often)
            .run(0, false)
            .run(0, true)
            .run(2, false),
        StoreHistory::new("short lives", never)
            .run(2, false)
            .run(1, true)
            .run(0, false)
            .run(3, false),
        StoreHistory::new("short lives with checkpoints", often)
            .run(30, false)
            .run(1, true)
            .run(0, false)
            .run(30, true)
            .run(1, false),
        StoreHistory::new("a repaired log", never).run(80, true).repaired(),
        StoreHistory::new("a repaired log with checkpoints", 9000)
            .run(80, true)
            .repaired()
            .run(3, true),
    ]
}

/// The newest revision that a file says was safely written.
fn newest_durable_revision(disk: &SimulatedDisk, name: &str) -> u64 {
    if let Some(revision) = checkpoint::revision(name) {
        return revision.get();
    }
    let bytes = disk.content(name);
    let Ok(header) = Header::any_log(&bytes) else { return 0 };
    let records = record::all(&bytes, header::HEADER_BYTES, header.seed());
    records.map(|record| record.durable).max().unwrap_or(0)
}

fn subsets(names: &[String]) -> impl Iterator<Item = Vec<&String>> {
    let kept = |subset: usize| {
        let chosen = names.iter().enumerate().filter(move |(at, _)| subset & (1 << at) != 0);
        chosen.map(|(_, name)| name).collect()
    };
    (0..1 << names.len()).map(kept)
}

fn disk_with_files(past: &StoreHistory, kept: &[&String]) -> SimulatedDisk {
    let disk = past.disk.copy();
    for name in past.disk.list().unwrap().iter().filter(|name| !kept.contains(name)) {
        disk.remove(name).unwrap();
    }
    disk
}

/// Uses a store for several lives with so many changes each, and looks after each.
fn check_usable(
    disk: &SimulatedDisk,
    options: &Options,
    store: &TestStore,
    lives: &[usize],
    about: &str,
) {
    let mut expected = change(store, 2).pop().unwrap();
    store.close().unwrap();
    for (life, changes) in lives.iter().enumerate() {
        let (store, recovery) = open(disk, options)
            .unwrap_or_else(|fault| panic!("{about}: life {life} cannot begin: {fault}"));
        assert_eq!((recovery.torn_tail, recovery.repair), (None, None), "{about}: life {life}");
        let found = (store.revision().get(), entries(&store.space("s")));
        assert_eq!(found, expected, "{about}: life {life}");
        expected = change(&store, *changes).pop().unwrap();
        store.close().unwrap();
    }
}

/// Enough to use every file again.
const LONG_RUNS: [usize; 4] = [1, 40, 70, 1];

/// Every file and every combination of files may be gone.
#[test]
fn remaining_files_recover_or_fail() {
    let (mut refused, mut began) = (0, 0);
    for past in histories() {
        let names = past.disk.list().unwrap();
        let newest = *past.states.last_key_value().unwrap().0;
        for kept in subsets(&names) {
            let about = format!("{}: of {names:?} there is {kept:?}", past.why);
            let disk = disk_with_files(&past, &kept);
            let told =
                kept.iter().map(|name| newest_durable_revision(&disk, name)).max().unwrap_or(0);
            let mut options = past.options.clone();
            options.checkpoint_bytes = 9000;
            match open(&disk, &options) {
                Ok((store, recovery)) => {
                    let shown = store.revision().get();
                    assert_eq!(recovery.repair, None, "{about}");
                    assert!(shown >= told, "{about}: {told} was safe, and {shown} is shown");
                    let all = kept.len() == names.len();
                    assert!(shown == newest || !all, "{about}: {shown} of {newest}");
                    assert_eq!(entries(&store.space("s")), past.states[&shown], "{about}");
                    let logs = || kept.iter().filter_map(|name| log_number(name));
                    let began_anew = recovery.segments == 0;
                    assert!(!began_anew || logs().all(|number| number == 1), "{about}");
                    began += usize::from(began_anew && !kept.is_empty());
                    check_usable(&disk, &options, &store, &LONG_RUNS, &about);
                }
                Err(OpenError::Damaged(damage)) => {
                    refused += 1;
                    assert!(kept.len() < names.len(), "{about}: {damage}");
                    let text = damage.to_string();
                    assert!(text.contains("missing") || text.contains("damaged at"), "{text}");
                    options.damage = OnDamage::Repair;
                    let (store, recovery) = open(&disk, &options).unwrap();
                    let repaired = recovery.repair.unwrap();
                    assert_eq!(repaired.damage, damage, "{about}");
                    let good = damage.last_good.get();
                    assert_eq!(entries(&store.space("s")), past.states[&good], "{about}");
                    assert!(store.revision().get() > told, "{about}");
                    options.damage = OnDamage::Refuse;
                    check_usable(&disk, &options, &store, &LONG_RUNS, &about);
                }
                Err(other) => panic!("{about}: {other}"),
            }
        }
    }
    assert!(refused > 100, "{refused}");
    assert!(began > 0, "{began}");
}

/// Power may be lost while what is left is being opened, too.
#[test]
fn recovery_can_be_interrupted() {
    for past in histories() {
        let names = past.disk.list().unwrap();
        for kept in subsets(&names).filter(|kept| (1..=2).contains(&kept.len())) {
            let told = kept
                .iter()
                .map(|name| newest_durable_revision(&past.disk, name))
                .max()
                .unwrap_or(0);
            for damage in [OnDamage::Refuse, OnDamage::Repair] {
                let options = Options { damage, ..past.options.clone() };
                for operation in 0.. {
                    let about = format!("{}: {kept:?}, {damage:?} at {operation}", past.why);
                    let disk = disk_with_files(&past, &kept);
                    disk.inject_fault(operation, Fault::PowerLoss);
                    let opened = open(&disk, &options);
                    let done = matches!(opened, Ok(_) | Err(OpenError::Damaged(_)));
                    drop(opened.map(|(store, _)| store.close()));
                    let disk = disk.crash(u64::try_from(operation).unwrap());
                    reopened(&past, &disk, &options, told, &about);
                    if done {
                        break;
                    }
                }
            }
        }
    }
}

/// Opens what an interrupted opening has left, which may have been a repair.
fn reopened(past: &StoreHistory, disk: &SimulatedDisk, options: &Options, told: u64, about: &str) {
    let repair = Options { damage: OnDamage::Repair, ..options.clone() };
    let opened = open(disk, options).or_else(|_| open(disk, &repair));
    let (store, recovery) = opened.unwrap_or_else(|fault| panic!("{about}: {fault}"));
    let revision = store.revision().get();
    assert!(revision >= told, "{about}: {revision} of {told}");
    let found = entries(&store.space("s"));
    let good = recovery.repair.map_or(revision, |repaired| repaired.damage.last_good.get());
    if options.damage == OnDamage::Refuse {
        assert_eq!(found, past.states[&good], "{about}");
    } else {
        // The interrupted repair may have got as far as going on from a revision of its own.
        assert!(past.states.values().any(|moment| *moment == found), "{about}");
    }
    check_usable(disk, options, &store, &[1, 1], about);
}

#[test]
fn missing_files_are_named() {
    let past = StoreHistory::new("", usize::MAX).run(90, true);
    let names = past.disk.list().unwrap();
    assert!(names.contains(&log_name(5)), "{names:?}");
    let before = "the checkpoint or the log before /simulated/log-00000000000000000005 is missing:";
    let table = [
        (
            "a file in the middle",
            vec![log_name(1), log_name(3)],
            "/simulated/log-00000000000000000002 is missing:",
        ),
        (
            "two in the middle",
            vec![log_name(1), log_name(4)],
            "/simulated/log-00000000000000000002 is missing:",
        ),
        ("only the prepared one is left", vec![log_name(5)], before),
    ];
    for (why, kept, expected) in table {
        let disk = disk_with_files(&past, &kept.iter().collect::<Vec<_>>());
        let error = open(&disk, &past.options).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{why}: {error}");
    }
    let past = StoreHistory::new("", 1).run(90, true);
    let names = past.disk.list().unwrap();
    let checkpoint: Vec<_> =
        names.iter().filter(|name| checkpoint::revision(name).is_some()).collect();
    let error = open(&disk_with_files(&past, &checkpoint), &past.options).unwrap_err().to_string();
    let expected = format!("the log after /simulated/{} is missing:", checkpoint[0]);
    assert!(error.starts_with(&expected), "{error}");
    let spare: Vec<_> = names.iter().filter(|name| is_spare(name)).take(1).collect();
    let error = open(&disk_with_files(&past, &spare), &past.options).unwrap_err().to_string();
    let expected =
        format!("the log and the checkpoint beside /simulated/{} are missing:", spare[0]);
    assert!(error.starts_with(&expected), "{error}");
}

/// A file that got its name and nothing else is no reason to refuse, nor to continue the store that
/// left it.
#[test]
fn new_store_ignores_old_files() {
    let begun = |name: &str| {
        let disk = SimulatedDisk::default();
        let mut bytes = Header::log(7, 1).encode().to_vec();
        bytes.resize(4608, 0);
        disk.create(name).unwrap().write_all_at(&bytes, 0).unwrap();
        disk
    };
    for name in [log_name(1), spare_name(1)] {
        let disk = begun(&name);
        let (store, recovery) = open(&disk, &small(4608)).unwrap();
        assert_eq!((recovery.segments, recovery.torn_tail), (0, None), "{name}");
        let header = Header::any_log(&disk.content(&log_name(1))).unwrap();
        assert_ne!(header.store, 7, "{name}");
        check_usable(&disk, &small(4608), &store, &LONG_RUNS, &name);
    }
}
