//! Rules in expressions, `x-kubernetes-validations`: what they see, whether they may stand in a
//! definition, and what they say about an object.

mod ask;
mod compiled;
mod declared;
mod types;

pub use ask::Asked;
pub use compiled::Rules;
pub(crate) use declared::{RuleCost, rule_faults};
pub use types::cel_type;

#[cfg(test)]
mod tests;
