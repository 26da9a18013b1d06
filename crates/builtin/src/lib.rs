//! The kinds Kubernetes itself has, as data: types, wire numbers, discovery, OpenAPI.
//!
//! Everything here is derived from files in `data`, which are generated from a real Kubernetes and
//! loaded at first use. Nothing here makes decisions: it describes a kind, not what is done with
//! it.

mod base64;
pub mod convert;
mod data;
pub mod discovery;
pub mod openapi;
mod read;
mod registry;
mod schema;
mod time;
mod types;
pub mod wire;

pub use read::{DecodedObject, TypeError, read};
pub use registry::{Group, Resource, Subresource, Version, groups, resource};
pub use schema::schema;
pub use time::whole_seconds;
pub use types::{TypeId, kind_type, named_type};
