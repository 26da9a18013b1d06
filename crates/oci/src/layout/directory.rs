//! A layout as a directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{
    INDEX, LayoutError, MARKER, MARKER_CONTENT, MAX_MARKER_BYTES, blob_path, check_marker, choose,
    with_image,
};
use crate::blob::{BlobSink, BlobSource};
use crate::digest::VerifyingReader;
use crate::manifest::{Descriptor, Index, MAX_DOCUMENT_BYTES};
use crate::media_type::{Family, MediaType};

/// An image layout in a directory.
#[derive(Debug)]
pub struct Layout {
    root: PathBuf,
    index: Index,
}

impl Layout {
    /// Opens a layout.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] if the directory is not one.
    pub fn open(root: &Path) -> Result<Self, LayoutError> {
        let marker = match read_file(&root.join(MARKER), MAX_MARKER_BYTES) {
            Err(LayoutError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let why = format!("{} has no file {MARKER}", root.display());
                return Err(LayoutError::NotALayout(why));
            }
            result => result?,
        };
        check_marker(&marker)?;
        let bytes = read_file(&root.join(INDEX), MAX_DOCUMENT_BYTES as u64)?;
        let index = Index::parse(&bytes, Some(&MediaType::OciIndex))?;
        Ok(Self { root: root.to_owned(), index })
    }

    /// Opens a layout, or makes an empty one in a directory that has none.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] if the directory cannot be made, or has a layout that is malformed.
    pub fn create(root: &Path) -> Result<Self, LayoutError> {
        if root.join(MARKER).exists() {
            return Self::open(root);
        }
        let blobs = root.join("blobs");
        fs::create_dir_all(&blobs).map_err(|source| LayoutError::Io { path: blobs, source })?;
        let layout =
            Self { root: root.to_owned(), index: Index::new(Family::Oci, &[], &BTreeMap::new()) };
        layout.write(INDEX, layout.index.bytes())?;
        // Last: without it the directory is no layout.
        layout.write(MARKER, MARKER_CONTENT.as_bytes())?;
        Ok(layout)
    }

    /// The images.
    #[must_use]
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// The image with this name or digest, or the only one.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] if there is none, or several and no name.
    pub fn image(&self, name: Option<&str>) -> Result<&Descriptor, LayoutError> {
        choose(&self.index, name)
    }

    /// Names an image whose blobs are there, in place of the one that had this name.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Io`] if the index cannot be written.
    pub fn set_image(&mut self, image: &Descriptor, name: Option<&str>) -> Result<(), LayoutError> {
        let index = with_image(&self.index, image, name);
        self.write(INDEX, index.bytes())?;
        self.index = index;
        Ok(())
    }

    fn path(&self, descriptor: &Descriptor) -> PathBuf {
        self.root.join(blob_path(descriptor.digest()))
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), LayoutError> {
        let path = self.root.join(name);
        replace(&path, &mut &*content).map_err(|source| LayoutError::Io { path, source })
    }
}

impl BlobSource for Layout {
    fn open(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(File::open(self.path(descriptor))?))
    }
}

impl BlobSink for Layout {
    fn contains(&self, descriptor: &Descriptor) -> bool {
        // A file of this size was put there whole, by rename.
        fs::metadata(self.path(descriptor)).is_ok_and(|file| file.len() == descriptor.size())
    }

    fn put(&mut self, descriptor: &Descriptor, content: &mut dyn Read) -> io::Result<()> {
        let path = self.path(descriptor);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let digest = descriptor.digest().clone();
        replace(&path, &mut VerifyingReader::new(content, digest, descriptor.size()))
    }
}

fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, LayoutError> {
    let read = || {
        let mut content = Vec::new();
        File::open(path)?.take(limit + 1).read_to_end(&mut content)?;
        if content.len() as u64 > limit {
            return Err(io::Error::other(format!("it is larger than {limit} bytes")));
        }
        Ok(content)
    };
    read().map_err(|source| LayoutError::Io { path: path.to_owned(), source })
}

/// Writes a file beside the one it replaces, so that readers see the old or the new one whole.
fn replace(path: &Path, content: &mut dyn Read) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    let written = File::create(&partial).and_then(|mut file| {
        io::copy(content, &mut file)?;
        file.sync_all()
    });
    match written.and_then(|()| fs::rename(&partial, path)) {
        Ok(()) => Ok(()),
        Err(error) => {
            // The error that matters is the first one.
            let _ = fs::remove_file(&partial);
            Err(error)
        }
    }
}
