//! Amounts of a resource, as Kubernetes writes them: `500m`, `1.5Gi`, `12e6`.
//!
//! There is one reader of such texts ([`QuantityText`], [`Scale`]) and one exact value,
//! [`Quantity`]. What an API server gives back for a text, its oddities included, is
//! [`canonical()`]. Crates that bound amounts, or report faults in words of their own, build on
//! these.

mod canonical;
mod text;
mod value;

pub use canonical::{QuantityError, canonical, canonical_milli};
pub use text::{BINARY_SUFFIXES, DECIMAL_SUFFIXES, Format, NANOS_PER_UNIT, QuantityText, Scale};
pub use value::Quantity;
