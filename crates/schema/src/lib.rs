//! Schemas of JSON trees: pruning, defaulting, validation, and the keys of lists.
//!
//! One compiled form serves custom and built-in kinds alike. Custom kinds compile it from the
//! structural schema in their definition, built-in ones from generated tables; pruning, defaulting,
//! merging and field ownership then walk the same nodes and need not know where they came from.

pub mod checks;
mod compile;
mod correlate;
mod default;
mod definition;
mod expression;
pub mod field_error;
pub mod format;
mod go;
mod metadata;
pub mod names;
mod path;
pub mod pattern;
mod props;
mod prune;
mod read;
mod structural;
pub mod tree;
mod validate;
mod walk;

pub use checks::{Checks, Clause, Kind, Rule};
pub use compile::{CompileError, compile, object_meta};
pub use default::default;
pub use definition::{
    Condition, NamesStatus, accept_names, approval_condition, default_definition,
    definition_warnings, prepare_definition, validate_definition,
};
pub use expression::{RuleResults, Rules, cel_type};
pub use field_error::{FieldError, FieldErrorReason};
pub use go::{go_type, json_kind, quote};
pub use prune::{prune, prune_as_written};
pub use read::{ReadError, go_json_error, read_json};
pub use structural::structural;
pub use tree::{Builder, Field, ListType, MergeStrategy, Node, NodeId, Scalar, Schema, Shape};
pub use validate::{
    has_blocking_errors, rules_blocked_error, validate, validate_embedded, validate_lists,
    validate_status, validate_values,
};
pub use walk::{RuleSite, has_rules, rule_sites};
