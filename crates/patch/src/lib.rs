//! Implements every way to change an object, and the ownership of its fields.
//!
//! [`json_patch`], [`merge_patch`] and [`strategic`] compute the new object a client asked for;
//! [`ownership`] maintains `metadata.managedFields` and implements server-side apply. Everything is
//! a pure function of its arguments: the time of a change is an argument, nothing is read or
//! stored.
//!
//! The order of a write is: patch, decode, default, then [`ownership::update`] (or
//! [`ownership::apply`] in place of patch and update, with defaulting after it), then mutating
//! admission, validation, and last [`ownership::is_unchanged`], which tells whether there is
//! anything to store. Fields that admission changes have no owner; it only must leave the entries
//! readable ([`ownership::check_managed_fields`]).

mod document;
#[cfg(test)]
mod fixtures;
mod golang;
pub mod ownership;
pub mod path;
pub mod set;
pub mod strategic;
pub mod typed;

pub use document::{PatchError, json_patch, merge_patch, unknown_patch_fields};
pub use path::{Path, PathElement};
pub use set::FieldSet;
