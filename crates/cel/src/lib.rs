//! Expressions over JSON: parse, check, bound, evaluate, as an API server does.
//!
//! Read in this order: [`types`] says what is known of a value beforehand; `parse` turns text into a
//! tree of resolved names and macros; `check` finds what can be known to be wrong; [`cost`] counts
//! and bounds; [`view`] shows JSON trees as values without a copy; `eval` walks the tree; `library`
//! has the functions.
//!
//! The grammar is that of the `cel` crate. Evaluation is not: the crate counts no cost, finds
//! unknown names only when it meets them, and cannot see a tree through a schema.

pub mod cost;
pub mod environment;
pub mod fault;
pub mod types;
pub mod value;
pub mod view;

mod check;
mod compare;
mod entries;
mod eval;
mod fold;
mod key;
mod library;
mod parse;
mod signature;
mod tree;
mod work;

pub use cost::Budget;
pub use environment::{
    Answer, Comparisons, Environment, HostRun, Limits, Program, Resolver, UnreadableSignature,
};
pub use fault::{CompileError, EvalError, Finding};
pub use key::Key;
pub use library::{
    format::Format,
    net::{Cidr, Ip},
    quantity::Quantity,
    semver::Version,
    time::Moment,
    url::Url,
};
pub use types::{Field, ListKind, ListType, MapType, ObjectType, Type, escape, unescape};
pub use value::{HostMap, HostValue, List, Map, Text, Value};
pub use view::Binding;
