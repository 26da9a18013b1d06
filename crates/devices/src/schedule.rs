//! The logic of `gantry schedule`: from the objects of files or of a cluster to a decision that can
//! be printed and explained.
//!
//! [`Objects`] are what was read, [`WhatIfChange`]s are hypothetical changes, [`ScheduleTarget`]
//! selects the claims, and [`decide()`] makes the decision. Nothing is written anywhere: the same
//! objects always give the same text.

mod decide;
mod explain;
mod objects;
mod requested_claims;
#[cfg(test)]
mod tests;
mod what_if;

pub use decide::{Decision, Options, ScheduleError, ScheduleTarget, Verdict, decide};
pub use objects::Objects;
pub use what_if::{ParseWhatIfError, WhatIfChange, WhatIfError};
