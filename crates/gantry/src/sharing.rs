//! Installing, removing and showing the objects that many installations share: the edge of crate
//! `sharing`, which decides. Here objects are read and written, by name alone, so that the published
//! ClusterRoles suffice.

pub mod install;
pub mod report;
pub mod server;
pub mod source;
pub mod status;
pub mod sweep;
pub mod uninstall;
