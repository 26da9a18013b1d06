//! Installs, removes and shows the objects that many installations share.
//!
//! The rest of the crate decides; here objects are read and written, by name alone, so that the published
//! ClusterRoles suffice. Nothing is printed: what became of each object is a [`report`].

pub mod install;
pub mod report;
pub mod server;
pub mod source;
pub mod status;
pub mod sweep;
pub mod uninstall;
