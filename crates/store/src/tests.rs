//! The store as a whole, on a simulated disk where it matters.

mod crash;
mod damage;
mod directory;
mod format;
mod partial_files;
mod refusal;
mod watches;
mod window;

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::disk::simulated::SimulatedDisk;
use crate::*;

/// A store without user data.
type TestStore = Store<(), ()>;

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Small files, so that every few changes begin a new one.
fn small(segment_bytes: usize) -> Options {
    let mut options = Options::new(Durability::Ephemeral);
    options.segment_bytes = segment_bytes;
    options.checkpoint_bytes = 2 * segment_bytes;
    options
}

fn open(disk: &SimulatedDisk, options: &Options) -> Result<(TestStore, Recovery), OpenError> {
    Store::open_on(Arc::new(disk.clone()), options)
}

fn value(text: &str) -> Value {
    Value { head: format!("{text}@").into(), tail: ";".into() }
}

fn put(space: &str, key: &str, text: &str) -> Write {
    let (space, key) = (space.into(), key.to_owned().into());
    Write {
        space,
        key,
        precondition: Precondition::Any,
        change: Change::Put(value(text)),
        hold: None,
    }
}

fn delete(space: &str, key: &str, text: &str) -> Write {
    let (space, key) = (space.into(), key.to_owned().into());
    Write {
        space,
        key,
        precondition: Precondition::Any,
        change: Change::Delete(value(text)),
        hold: None,
    }
}

type CommitResult = Result<Arc<Event<(), ()>>, CommitError<()>>;

/// Makes changes that all wait at the same time, and returns the answers in their order.
async fn commit_concurrently(store: &TestStore, writes: Vec<Write>) -> Vec<CommitResult> {
    let mut tasks = JoinSet::new();
    for (index, write) in writes.into_iter().enumerate() {
        let store = store.clone();
        tasks.spawn(async move { (index, store.commit(write).await) });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// What can be seen of an event.
type EventSummary = (u64, EventKind, String, String);

fn summarize(event: &Event<(), ()>) -> EventSummary {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (event.revision.get(), event.kind, text(&event.entry.key), text(&event.entry.value))
}

/// All events of a space that are in its window.
fn history(store: &TestStore, space: &str) -> Vec<EventSummary> {
    let state = store.snapshot_state();
    let window = state.windows.get(space);
    window.iter().flat_map(|window| window.events.iter()).map(|event| summarize(event)).collect()
}

/// All entries of a space: key, value, created.
fn entries(space: &SpaceSnapshot<()>) -> Vec<(String, String, u64)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    space.iter().map(|e| (text(&e.key), text(&e.value), e.created.get())).collect()
}
