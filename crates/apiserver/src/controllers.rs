//! Ends objects: deletes what belongs to nothing, and finishes namespaces that terminate.

pub(crate) mod garbage_collector;
pub(crate) mod termination_controller;
