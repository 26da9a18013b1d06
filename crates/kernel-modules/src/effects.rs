//! Images in registries: their blobs for code that reads synchronously, and pushing what is new.

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;
use gantry_oci::blob::Layered;
use gantry_oci::{
    BlobError, BlobSource, Descriptor, Document, DocumentError, MemoryBlobs, Reference, Repository,
};
use gantry_registry::{
    BlobPush, BlobReader, Client, FileSource, ReadFuture, RegistryError,
};
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
        let pull =
            self.client.pull_blob(&self.repository, descriptor.digest(), descriptor.size());
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

/// Pushes an image whose new blobs are in memory and whose other blobs are in another repository:
/// blobs first, the document that the reference names last.
///
/// Blobs that the registry has are not sent, and those of the same registry are mounted.
///
/// # Errors
/// [`PushError`]; the reference then leads to what it led to before.
pub async fn push_image(
    client: &Client,
    to: &Reference,
    document: &Document,
    new_blobs: &MemoryBlobs,
    base: &RegistryBlobs,
) -> Result<(), PushError> {
    let (root, new, old) = (document.descriptor(), new_blobs.clone(), base.clone());
    let list = move || gantry_oci::blob::list_blobs(&Layered(&new, &old), &root);
    let listed = tokio::task::spawn_blocking(list).await??;
    let repository = to.repository();
    let mount_from = [base.repository.clone()];
    for blob in &listed {
        let is_document = blob.media_type().is_manifest() || blob.media_type().is_index();
        let content = new_blobs.get(blob.digest()).map(Bytes::copy_from_slice);
        if is_document {
            let is_root = blob.digest() == document.descriptor().digest();
            let name = match is_root {
                true => to.clone(),
                false => to.at_digest(blob.digest().clone()),
            };
            let bytes = match (content, is_root) {
                (Some(bytes), _) => bytes,
                (None, true) => Bytes::copy_from_slice(document.bytes()),
                (None, false) => {
                    let digest = Some(blob.digest().clone());
                    let from = Reference::new(base.repository.clone(), None, digest);
                    base.client.pull_manifest(&from).await?.bytes
                }
            };
            client.push_manifest(&name, blob.media_type(), bytes).await?;
            continue;
        }
        let spooled;
        let source: &dyn gantry_registry::BlobSource = match &content {
            Some(bytes) => bytes,
            None => {
                spooled = SpooledBlob { base, blob, file: OnceCell::new() };
                &spooled
            }
        };
        let push = BlobPush {
            repository,
            digest: blob.digest(),
            size: blob.size(),
            source,
            mount_from: &mount_from,
        };
        client.push_blob(push).await?;
    }
    Ok(())
}

/// A blob of another registry. It is pulled into a temporary file only if it has to be sent.
struct SpooledBlob<'a> {
    base: &'a RegistryBlobs,
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
        let RegistryBlobs { client, repository, .. } = self.base;
        let (digest, size) = (self.blob.digest(), self.blob.size());
        let mut reader = client.pull_blob(repository, digest, size).await.map_err(to_io)?;
        let file = tempfile::tempfile()?;
        let mut writer = tokio::fs::File::from_std(file.try_clone()?);
        while let Some(piece) = reader.chunk().await.map_err(to_io)? {
            tokio::io::AsyncWriteExt::write_all(&mut writer, &piece).await?;
        }
        tokio::io::AsyncWriteExt::flush(&mut writer).await?;
        Ok(FileSource::new(file))
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
