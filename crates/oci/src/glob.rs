//! Patterns of paths, and the files of an image they match.
//!
//! `*` is any number of characters, `?` is one, `[a-z]` one of a class and `[!a-z]` one that is
//! not in it; a backslash takes the next character as it is. None of them matches a slash, and
//! `**` is refused, because users expect it to.

mod expand;
mod pattern;
#[cfg(test)]
mod tests;

pub use expand::{
    CompressedFallback, Expansion, SelectionError, UnmatchedPattern, WrongKind, expand,
};
pub use pattern::{Pattern, PatternError};
