//! Images in registries: their blobs for code that reads synchronously, and pushing what is new.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use gantry_oci::blob::open_blob;
use gantry_oci::{
    BlobError, BlobSource, Descriptor, Digest, Document, DocumentError, MemoryBlobs, Reference,
    Repository,
};
use gantry_registry::{BlobPush, BlobReader, Client, FileSource, ReadFuture, RegistryError};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

/// An image in a registry.
#[derive(Debug)]
pub struct RegistryImage {
    /// The manifest or index that the reference leads to.
    pub document: Document,
    /// The blobs of its repository.
    pub blobs: RegistryBlobs,
}

/// The blobs of one repository. They are read synchronously, on a thread that may block.
#[derive(Clone, Debug)]
pub struct RegistryBlobs {
    client: Client,
    repository: Repository,
    runtime: Handle,
}

/// Why an image could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry refused or failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// What it returned is no manifest.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

/// Why an image could not be pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The registry refused or failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A document of the image could not be read.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A blob could not be read, or not be written to a temporary file.
    #[error("could not read {0} to send it")]
    Spool(Digest, #[source] io::Error),
    /// The work was ended.
    #[error("could not list the blobs of the image")]
    Ended(#[from] tokio::task::JoinError),
}

/// Pulls the manifest or index of an image. Its blobs are pulled when they are read.
///
/// # Errors
/// [`PullError`].
pub async fn open_image(client: &Client, image: &Reference) -> Result<RegistryImage, PullError> {
    let pulled = client.pull_manifest(image).await?;
    let document = Document::parse(&pulled.bytes, Some(&pulled.media_type))?;
    let blobs = RegistryBlobs {
        client: client.clone(),
        repository: image.repository().clone(),
        runtime: Handle::current(),
    };
    Ok(RegistryImage { document, blobs })
}

impl BlobSource for RegistryBlobs {
    fn open(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        if descriptor.media_type().is_manifest() || descriptor.media_type().is_index() {
            let digest = Some(descriptor.digest().clone());
            let image = Reference::new(self.repository.clone(), None, digest);
            let pulled = self.runtime.block_on(self.client.pull_manifest(&image));
            return Ok(Box::new(io::Cursor::new(pulled.map_err(to_io)?.bytes)));
        }
        let pull = self.client.pull_blob(&self.repository, descriptor.digest(), descriptor.size());
        let reader = self.runtime.block_on(pull).map_err(to_io)?;
        let runtime = self.runtime.clone();
        Ok(Box::new(SynchronousReader { reader, piece: Bytes::new(), runtime }))
    }
}

/// Reads a blob that is being pulled.
struct SynchronousReader {
    reader: BlobReader,
    piece: Bytes,
    runtime: Handle,
}

impl Read for SynchronousReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.runtime.block_on(self.reader.chunk()).map_err(to_io)? {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = self.piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

fn to_io(error: RegistryError) -> io::Error {
    match error {
        error @ RegistryError::NotFound { .. } => io::Error::new(io::ErrorKind::NotFound, error),
        error => io::Error::other(error),
    }
}

/// Blobs that any thread may read.
pub type SharedBlobs = Arc<dyn BlobSource + Send + Sync>;

/// Pushes an image: its blobs first, the manifest or index that the reference names last.
///
/// Blobs that the registry has are not sent. Those that one of the repositories `mount_from` of the
/// same registry has are mounted.
///
/// # Errors
/// [`PushError`]; the reference then leads to what it led to before.
pub async fn push_image(
    client: &Client,
    to: &Reference,
    root: &Descriptor,
    blobs: &SharedBlobs,
    mount_from: &[Repository],
) -> Result<(), PushError> {
    let (all, listed) = (Arc::clone(blobs), root.clone());
    let list = move || gantry_oci::blob::list_blobs(&*all, &listed);
    for blob in tokio::task::spawn_blocking(list).await?? {
        let spooled = SpooledBlob { blobs, blob: &blob, file: OnceCell::new() };
        if blob.media_type().is_manifest() || blob.media_type().is_index() {
            let name = match blob.digest() == root.digest() {
                true => to.clone(),
                false => to.at_digest(blob.digest().clone()),
            };
            let size = usize::try_from(blob.size()).unwrap_or(usize::MAX);
            let bytes = gantry_registry::BlobSource::read(&spooled, 0, size).await;
            let bytes = bytes.map_err(|error| PushError::Spool(blob.digest().clone(), error))?;
            client.push_manifest(&name, blob.media_type(), bytes).await?;
            continue;
        }
        let push = BlobPush {
            repository: to.repository(),
            digest: blob.digest(),
            size: blob.size(),
            source: &spooled,
            mount_from,
        };
        client.push_blob(push).await?;
    }
    Ok(())
}

/// The blobs of a changed image: new ones from memory, the others from the image it was made of.
pub struct ImageBlobs {
    /// The new blobs.
    pub new: MemoryBlobs,
    /// The other ones.
    pub base: SharedBlobs,
}

impl fmt::Debug for ImageBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageBlobs").field("new", &self.new).finish_non_exhaustive()
    }
}

impl BlobSource for ImageBlobs {
    fn open(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        match self.new.open(descriptor) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.base.open(descriptor),
            opened => opened,
        }
    }
}

/// A blob that is copied to a temporary file only if it has to be sent.
struct SpooledBlob<'a> {
    blobs: &'a SharedBlobs,
    blob: &'a Descriptor,
    file: OnceCell<FileSource>,
}

impl fmt::Debug for SpooledBlob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpooledBlob").field(self.blob.digest()).finish()
    }
}

impl SpooledBlob<'_> {
    async fn spool(&self) -> io::Result<FileSource> {
        let (blobs, blob) = (Arc::clone(self.blobs), self.blob.clone());
        let spool = move || {
            let mut reader = open_blob(&*blobs, &blob).map_err(io::Error::other)?;
            let mut file = tempfile::tempfile()?;
            io::copy(&mut reader, &mut file)?;
            Ok(FileSource::new(file))
        };
        tokio::task::spawn_blocking(spool).await.map_err(io::Error::other)?
    }
}

impl gantry_registry::BlobSource for SpooledBlob<'_> {
    fn read(&self, offset: u64, length: usize) -> ReadFuture<'_> {
        Box::pin(async move {
            let file = self.file.get_or_try_init(|| self.spool()).await?;
            file.read(offset, length).await
        })
    }
}
