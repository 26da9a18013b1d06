//! Parses, checks, bounds and evaluates CEL expressions over JSON, as an API server does.
//!
//! Read in this order: [`types`] describes what is known of a value before evaluation; `parse`
//! turns text into a tree of resolved names and macros; `check` finds type errors; [`cost`] counts
//! and bounds; [`view`] shows JSON trees as values without a copy; `eval` walks the tree; `library`
//! has the functions.
//!
//! The grammar is that of the `cel` crate. Evaluation is not: the crate counts no cost, finds
//! unknown names only when it evaluates them, and cannot read a tree through a schema.

pub mod cost;
pub mod environment;
pub mod error;
pub mod types;
pub mod value;
pub mod view;

mod accessed_entries;
mod ast;
mod check;
mod compare;
mod eval;
mod eval_context;
mod fold;
mod key;
mod library;
mod parse;
mod signature;

pub use cost::Budget;
pub use environment::{
    Comparisons, Environment, EvaluatedValue, HostFunctionBody, InvalidSignature, Limits, Program,
    Resolver,
};
pub use error::{CompileError, EvalError, Issue};
pub use key::Key;
pub use library::{
    named_formats::Format,
    net::{Cidr, Ip},
    quantity::Quantity,
    semver::Semver,
    time::Timestamp,
    url::Url,
};
pub use types::{Field, ListKind, ListType, MapType, ObjectType, Type, escape, unescape};
pub use value::{HostMap, HostValue, List, Map, Text, Value};
pub use view::Binding;
