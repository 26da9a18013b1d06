//! Decides who may change the cluster-scoped objects that many installations share, and when.
//!
//! Many users and test runs use one cluster, most of them confined to a namespace, and different
//! commits want different contents for one object. The shared objects are listed in [`inventory`],
//! each with the rule that settles conflicts. Everything here is a decision about objects that the
//! caller has read; only [`effects`] reads and writes.

pub mod admin_roles;
pub mod conditional_apply;
pub mod definition;
pub mod effects;
pub mod expiry;
pub mod finalizers;
pub mod inventory;
pub mod manifest;
pub mod merge;
pub mod node_view;
pub mod policies;
pub mod removal;
