//! Validation rules in expressions, `x-kubernetes-validations`: their variables, their validation
//! in a definition, and their evaluation on an object.

mod compiled;
mod evaluate;
mod types;
mod validate_rules;

pub use compiled::Rules;
pub use evaluate::RuleResults;
pub use types::cel_type;
pub(crate) use validate_rules::{RuleCost, rule_errors};

#[cfg(test)]
mod tests;
