//! The shell controllers run in: caches, work queues, fenced writes, calls, inquiries, leases, retries.
//!
//! A [`Controller`](gantry_reconcile::Controller) decides; everything else it needs is here, once for
//! the whole process. A [`cache`] per kind keeps the [`World`](gantry_reconcile::World) as the server
//! last showed it; each change wakes the keys that the controllers name, one slot per key
//! ([`wake_queue`]); a worker plans a key and the [`writer`] carries the plan out, fenced by what it
//! was planned from and by the [`lease`]; what is worth telling becomes [`events`], what is held back
//! stands in the [`ledger`]. [`outside`] has the ways to what lies outside the API. [`run`] puts it together.
//!
//! There is one code path for a real cluster and for the server in the same process: a `kube::Client`,
//! made by [`transport`] for either.
//!
//! What is absent on purpose: nothing here knows a kind, and nothing polls what can be watched.

pub mod transport;

mod ask;
pub mod discovery;
pub mod rate;
pub mod read;
pub mod retry;

pub mod audience;
pub mod cache;
pub mod wake_queue;

pub mod lease;
pub mod outside;
pub mod writer;

pub mod events;
pub mod ledger;
pub mod meters;

pub mod run;

pub use cache::Filter;
pub use lease::Permit;
pub use ledger::Ledger;
pub use meters::Meters;
pub use outside::Outside;
pub use run::{Actor, Ended, Handle, Options, Seat, Shell, ShellError};
