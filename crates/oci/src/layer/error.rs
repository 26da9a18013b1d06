//! Errors of layers, with the layer and the entry.

use std::io;

use crate::blob::BlobError;
use crate::digest::{Digest, VerifyError};

/// A layer that cannot be used, and where in it.
#[derive(Debug, thiserror::Error)]
#[error("cannot use layer {layer}{}: {problem}", in_entry(entry.as_deref()))]
pub struct LayerError {
    /// The digest of the layer's blob.
    pub layer: Digest,
    /// The name of the entry, as the layer has it.
    pub entry: Option<String>,
    /// What is wrong.
    pub problem: Box<LayerProblem>,
}

fn in_entry(entry: Option<&str>) -> String {
    entry.map_or_else(String::new, |entry| format!(", entry {entry:?}"))
}

/// What is wrong with a layer.
#[derive(Debug, thiserror::Error)]
pub enum LayerProblem {
    /// The source does not have it.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// Its content is not what the manifest promises.
    #[error(transparent)]
    Wrong(#[from] VerifyError),
    /// Its content before compression is not what the configuration promises.
    #[error("its content has the digest {actual}, and the configuration says {expected}")]
    DiffId {
        /// What the configuration says.
        expected: Digest,
        /// What it is.
        actual: Digest,
    },
    /// The media type is not that of a layer that can be read.
    #[error("the media type {0:?} is not that of a tar, plain or compressed with gzip or zstd")]
    MediaType(String),
    /// The source failed while it was read.
    #[error("could not read it")]
    Io(#[source] io::Error),
    /// The compressed stream is damaged.
    #[error("it cannot be decompressed: {0}")]
    Compression(String),
    /// The tar ends within an entry.
    #[error("the tar ends within an entry")]
    Truncated,
    /// The tar is malformed.
    #[error("the tar is malformed: {0}")]
    Malformed(String),
    /// The entry is a sparse file.
    #[error("sparse files are not supported; write the layer without them")]
    Sparse,
    /// The name cannot be that of a file.
    #[error("the name {0}")]
    Name(&'static str),
    /// The name leads out of the root.
    #[error("the path leads out of the root")]
    Escape,
    /// A hard link to something that is not there, or is a directory.
    #[error("the hard link's target {target:?} {why}")]
    HardLink {
        /// The target.
        target: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An entry below something that is not a directory.
    #[error("{0:?} is not a directory")]
    NotADirectory(String),
    /// Symbolic links that lead to one another.
    #[error("more than {0} symbolic links in one path")]
    SymlinkLoop(usize),
    /// A limit is exceeded.
    #[error("more than {limit} {kind}; such an image is not read")]
    Limit {
        /// Of what.
        kind: LimitKind,
        /// How much is allowed.
        limit: u64,
    },
    /// The visitor of the entries failed.
    #[error("could not handle an entry")]
    Visitor(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitKind {
    /// Entries of all layers.
    #[error("entries")]
    Entries,
    /// Bytes of names and targets of links of all layers.
    #[error("bytes of names")]
    NameBytes,
    /// Bytes of all layers after decompression.
    #[error("bytes after decompression")]
    UncompressedBytes,
    /// Bytes for each compressed byte.
    #[error("bytes for each compressed byte")]
    Ratio,
    /// Bytes of an extended header.
    #[error("bytes of an extended header")]
    ExtendedHeaderBytes,
    /// Directories within directories.
    #[error("directories within one another")]
    Depth,
    /// Steps to resolve paths and to apply whiteouts.
    #[error("steps to resolve paths and whiteouts")]
    ResolutionSteps,
    /// Bytes of one file that is read into memory.
    #[error("bytes of one selected file")]
    FileBytes,
    /// Bytes of all files that are read into memory.
    #[error("bytes of all selected files")]
    SelectedBytes,
}
