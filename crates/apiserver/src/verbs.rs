//! Serves the verbs of the API: reads, watches and writes of resources and their subresources.

pub(crate) mod change;
pub(crate) mod delete;
pub(crate) mod read;
pub(crate) mod scale;
pub(crate) mod subresources;
pub(crate) mod watch;
pub(crate) mod write;
