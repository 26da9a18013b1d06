//! Container images without a registry: references, manifests, the merged tree of layers,
//! repacking.
//!
//! A [`Reference`] names an image, a [`Digest`] its content. [`Document`] is what a registry
//! returns for a reference: a [`Manifest`], or an [`Index`] of manifests for several platforms.
//! All of them keep the bytes they were read from, because a digest covers bytes and not meaning,
//! and all of them keep keys that this crate does not know.
//!
//! [`Tree`] is the merged tree of an image's layers, read in bounded memory. [`glob`] finds the
//! files that patterns match in it, and [`repack`] adds one layer with changed files on top.
//! [`build`] composes images from files. All of them read blobs from a [`BlobSource`] and write
//! them to a [`BlobSink`]; [`layout`] has both for directories and archives.
//!
//! Nothing here opens a connection or reads a clock. Input is hostile: every size, count and depth
//! has a bound, and what exceeds one is an error that names it.

pub mod blob;
pub mod build;
mod digest;
pub mod glob;
mod json;
pub mod layer;
pub mod layout;
pub mod manifest;
mod media_type;
mod reference;
pub mod repack;
#[cfg(test)]
mod test_image;
pub mod tree;

pub use blob::{BlobError, BlobProblem, BlobSink, BlobSource, MemoryBlobs};
pub use digest::{Algorithm, Digest, DigestError, Hasher, Verifier, VerifyError, VerifyingReader};
pub use glob::Pattern;
pub use layer::{LayerError, LayerProblem, Limits};
pub use manifest::{
    Config, Descriptor, Document, DocumentError, DocumentProblem, Index, Manifest, Platform,
    PlatformError,
};
pub use media_type::{Compression, Family, MediaType};
pub use reference::{Reference, ReferenceError, ReferenceProblem, Registry, Repository, Tag};
pub use tree::{SelectedFile, Tree, TreePath};
