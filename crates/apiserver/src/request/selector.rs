//! Label and field selectors.

mod field;
mod label;

pub use field::{FieldSelector, Term};
pub use label::LabelSelector;
