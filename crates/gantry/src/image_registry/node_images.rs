//! The images of the embedded registry, as simulated nodes pull them.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;

use gantry_apiserver::{Api, Caller};
use gantry_oci::{BlobSource, Descriptor, Document, MediaType, Reference, Tag};
use gantry_registry::{RepositoryName, StorageError};
use gantry_sim::effects::PulledImages;
use gantry_sim::image::{ImagePull, ImagePullError, ImageSource, RegistryImages, ResolvedImage};

use super::{ImageRegistry, attributes};

/// Returns the images that simulated nodes pull from a registry that listens on an address.
pub(crate) fn node_images(registry: ImageRegistry, api: &Api, address: SocketAddr) -> PulledImages {
    let port = address.port();
    let mut registries = BTreeSet::from([format!("localhost:{port}"), format!("127.0.0.1:{port}")]);
    if !address.ip().is_unspecified() {
        registries.insert(address.to_string());
    }
    let source = EmbeddedImages { registry, api: api.clone() };
    PulledImages { registries, files: Arc::new(RegistryImages::new(source)) }
}

/// The embedded registry, read without the network.
struct EmbeddedImages {
    registry: ImageRegistry,
    api: Api,
}

impl std::fmt::Debug for EmbeddedImages {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("EmbeddedImages")
    }
}

impl EmbeddedImages {
    /// Pods pull from the repositories of their namespace, and from those that their service
    /// account may get.
    fn check_access(
        &self,
        pull: &ImagePull,
        repository: &RepositoryName,
    ) -> Result<(), ImagePullError> {
        let own = repository.as_str().split_once('/').is_some_and(|it| it.0 == pull.namespace);
        let (namespace, account) = (&pull.namespace, &pull.account);
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        let caller = Caller::authenticated(&user, &groups);
        if own || self.api.authorize(&caller, &attributes("get", Some(repository))).allowed {
            return Ok(());
        }
        Err(ImagePullError::Forbidden(format!(
            "pull access denied: {user} may not get repositories.registry.gantry.dev {}; pods pull \
             from repositories of their own namespace, or bind the account to a role",
            repository.as_str()
        )))
    }
}

impl ImageSource for EmbeddedImages {
    fn resolve(
        &self,
        pull: &ImagePull,
        reference: &Reference,
    ) -> Result<ResolvedImage, ImagePullError> {
        let path = reference.repository().path();
        let repository: RepositoryName =
            path.parse().map_err(|_| ImagePullError::Failed(format!("{path} is no repository")))?;
        self.check_access(pull, &repository)?;
        let storage = self.registry.storage();
        let digest = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => Some(digest.clone()),
            (None, Some(tag)) => storage.tag(&repository, tag).map_err(|error| failed(&error))?,
            (None, None) => {
                let latest: Tag = Tag::LATEST
                    .parse()
                    .map_err(|error| ImagePullError::Failed(format!("{error}")))?;
                storage.tag(&repository, &latest).map_err(|error| failed(&error))?
            }
        };
        let digest = digest.ok_or(ImagePullError::NotFound)?;
        let stored = storage.manifest(&repository, &digest).map_err(|error| failed(&error))?;
        let stored = stored.ok_or(ImagePullError::NotFound)?;
        let media_type = MediaType::from(stored.media_type.as_str());
        let document = Document::parse(&stored.bytes, Some(&media_type))
            .map_err(|error| ImagePullError::Failed(gantry_process::error_chain(&error)))?;
        let registry = self.registry.clone();
        Ok(ResolvedImage { document, blobs: Arc::new(RepositoryBlobs { registry, repository }) })
    }
}

fn failed(error: &StorageError) -> ImagePullError {
    ImagePullError::Failed(gantry_process::error_chain(error))
}

/// The content of one repository.
struct RepositoryBlobs {
    registry: ImageRegistry,
    repository: RepositoryName,
}

impl BlobSource for RepositoryBlobs {
    fn open(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read + '_>> {
        let (storage, digest) = (self.registry.storage(), descriptor.digest());
        let media_type = descriptor.media_type();
        if media_type.is_manifest() || media_type.is_index() {
            let stored = storage.manifest(&self.repository, digest).map_err(io::Error::other)?;
            let stored = stored.ok_or(io::ErrorKind::NotFound)?;
            return Ok(Box::new(io::Cursor::new(stored.bytes)));
        }
        let blob = storage.open_blob(&self.repository, digest).map_err(io::Error::other)?;
        Ok(Box::new(blob.ok_or(io::ErrorKind::NotFound)?))
    }
}
