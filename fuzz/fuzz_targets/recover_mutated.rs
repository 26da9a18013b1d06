//! Opens a store whose files were changed: it is refused, or shows the state of an earlier
//! revision.
#![no_main]

use std::sync::{Arc, LazyLock};

use arbitrary::{Result, Unstructured};
use gantry_fuzz::disk::{self, Files, Picture};
use gantry_store::{Change, OnDamage, OpenError, Precondition, Store, Value, Write};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

/// The files of a store, and its content after every change.
struct Sample {
    files: Files,
    /// By revision; the first is the empty store's.
    history: Vec<Picture>,
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime can be made")
}

fn put(space: &str, key: &str, text: &str) -> Write {
    let value = Value { head: format!("{text}:").into(), tail: ";".into() };
    let (space, key) = (Arc::from(space), key.to_owned().into());
    Write { space, key, precondition: Precondition::Any, change: Change::Put(value), hold: None }
}

impl Sample {
    /// Writes enough changes to fill several files. A store that is not closed has no end mark.
    fn new(checkpoint_bytes: usize, close: bool) -> Self {
        let directory = disk::directory();
        let options = disk::options(directory.path(), checkpoint_bytes, OnDamage::Refuse);
        let (store, _) = Store::<(), ()>::open(&options).expect("a new store can be opened");
        let mut history = vec![Picture::new(), disk::picture(&store)];
        runtime().block_on(async {
            for change in 0..60 {
                let (space, key) = (["s", "t"][change % 2], format!("k{}", change % 11));
                let mut write = put(space, &key, &format!("{change}{}", "x".repeat(100)));
                if change % 7 == 6 {
                    let key = format!("k{}", (change - 2) % 11);
                    let last = Value { head: "gone:".into(), tail: ";".into() };
                    write.key = key.into();
                    write.change = Change::Delete(last);
                }
                store.commit(write).await.expect("the change is allowed");
                history.push(disk::picture(&store));
            }
        });
        if close {
            store.close().expect("the disk is in order");
        }
        let files = disk::read(directory.path());
        store.close().expect("the disk is in order");
        Self { files, history }
    }
}

static SAMPLES: LazyLock<[Sample; 4]> = LazyLock::new(|| {
    [
        Sample::new(usize::MAX, true),
        Sample::new(usize::MAX, false),
        Sample::new(6000, true),
        Sample::new(6000, false),
    ]
});

/// Changes a file, and says how.
fn tamper(u: &mut Unstructured<'_>, files: &mut Files, other: &Files) -> Result<String> {
    let names: Vec<String> = files.keys().cloned().collect();
    if names.is_empty() {
        return Ok(String::new());
    }
    let name = u.choose(&names)?.clone();
    let another = u.choose(&names)?.clone();
    let bytes = files.get_mut(&name).expect("the name is from the list");
    let place = u.int_in_range(0..=bytes.len())?;
    let how = u.int_in_range(0..=8)?;
    let done = format!("{how} to {name} at {place}, with {another}");
    match how {
        0 => bytes.truncate(place),
        1 => bytes[place..].fill(0),
        2 => {
            files.remove(&name);
        }
        3 => {
            let copy = files[&another].clone();
            files.insert(name, copy);
        }
        4 => {
            // The same file of another store, or of this one at another time.
            if let Some(copy) = other.get(&name) {
                files.insert(name, copy.clone());
            }
        }
        5 => {
            let place = place & !7;
            let from = u.int_in_range(0..=bytes.len())? & !7;
            let count = u.int_in_range(0..=600)?.min(bytes.len() - place.max(from));
            bytes.copy_within(from..from + count, place);
        }
        6 => {
            let count = u.int_in_range(0..=64)?;
            let end = bytes.len().min(place + count);
            bytes[place..end].fill(u.arbitrary()?);
        }
        7 => bytes.extend_from_slice(u.arbitrary()?),
        _ => {
            if let Some(byte) = bytes.get_mut(place) {
                *byte ^= 1 << u.int_in_range(0..=7)?;
            }
        }
    }
    Ok(done)
}

fn check(
    sample: &Sample,
    files: &Files,
    damage: OnDamage,
    done: &[String],
) -> std::result::Result<(), OpenError> {
    let directory = disk::directory();
    disk::write(directory.path(), files);
    let options = disk::options(directory.path(), usize::MAX, damage);
    let (store, recovery) = Store::<(), ()>::open(&options)?;
    let picture = disk::picture(&store);
    let shown = recovery.repair.as_ref().map_or(store.revision(), |it| it.damage.last_good);
    let shown = usize::try_from(shown.get()).expect("revisions are few");
    assert_eq!(Some(&picture), sample.history.get(shown), "{recovery:?} {done:#?}");
    let change = runtime().block_on(store.commit(put("s", "new", "new"))).expect("it is open");
    assert!(change.revision > recovery.revision, "{recovery:?}");
    store.close().expect("the disk is in order");
    let after = disk::picture(&store);
    drop(store);
    let (store, again) = Store::<(), ()>::open(&options)
        .unwrap_or_else(|error| panic!("{error} after {recovery:?} {done:#?}"));
    assert_eq!(again.repair, None, "{recovery:?} {done:#?}");
    assert_eq!(disk::picture(&store), after, "{recovery:?} {again:?} {done:#?}");
    store.close().expect("the disk is in order");
    Ok(())
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let samples = &*SAMPLES;
    let (sample, other) = (u.choose(samples)?, u.choose(samples)?);
    let mut files = sample.files.clone();
    let mut done = Vec::new();
    for _ in 0..u.int_in_range(0..=4)? {
        done.push(tamper(u, &mut files, &other.files)?);
    }
    if let Err(OpenError::Damaged(_)) = check(sample, &files, OnDamage::Refuse, &done) {
        check(sample, &files, OnDamage::Repair, &done).expect("damage to the log can be repaired");
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});
