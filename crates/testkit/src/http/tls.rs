//! Configures which servers are trusted, and the client certificate.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::{Credentials, Target};

/// Makes aws-lc-rs the crypto provider of the process, for libraries that use the default provider.
///
/// Calling it again is fine, and so is a provider that other code installed: there is only one in
/// our dependency tree.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails only when another thread was quicker, with the same provider.
        let _: Result<(), Arc<CryptoProvider>> = aws_lc_rs::default_provider().install_default();
    }
}

/// Returns the TLS configuration of a target. Without `needed` it trusts no server and reads no
/// authority.
pub(super) fn config(target: &Target, needed: bool) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    if needed {
        for certificate in certificates("authority", &target.authority)? {
            roots.add(certificate).map_err(TlsError::Unusable)?;
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unusable)?
        .with_root_certificates(roots);
    match &target.credentials {
        Credentials::Certificate { chain, key } => {
            let chain = certificates("client certificate", chain)?;
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(|_| TlsError::NotPem { what: "client key" })?;
            builder.with_client_auth_cert(chain, key).map_err(TlsError::Unusable)
        }
        Credentials::Anonymous | Credentials::Token(_) => Ok(builder.with_no_client_auth()),
    }
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(TlsError::NotPem { what }),
    }
}

/// Certificates or a key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The text contains none.
    #[error("cannot find the {what}: it must be PEM")]
    NotPem {
        /// What was looked for.
        what: &'static str,
    },
    /// It exists, but rustls rejects it.
    #[error("cannot use a certificate or key")]
    Unusable(#[source] rustls::Error),
}
