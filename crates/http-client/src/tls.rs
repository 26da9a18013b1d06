//! TLS settings of a client: trusted roots and the client certificate.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Which authorities are trusted to sign the certificates of servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Roots {
    /// Those of the machine.
    System,
    /// Those in a bundle of PEM, and no others.
    Bundle(Bytes),
    /// Those of the machine, and those in a bundle of PEM.
    SystemAndBundle(Bytes),
    /// Everybody: no certificate is verified, so that an attacker on the network can read and
    /// change everything. For servers that an administrator has configured so.
    Unverified,
}

/// The certificate and private key of a client, as PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, followed by those that lead to its authority.
    pub certificates: Bytes,
    /// The private key.
    pub key: Bytes,
}

impl fmt::Debug for Identity {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(…)")
    }
}

/// The TLS settings are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// The bundle has no certificate in it.
    #[error("cannot use the bundle of certificate authorities: it has no certificate in PEM")]
    Roots,
    /// The client certificate is not a certificate.
    #[error("cannot use the client's certificate: there is none in PEM")]
    Certificate,
    /// The client's private key is not a key.
    #[error("cannot use the client's private key: there is none in PEM")]
    Key,
    /// The name cannot occur in a certificate.
    #[error("cannot use {0:?} as the name of a server")]
    ServerName(String),
    /// The TLS library refused the settings: a key of an unknown type, or one that does not belong
    /// to the certificate.
    #[error("cannot set up TLS")]
    Library(#[source] rustls::Error),
}

/// Builds the TLS configuration of a client. `http2` offers HTTP/2 to servers, before HTTP/1.1.
pub(crate) fn config(
    roots: &Roots,
    identity: Option<&Identity>,
    http2: bool,
) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Library)?;
    let builder = match roots {
        Roots::System => builder.with_root_certificates(system_roots()),
        Roots::Bundle(pem) => builder.with_root_certificates(bundle(pem)?),
        Roots::SystemAndBundle(pem) => {
            let mut both = RootCertStore::clone(&system_roots());
            both.extend(bundle(pem)?.roots.iter().cloned());
            builder.with_root_certificates(both)
        }
        Roots::Unverified => {
            let verifier = Arc::new(AnyCertificate(provider));
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = CertificateDer::pem_slice_iter(&identity.certificates);
            let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|_| TlsError::Certificate)?;
            if chain.is_empty() {
                return Err(TlsError::Certificate);
            }
            let key = PrivateKeyDer::from_pem_slice(&identity.key).map_err(|_| TlsError::Key)?;
            builder.with_client_auth_cert(chain, key).map_err(TlsError::Library)?
        }
    };
    if http2 {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Ok(config)
}

fn bundle(pem: &[u8]) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    // Entries that are not certificates are skipped; only a bundle without any certificate is
    // refused.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten());
    if roots.is_empty() {
        return Err(TlsError::Roots);
    }
    Ok(Arc::new(roots))
}

/// Accepts every certificate of a server. The signatures of the handshake are still verified, so
/// that the peer holds the key of the certificate it shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the roots of the machine, read once: they change with its packages, not while a process
/// runs.
fn system_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        // A machine without roots trusts no server; each handshake then reports that.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    };
    Arc::clone(ROOTS.get_or_init(read))
}

#[cfg(test)]
mod tests {
    use gantry_testkit::pki::Authority;

    use super::*;

    #[test]
    fn invalid_tls_settings_are_refused() {
        let authority = Authority::new("ca").unwrap();
        let client = authority.client("ann", &[]).unwrap();
        let other = authority.client("bob", &[]).unwrap();
        let bundle = |text: &str| Roots::Bundle(Bytes::from(text.to_owned()));
        let identity = |certificates: &str, key: &str| Identity {
            certificates: Bytes::from(certificates.to_owned()),
            key: Bytes::from(key.to_owned()),
        };
        let ca = bundle(&authority.own.certificate);
        let made = |roots: &Roots, identity: Option<&Identity>| config(roots, identity, true);
        assert_eq!(made(&bundle("x"), None).unwrap_err(), TlsError::Roots);
        assert_eq!(made(&bundle(""), None).unwrap_err(), TlsError::Roots);
        let half = bundle(&format!("junk\n{}", authority.own.certificate));
        assert!(made(&half, None).is_ok(), "what is no certificate is skipped");
        assert_eq!(
            made(&Roots::SystemAndBundle(Bytes::new()), None).unwrap_err(),
            TlsError::Roots,
            "a bundle that was configured is not left out silently"
        );
        assert!(made(&Roots::Unverified, None).is_ok());
        let own = identity(&client.certificate, &client.key);
        assert!(made(&ca, Some(&own)).is_ok());
        assert_eq!(format!("{own:?}"), "Identity(…)");
        let none = identity("x", &client.key);
        assert_eq!(made(&ca, Some(&none)).unwrap_err(), TlsError::Certificate);
        let none = identity(&client.certificate, "x");
        assert_eq!(made(&ca, Some(&none)).unwrap_err(), TlsError::Key);
        let mixed = identity(&client.certificate, &other.key);
        assert!(matches!(made(&ca, Some(&mixed)).unwrap_err(), TlsError::Library(_)));
    }
}
