//! Who may change the cluster-scoped objects that many installations share, and when.
//!
//! Many people and test runs use one cluster, most of them confined to a namespace, and different
//! commits want different contents for one object. What they share is listed in [`inventory`], with
//! the rule for who wins. Everything here is a decision about objects that somebody else has read;
//! only [`effects`] reads and writes.

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
