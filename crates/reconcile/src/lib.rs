//! Defines the interface between controllers and the runtime that runs them: world, plan, write,
//! held reasons, facts, inquiries and calls.
//!
//! A controller reads a [`World`], the objects and facts as they were last observed, and returns a
//! [`Plan`]: the writes to make, the calls that should be in flight, the events to record, and what
//! it holds back and why. It reads no clock, opens no socket and keeps no state. Because the world
//! alone determines the plan, the same controller runs against a real API server (crate
//! `controller`) and in crate `harness`, where the server is a small model, time is a number,
//! replies get lost and processes crash at every step.
//!
//! There are three ways to reach systems outside the API: an [`Observer`] follows changes and
//! writes nothing, an [`Inquiry`] lists the questions to ask, and a plan lists the [`Call`]s that
//! should be in flight. The results are recorded as [`Fact`]s.
//!
//! Four rules hold for every plan. The harness enforces them: a controller that relies on more than
//! they promise fails its tests.
//!
//! - The writes of a plan are independent: any of them may be applied, in any order, or none.
//! - Each write is fenced by the UID and revision it was planned from. A conflict is not an error.
//! - A plan may be made again at any time, from the same world or an older one.
//! - One object that cannot be read or reconciled does not affect any other.

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
pub use object::{Key, Meta, ObjectReference, OwnerReference, Resource, Revision, Scope, Uid};
pub use observer::Observer;
pub use plan::{Event, Plan, Step};
pub use world::{Change, Kind, Store, StoreId, View, World};
pub use write::{Fence, Outcome, Propagation, Refusal, Subresource, User, Write};
