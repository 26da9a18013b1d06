//! Certificates for one run: an authority, and the certificates it signs. P-256 throughout, created
//! in milliseconds and valid for longer than any run.

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};

/// Signs certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate and key, as PEM.
    pub own: Issued,
}

/// A certificate and its private key, as PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS#8.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    /// Prints that it exists, never the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Issued(…)")
    }
}

impl Authority {
    /// Creates a self-signed authority.
    ///
    /// # Errors
    /// The machine provided no randomness.
    pub fn new(name: &str) -> Result<Self, PkiError> {
        let key = key()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let certificate = params.self_signed(&key)?.pem();
        let own = Issued { certificate, key: key.serialize_pem() };
        Ok(Self { issuer: Issuer::new(params, key), own })
    }

    /// Issues a certificate for a server that is reached on loopback and under `names`. It is also
    /// valid for a client, which etcd needs to connect to itself.
    ///
    /// # Errors
    /// A name cannot be put in a certificate.
    pub fn server(&self, name: &str, names: &[&str]) -> Result<Issued, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name);
        for name in names.iter().chain(&["localhost"]) {
            params.subject_alt_names.push(SanType::DnsName(Ia5String::try_from(*name)?));
        }
        for address in [[127, 0, 0, 1], [10, 96, 0, 1]] {
            params.subject_alt_names.push(SanType::IpAddress(address.into()));
        }
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, &usages)
    }

    /// Issues a certificate for a client. Kubernetes reads the user from its common name and the
    /// groups from its organisations. There may be two groups: rcgen keeps one value per name of an
    /// attribute, and the attribute has two names.
    ///
    /// # Errors
    /// There are more than two groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Issued, PkiError> {
        if groups.len() > GROUP_ATTRIBUTES.len() {
            return Err(PkiError::TooManyGroups { groups: groups.len() });
        }
        let mut params = CertificateParams::default();
        let mut subject = subject(user);
        for (attribute, group) in GROUP_ATTRIBUTES.into_iter().zip(groups) {
            subject.push(attribute(), *group);
        }
        params.distinguished_name = subject;
        self.sign(params, &[ExtendedKeyUsagePurpose::ClientAuth])
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        usages: &[ExtendedKeyUsagePurpose],
    ) -> Result<Issued, PkiError> {
        let key = key()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem() })
    }
}

/// Creates a key pair alone, for signing tokens: the private and the public half, as PEM.
///
/// # Errors
/// The machine provided no randomness.
pub fn signing_key() -> Result<(String, String), PkiError> {
    let key = key()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn key() -> Result<KeyPair, PkiError> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

fn subject(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

/// The organisation of a subject, under its two names.
const GROUP_ATTRIBUTES: [fn() -> DnType; 2] =
    [|| DnType::OrganizationName, || DnType::CustomDnType(vec![2, 5, 4, 10])];

/// Why a certificate could not be created.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A name cannot be put in one, or the machine provided no randomness.
    #[error("could not make a certificate")]
    Refused(#[from] rcgen::Error),
    /// Our certificates hold at most two groups.
    #[error("cannot put {groups} groups in one certificate: two is the most")]
    TooManyGroups {
        /// How many groups were requested.
        groups: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_too_many_is_refused_not_dropped() {
        let authority = Authority::new("a").unwrap();
        for groups in [&[][..], &["one"], &["one", "two"]] {
            assert!(authority.client("alice", groups).is_ok(), "{groups:?}");
        }
        let error = authority.client("alice", &["one", "two", "three"]).unwrap_err().to_string();
        assert_eq!(error, "cannot put 3 groups in one certificate: two is the most");
    }

    #[test]
    fn a_key_is_never_printed() {
        let authority = Authority::new("a").unwrap();
        let shown = format!("{authority:?}");
        assert!(!shown.contains("PRIVATE KEY"), "{shown}");
    }
}
