//! Base images of a build, from registries.

use gantry_dockerfile::{BaseImage, BaseImageError, BaseImages};
use gantry_kernel_modules::effects::{self, PullError, RegistryImage};
use gantry_oci::{BlobSource as _, Config, Document, Platform, Reference, blob};
use gantry_process::error_chain;
use gantry_registry::RegistryError;
use tokio::runtime::Handle;

use super::super::registry_flags::{RegistryAccess, RegistryScope};

/// The largest configuration of an image that is read.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// Opens base images in registries, on a thread that may block.
#[derive(Debug)]
pub(super) struct RegistryBases<'a> {
    registries: &'a RegistryScope,
    access: RegistryAccess<'a>,
    runtime: Handle,
}

impl<'a> RegistryBases<'a> {
    pub(super) fn new(
        registries: &'a RegistryScope,
        access: RegistryAccess<'a>,
        runtime: Handle,
    ) -> Self {
        Self { registries, access, runtime }
    }
}

impl BaseImages for RegistryBases<'_> {
    fn open(
        &self,
        reference: &Reference,
        platform: &Platform,
    ) -> Result<BaseImage<'_>, BaseImageError> {
        let failed = |text: String| BaseImageError::Unavailable(text);
        if !self.registries.reaches_bases_in(reference.repository()) {
            let text = "only images in the registry of the cluster have files here; push it there \
                        if the build needs its files";
            return Err(failed(text.to_owned()));
        }
        let client = self.registries.client(self.access, reference.repository());
        let client = client.map_err(|error| failed(format!("{error:#}")))?;
        let opened = self.runtime.block_on(effects::open_image(&client, reference));
        let RegistryImage { document, blobs } = opened.map_err(|error| match error {
            PullError::Registry(RegistryError::NotFound { .. }) => BaseImageError::NotFound,
            error => failed(error_chain(&error)),
        })?;
        let document = match document {
            Document::Manifest(manifest) => Document::Manifest(manifest),
            Document::Index(index) => {
                let child = index.choose(platform).map_err(|error| failed(error_chain(&error)))?;
                let read = blob::read_document(&blobs, child);
                read.map_err(|error| failed(error_chain(&error)))?
            }
        };
        let Document::Manifest(manifest) = document else {
            return Err(failed("an index in an index is no image".to_owned()));
        };
        let descriptor = manifest.config();
        if descriptor.size() > MAX_CONFIG_BYTES {
            return Err(failed(format!("its configuration has {} bytes", descriptor.size())));
        }
        let mut bytes = Vec::new();
        let read = blobs.open(descriptor).and_then(|mut it| it.read_to_end(&mut bytes));
        read.map_err(|error| failed(error_chain(&error)))?;
        let config = Config::parse(&bytes).map_err(|error| failed(error_chain(&error)))?;
        Ok(BaseImage { manifest, config, source: Box::new(blobs) })
    }
}
