//! What Kubernetes does with its own kinds: default, prepare, validate, print.
//!
//! Everything here is a pure function over JSON trees that were read as their types: unknown fields
//! are gone and shapes are right. Time, randomness and other objects are arguments. A server asks
//! for the [`Behaviour`] of a kind and then, for a write,
//!
//! 1. fills in what is left out ([`Behaviour::default`]),
//! 2. lets admission change it ([`admit`]),
//! 3. takes back what the request may not touch ([`Behaviour::prepare_create`],
//!    [`Behaviour::prepare_update`]),
//! 4. allocates what only it can give ([`service::allocate`]),
//! 5. collects what is wrong ([`validate_metadata`], [`Behaviour::validate_create`],
//!    [`Behaviour::validate_update`]), in the words of a real server.

pub mod admit;
mod advice;
pub mod behaviour;
mod certificates;
mod cluster;
mod config;
pub mod deletion;
mod devices;
mod endpoints;
mod faults;
mod metadata;
mod names;
mod networking;
mod pod;
pub mod policies;
mod policy;
pub mod print;
mod quantity;
mod quota;
mod rbac;
mod records;
pub mod selectable;
mod selector;
pub mod service;
mod storage;
mod tree;
mod webhooks;
mod workloads;

pub use behaviour::{Behaviour, Part, behaviour, custom};
pub use metadata::validate_metadata;
pub use names::NameRule;
pub use selector::{is_empty as selects_all, matches as selects};
pub use webhooks::validate_conditions;
