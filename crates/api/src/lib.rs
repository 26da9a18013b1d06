//! The kinds of Gantry's five API groups and their rules, as data.
//!
//! Every doc comment on a field becomes text of the CustomResourceDefinition and is what `kubectl
//! explain` prints. Nothing here does I/O, reads the clock or uses a client: controllers, the API
//! server and the command line all read objects through [`decode`], so they cannot disagree.

pub mod alias;
pub mod decode;
pub mod devices;
pub mod finding;
pub mod kernel_modules;
pub mod kind;
pub mod kubernetes;
pub mod meta;
pub mod models;
pub mod object;
pub mod quantity;
pub mod queue;
pub mod roles;
pub mod schema;
