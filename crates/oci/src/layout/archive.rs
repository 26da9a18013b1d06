//! A layout as a tar.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, PoisonError};

use super::docker_archive::{self, ArchiveFiles, DockerImages};
use super::{
    INDEX, LayoutError, MARKER, MARKER_CONTENT, MAX_MARKER_BYTES, blob_path, check_marker, choose,
    with_image,
};
use crate::blob::{BlobError, BlobSource, MemoryBlobs, list_blobs, open_blob};
use crate::digest::Digest;
use crate::layer::{Attributes, LayerProblem, TarIndex, write_header};
use crate::manifest::{Descriptor, Index, MAX_DOCUMENT_BYTES};
use crate::media_type::{Family, MediaType};

/// Images in a tar, of which any part can be read: an image layout, or what `docker save` writes.
#[derive(Debug)]
pub struct Archive<R> {
    files: Files<R>,
    index: Index,
    /// Documents that the tar does not have.
    documents: MemoryBlobs,
    /// Where blobs are that do not have the names of a layout, and their sizes.
    blobs: BTreeMap<Digest, (u64, u64)>,
}

/// The files of the tar.
#[derive(Debug)]
struct Files<R> {
    reader: Mutex<R>,
    /// Where the content of each file is, and its size.
    places: TarIndex,
}

impl<R: Read + Seek> Archive<R> {
    /// Reads the names of a tar, and the list of images in it.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] if it is malformed, compressed, or has no images.
    pub fn open(mut reader: R) -> Result<Self, LayoutError> {
        let places = TarIndex::read(&mut reader).map_err(|problem| match problem {
            LayerProblem::Io(error) => LayoutError::ArchiveIo(error),
            other => LayoutError::NotALayout(other.to_string()),
        })?;
        let files = Files { reader: Mutex::new(reader), places };
        // Newer versions of Docker write both; then the layout has more.
        if files.place(MARKER).is_none() && files.place(docker_archive::MANIFEST).is_some() {
            let list = files.read(docker_archive::MANIFEST, MAX_DOCUMENT_BYTES as u64)?;
            let DockerImages { index, documents, blobs } = docker_archive::read(&list, &files)?;
            return Ok(Self { files, index, documents, blobs });
        }
        check_marker(&files.read(MARKER, MAX_MARKER_BYTES)?)?;
        let bytes = files.read(INDEX, MAX_DOCUMENT_BYTES as u64)?;
        let index = Index::parse(&bytes, Some(&MediaType::OciIndex))?;
        Ok(Self { files, index, documents: MemoryBlobs::default(), blobs: BTreeMap::new() })
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
}

impl<R: Read + Seek> ArchiveFiles for Files<R> {
    fn place(&self, name: &str) -> Option<(u64, u64)> {
        self.places.get(name.as_bytes())
    }

    fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, LayoutError> {
        let place = self.place(name);
        let place =
            place.ok_or_else(|| LayoutError::NotALayout(format!("it has no file {name}")))?;
        if place.1 > limit {
            let why = format!("{name} is larger than {limit} bytes");
            return Err(LayoutError::NotALayout(why));
        }
        let mut content = Vec::new();
        self.section(place).read_to_end(&mut content).map_err(LayoutError::ArchiveIo)?;
        Ok(content)
    }
}

impl<R> Files<R> {
    fn section(&self, (position, left): (u64, u64)) -> Section<'_, R> {
        Section { reader: &self.reader, position, left }
    }
}

impl<R: Read + Seek> BlobSource for Archive<R> {
    fn open(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        let digest = descriptor.digest();
        if let Some(content) = self.documents.get(digest) {
            return Ok(Box::new(content));
        }
        let named = || self.files.place(&blob_path(digest));
        match self.blobs.get(digest).copied().or_else(named) {
            Some(place) => Ok(Box::new(self.files.section(place))),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// One file of the archive. Several may be read in turn.
struct Section<'a, R> {
    reader: &'a Mutex<R>,
    position: u64,
    left: u64,
}

impl<R: Read + Seek> Read for Section<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // A reader that panicked is moved to the right place again.
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
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
        let named = self.files.places.names().filter_map(|name| {
            let rest = std::str::from_utf8(name).ok()?.strip_prefix("blobs/")?;
            rest.replacen('/', ":", 1).parse().ok()
        });
        let documents = self.documents.iter().map(|(digest, _)| digest);
        named.chain(documents.chain(self.blobs.keys()).cloned())
    }
}
