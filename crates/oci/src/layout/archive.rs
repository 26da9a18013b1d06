//! A layout as a tar.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek, SeekFrom, Write};

use super::{
    INDEX, LayoutError, MARKER, MARKER_CONTENT, MAX_MARKER_BYTES, blob_path, check_marker, choose,
    with_image,
};
use crate::blob::{BlobError, BlobSource, list_blobs, open_blob};
use crate::digest::Digest;
use crate::layer::{Attributes, LayerProblem, TarIndex, write_header};
use crate::manifest::{Descriptor, Index, MAX_DOCUMENT_BYTES};
use crate::media_type::{Family, MediaType};

/// An image layout in a tar, of which any part can be read.
#[derive(Debug)]
pub struct Archive<R> {
    reader: RefCell<R>,
    /// Where the content of each file is, and its size.
    files: TarIndex,
    index: Index,
}

impl<R: Read + Seek> Archive<R> {
    /// Reads the names of a tar, and the index of the layout in it.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] if it is malformed, compressed, or not a layout.
    pub fn open(mut reader: R) -> Result<Self, LayoutError> {
        let files = TarIndex::read(&mut reader).map_err(|problem| match problem {
            LayerProblem::Io(error) => LayoutError::ArchiveIo(error),
            other => LayoutError::NotALayout(other.to_string()),
        })?;
        let empty = Index::new(Family::Oci, &[], &BTreeMap::new());
        let mut archive = Self { reader: RefCell::new(reader), files, index: empty };
        check_marker(&archive.file(MARKER, MAX_MARKER_BYTES)?)?;
        let bytes = archive.file(INDEX, MAX_DOCUMENT_BYTES as u64)?;
        archive.index = Index::parse(&bytes, Some(&MediaType::OciIndex))?;
        Ok(archive)
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

    fn file(&self, name: &str, limit: u64) -> Result<Vec<u8>, LayoutError> {
        let mut section = self
            .section(name)
            .ok_or_else(|| LayoutError::NotALayout(format!("it has no file {name}")))?;
        if section.left > limit {
            let why = format!("{name} is larger than {limit} bytes");
            return Err(LayoutError::NotALayout(why));
        }
        let mut content = Vec::new();
        section.read_to_end(&mut content).map_err(LayoutError::ArchiveIo)?;
        Ok(content)
    }

    fn section(&self, name: &str) -> Option<Section<'_, R>> {
        let (position, left) = self.files.get(name.as_bytes())?;
        Some(Section { reader: &self.reader, position, left })
    }
}

impl<R: Read + Seek> BlobSource for Archive<R> {
    fn open(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        match self.section(&blob_path(descriptor.digest())) {
            Some(section) => Ok(Box::new(section)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// One file of the archive. Several may be read in turn.
struct Section<'a, R> {
    reader: &'a RefCell<R>,
    position: u64,
    left: u64,
}

impl<R: Read + Seek> Read for Section<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut reader = self.reader.borrow_mut();
        reader.seek(SeekFrom::Start(self.position))?;
        let count = (&mut *reader).take(self.left).read(buffer)?;
        self.position += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Writes an image as a tar. The same image and name give the same bytes.
///
/// # Errors
///
/// [`LayoutError`] if a blob cannot be read, or the tar cannot be written.
pub fn write_archive(
    source: &dyn BlobSource,
    image: &Descriptor,
    name: Option<&str>,
    out: &mut dyn Write,
) -> Result<(), LayoutError> {
    let mut blobs = list_blobs(source, image)?;
    blobs.sort_by(|a, b| a.digest().cmp(b.digest()));
    let index = with_image(&Index::new(Family::Oci, &[], &BTreeMap::new()), image, name);
    let algorithms: BTreeSet<&str> =
        blobs.iter().map(|blob| blob.digest().algorithm().name()).collect();
    let attributes = |mode| Attributes { mode, ..Attributes::default() };
    let io = LayoutError::ArchiveIo;
    let mut directories = vec!["blobs/".to_owned()];
    directories.extend(algorithms.iter().map(|algorithm| format!("blobs/{algorithm}/")));
    for directory in directories {
        write_header(out, b'5', directory.as_bytes(), b"", 0, &attributes(0o755)).map_err(io)?;
    }
    for blob in &blobs {
        let path = blob_path(blob.digest());
        write_header(out, b'0', path.as_bytes(), b"", blob.size(), &attributes(0o644))
            .map_err(io)?;
        let mut reader = open_blob(source, blob)?;
        let copied = io::copy(&mut reader, out).map_err(|error| BlobError::io(blob, error))?;
        pad(out, copied).map_err(io)?;
    }
    for (name, content) in [(INDEX, index.bytes()), (MARKER, MARKER_CONTENT.as_bytes())] {
        let size = content.len() as u64;
        write_header(out, b'0', name.as_bytes(), b"", size, &attributes(0o644)).map_err(io)?;
        out.write_all(content).map_err(io)?;
        pad(out, size).map_err(io)?;
    }
    out.write_all(&[0; 1024]).map_err(io)?;
    out.flush().map_err(io)
}

fn pad(out: &mut dyn Write, size: u64) -> io::Result<()> {
    let padding = usize::try_from(size.next_multiple_of(512) - size).unwrap_or(0);
    out.write_all(&[0; 512][..padding])
}

impl<R> Archive<R> {
    /// The digests of all blobs, also of those that no image uses.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        self.files.names().filter_map(|name| {
            let rest = std::str::from_utf8(name).ok()?.strip_prefix("blobs/")?;
            rest.replacen('/', ":", 1).parse().ok()
        })
    }
}
