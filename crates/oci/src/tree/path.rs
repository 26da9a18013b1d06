//! Paths within an image.

use std::fmt;

use super::resolve::ResolveError;
use crate::layer::{LayerProblem, MAX_NAME_LENGTH, MAX_PATH_LENGTH};

/// A path from the root of an image. Its names are bytes, as Linux has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath {
    names: Vec<Box<[u8]>>,
}

impl TreePath {
    /// The root.
    #[must_use]
    pub const fn root() -> Self {
        Self { names: Vec::new() }
    }

    /// Reads a path that a user wrote. It is absolute, and `..` may not lead out of the root.
    ///
    /// # Errors
    ///
    /// [`ResolveError::NotAbsolute`] or [`ResolveError::Malformed`].
    pub fn from_user(path: &str) -> Result<Self, ResolveError> {
        if !path.starts_with('/') {
            return Err(ResolveError::NotAbsolute(path.chars().take(200).collect()));
        }
        Self::from_layer(path.as_bytes()).map_err(|problem| ResolveError::Malformed {
            path: path.chars().take(200).collect(),
            why: problem.to_string(),
        })
    }

    /// Reads the name of an entry: `./a`, `/a` and `a` are one path.
    pub(super) fn from_layer(name: &[u8]) -> Result<Self, LayerProblem> {
        if name.len() > MAX_PATH_LENGTH {
            return Err(LayerProblem::Name("is longer than 4096 bytes"));
        }
        let mut path = Self::root();
        for part in name.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." if path.is_root() => return Err(LayerProblem::Escape),
                b".." => path.pop(),
                _ if part.len() > MAX_NAME_LENGTH => {
                    return Err(LayerProblem::Name("has a part of more than 255 bytes"));
                }
                _ if part.contains(&0) => return Err(LayerProblem::Name("has a zero byte")),
                _ => path.push(part),
            }
        }
        Ok(path)
    }

    pub(super) fn from_components(names: &[&[u8]]) -> Self {
        Self { names: names.iter().map(|name| (*name).into()).collect() }
    }

    /// Whether this is the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.names.is_empty()
    }

    /// The last name; none for the root.
    #[must_use]
    pub fn file_name(&self) -> Option<&[u8]> {
        self.names.last().map(|name| &**name)
    }

    /// The names from the root on.
    #[must_use]
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.names.iter().map(|name| &**name)
    }

    /// The path as a tar has it, without a slash at the start.
    #[must_use]
    pub fn to_tar_name(&self) -> Vec<u8> {
        self.names.join(&b'/')
    }

    /// The same path with one more name.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        let mut path = self.clone();
        path.push(name);
        path
    }

    pub(super) fn push(&mut self, name: &[u8]) {
        self.names.push(name.into());
    }

    pub(super) fn pop(&mut self) {
        self.names.pop();
    }

    /// The directory of this path and its last name; none for the root.
    pub(super) fn split_last(mut self) -> Option<(Self, Box<[u8]>)> {
        let name = self.names.pop()?;
        Some((self, name))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str("/");
        }
        for name in &self.names {
            write!(f, "/{}", String::from_utf8_lossy(name))?;
        }
        Ok(())
    }
}
