//! What a stage of a pipeline knows of its Job and of its image.

use std::sync::Arc;

use jiff::Timestamp;

use crate::view::Job;

/// What the Job of a stage says.
pub(super) enum StageState {
    /// There is none.
    NoJob,
    /// There is one that was made from something else.
    Replaced,
    /// There is one that was made from something else, as far as answers say that are not newer.
    Unconfirmed,
    /// It runs.
    Active,
    /// It succeeded, and the registry has not denied it since.
    Succeeded { at: Option<Timestamp> },
    /// It failed.
    Failed { message: String },
    /// There is one of another Module, or for another kernel.
    Other(Arc<Job>),
}

/// What a registry has.
pub(super) enum FoundImage {
    Present { input_hash: Option<String>, at: Timestamp },
    Missing,
}
