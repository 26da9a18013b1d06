//! Where blobs come from and where they go.

use std::collections::BTreeMap;
use std::io::{self, Read};

use crate::digest::{Digest, VerifyError, VerifyingReader};
use crate::manifest::{Config, Descriptor, Document, MAX_CONFIG_BYTES, MAX_DOCUMENT_BYTES};

/// How deep indexes may refer to indexes.
const MAX_INDEX_DEPTH: usize = 4;

/// Something that has the blobs of an image: a directory, an archive, memory, or a registry
/// behind a cache.
///
/// Manifests and indexes are blobs too; an implementation that keeps them elsewhere tells them by
/// the media type of the descriptor.
pub trait BlobSource {
    /// Opens the content of a descriptor. The caller verifies it; see [`open_blob`].
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is no such content, else what went wrong.
    fn open(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read + '_>>;
}

/// Something that takes the blobs of an image.
pub trait BlobSink {
    /// Whether the content is there already, so that it need not be written.
    fn contains(&self, descriptor: &Descriptor) -> bool;

    /// Writes content. It must be there either wholly and verified, or not at all.
    ///
    /// # Errors
    ///
    /// What went wrong; content that does not have the descriptor's digest and size is an error.
    fn put(&mut self, descriptor: &Descriptor, content: &mut dyn Read) -> io::Result<()>;
}

/// A blob that could not be read or written, and which.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct BlobError {
    /// The digest of the blob.
    pub digest: Digest,
    /// What went wrong.
    pub problem: BlobProblem,
}

/// What went wrong with a blob.
#[derive(Debug, thiserror::Error)]
pub enum BlobProblem {
    /// The source does not have it.
    #[error("could not find the blob {0}")]
    Missing(Digest),
    /// Its content is not what the descriptor promises.
    #[error(transparent)]
    Wrong(VerifyError),
    /// It is larger than such a blob may be.
    #[error("cannot read the blob {digest}: it has {size} bytes, and {limit} is the limit")]
    TooLarge {
        /// The digest of the blob.
        digest: Digest,
        /// Its size.
        size: u64,
        /// The most it may have.
        limit: usize,
    },
    /// Indexes refer to indexes too deeply.
    #[error("cannot copy {0}: indexes within indexes are more than {MAX_INDEX_DEPTH} deep")]
    TooDeep(Digest),
    /// The document could not be understood.
    #[error(transparent)]
    Document(#[from] crate::manifest::DocumentError),
    /// The medium failed.
    #[error("could not read or write the blob {digest}")]
    Io {
        /// The digest of the blob.
        digest: Digest,
        /// What the medium reported.
        source: io::Error,
    },
}

impl BlobError {
    pub(crate) fn new(descriptor: &Descriptor, problem: BlobProblem) -> Self {
        Self { digest: descriptor.digest().clone(), problem }
    }

    pub(crate) fn io(descriptor: &Descriptor, source: io::Error) -> Self {
        let digest = descriptor.digest().clone();
        if let Some(wrong) = source.get_ref().and_then(|it| it.downcast_ref::<VerifyError>()) {
            return Self::new(descriptor, BlobProblem::Wrong(wrong.clone()));
        }
        let problem = match source.kind() {
            io::ErrorKind::NotFound => BlobProblem::Missing(digest),
            _ => BlobProblem::Io { digest, source },
        };
        Self::new(descriptor, problem)
    }
}

/// Opens content that is verified while it is read.
///
/// # Errors
///
/// [`BlobError`] if the source does not have it.
pub fn open_blob<'a>(
    source: &'a dyn BlobSource,
    descriptor: &Descriptor,
) -> Result<VerifyingReader<Box<dyn Read + 'a>>, BlobError> {
    let reader = source.open(descriptor).map_err(|error| BlobError::io(descriptor, error))?;
    Ok(VerifyingReader::new(reader, descriptor.digest().clone(), descriptor.size()))
}

/// Reads and verifies a whole blob of at most `limit` bytes.
///
/// # Errors
///
/// [`BlobError`] if it is missing, wrong or too large.
pub fn read_blob(
    source: &dyn BlobSource,
    descriptor: &Descriptor,
    limit: usize,
) -> Result<Vec<u8>, BlobError> {
    if usize::try_from(descriptor.size()).map_or(true, |size| size > limit) {
        let (digest, size) = (descriptor.digest().clone(), descriptor.size());
        return Err(BlobError::new(descriptor, BlobProblem::TooLarge { digest, size, limit }));
    }
    let mut content = Vec::new();
    open_blob(source, descriptor)?
        .read_to_end(&mut content)
        .map_err(|error| BlobError::io(descriptor, error))?;
    Ok(content)
}

/// Reads and verifies a manifest or an index.
///
/// # Errors
///
/// [`BlobError`] if it cannot be read or understood.
pub fn read_document(
    source: &dyn BlobSource,
    descriptor: &Descriptor,
) -> Result<Document, BlobError> {
    let bytes = read_blob(source, descriptor, MAX_DOCUMENT_BYTES)?;
    Document::parse(&bytes, Some(descriptor.media_type()))
        .map_err(|error| BlobError::new(descriptor, error.into()))
}

/// Reads and verifies the configuration of an image.
///
/// # Errors
///
/// [`BlobError`] if it cannot be read or understood.
pub fn read_config(source: &dyn BlobSource, descriptor: &Descriptor) -> Result<Config, BlobError> {
    let bytes = read_blob(source, descriptor, MAX_CONFIG_BYTES)?;
    Config::parse(&bytes).map_err(|error| BlobError::new(descriptor, error.into()))
}

/// Lists a document and all it refers to, each blob once, in the order in which a registry
/// accepts them: layers and configurations, manifests, indexes.
///
/// # Errors
///
/// [`BlobError`] if a document cannot be read.
pub fn list_blobs(
    source: &dyn BlobSource,
    root: &Descriptor,
) -> Result<Vec<Descriptor>, BlobError> {
    let mut listed = Vec::new();
    let mut digests = std::collections::BTreeSet::new();
    list_into(source, root, 0, &mut listed, &mut digests)?;
    Ok(listed)
}

fn list_into(
    source: &dyn BlobSource,
    descriptor: &Descriptor,
    depth: usize,
    listed: &mut Vec<Descriptor>,
    digests: &mut std::collections::BTreeSet<Digest>,
) -> Result<(), BlobError> {
    if depth > MAX_INDEX_DEPTH {
        let problem = BlobProblem::TooDeep(descriptor.digest().clone());
        return Err(BlobError::new(descriptor, problem));
    }
    // An index cannot refer to itself, but two may refer to the same image.
    if !digests.insert(descriptor.digest().clone()) {
        return Ok(());
    }
    if descriptor.media_type().is_manifest() || descriptor.media_type().is_index() {
        match read_document(source, descriptor)? {
            Document::Manifest(manifest) => {
                for blob in manifest.layers().iter().chain([manifest.config()]) {
                    if digests.insert(blob.digest().clone()) {
                        listed.push(blob.clone());
                    }
                }
            }
            Document::Index(index) => {
                for child in index.manifests() {
                    list_into(source, child, depth + 1, listed, digests)?;
                }
            }
        }
    }
    listed.push(descriptor.clone());
    Ok(())
}

/// Copies a document and all it refers to.
///
/// # Errors
///
/// [`BlobError`] names the blob that could not be copied. What was copied before stays.
pub fn copy_image(
    source: &dyn BlobSource,
    sink: &mut dyn BlobSink,
    root: &Descriptor,
) -> Result<(), BlobError> {
    for blob in list_blobs(source, root)? {
        if sink.contains(&blob) {
            continue;
        }
        let mut reader = open_blob(source, &blob)?;
        sink.put(&blob, &mut reader).map_err(|error| BlobError::io(&blob, error))?;
    }
    Ok(())
}

pub(crate) fn put_bytes(
    sink: &mut dyn BlobSink,
    descriptor: &Descriptor,
    mut content: &[u8],
) -> Result<(), BlobError> {
    if sink.contains(descriptor) {
        return Ok(());
    }
    sink.put(descriptor, &mut content).map_err(|error| BlobError::io(descriptor, error))
}

/// Blobs in memory, for new blobs that are sent on and for tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryBlobs {
    blobs: BTreeMap<Digest, Vec<u8>>,
}

impl MemoryBlobs {
    /// The content with this digest.
    #[must_use]
    pub fn get(&self, digest: &Digest) -> Option<&[u8]> {
        self.blobs.get(digest).map(Vec::as_slice)
    }

    /// Adds content under its SHA-256 digest.
    pub fn insert(&mut self, content: Vec<u8>) -> Digest {
        let digest = Digest::sha256(&content);
        self.blobs.insert(digest.clone(), content);
        digest
    }

    /// All blobs, by digest.
    pub fn iter(&self) -> impl Iterator<Item = (&Digest, &[u8])> {
        self.blobs.iter().map(|(digest, content)| (digest, content.as_slice()))
    }
}

impl BlobSource for MemoryBlobs {
    fn open(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        match self.get(descriptor.digest()) {
            Some(content) => Ok(Box::new(content)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl BlobSink for MemoryBlobs {
    fn contains(&self, descriptor: &Descriptor) -> bool {
        self.blobs.contains_key(descriptor.digest())
    }

    fn put(&mut self, descriptor: &Descriptor, content: &mut dyn Read) -> io::Result<()> {
        let digest = descriptor.digest();
        let mut bytes = Vec::new();
        VerifyingReader::new(content, digest.clone(), descriptor.size()).read_to_end(&mut bytes)?;
        self.blobs.insert(digest.clone(), bytes);
        Ok(())
    }
}

/// Two sources as one: what the first does not have comes from the second.
#[derive(Clone, Copy, Debug)]
pub struct Layered<A, B>(pub A, pub B);

impl<A: BlobSource, B: BlobSource> BlobSource for Layered<&A, &B> {
    fn open(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        match self.0.open(descriptor) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.1.open(descriptor),
            result => result,
        }
    }
}
