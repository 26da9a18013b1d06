//! The server side of TLS: the server's certificate and the verification of client certificates.
//!
//! A client certificate is requested and never required, and the handshake accepts any: a client
//! with an expired certificate should get a 401 it can show, not a reset. Whether the certificate
//! is trusted is checked afterwards, by [`ClientAuthority`]. The handshake does prove that the
//! client holds the key of the certificate.

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

/// The server's certificate. Clones share it, so that it can be replaced by a renewed one while
/// connections come in; open connections keep the one they were opened with.
#[derive(Clone, Debug)]
pub struct ServerCertificate(Arc<CertificateResolver>);

#[derive(Debug)]
struct CertificateResolver(RwLock<Arc<CertifiedKey>>);

impl ServerCertificate {
    /// Makes a server certificate.
    ///
    /// # Errors
    /// It cannot be used, or the key does not match.
    pub fn new(identity: &Identity) -> Result<Self, TlsError> {
        let key = Arc::new(certified_key(identity)?);
        Ok(Self(Arc::new(CertificateResolver(RwLock::new(key)))))
    }

    /// Replaces the certificate for new connections.
    ///
    /// # Errors
    /// It cannot be used, or the key does not match; the old one stays.
    pub fn replace(&self, identity: &Identity) -> Result<(), TlsError> {
        let key = Arc::new(certified_key(identity)?);
        *self.0.0.write().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(())
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The authority whose client certificates are trusted.
#[derive(Clone, Debug)]
pub struct ClientAuthority(Arc<dyn ClientCertVerifier>);

impl ClientAuthority {
    /// Trusts client certificates signed by these certificates (PEM, one or more).
    ///
    /// # Errors
    /// There is no certificate, or one cannot be used.
    pub fn new(authorities: &str) -> Result<Self, TlsError> {
        let roots = Arc::new(roots(authorities)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| TlsError::Unusable(Error::General(error.to_string())))?;
        Ok(Self(verifier))
    }

    /// Checks that the chain leads to the authority, is for clients, and is valid at `now`.
    pub(crate) fn verifies(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> bool {
        let Some((own, between)) = chain.split_first() else { return false };
        let Some(now) = unix_time(now) else { return false };
        self.0.verify_client_cert(own, between, now).is_ok()
    }
}

/// Builds the TLS configuration of a listener.
pub(crate) fn config(
    certificate: &ServerCertificate,
    clients: Option<&ClientAuthority>,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unusable)?;
    let builder = match clients {
        Some(authority) => builder.with_client_cert_verifier(Arc::new(AcceptAnyCertificate {
            verifier: Arc::clone(&authority.0),
        })),
        // As upstream: without an authority a client certificate has no meaning.
        None => builder.with_no_client_auth(),
    };
    let shown: Arc<CertificateResolver> = Arc::clone(&certificate.0);
    let mut config = builder.with_cert_resolver(shown);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts every certificate whose key the client holds.
#[derive(Debug)]
struct AcceptAnyCertificate {
    /// Names the authority to the client, so that it can choose the right certificate, and checks
    /// signatures.
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for AcceptAnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
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
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Returns the crypto provider, named explicitly so that nothing depends on a process-wide default.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Reads the certificates of a PEM text into a root store.
pub(crate) fn roots(authorities: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(TlsError::Unusable)?;
    }
    Ok(roots)
}

/// Reads the certificates of a PEM text; at least one.
pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(TlsError::NotPem { what: "certificate" }),
    }
}

/// Reads a certificate with its key and checks that they match.
pub(crate) fn certified_key(identity: &Identity) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(&identity.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
        .map_err(|_| TlsError::NotPem { what: "private key" })?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(TlsError::Unusable)
}

/// Converts the time for rustls; `None` before 1970, when no certificate was valid.
pub(crate) fn unix_time(now: Timestamp) -> Option<UnixTime> {
    let seconds = u64::try_from(now.as_second()).ok()?;
    Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
}

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The text has none.
    #[error("cannot find a {what} in the PEM text")]
    NotPem {
        /// What was expected.
        what: &'static str,
    },
    /// It exists, but cannot be used, or the key belongs to another certificate.
    #[error("cannot use a certificate or key")]
    Unusable(#[source] Error),
}
