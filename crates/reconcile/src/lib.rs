//! The vocabulary of controllers: world, plan, write, held; facts, inquiries and calls.
//!
//! A controller looks at a [`World`], the objects and facts as they were last observed, and returns a
//! [`Plan`]: the writes to make, the calls that should be under way, what to tell the user, and what it
//! holds back and why. It reads no clock, opens no socket and remembers nothing. Because nothing but the
//! world decides, the same controller runs behind a real API server (crate `controller`) and in crate
//! `harness`, where the server is a small model, time is a number, replies get lost and processes die at
//! every step.
//!
//! There are three ways to the outside of the API: an [`Observer`] follows changes and writes nothing, an
//! [`Inquiry`] says what is to be asked, and a plan says which [`Call`]s should be under way. What comes back
//! is a [`Fact`].
//!
//! Four laws hold for every plan; the harness checks them by breaking whoever relies on less:
//!
//! - The writes of a plan are independent: any of them may land, in any order, or none.
//! - Each write is fenced by what it was planned from. A refusal for staleness is no error.
//! - A plan may be made again at any time, from the same world or an older one.
//! - One object that cannot be read or served leaves all others unharmed.

pub mod api_path;
pub mod labels;
pub mod names;
pub mod object;
pub mod world;

pub mod call;
pub mod fact;
pub mod held;
pub mod plan;
pub mod write;

pub mod controller;
pub mod inquiry;
pub mod observer;

pub use api_path::{ApiPath, InvalidPath, Parameter};
pub use call::{Call, CallId, CallState, Reply, Target};
pub use controller::Controller;
pub use fact::{Fact, FactChange, FactKind, FactTable, Observed};
pub use held::Held;
pub use inquiry::Inquiry;
pub use labels::Selector;
pub use object::{Key, Meta, Owner, Reference, Resource, Revision, Scope, Uid};
pub use observer::Observer;
pub use plan::{Note, Plan, Step};
pub use world::{Change, Kind, Place, Shelf, View, World};
pub use write::{Fence, Outcome, Part, Propagation, Refusal, User, Write};
