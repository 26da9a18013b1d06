//! Which servers are believed, and how we prove who we are.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::{Credentials, Target};

/// Makes aws-lc-rs the provider of the process, for libraries that ask for "the" provider.
///
/// Calling it again is fine, and so is a provider that somebody else installed: there is only one
/// in our tree.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Refused only when another thread was quicker, with the same provider.
        let _: Result<(), Arc<CryptoProvider>> = aws_lc_rs::default_provider().install_default();
    }
}

/// The TLS side of a target. Without `needed` it believes nobody and reads no authority.
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
    /// The text holds none.
    #[error("cannot find the {what} in what was given: write it as PEM")]
    NotPem {
        /// What was looked for.
        what: &'static str,
    },
    /// It is there, but rustls refuses it.
    #[error("cannot use a certificate or key")]
    Unusable(#[source] rustls::Error),
}
