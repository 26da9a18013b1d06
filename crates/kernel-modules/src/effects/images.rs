//! Asks registries which images they have.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_controller::external::{BoxFuture, Responder, ResponderContext};
use gantry_http_client::AddressPolicy;
use gantry_oci::{Config, Document, Platform, PlatformError, Reference, Repository};
use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_registry::{
    Client, ClientSettings, CredentialFile, Fallback, RegistryError, RegistrySettings,
    TlsVerification,
};

use super::objects::{CaBundleError, CredentialReadError, ObjectReader};
use crate::facts::{ImageQuery, ImageState};
use crate::labels::INPUT_HASH;
use crate::settings::LiveSettings;

/// The name of the controllers in requests to registries.
pub const USER_AGENT: &str = "gantry-modules";
/// The largest configuration of an image that is read.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// The registry that a host has beside its API server.
pub trait HostRegistry: fmt::Debug + Send + Sync {
    /// The names under which images name it, such as `127.0.0.1:6443`.
    fn addresses(&self) -> Vec<String>;

    /// The certificates that its certificate is verified with, in PEM.
    fn roots(&self) -> Bytes;

    /// The credentials of a namespace, for its own repositories.
    fn credentials<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<CredentialFile, String>>;
}

/// The registry of the host, for the subsystem.
#[derive(Clone, Debug)]
pub struct HostRegistryExtension(pub Arc<dyn HostRegistry>);

/// Answers whether registries have images.
#[derive(Clone, Debug)]
pub struct ImageResponder {
    objects: ObjectReader,
    host: Option<Arc<dyn HostRegistry>>,
    settings: LiveSettings,
    /// Which addresses registries other than that of the host may have.
    addresses: AddressPolicy,
}

/// What a registry is asked with.
struct Trust {
    credentials: Vec<CredentialFile>,
    /// Certificates beside those of the machine.
    roots: Option<Bytes>,
}

/// Why nothing is known about an image.
#[derive(Debug, thiserror::Error)]
enum ImageCheckError {
    #[error("\"{image}\" is no image")]
    Reference { image: String, source: gantry_oci::ReferenceError },
    #[error(transparent)]
    Credentials(#[from] CredentialReadError),
    #[error(transparent)]
    CaBundle(#[from] CaBundleError),
    #[error("could not get credentials for the registry of the cluster: {0}")]
    HostCredentials(String),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the registry returned something that is no image")]
    Document(#[from] gantry_oci::DocumentError),
    #[error("\"{0}\" is no architecture of an image")]
    Architecture(String, #[source] PlatformError),
}

impl ImageResponder {
    /// Asks with the Secrets that this reader reads.
    #[must_use]
    pub fn new(
        objects: ObjectReader,
        host: Option<Arc<dyn HostRegistry>>,
        settings: LiveSettings,
    ) -> Self {
        Self { objects, host, settings, addresses: AddressPolicy::NoLoopback }
    }

    async fn check(
        &self,
        query: &ImageQuery,
        clock: &Clock,
    ) -> Result<ImageState, ImageCheckError> {
        let reference: Reference = query
            .image
            .parse()
            .map_err(|source| ImageCheckError::Reference { image: query.image.clone(), source })?;
        let mut credentials = Vec::new();
        for name in &query.secrets {
            match self.objects.credentials(clock, &query.namespace, name).await {
                Ok(file) => credentials.push(file),
                Err(CredentialReadError::Missing(name)) => {
                    return Ok(ImageState::SecretMissing(name));
                }
                Err(error) => return Err(error.into()),
            }
        }
        // It is read for every question: what changed in it counts from the next one on.
        let mut roots = None;
        if let Some(name) = &query.ca_config_map {
            roots = self.objects.ca_bundle(clock, &query.namespace, name).await?;
            if roots.is_none() {
                return Ok(ImageState::CaBundleMissing(name.clone()));
            }
        }
        let trust = Trust { credentials, roots };
        let client = self.client(query, reference.repository(), trust, clock).await?;
        let pulled = match client.pull_manifest(&reference).await {
            Ok(pulled) => pulled,
            Err(RegistryError::NotFound { .. }) => return Ok(ImageState::Missing),
            Err(error @ (RegistryError::Unauthorized { .. } | RegistryError::Denied { .. })) => {
                // Some registries hide repositories that do not exist yet. Who may push there may
                // also see it: then there is none.
                return match query.is_pushed
                    && !query.secrets.is_empty()
                    && client.can_push(reference.repository()).await?
                {
                    true => Ok(ImageState::Missing),
                    false => Err(error.into()),
                };
            }
            Err(error) => return Err(error.into()),
        };
        let document = Document::parse(&pulled.bytes, Some(&pulled.media_type))?;
        let digest = pulled.digest.to_string();
        let config = match &document {
            Document::Index(index) => {
                let mut first = None;
                for architecture in &query.architectures {
                    let platform = Platform::linux(architecture)
                        .map_err(|it| ImageCheckError::Architecture(architecture.clone(), it))?;
                    let Ok(child) = index.choose(&platform) else {
                        return Ok(ImageState::MissingArchitecture(architecture.clone()));
                    };
                    first.get_or_insert_with(|| child.digest().clone());
                }
                let Some(child) = first else {
                    return Ok(ImageState::Present { digest, input_hash: None });
                };
                let child = client.pull_manifest(&reference.at_digest(child)).await?;
                match Document::parse(&child.bytes, Some(&child.media_type))? {
                    Document::Manifest(manifest) => manifest.config().clone(),
                    Document::Index(_) => {
                        return Ok(ImageState::Present { digest, input_hash: None });
                    }
                }
            }
            Document::Manifest(manifest) => manifest.config().clone(),
        };
        let repository = reference.repository();
        let config = client
            .pull_small_blob(repository, config.digest(), config.size(), MAX_CONFIG_BYTES)
            .await?;
        let config = Config::parse(&config)?;
        let input_hash = config.labels().get(INPUT_HASH).cloned();
        let is_index = matches!(document, Document::Index(_));
        let mut architectures = query.architectures.iter();
        let other = architectures.find(|it| !is_index && it.as_str() != config.architecture());
        Ok(match other {
            // Images without an architecture are for all.
            Some(other) if !config.architecture().is_empty() => {
                ImageState::MissingArchitecture(other.clone())
            }
            _ => ImageState::Present { digest, input_hash },
        })
    }

    /// A client with the credentials and the trust of one question.
    async fn client(
        &self,
        query: &ImageQuery,
        repository: &Repository,
        Trust { mut credentials, roots }: Trust,
        clock: &Clock,
    ) -> Result<Client, ImageCheckError> {
        let mut settings = ClientSettings::new(USER_AGENT);
        settings.time = self.settings.get().registry_timeout.max(Duration::from_secs(1));
        // The shell repeats the question; a registry that is slow is asked again later.
        settings.retries = 1;
        let host = self.host.as_ref().filter(|host| {
            let registry = repository.registry().as_str();
            host.addresses().iter().any(|address| address == registry)
        });
        let mut registry = RegistrySettings::default();
        if let Some(host) = host {
            settings.addresses = AddressPolicy::AllowLoopback;
            registry.verification = TlsVerification::Bundle(host.roots());
            let own = host.credentials(&query.namespace).await;
            credentials.push(own.map_err(ImageCheckError::HostCredentials)?);
        } else {
            settings.addresses = self.addresses;
            if let Some(roots) = roots {
                registry.verification = TlsVerification::Bundle(roots);
            }
            if query.insecure_skip_tls_verify {
                registry.verification = TlsVerification::Skip;
            }
            if query.insecure {
                registry.fallback = Fallback::PlainHttp;
            }
        }
        settings.credentials = credentials;
        settings.default_registry = registry;
        Ok(Client::new(clock.clone(), fastrand::Rng::new(), settings))
    }
}

impl Responder<ImageState> for ImageResponder {
    fn answer<'a>(
        &'a self,
        question: &'a ImageQuery,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<ImageState, String>> {
        Box::pin(async move {
            self.check(question, &context.clock).await.map_err(|error| error_chain(&error))
        })
    }
}

#[cfg(test)]
mod tests;
