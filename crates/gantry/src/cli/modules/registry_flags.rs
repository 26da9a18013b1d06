//! Makes clients of registries from flags, for a command on a machine or in a pod.

use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;
use gantry_http_client::AddressPolicy;
use gantry_oci::Repository;
use gantry_process::clock::Clock;
use gantry_registry::{
    Client, ClientSettings, CredentialFile, Fallback, SecretText, TlsVerification,
};

use super::key_files::in_secret;

/// How a registry is reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegistryAccess<'a> {
    /// Files of credentials, tried in this order.
    pub(super) auth_files: &'a [std::path::PathBuf],
    /// Whether plain HTTP is used where a registry does not speak TLS.
    pub(super) insecure: bool,
    /// Whether the certificate is not verified.
    pub(super) skip_tls_verify: bool,
    /// More certificate authorities, in PEM.
    pub(super) ca_file: Option<&'a Path>,
}

/// Which registries a command may call.
#[derive(Clone, Debug)]
pub(crate) enum RegistryScope {
    /// All that its user names, also those of this machine.
    Machine,
    /// Those that a pod of a simulated node reaches.
    Pod(ClusterRegistry),
}

/// The registry of an embedded cluster, as a pod reaches it.
#[derive(Clone, Debug)]
pub(crate) struct ClusterRegistry {
    /// The names under which images name it.
    pub(crate) addresses: Vec<String>,
    /// The certificates that its certificate is verified with, in PEM.
    pub(crate) roots: Bytes,
    /// The credentials of the pod's service account.
    pub(crate) credentials: CredentialFile,
    /// The same as text, for a builder that reads it.
    pub(crate) credentials_text: SecretText,
}

impl ClusterRegistry {
    fn has(&self, repository: &Repository) -> bool {
        let registry = repository.registry().as_str();
        self.addresses.iter().any(|address| address == registry)
    }
}

impl RegistryScope {
    /// Whether the files of base images in a repository are pulled.
    ///
    /// On simulated nodes all images outside of the cluster's registry are only names. So a build
    /// there gives the same image with and without a network, and does not wait for one.
    pub(super) fn reaches_bases_in(&self, repository: &Repository) -> bool {
        match self {
            Self::Machine => true,
            Self::Pod(cluster) => cluster.has(repository),
        }
    }

    /// Makes a client for one registry.
    ///
    /// A pod does not reach the services of this machine: of those, only the cluster's own registry
    /// is called, with the rights of the pod's service account unless it brings credentials.
    pub(super) fn client(
        &self,
        access: RegistryAccess<'_>,
        repository: &Repository,
    ) -> anyhow::Result<Client> {
        let cluster = match self {
            Self::Machine => return client(access, AddressPolicy::AllowLoopback, None),
            Self::Pod(cluster) => cluster,
        };
        match cluster.has(repository) {
            true => client(access, AddressPolicy::AllowLoopback, Some(cluster)),
            false => client(access, AddressPolicy::NoLoopback, None),
        }
    }
}

fn client(
    access: RegistryAccess<'_>,
    addresses: AddressPolicy,
    cluster: Option<&ClusterRegistry>,
) -> anyhow::Result<Client> {
    let mut settings = ClientSettings::new("gantry-modules");
    settings.addresses = addresses;
    for path in access.auth_files {
        let named = || format!("cannot use the credentials in {}", path.display());
        let file = in_secret(path, &[".dockerconfigjson", ".dockercfg", "config.json"]);
        let bytes = std::fs::read(file.with_context(named)?).with_context(named)?;
        settings.credentials.push(CredentialFile::parse(&bytes).with_context(named)?);
    }
    let registry = &mut settings.default_registry;
    registry.verification = match (access.skip_tls_verify, access.ca_file) {
        (true, _) => TlsVerification::Skip,
        (false, Some(path)) => {
            let named = || format!("could not read the certificates in {}", path.display());
            TlsVerification::Bundle(std::fs::read(path).with_context(named)?.into())
        }
        (false, None) => TlsVerification::System,
    };
    registry.fallback = if access.insecure { Fallback::PlainHttp } else { Fallback::None };
    if let Some(ClusterRegistry { roots, credentials, .. }) = cluster {
        registry.verification = TlsVerification::Bundle(roots.clone());
        registry.fallback = Fallback::None;
        settings.credentials.push(credentials.clone());
    }
    Ok(Client::new(Clock::system(), fastrand::Rng::new(), settings))
}
