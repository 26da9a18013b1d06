//! The store as a whole, on a simulated disk where it matters.

mod crash;
mod damage;
mod directory;
mod format;
mod refusal;
mod remains;
mod watching;
mod window;

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::disk::simulated::Simulated;
use crate::*;

/// A store whose companions nobody uses.
type Plain = Store<(), ()>;

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

fn open(disk: &Simulated, options: &Options) -> Result<(Plain, Recovery), OpenError> {
    Store::open_on(Arc::new(disk.clone()), options)
}

fn value(text: &str) -> Value {
    Value { head: format!("{text}@").into(), tail: ";".into() }
}

fn put(space: &str, key: &str, text: &str) -> Write {
    let (space, key) = (space.into(), key.to_owned().into());
    Write { space, key, expect: Expect::Any, change: Change::Put(value(text)), hold: None }
}

fn delete(space: &str, key: &str, text: &str) -> Write {
    let (space, key) = (space.into(), key.to_owned().into());
    Write { space, key, expect: Expect::Any, change: Change::Delete(value(text)), hold: None }
}

type Answer = Result<Arc<Event<(), ()>>, CommitError<()>>;

/// Makes changes that all wait at the same time, and returns the answers in their order.
async fn together(store: &Plain, writes: Vec<Write>) -> Vec<Answer> {
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
type Seen = (u64, EventKind, String, String);

fn seen(event: &Event<(), ()>) -> Seen {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (event.revision.get(), event.kind, text(&event.entry.key), text(&event.entry.value))
}

/// All events of a space that are in its window.
fn history(store: &Plain, space: &str) -> Vec<Seen> {
    let state = store.snapshot_state();
    let window = state.windows.get(space);
    window.iter().flat_map(|window| window.events.iter()).map(|event| seen(event)).collect()
}

/// All entries of a space: key, value, created.
fn entries(space: &SpaceSnapshot<()>) -> Vec<(String, String, u64)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    space.iter().map(|e| (text(&e.key), text(&e.value), e.created.get())).collect()
}
