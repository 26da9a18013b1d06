//! Images as files: the directories and archives of the image layout specification.
//!
//! A [`Layout`] is a directory with `oci-layout`, `index.json` and `blobs`; an [`Archive`] is a tar
//! of one, which other tools call `oci-archive`, or a tar of `docker save`. Both are a
//! [`BlobSource`], and a layout is a [`BlobSink`](crate::blob::BlobSink) as well. Images in
//! `index.json` have names by annotation.

mod archive;
mod directory;
mod docker_archive;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

pub use archive::{Archive, write_archive};
pub use directory::Layout;

use crate::blob::{BlobError, BlobSource};
use crate::digest::Digest;
use crate::manifest::{Descriptor, DocumentError, Index};

/// The annotation that names an image of a layout.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// The file that says that a directory is a layout.
const MARKER: &str = "oci-layout";

/// The content of that file. Readers look at the version only.
const MARKER_CONTENT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;

const INDEX: &str = "index.json";

/// The largest file `oci-layout`.
const MAX_MARKER_BYTES: u64 = 4096;

/// How many names of images an error lists.
const LISTED_NAMES: usize = 10;

/// Why a layout could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The file or directory could not be read or written.
    #[error("could not use {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system reported.
        source: io::Error,
    },
    /// The archive could not be read or written.
    #[error("could not use the archive")]
    ArchiveIo(#[source] io::Error),
    /// It is not an image layout.
    #[error("this is not an image layout: {0}")]
    NotALayout(String),
    /// Its index is malformed.
    #[error("the index of the image layout is malformed")]
    Index(#[from] DocumentError),
    /// A blob could not be copied.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// No image has this name.
    #[error("the image layout has no image {name:?}; it has: {available}")]
    NoImage {
        /// The name.
        name: String,
        /// What there is, for a message.
        available: String,
    },
    /// There are several images, and no name was given.
    #[error("the image layout has several images; name one of: {available}")]
    SeveralImages {
        /// What there is, for a message.
        available: String,
    },
    /// There is no image.
    #[error("the image layout has no image")]
    Empty,
}

/// Where a blob is in a layout.
fn blob_path(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm().name(), digest.hex())
}

fn check_marker(content: &[u8]) -> Result<(), LayoutError> {
    let value: serde_json::Value = serde_json::from_slice(content)
        .map_err(|error| LayoutError::NotALayout(format!("{MARKER} is not JSON: {error}")))?;
    match value["imageLayoutVersion"].as_str() {
        Some(version) if version.starts_with("1.") => Ok(()),
        Some(_) | None => {
            Err(LayoutError::NotALayout(format!("{MARKER} must have imageLayoutVersion 1.0.0")))
        }
    }
}

/// The image with this name, or the only one.
fn choose<'a>(index: &'a Index, name: Option<&str>) -> Result<&'a Descriptor, LayoutError> {
    let own_name = |child: &'a Descriptor| child.annotations().get(REF_NAME).map(String::as_str);
    let available = || {
        let names: Vec<&str> = index
            .manifests()
            .iter()
            .map(|child| own_name(child).unwrap_or_else(|| child.digest().as_str()))
            .take(LISTED_NAMES)
            .collect();
        if names.is_empty() { "no image".to_owned() } else { names.join(", ") }
    };
    match (name, index.manifests()) {
        (Some(name), children) => children
            .iter()
            .find(|child| own_name(child) == Some(name) || child.digest().as_str() == name)
            .ok_or_else(|| LayoutError::NoImage {
                name: name.chars().take(200).collect(),
                available: available(),
            }),
        (None, []) => Err(LayoutError::Empty),
        // One image may have several names.
        (None, [first, rest @ ..]) if rest.iter().all(|it| it.digest() == first.digest()) => {
            Ok(first)
        }
        (None, _) => Err(LayoutError::SeveralImages { available: available() }),
    }
}

/// The index with an image under a name, which no other image has then.
fn with_image(index: &Index, image: &Descriptor, name: Option<&str>) -> Index {
    let named = match name {
        Some(name) => image.clone().with_annotation(REF_NAME, name),
        None => image.clone(),
    };
    let replaced = |child: &&Descriptor| match name {
        Some(name) => child.annotations().get(REF_NAME).is_none_or(|own| own != name),
        None => child.digest() != image.digest(),
    };
    let mut children: Vec<Descriptor> =
        index.manifests().iter().filter(replaced).cloned().collect();
    children.push(named);
    index.with_manifests(&children, &std::collections::BTreeMap::new())
}

/// Copies an image to a layout and names it there.
///
/// # Errors
///
/// [`LayoutError`]; blobs that were copied before stay.
pub fn save_image(
    source: &dyn BlobSource,
    layout: &mut Layout,
    image: &Descriptor,
    name: Option<&str>,
) -> Result<(), LayoutError> {
    crate::blob::copy_image(source, layout, image)?;
    layout.set_image(image, name)
}
