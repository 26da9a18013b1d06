//! Keys and certificates for signing modules, in the variants that kernels treat differently.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::pki::PkiError;

/// A key that signs modules, and its certificate.
#[derive(Clone)]
pub struct SigningKey {
    /// The certificate, as PEM.
    pub certificate: String,
    /// The private key, PKCS#8 as PEM.
    pub key: String,
    name: String,
}

impl std::fmt::Debug for SigningKey {
    /// Prints that it exists, never the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SigningKey(…)")
    }
}

impl SigningKey {
    /// Creates an RSA key of 2048 bits with a self-signed certificate.
    ///
    /// # Errors
    /// The machine provided no randomness.
    pub fn rsa(name: &str) -> Result<Self, PkiError> {
        self_signed(name, &params(name), &PKCS_RSA_SHA256)
    }

    /// Creates a P-256 key with a self-signed certificate.
    ///
    /// # Errors
    /// The machine provided no randomness.
    pub fn ecdsa(name: &str) -> Result<Self, PkiError> {
        self_signed(name, &params(name), &PKCS_ECDSA_P256_SHA256)
    }

    /// Creates an RSA key whose certificate ended long ago.
    ///
    /// # Errors
    /// The machine provided no randomness.
    pub fn expired(name: &str) -> Result<Self, PkiError> {
        let mut params = params(name);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self_signed(name, &params, &PKCS_RSA_SHA256)
    }

    /// Creates an RSA key whose certificate has no key identifier.
    ///
    /// # Errors
    /// The machine provided no randomness.
    pub fn without_identifier(name: &str) -> Result<Self, PkiError> {
        let mut params = params(name);
        params.is_ca = IsCa::NoCa;
        self_signed(name, &params, &PKCS_RSA_SHA256)
    }

    /// Creates an RSA key that may issue certificates.
    ///
    /// # Errors
    /// The machine provided no randomness.
    pub fn authority(name: &str) -> Result<Self, PkiError> {
        self_signed(name, &authority_params(name), &PKCS_RSA_SHA256)
    }

    /// Creates an RSA key whose certificate is issued by this one.
    ///
    /// # Errors
    /// The machine provided no randomness.
    pub fn issue(&self, name: &str) -> Result<Self, PkiError> {
        let issuer = Issuer::new(authority_params(&self.name), KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate_for(&PKCS_RSA_SHA256)?;
        let certificate = params(name).signed_by(&key, &issuer)?.pem();
        Ok(Self { certificate, key: key.serialize_pem(), name: name.to_owned() })
    }

    /// The certificate, as DER.
    #[must_use]
    pub fn certificate_der(&self) -> Vec<u8> {
        certificate_der(&self.certificate).unwrap_or_default()
    }
}

/// Reads a certificate, as DER, from PEM.
#[must_use]
pub fn certificate_der(pem: &str) -> Option<Vec<u8>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).ok().map(|der| der.to_vec())
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    // With the extension that says so comes the key identifier.
    params.is_ca = IsCa::ExplicitNoCa;
    params
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn self_signed(
    name: &str,
    params: &CertificateParams,
    algorithm: &'static SignatureAlgorithm,
) -> Result<SigningKey, PkiError> {
    let key = KeyPair::generate_for(algorithm)?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(SigningKey { certificate, key: key.serialize_pem(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_printed() {
        let key = SigningKey::ecdsa("a").unwrap();
        assert_eq!(format!("{key:?}"), "SigningKey(…)");
    }

    #[test]
    fn a_certificate_is_read_from_pem() {
        let key = SigningKey::ecdsa("a").unwrap();
        assert_eq!(key.certificate_der()[0], 0x30, "a sequence");
        assert_eq!(certificate_der("nothing"), None);
    }
}
