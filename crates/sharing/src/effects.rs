//! Installs, removes and shows the objects that many installations share.
//!
//! The rest of the crate decides; here objects are read and written, by name alone, so that the
//! published ClusterRoles suffice. Nothing is printed: the outcome for each object is in a
//! [`report`].

pub mod cluster_client;
pub mod install;
pub mod report;
pub mod source;
pub mod status;
pub mod sweep;
pub mod uninstall;
