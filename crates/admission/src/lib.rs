//! Who may object to a write, decided without I/O.
//!
//! Read in this order: [`request`] is a write as admission sees it, and what a decision may ask the
//! server for; [`matching`] says which requests are meant by rules and selectors, for policies and
//! webhooks alike; [`conditions`] narrows that by expressions; [`policy`] is a compiled policy with
//! its bindings, and [`decide`] asks them all. `scope` is what expressions see, [`authorizer`] what
//! they may ask about rights. [`limits`] and [`quota`] say how much may be asked for.

pub mod amount;
pub mod authorizer;
pub mod conditions;
pub mod decide;
pub mod limits;
pub mod matching;
pub mod policy;
pub mod quota;
pub mod request;
pub mod resources;

mod environment;
mod scope;

pub use decide::{Denial, Outcome, decide};
pub use policy::{Binding, Policy, validate_policy};
pub use request::{Operation, ParamKind, ParamScope, Request, View, World};
