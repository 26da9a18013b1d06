//! Makes clients of registries from flags.

use std::path::Path;

use anyhow::Context as _;
use gantry_http_client::AddressPolicy;
use gantry_process::clock::Clock;
use gantry_registry::{Client, ClientSettings, CredentialFile, Fallback, TlsVerification};

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

/// Makes a client. A registry on this machine may be called: the user of a command names it.
pub(super) fn client(access: RegistryAccess<'_>) -> anyhow::Result<Client> {
    let mut settings = ClientSettings::new("gantry-modules");
    settings.addresses = AddressPolicy::AllowLoopback;
    for path in access.auth_files {
        let named = || format!("cannot use the credentials in {}", path.display());
        let bytes = std::fs::read(path).with_context(named)?;
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
    Ok(Client::new(Clock::system(), fastrand::Rng::new(), settings))
}
