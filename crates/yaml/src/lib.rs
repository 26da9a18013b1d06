//! Reads and writes YAML: the only crate that knows which library does it.
//!
//! Reading follows what `kubectl` accepts (YAML 1.1 booleans, `0644` as octal, merge keys) with one
//! difference: a duplicate key is an error, because whichever value wins, the user meant both. An
//! API server has to take what its clients send, and reads with [`read_last_wins`]. What is read is
//! a tree of [`node::Node`]s, which know the line they stand on. Dialects that give scalars another
//! meaning, or have tags, read the text as it is written: [`written::read_written`].

pub mod node;
mod text;
pub mod written;

pub use text::{DuplicateKey, SyntaxError, WriteError, read, read_last_wins, write};
