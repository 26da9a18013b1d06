//! An append-only revision log with snapshot reads and watches; keys and bytes, never kinds.
//!
//! A store holds *spaces*, each an ordered map from keys to values. Every change gets the next
//! [`Revision`] of one counter. Reading takes a snapshot, which costs a reference count and blocks
//! nobody; a watch follows the changes of a space from any revision that is still in its window.
//!
//! All changes go through one thread, which makes as many durable at once as are waiting. A change
//! is seen by nobody before it is safe, and is safe before it is acknowledged.
//!
//! ```
//! use gantry_store::{Change, Durability, Expect, Options, Store, Value, Write};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let (store, _) = Store::<(), ()>::open(&Options::new(Durability::Ephemeral)).unwrap();
//! let before = store.revision();
//! let change = store
//!     .commit(Write {
//!         space: "pods".into(),
//!         key: "default/web".into(),
//!         expect: Expect::Absent,
//!         change: Change::Put(Value { head: r#"{"revision":""#.into(), tail: r#""}"#.into() }),
//!         hold: None,
//!     })
//!     .await
//!     .unwrap();
//! assert_eq!(change.entry.value, r#"{"revision":"2"}"#);
//! assert_eq!(store.space("pods").get(b"default/web").unwrap().revision, change.revision);
//!
//! let mut watch = store.watch("pods", before).unwrap();
//! assert_eq!(watch.next(10).await.unwrap()[0].revision, change.revision);
//! # });
//! ```

mod bells;
mod checkpoint;
mod disk;
mod durable;
mod entry;
mod error;
mod header;
mod log;
mod options;
mod record;
mod recover;
mod revision;
mod snapshot;
mod state;
mod store;
mod tree;
mod watch;
mod write;
mod writer;

#[cfg(test)]
mod tests;

pub use disk::Holder;
pub use entry::{Entry, Event, EventKind, Value};
pub use error::{CommitError, Damage, Failure, Flaw, OpenError, Unready};
pub use options::{Durability, OnDamage, Options, WindowOptions};
pub use recover::{Cut, Recovery, Repaired};
pub use revision::Revision;
pub use snapshot::{Snapshot, SpaceSnapshot, TooOld};
pub use store::{Closed, Stats, Store};
pub use watch::{Watch, WatchError};
pub use write::{Change, Expect, Hold, Write};
