//! Which objects a request is about.

mod field;
mod label;

pub use field::{FieldSelector, Term};
pub use label::LabelSelector;
