//! What a disk loses after it had promised to keep it is noticed, and given up only on request.

use super::*;
use crate::checkpoint;
use crate::disk::Disk;
use crate::disk::simulated::Fault;
use crate::header::Header;
use crate::log::segment::log_name;
use crate::record::{Operation, Record};

/// What anyone can see of a store.
type StoreContents = (u64, Vec<EventSummary>, Vec<(String, String, u64)>);

fn contents(store: &TestStore) -> StoreContents {
    (store.revision().get(), history(store, "s"), entries(&store.space("s")))
}

/// A store with a number of changes that was closed properly.
fn filled_disk(options: &Options, changes: usize) -> (SimulatedDisk, StoreContents) {
    let disk = SimulatedDisk::default();
    let (store, _) = open(&disk, options).unwrap();
    runtime().block_on(async {
        for change in 0..changes {
            let text = format!("{change}{}", "x".repeat(100 + change % 7));
            store.commit(put("s", &format!("k{}", change % 20), &text)).await.unwrap();
        }
    });
    store.close().unwrap();
    (disk, contents(&store))
}

fn without_checkpoints() -> Options {
    let mut options = small(4608);
    options.checkpoint_bytes = usize::MAX;
    options
}

/// Changes one bit in every byte of a file in turn. Returns how often that was noticed.
fn flip_everywhere(
    disk: &SimulatedDisk,
    name: &str,
    options: &Options,
    before: &StoreContents,
) -> usize {
    let mut noticed = 0;
    for byte in 0..disk.content(name).len() {
        let copy = disk.copy();
        copy.flip_bit(name, byte * 8 + byte % 8);
        match open(&copy, options) {
            Ok((store, recovery)) => {
                assert_eq!(contents(&store), *before, "byte {byte} of {name}: {recovery:?}");
            }
            Err(OpenError::Damaged(damage)) => {
                let whole = damage.flaw == DamageKind::DamagedAt(0);
                assert!(damage.last_good.get() < before.0 || whole, "{damage}");
                noticed += 1;
            }
            Err(OpenError::DamagedCheckpoint { .. } | OpenError::NewerFormat { .. }) => {
                noticed += 1;
            }
            Err(other) => panic!("byte {byte} of {name}: {other}"),
        }
    }
    noticed
}

#[test]
fn a_flipped_bit_in_the_log_is_noticed() {
    let options = without_checkpoints();
    let (disk, before) = filled_disk(&options, 60);
    let logs = disk.list().unwrap();
    assert!(logs.len() >= 3, "{logs:?}");
    // Everything but the marks and the unused ends of files.
    assert!(flip_everywhere(&disk, &log_name(1), &options, &before) > 4000);
    assert!(flip_everywhere(&disk, &log_name(2), &options, &before) > 4000);
    let last = logs.iter().filter(|name| name.starts_with("log-")).max().unwrap();
    flip_everywhere(&disk, last, &options, &before);
}

#[test]
fn a_flipped_bit_in_a_checkpoint_is_noticed() {
    let mut options = small(4608);
    options.checkpoint_bytes = 1;
    let (disk, before) = filled_disk(&options, 60);
    let names = disk.list().unwrap();
    let name = names.iter().find(|name| checkpoint::revision(name).is_some()).unwrap();
    let noticed = flip_everywhere(&disk, name, &options, &before);
    assert_eq!(noticed, disk.content(name).len());
}

#[test]
fn damage_names_place_and_last_good() {
    let options = without_checkpoints();
    let (disk, before) = filled_disk(&options, 60);
    let middle = 2000;
    disk.flip_bit(&log_name(1), middle * 8);
    let error = open(&disk, &options).unwrap_err();
    let OpenError::Damaged(damage) = &error else { panic!("{error}") };
    assert_eq!(damage.path, disk.path(&log_name(1)));
    let DamageKind::DamagedAt(offset) = damage.flaw else { panic!("{damage}") };
    assert!(offset <= 2000 && offset > 1700, "{damage}");
    assert_eq!(damage.last_good.get() + 1 + damage.later, before.0, "all but the damaged one");
    assert_eq!(damage.newest.get(), before.0);
    let text = error.to_string();
    assert!(text.contains("log-00000000000000000001 is damaged at byte"), "{text}");
    assert!(text.contains("open it with repair"), "{text}");
}

#[test]
fn repair_reuses_no_revision() {
    let mut options = without_checkpoints();
    let (disk, before) = filled_disk(&options, 60);
    disk.flip_bit(&log_name(1), 2000 * 8);
    options.damage = OnDamage::Repair;
    let (store, recovery) = open(&disk, &options).unwrap();
    let repaired = recovery.repair.unwrap();
    assert!(repaired.resumed.get() > before.0);
    assert_eq!(store.revision(), repaired.resumed);
    let kept = repaired.damage.last_good;
    assert!(store.space("s").iter().all(|entry| entry.revision <= kept));
    // Watches that saw what was lost have to list again.
    assert!(store.watch("s", Revision::new(before.0)).is_err());
    let made = runtime().block_on(store.commit(put("s", "new", "1"))).unwrap();
    assert!(made.revision > repaired.resumed);
    store.close().unwrap();

    assert!(!repaired.moved_aside.is_empty());
    for path in &repaired.moved_aside {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(disk.content(name).iter().any(|byte| *byte != 0), "{name}");
    }
    options.damage = OnDamage::Refuse;
    let (again, recovery) = open(&disk, &options).unwrap();
    assert_eq!((recovery.repair, contents(&again)), (None, contents(&store)));
}

#[test]
fn a_repair_can_be_interrupted_anywhere() {
    let mut options = without_checkpoints();
    let (damaged, before) = filled_disk(&options, 60);
    damaged.flip_bit(&log_name(2), 8);
    let mut completed = false;
    for (operation, seed) in (0..200).zip(7..) {
        let disk = damaged.copy();
        disk.inject_fault(operation, Fault::PowerLoss);
        options.damage = OnDamage::Repair;
        if let Ok((store, _)) = open(&disk, &options) {
            drop(store.close());
            completed = true;
        }
        let disk = disk.crash(seed);
        options.damage = OnDamage::Refuse;
        match open(&disk, &options) {
            Ok((store, _)) => {
                assert!(store.revision().get() > before.0, "operation {operation}");
                store.close().unwrap();
            }
            Err(OpenError::Damaged(_)) => {}
            Err(other) => panic!("operation {operation}: {other}"),
        }
        options.damage = OnDamage::Repair;
        let (store, _) = open(&disk, &options).unwrap();
        assert!(store.revision().get() > before.0);
    }
    assert!(completed, "the last of the interruptions came too late to matter");
}

#[test]
fn a_missing_file_is_noticed() {
    let options = without_checkpoints();
    let (disk, _) = filled_disk(&options, 60);
    for missing in [1, 2] {
        let disk = disk.copy();
        disk.remove(&log_name(missing)).unwrap();
        let error = open(&disk, &options).unwrap_err();
        assert!(matches!(error, OpenError::Damaged(_)), "{error}");
    }
    let mut options = small(4608);
    options.checkpoint_bytes = 1;
    let (disk, _) = filled_disk(&options, 60);
    let names = disk.list().unwrap();
    for name in names.iter().filter(|name| name.starts_with("log-")) {
        disk.remove(name).unwrap();
    }
    let error = open(&disk, &options).unwrap_err();
    assert!(matches!(error, OpenError::Damaged(_)), "{error}");
    options.damage = OnDamage::Repair;
    let (store, recovery) = open(&disk, &options).unwrap();
    assert_eq!(recovery.repair.unwrap().damage.last_good, recovery.checkpoint.unwrap());
    store.close().unwrap();
    options.damage = OnDamage::Refuse;
    assert!(open(&disk, &options).is_ok());
}

/// No store creates such a file, but it may exist.
#[test]
fn a_repair_leaves_no_damage_behind_before_the_first_file() {
    let disk = SimulatedDisk::default();
    disk.create(&log_name(0)).unwrap().write_all_at(b"not a header", 0).unwrap();
    let mut options = without_checkpoints();
    let error = open(&disk, &options).unwrap_err();
    assert!(matches!(error, OpenError::Damaged(_)), "{error}");
    options.damage = OnDamage::Repair;
    let (store, recovery) = open(&disk, &options).unwrap();
    assert_eq!(recovery.repair.unwrap().moved_aside.len(), 1);
    store.close().unwrap();
    let (_, recovery) = open(&disk, &options).unwrap();
    assert_eq!(recovery.repair, None);
}

/// Their checksums are right, but they lead to where no store has ever been.
#[test]
fn implausible_records_are_ignored() {
    let mark = |operation, revision, created| Record::mark(operation, revision, 1, created);
    let table = [
        ("before the first revision", mark(Operation::Mark, 0, 0)),
        ("skips to before the first revision", mark(Operation::Skip, 0, 0)),
        ("skips back", mark(Operation::Skip, 0, 1)),
        ("skips to where it is", mark(Operation::Skip, 1, 1)),
    ];
    for (why, record) in table {
        let disk = SimulatedDisk::default();
        let header = Header::log(7, 1);
        let mut bytes = header.encode().to_vec();
        record.encode(header.seed(), &mut bytes);
        bytes.resize(4608, 0);
        disk.create(&log_name(1)).unwrap().write_all_at(&bytes, 0).unwrap();
        let options = Options { damage: OnDamage::Repair, ..without_checkpoints() };
        let (store, _) = open(&disk, &options).unwrap();
        let revision = runtime().block_on(store.commit(put("s", "a", "1"))).unwrap().revision;
        store.close().unwrap();
        let (store, recovery) = open(&disk, &options).unwrap();
        assert_eq!((recovery.repair, store.revision()), (None, revision), "{why}");
    }
}

#[test]
fn a_torn_end_is_cut_and_reported() {
    let options = without_checkpoints();
    let disk = SimulatedDisk::default();
    let (store, _) = open(&disk, &options).unwrap();
    runtime().block_on(async {
        store.commit(put("s", "a", "1")).await.unwrap();
        disk.inject_file_fault(&log_name(1), Fault::ShortWrite);
        let long = "x".repeat(1000);
        assert!(store.commit(put("s", "b", &long)).await.is_err());
    });
    drop(store.close());
    let (store, recovery) = open(&disk, &options).unwrap();
    let cut = recovery.torn_tail.unwrap();
    assert_eq!((cut.path, cut.changes), (disk.path(&log_name(1)), 0));
    assert_eq!(recovery.revision.get(), 2);
    assert!(store.space("s").get(b"b").is_none());
    // It goes on in a new file, and the torn one is no longer worth a word.
    let made = runtime().block_on(store.commit(put("s", "c", "3"))).unwrap();
    assert_eq!(made.revision.get(), 3);
    store.close().unwrap();
    let (store, recovery) = open(&disk, &options).unwrap();
    assert_eq!((recovery.torn_tail, store.space("s").len()), (None, 2));
}

#[test]
fn a_newer_format_is_named() {
    let (disk, _) = filled_disk(&without_checkpoints(), 3);
    disk.overwrite(&log_name(1), 8, &7_u32.to_le_bytes());
    let error = open(&disk, &without_checkpoints()).unwrap_err();
    let expected =
        "/simulated/log-00000000000000000001 has format 7, and this version reads up to 2";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_file_of_another_store_is_not_mixed_in() {
    let options = without_checkpoints();
    let (disk, _) = filled_disk(&options, 60);
    let (other, _) = filled_disk(&options, 60);
    disk.overwrite(&log_name(2), 0, &other.content(&log_name(2)));
    let error = open(&disk, &options).unwrap_err();
    assert!(matches!(error, OpenError::Damaged(_)), "{error}");
}
