//! Manifests, indexes and configurations of images, as typed views of the documents.
//!
//! A view keeps the bytes it was read from: [`Manifest::bytes`] and [`Manifest::digest`] are those
//! of the author, however the document was indented. A changed document is a new view with new
//! bytes, in which keys that this crate does not know are where they were.

mod config;
mod descriptor;
mod document;
mod error;
mod platform;
#[cfg(test)]
mod tests;

pub use config::{Config, HistoryRecord};
pub use descriptor::{ATTESTATION_ANNOTATION, Descriptor};
pub use document::{Document, Index, Manifest};
pub use error::{DocumentError, DocumentProblem};
pub use platform::{Platform, PlatformError};

/// The largest manifest or index. Registries must accept 4 MiB, and most accept no more.
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// The largest configuration. Images with a long history have a few hundred kilobytes.
pub const MAX_CONFIG_BYTES: usize = 8 << 20;

/// The most layers of an image. Runtimes stop at 127 or a little above.
pub const MAX_LAYERS: usize = 1024;

/// The most images of an index.
pub const MAX_INDEX_CHILDREN: usize = 1024;
