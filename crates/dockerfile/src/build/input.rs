//! What a build reads: files of the context, and base images.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use gantry_oci::{BlobSource, Config, Manifest, Platform, Reference};

/// The files that `COPY` and `ADD` find.
pub trait BuildContext {
    /// The paths of all files, relative and without `..`.
    ///
    /// # Errors
    ///
    /// What went wrong.
    fn paths(&self) -> io::Result<Vec<String>>;

    /// Reads a file of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// What went wrong; a larger file is an error.
    fn read(&self, path: &str, limit: u64) -> io::Result<ContextFile>;
}

/// A file of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFile {
    /// Its content.
    pub content: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
}

/// A context in memory, such as the data of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryContext {
    files: BTreeMap<String, ContextFile>,
}

impl MemoryContext {
    /// Adds a file that all may read.
    #[must_use]
    pub fn with(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        let file = ContextFile { content: content.into(), mode: 0o644 };
        self.files.insert(path.to_owned(), file);
        self
    }
}

impl BuildContext for MemoryContext {
    fn paths(&self) -> io::Result<Vec<String>> {
        Ok(self.files.keys().cloned().collect())
    }

    fn read(&self, path: &str, limit: u64) -> io::Result<ContextFile> {
        let file = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        if file.content.len() as u64 > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(file.clone())
    }
}

/// Opens base images.
pub trait BaseImages {
    /// Opens the image of a reference for a platform.
    ///
    /// # Errors
    ///
    /// [`BaseImageError`] says why it cannot be used.
    fn open(
        &self,
        reference: &Reference,
        platform: &Platform,
    ) -> Result<BaseImage<'_>, BaseImageError>;
}

/// A base image.
pub struct BaseImage<'a> {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its configuration.
    pub config: Config,
    /// Where its layers are.
    pub source: Box<dyn BlobSource + 'a>,
}

impl fmt::Debug for BaseImage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BaseImage").field("digest", self.manifest.digest()).finish_non_exhaustive()
    }
}

/// Why a base image cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BaseImageError {
    /// There is no such image.
    #[error("no such image")]
    NotFound,
    /// It cannot be reached or read.
    #[error("{0}")]
    Unavailable(String),
}

/// What is done with base images that cannot be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingBases {
    /// The build fails.
    #[default]
    Refuse,
    /// An empty image takes its place, and the log says so.
    Empty,
}

/// Has no base image at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBaseImages;

impl BaseImages for NoBaseImages {
    fn open(&self, _: &Reference, _: &Platform) -> Result<BaseImage<'_>, BaseImageError> {
        Err(BaseImageError::NotFound)
    }
}
