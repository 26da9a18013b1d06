//! The server's side of TLS: what we show, what we ask for, and whom we believe.
//!
//! A client certificate is asked for and never required, and the handshake accepts any: a client
//! with a stale certificate shall read a 401 it can show, not a reset. Whether the certificate is
//! to be believed is found out afterwards, by [`ClientAuthority`]. The handshake does prove that
//! the client holds the key of what it shows.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::pki::Identity;

/// The certificate we show. Clones share it, so that a renewed one can be put in its place while
/// connections come in; those that are open keep what they saw.
#[derive(Clone, Debug)]
pub struct ServerCertificate(Arc<Shown>);

#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ServerCertificate {
    /// Shows this certificate.
    ///
    /// # Errors
    /// It cannot be used, or the key is not its key.
    pub fn new(identity: &Identity) -> Result<Self, TlsError> {
        let key = Arc::new(certified_key(identity)?);
        Ok(Self(Arc::new(Shown(RwLock::new(key)))))
    }

    /// Shows another certificate from now on.
    ///
    /// # Errors
    /// It cannot be used, or the key is not its key; the old one stays.
    pub fn replace(&self, identity: &Identity) -> Result<(), TlsError> {
        let key = Arc::new(certified_key(identity)?);
        *self.0.0.write().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(())
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The authority whose client certificates are believed.
#[derive(Clone, Debug)]
pub struct ClientAuthority(Arc<dyn ClientCertVerifier>);

impl ClientAuthority {
    /// Believes in what these certificates (PEM, one or more) have signed.
    ///
    /// # Errors
    /// There is none among them, or one cannot be used.
    pub fn new(authorities: &str) -> Result<Self, TlsError> {
        let roots = Arc::new(roots(authorities)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| TlsError::Unusable(Error::General(error.to_string())))?;
        Ok(Self(verifier))
    }

    /// Whether the chain leads to the authority, is for clients, and is valid at `now`.
    pub(crate) fn believes(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> bool {
        let Some((own, between)) = chain.split_first() else { return false };
        let Some(now) = unix_time(now) else { return false };
        self.0.verify_client_cert(own, between, now).is_ok()
    }
}

/// The configuration of a listener.
pub(crate) fn config(
    certificate: &ServerCertificate,
    clients: Option<&ClientAuthority>,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unusable)?;
    let builder = match clients {
        Some(authority) => builder.with_client_cert_verifier(Arc::new(AnyCertificate {
            believed: Arc::clone(&authority.0),
        })),
        // As upstream: without an authority a certificate could mean nothing.
        None => builder.with_no_client_auth(),
    };
    let shown: Arc<Shown> = Arc::clone(&certificate.0);
    let mut config = builder.with_cert_resolver(shown);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Lets every certificate pass whose key the client holds.
#[derive(Debug)]
struct AnyCertificate {
    /// Names the authority to the client, so that it can choose the right certificate, and checks
    /// signatures.
    believed: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.believed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.believed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.believed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.believed.supported_verify_schemes()
    }
}

/// The one provider, named rather than looked up, so that nothing depends on who installed what.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The certificates of a PEM text, in a store of roots.
pub(crate) fn roots(authorities: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(TlsError::Unusable)?;
    }
    Ok(roots)
}

/// The certificates of a PEM text; at least one.
pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(TlsError::NotPem { what: "certificate" }),
    }
}

/// A certificate with its key, checked to be one pair.
pub(crate) fn certified_key(identity: &Identity) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(&identity.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
        .map_err(|_| TlsError::NotPem { what: "private key" })?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(TlsError::Unusable)
}

/// The time as rustls counts it; none before 1970, when nothing was valid.
pub(crate) fn unix_time(now: Timestamp) -> Option<UnixTime> {
    let seconds = u64::try_from(now.as_second()).ok()?;
    Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
}

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The text holds none.
    #[error("cannot find a {what} in what was given: write it as PEM")]
    NotPem {
        /// What was looked for.
        what: &'static str,
    },
    /// It is there, but it cannot be used, or the key belongs to another certificate.
    #[error("cannot use a certificate or key")]
    Unusable(#[source] Error),
}
