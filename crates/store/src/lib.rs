//! An append-only revision log with snapshot reads and watches; it stores keys and bytes and knows
//! no kinds.
//!
//! A store contains *spaces*, each an ordered map from keys to values. Every change gets the next
//! [`Revision`] of one counter. Reading takes a snapshot, which costs a reference count and blocks
//! no writer; a watch follows the changes of a space from any revision that is still in its window.
//!
//! All changes go through one thread, which makes all waiting changes durable at once. A change is
//! not visible before it is durable, and is durable before it is acknowledged.
//!
//! ```
//! use gantry_store::{Change, Durability, Options, Precondition, Store, Value, Write};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let (store, _) = Store::<(), ()>::open(&Options::new(Durability::Ephemeral)).unwrap();
//! let before = store.revision();
//! let change = store
//!     .commit(Write {
//!         space: "pods".into(),
//!         key: "default/web".into(),
//!         precondition: Precondition::Absent,
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

mod checkpoint;
mod disk;
mod durable;
mod entry;
mod error;
mod header;
mod log;
mod notifier;
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

pub use disk::LockHolder;
pub use entry::{Entry, Event, EventKind, Value};
pub use error::{CommitError, Damage, DamageKind, Failure, NotReady, OpenError};
pub use options::{Durability, OnDamage, Options, WindowOptions};
pub use recover::{Recovery, RepairReport, TornTail};
pub use revision::Revision;
pub use snapshot::{Snapshot, SpaceSnapshot, TooOld};
pub use store::{Closed, Stats, Store};
pub use watch::{Watch, WatchError};
pub use write::{Change, Hold, Precondition, Write};
