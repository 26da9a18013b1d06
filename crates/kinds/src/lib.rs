//! Implements what kube-apiserver does with the built-in kinds: default, prepare, validate, print.
//!
//! Everything here is a pure function over JSON trees that were read as their types: unknown fields
//! are dropped and types are right. Time, randomness and other objects are arguments. A server
//! looks up the [`Behaviour`] of a kind and then, for a write,
//!
//! 1. sets defaults ([`Behaviour::default`]),
//! 2. applies admission plugins ([`admission_plugins`]),
//! 3. reverts changes that the request may not make ([`Behaviour::prepare_create`],
//!    [`Behaviour::prepare_update`]),
//! 4. allocates addresses and ports ([`service::allocate`]),
//! 5. collects errors ([`validate_metadata`], [`Behaviour::validate_create`],
//!    [`Behaviour::validate_update`]), with the messages of kube-apiserver.

pub mod admission_plugins;
pub mod admission_policies;
pub mod behaviour;
mod certificates;
mod cluster;
mod config;
pub mod deletion;
mod devices;
mod endpoints;
mod field_errors;
pub mod field_selectors;
mod leases_and_events;
mod metadata;
mod names;
mod networking;
mod pod;
mod policy;
pub mod print;
mod quota;
mod rbac;
mod selector;
pub mod service;
mod storage;
mod tree;
mod warnings;
mod webhooks;
mod workloads;

pub use behaviour::{Behaviour, SubresourceKind, behaviour, custom};
pub use metadata::validate_metadata;
pub use names::NameRule;
pub use selector::{is_empty as selects_all, matches as selects};
pub use webhooks::validate_conditions;
