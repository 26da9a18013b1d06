//! What `gantry schedule` answers: from the objects of files or of a cluster to a decision that can
//! be printed, and explained.
//!
//! [`Objects`] are what was read, [`Change`]s are what is only supposed, [`Asked`] says for whom, and
//! [`decide`] is the answer. Nothing is written anywhere: the same objects always give the same text.

mod decide;
mod explain;
mod objects;
#[cfg(test)]
mod tests;
mod what_if;
mod wishes;

pub use decide::{Asked, AskedError, Decision, Options, Verdict, decide};
pub use objects::Objects;
pub use what_if::{Change, ChangeError, ParseChangeError};
