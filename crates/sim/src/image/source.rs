//! Images of a registry whose content can be read here.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_oci::blob::{read_config, read_document};
use gantry_oci::{BlobSource, Digest, Document, Manifest, Platform, Reference};

use super::{ImageFiles, ImagePull, ImagePullError, ImageTree};
use crate::programs::BoxFuture;

/// How many trees of images are kept. One of the largest takes some tens of megabytes.
const MAX_CACHED_TREES: usize = 8;

/// The architecture of simulated nodes.
const ARCHITECTURE: &str = "amd64";

/// A registry whose content can be read here. Its methods may block.
pub trait ImageSource: Send + Sync + fmt::Debug + 'static {
    /// Finds an image, after checking that the pod may pull it.
    ///
    /// # Errors
    /// There is no such image, the pod may not pull it, or it cannot be read.
    fn resolve(
        &self,
        pull: &ImagePull,
        reference: &Reference,
    ) -> Result<ResolvedImage, ImagePullError>;
}

/// An image that was found.
pub struct ResolvedImage {
    /// Its manifest, or an index with one for each platform.
    pub document: Document,
    /// Where its content is.
    pub blobs: Arc<dyn BlobSource + Send + Sync>,
}

impl fmt::Debug for ResolvedImage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ResolvedImage({})", self.document.digest())
    }
}

/// The images of a registry. Clones share their cache.
#[derive(Clone, Debug)]
pub struct RegistryImages {
    source: Arc<dyn ImageSource>,
    /// By the digest of the manifest, the last used at the end.
    trees: Arc<Mutex<CachedTrees>>,
}

type CachedTrees = VecDeque<(Digest, Arc<ImageTree>)>;

impl RegistryImages {
    /// Creates images that are read from a source.
    #[must_use]
    pub fn new(source: impl ImageSource) -> Self {
        Self { source: Arc::new(source), trees: Arc::default() }
    }

    fn resolve_blocking(&self, pull: &ImagePull) -> Result<ResolvedImage, ImagePullError> {
        let reference: Reference = pull.image.parse().map_err(|error| failed(&error))?;
        self.source.resolve(pull, &reference)
    }

    fn open_blocking(&self, pull: &ImagePull) -> Result<Arc<ImageTree>, ImagePullError> {
        let ResolvedImage { document, blobs } = self.resolve_blocking(pull)?;
        let manifest = manifest_for_node(document, &*blobs)?;
        let digest = manifest.digest().clone();
        if let Some(tree) = self.cached(&digest) {
            return Ok(tree);
        }
        let config = read_config(&*blobs, manifest.config()).map_err(|error| failed(&error))?;
        let tree = ImageTree::read(blobs, manifest, config).map_err(|error| failed(&error))?;
        let tree = Arc::new(tree);
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        if trees.len() == MAX_CACHED_TREES {
            trees.pop_front();
        }
        trees.push_back((digest, Arc::clone(&tree)));
        Ok(tree)
    }

    fn cached(&self, digest: &Digest) -> Option<Arc<ImageTree>> {
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        let at = trees.iter().position(|(known, _)| known == digest)?;
        let found = trees.remove(at)?;
        let tree = Arc::clone(&found.1);
        trees.push_back(found);
        Some(tree)
    }
}

/// Returns the manifest that a simulated node runs.
fn manifest_for_node(
    document: Document,
    blobs: &dyn BlobSource,
) -> Result<Manifest, ImagePullError> {
    let index = match document {
        Document::Manifest(manifest) => return Ok(manifest),
        Document::Index(index) => index,
    };
    let machine = Platform::linux(ARCHITECTURE).map_err(|error| failed(&error))?;
    let chosen = index.choose(&machine).map_err(|error| failed(&error))?;
    match read_document(blobs, chosen).map_err(|error| failed(&error))? {
        Document::Manifest(manifest) => Ok(manifest),
        Document::Index(_) => {
            Err(ImagePullError::Failed("an index refers to another index".to_owned()))
        }
    }
}

fn failed(error: &dyn std::error::Error) -> ImagePullError {
    ImagePullError::Failed(gantry_process::error_chain(error))
}

/// Runs what blocks where it blocks nothing else. It may be dropped: what runs ends by itself.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImagePullError> + Send + 'static,
) -> Result<T, ImagePullError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ImagePullError::Failed(error.to_string())))
}

impl ImageFiles for RegistryImages {
    fn resolve<'a>(&'a self, pull: &'a ImagePull) -> BoxFuture<'a, Result<String, ImagePullError>> {
        let (images, pull) = (self.clone(), pull.clone());
        Box::pin(blocking(move || {
            Ok(images.resolve_blocking(&pull)?.document.digest().to_string())
        }))
    }

    fn open<'a>(
        &'a self,
        pull: &'a ImagePull,
    ) -> BoxFuture<'a, Result<Arc<ImageTree>, ImagePullError>> {
        let (images, pull) = (self.clone(), pull.clone());
        Box::pin(blocking(move || images.open_blocking(&pull)))
    }
}
