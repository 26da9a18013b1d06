//! What an earlier version wrote is read, and gone on from in today's form.

use super::*;
use crate::checkpoint;
use crate::disk::Disk;
use crate::header::{self, Header};
use crate::record::{Decoded, Record};

/// Gives a file the form it had in format 1.
fn downgrade_to_format_1(disk: &SimulatedDisk, name: &str) {
    let bytes = disk.content(name);
    let now = match checkpoint::revision(name) {
        Some(revision) => Header::checkpoint(0, revision.get()).decode(&bytes),
        None => Header::any_log(&bytes),
    };
    let now = now.unwrap();
    let then = now.in_format(1);
    let mut aged = then.encode().to_vec();
    while let Decoded::Record(record, _) = Record::decode(&bytes[aged.len()..], now.seed()) {
        record.encode(then.seed(), &mut aged);
    }
    disk.overwrite(name, 0, &aged);
}

#[test]
fn a_store_of_the_first_format_is_read_and_goes_on() {
    for (checkpoint_bytes, closed) in [(1, true), (1, false), (usize::MAX, true), (6000, false)] {
        let mut options = small(4608);
        options.checkpoint_bytes = checkpoint_bytes;
        let disk = SimulatedDisk::default();
        let (store, _) = open(&disk, &options).unwrap();
        let fill = |store: &TestStore, changes: usize| {
            runtime().block_on(async {
                for change in 0..changes {
                    let text = format!("{change}{}", "x".repeat(120));
                    store.commit(put("s", &format!("k{}", change % 9), &text)).await.unwrap();
                }
            });
            (store.revision(), history(store, "s"), entries(&store.space("s")))
        };
        let mut before = fill(&store, 90);
        let disk = if closed {
            store.close().unwrap();
            disk
        } else {
            let left = disk.copy();
            store.close().unwrap();
            left
        };
        let names = disk.list().unwrap();
        for name in names.iter().filter(|name| !name.ends_with(".tmp")) {
            downgrade_to_format_1(&disk, name);
            assert_eq!(disk.content(name)[8], 1, "{name}");
        }
        for changes in [1, 40, 90, 1] {
            let (store, recovery) = open(&disk, &options).unwrap();
            assert_eq!((recovery.torn_tail, recovery.repair), (None, None));
            let found = (store.revision(), history(&store, "s"), entries(&store.space("s")));
            assert_eq!(found, before, "checkpoints at {checkpoint_bytes}, closed: {closed}");
            before = fill(&store, changes);
            store.close().unwrap();
        }
        let formats = disk.list().unwrap().into_iter().map(|name| disk.content(&name)[8]);
        assert!(formats.max() == Some(u8::try_from(header::FORMAT).unwrap()));
    }
}
