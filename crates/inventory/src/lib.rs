//! Inventories of hosts: groups, variables with precedence and origin, patterns, tags and vaults.
//!
//! Text in, tree out: the crate reads no file and no environment, and never panics on input. The
//! caller gives it the texts ([`Input`]), and gets an [`Inventory`] with everything that is wrong
//! with it ([`Finding`]). What inventories mean is what `ansible-core` makes of them; where this
//! crate is stricter, docs/specs/inventory.md says so.

mod cluster;
mod expression;
mod extra;
mod finding;
mod host_range;
mod ini_file;
mod inventory;
mod literal;
mod pattern;
mod reader;
mod report;
mod scalar;
mod shell_words;
mod source;
mod tags;
mod tree;
mod value;
mod variables;
mod vault;
mod yaml_file;

pub use cluster::{Backend, Cluster, Role, clusters};
pub use expression::EvaluationError;
pub use finding::{FileId, Files, Finding, Place, Severity, suggest};
pub use inventory::{
    Candidate, ExtraVariables, HostVariables, Input, Inventory, Layer, has_errors, read,
};
pub use pattern::{PatternError, select, split};
pub use report::ListForm;
pub use shell_words::split_words;
pub use source::{Source, TextFile, is_read};
pub use tags::{SPECIAL_TAGS, TagSelection};
pub use tree::{ALL, Assignment, Group, GroupId, Host, HostId, Tree, UNGROUPED};
pub use value::{Key, Node, Value, VaultText};
pub use variables::{
    CONNECTION_VARIABLES, ConnectionVariable, Field, PREFIX, Shape, VARIABLES, Variable, variable,
};
pub use vault::VaultPassword;
