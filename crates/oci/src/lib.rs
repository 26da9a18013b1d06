//! Container images without a registry: references, manifests, the merged tree of layers,
//! repacking.
//!
//! A [`Reference`] names an image, a [`Digest`] its content. [`Document`] is what a registry
//! returns for a reference: a [`Manifest`], or an [`Index`] of manifests for several platforms.
//! All of them keep the bytes they were read from, because a digest covers bytes and not meaning,
//! and all of them keep keys that this crate does not know.
//!
//! Nothing here opens a connection or reads a clock. Input is hostile: every size, count and depth
//! has a bound, and what exceeds one is an error that names it.

mod digest;
mod json;
pub mod manifest;
mod media_type;
mod reference;

pub use digest::{Algorithm, Digest, DigestError, Hasher, Verifier, VerifyError, VerifyingReader};
pub use manifest::{
    Config, Descriptor, Document, DocumentError, DocumentProblem, Index, Manifest, Platform,
    PlatformError,
};
pub use media_type::{Compression, Family, MediaType};
pub use reference::{Reference, ReferenceError, ReferenceProblem, Registry, Repository, Tag};
