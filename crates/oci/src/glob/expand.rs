//! Expands patterns against the tree of an image.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::pattern::{PathComponent, Pattern, matches};
use crate::tree::{ResolveError, Tree, TreeEntry, TreePath};

/// The most files that patterns may match together.
const MAX_MATCHES: usize = 10_000;

/// How many similar paths an error lists.
const LISTED_NEAR_MATCHES: usize = 5;

/// The most names of a directory that are compared with a name that does not exist.
const COMPARED_NAMES: usize = 2_000;

/// How kernel modules are compressed, as the ends of their names.
const COMPRESSED_SUFFIXES: [&str; 3] = [".gz", ".xz", ".zst"];

/// The files that patterns match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expansion {
    /// The files, each once, sorted; symbolic links are followed.
    pub files: Vec<TreePath>,
    /// Patterns that match only compressed modules.
    pub fallbacks: Vec<CompressedFallback>,
    /// Patterns that match nothing.
    pub unmatched: Vec<UnmatchedPattern>,
}

/// A pattern `….ko` that matches nothing, and the compressed files taken for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedFallback {
    /// The pattern.
    pub pattern: Pattern,
    /// `.gz`, `.xz` or `.zst`.
    pub suffix: &'static str,
}

/// A pattern that matches nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern} matches no file{}", similar(near))]
pub struct UnmatchedPattern {
    /// The pattern.
    pub pattern: Pattern,
    /// Files with similar names.
    pub near: Vec<String>,
}

fn similar(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; similar: {}", near.join(", ")) }
}

/// Why a matched path cannot be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// It is no file.
    #[error("{pattern} matches {path}, which is {kind}; only files can be selected")]
    WrongKind {
        /// The pattern.
        pattern: Pattern,
        /// The path.
        path: TreePath,
        /// What it is.
        kind: WrongKind,
    },
    /// It leads through something that is not a directory, or through too many links.
    #[error("{pattern} matches {path}, which cannot be followed: {source}")]
    Unresolvable {
        /// The pattern.
        pattern: Pattern,
        /// The path.
        path: TreePath,
        /// What is wrong with it.
        source: ResolveError,
    },
    /// Compressed files of two kinds.
    #[error("{pattern} matches no file, and more than one of {found}; name one of them")]
    Ambiguous {
        /// The pattern.
        pattern: Pattern,
        /// The patterns that match.
        found: String,
    },
    /// More files than anybody wants to select.
    #[error("the patterns match more than {MAX_MATCHES} files; write narrower ones")]
    TooMany,
}

/// What a path is that is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongKind {
    /// A directory.
    Directory,
    /// A device or a named pipe.
    Special,
    /// A symbolic link to nothing.
    DanglingSymlink,
}

impl fmt::Display for WrongKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Special => "a device or a named pipe",
            Self::DanglingSymlink => "a symbolic link to nothing",
        })
    }
}

/// Finds the files that patterns match.
///
/// A pattern `….ko` that matches nothing stands for its compressed form, if there is exactly one
/// of `….ko.gz`, `….ko.xz` and `….ko.zst`. Other patterns that match nothing are in
/// [`Expansion::unmatched`], because an index may have what one of its images has not.
///
/// # Errors
///
/// [`SelectionError`] if a pattern matches what is no file.
pub fn expand(tree: &Tree, patterns: &[Pattern]) -> Result<Expansion, SelectionError> {
    let mut expansion = Expansion::default();
    let mut files = BTreeSet::new();
    for pattern in patterns {
        let mut found = expand_one(tree, pattern)?;
        if found.is_empty() && pattern.as_str().ends_with(".ko") {
            let mut compressed = BTreeMap::new();
            for suffix in COMPRESSED_SUFFIXES {
                let files = expand_one(tree, &pattern.with_suffix(suffix))?;
                if !files.is_empty() {
                    compressed.insert(suffix, files);
                }
            }
            if compressed.len() > 1 {
                let found: Vec<String> =
                    compressed.keys().map(|suffix| format!("{pattern}{suffix}")).collect();
                let (pattern, found) = (pattern.clone(), found.join(", "));
                return Err(SelectionError::Ambiguous { pattern, found });
            }
            if let Some((suffix, files)) = compressed.pop_first() {
                let pattern = pattern.clone();
                expansion.fallbacks.push(CompressedFallback { pattern, suffix });
                found = files;
            }
        }
        if found.is_empty() {
            let near = near_matches(tree, pattern);
            expansion.unmatched.push(UnmatchedPattern { pattern: pattern.clone(), near });
        }
        files.append(&mut found);
        if files.len() > MAX_MATCHES {
            return Err(SelectionError::TooMany);
        }
    }
    expansion.files = files.into_iter().collect();
    Ok(expansion)
}

/// Follows the parts of a pattern from the root. Directories are kept by their real paths, so
/// that links to one another cannot multiply them.
fn expand_one(tree: &Tree, pattern: &Pattern) -> Result<BTreeSet<TreePath>, SelectionError> {
    let mut directories = BTreeSet::from([TreePath::root()]);
    let Some((last, parents)) = pattern.parts().split_last() else { return Ok(directories) };
    for part in parents {
        let mut next = BTreeSet::new();
        for path in directories.iter().flat_map(|directory| candidates(tree, directory, part)) {
            // What is no directory has nothing below it that could match.
            if let Ok(Some((real, TreeEntry::Directory))) = tree.resolve(&path) {
                next.insert(real);
            }
        }
        directories = next;
    }
    let mut files = BTreeSet::new();
    for path in directories.iter().flat_map(|directory| candidates(tree, directory, last)) {
        let wrong = |kind| {
            let (pattern, path) = (pattern.clone(), path.clone());
            SelectionError::WrongKind { pattern, path, kind }
        };
        match tree.resolve(&path) {
            Ok(Some((real, TreeEntry::File { .. }))) => {
                files.insert(real);
            }
            Ok(Some((_, TreeEntry::Directory))) => return Err(wrong(WrongKind::Directory)),
            Ok(Some((_, TreeEntry::Special))) => return Err(wrong(WrongKind::Special)),
            Ok(Some((_, TreeEntry::Symlink { .. })) | None) => {
                return Err(wrong(WrongKind::DanglingSymlink));
            }
            Err(source) => {
                let (pattern, path) = (pattern.clone(), path.clone());
                return Err(SelectionError::Unresolvable { pattern, path, source });
            }
        }
        if files.len() > MAX_MATCHES {
            return Err(SelectionError::TooMany);
        }
    }
    Ok(files)
}

/// The paths in a directory that a part matches and that exist.
fn candidates(tree: &Tree, directory: &TreePath, part: &PathComponent) -> Vec<TreePath> {
    match part {
        PathComponent::Literal(name) => {
            if tree.has_name(directory, name.as_bytes()) {
                vec![directory.join(name.as_bytes())]
            } else {
                Vec::new()
            }
        }
        PathComponent::Wildcard(tokens) => tree
            .names(directory)
            .filter(|name| matches(tokens, name))
            .map(|name| directory.join(name))
            .collect(),
    }
}

/// Files with the same name elsewhere, then names like it in its directory.
fn near_matches(tree: &Tree, pattern: &Pattern) -> Vec<String> {
    let Some((PathComponent::Literal(wanted), parents)) = pattern.parts().split_last() else {
        return Vec::new();
    };
    let wanted = stem(wanted.as_bytes());
    let mut near = Vec::new();
    tree.walk(&mut |path, entry| {
        let is_file = matches!(entry, TreeEntry::File { .. } | TreeEntry::Symlink { .. });
        if is_file && path.file_name().is_some_and(|name| stem(name) == wanted) {
            near.push(path.to_string());
        }
        near.len() < LISTED_NEAR_MATCHES
    });
    let mut directory = TreePath::root();
    for part in parents {
        let PathComponent::Literal(name) = part else { return near };
        match tree.resolve(&directory.join(name.as_bytes())) {
            Ok(Some((real, TreeEntry::Directory))) => directory = real,
            Ok(_) | Err(_) => return near,
        }
    }
    let limit = wanted.len() / 3 + 1;
    let mut similar: Vec<(usize, &[u8])> = tree
        .names(&directory)
        .take(COMPARED_NAMES)
        .map(|name| (edit_distance(&stem(name), &wanted), name))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    similar.sort();
    for (_, name) in similar {
        let path = directory.join(name).to_string();
        if near.len() < LISTED_NEAR_MATCHES && !near.contains(&path) {
            near.push(path);
        }
    }
    near
}

/// A name without compression and with `-` as `_`, which mean the same in names of modules.
fn stem(name: &[u8]) -> Vec<u8> {
    let suffix = COMPRESSED_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix.as_bytes()));
    suffix.unwrap_or(name).iter().map(|byte| if *byte == b'-' { b'_' } else { *byte }).collect()
}

/// How many bytes must be added, removed or replaced. Both are names of at most 255 bytes.
fn edit_distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, byte) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, with) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(byte != with);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
