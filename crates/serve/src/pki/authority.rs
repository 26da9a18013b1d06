//! The certificate authority, which signs certificates.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
    SigningKey as _,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Any, BitString, ObjectIdentifier, SetOfVec, Utf8StringRef};
use x509_cert::der::{self, Decode as _, Encode as _, Length};
use x509_cert::name::{RdnSequence, RelativeDistinguishedName};

use super::{CA_COMMON_NAME, CA_LIFETIME, CLOCK_SKEW, Identity, PkiError, offset_time};
use crate::peer::{self, COMMON_NAME, ORGANIZATION};

/// Signs certificates, and verifies those it signed.
pub(super) struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) identity: Identity,
}

/// The subject and the use of a certificate.
pub(super) enum CertificateProfile<'a> {
    /// A server under these names and addresses.
    Server { names: &'a BTreeSet<String> },
    /// A user and their groups.
    Client { common_name: &'a str, organizations: &'a [&'a str] },
}

/// The contents of a certificate for a request besides its subject and its key.
#[derive(Default)]
pub(super) struct CertificateSpec {
    /// The period in which it is valid.
    pub(super) validity: (Timestamp, Timestamp),
    /// The key usages.
    pub(super) usages: Vec<KeyUsagePurpose>,
    /// The extended key usages.
    pub(super) purposes: Vec<ExtendedKeyUsagePurpose>,
    /// The DNS names and addresses.
    pub(super) names: Vec<SanType>,
}

impl CertificateAuthority {
    /// Creates an authority, or renews the certificate of an existing one.
    pub(super) fn create(key: Option<KeyPair>, now: Timestamp) -> Result<Self, PkiError> {
        let key = key.map_or_else(new_key, Ok)?;
        let mut params = params();
        validity(&mut params, CA_LIFETIME, now);
        params.serial_number = Some(serial()?);
        let own =
            Identity { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() };
        Ok(Self { issuer: Issuer::new(params, key), identity: own })
    }

    /// Opens the authority with this certificate, which [`CertificateAuthority::create`] must have
    /// made.
    pub(super) fn new(key: KeyPair, own: Identity) -> Self {
        Self { issuer: Issuer::new(params(), key), identity: own }
    }

    pub(super) fn issue(
        &self,
        leaf: &CertificateProfile<'_>,
        life: Duration,
        now: Timestamp,
    ) -> Result<Identity, PkiError> {
        let key = new_key()?;
        let mut params = CertificateParams::default();
        validity(&mut params, life, now);
        params.serial_number = Some(serial()?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let certificate = match leaf {
            CertificateProfile::Server { names } => {
                params.distinguished_name = distinguished_name("gantry");
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                for name in *names {
                    params.subject_alt_names.push(match name.parse::<IpAddr>() {
                        Ok(address) => SanType::IpAddress(address),
                        Err(_) => SanType::DnsName(Ia5String::try_from(name.as_str())?),
                    });
                }
                params.signed_by(&key, &self.issuer)?.pem()
            }
            CertificateProfile::Client { common_name: "", .. } => return Err(PkiError::NoName),
            CertificateProfile::Client { common_name, organizations } => {
                params.distinguished_name = distinguished_name(common_name);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                let signed = params.signed_by(&key, &self.issuer)?;
                let subject = subject(common_name, organizations)?.to_der()?;
                pem(&self.resign_with_subject(signed.der(), &subject, None)?)
            }
        };
        Ok(Identity { certificate, key: key.serialize_pem() })
    }

    /// Signs a certificate (PEM) for a subject and a public key from elsewhere, both as DER.
    pub(super) fn sign_request(
        &self,
        wanted: CertificateSpec,
        subject: &[u8],
        public_key: &[u8],
    ) -> Result<String, PkiError> {
        let own = CertificateDer::from_pem_slice(self.identity.certificate.as_bytes());
        let own = own.map_err(|error| PkiError::Generate(Box::new(error)))?;
        let (from, until) = wanted.validity;
        let mut params = CertificateParams::default();
        // A certificate must not outlive its authority.
        set_validity(&mut params, from, until.min(peer::parse_certificate(&own)?.not_after));
        params.serial_number = Some(serial()?);
        params.distinguished_name = distinguished_name("gantry");
        params.key_usages = wanted.usages;
        params.extended_key_usages = wanted.purposes;
        params.subject_alt_names = wanted.names;
        params.use_authority_key_identifier_extension = true;
        let signed = params.signed_by(&new_key()?, &self.issuer)?;
        Ok(pem(&self.resign_with_subject(signed.der(), subject, Some(public_key))?))
    }

    /// Replaces the subject, and optionally the key, of a certificate and signs it again.
    ///
    /// rcgen supports one value per attribute of a name, and a user may be in many groups, each of
    /// which is an organisation; and it supports only keys that it has made.
    fn resign_with_subject(
        &self,
        certificate: &[u8],
        subject: &[u8],
        public_key: Option<&[u8]>,
    ) -> Result<Vec<u8>, PkiError> {
        let old = Certificate::from_der(certificate)?;
        let tbs = old.tbs_certificate();
        let extensions = tbs.extensions().cloned().unwrap_or_default();
        let unsigned = [
            der_element(EXPLICIT_0, &tbs.version().to_der()?)?,
            tbs.serial_number().to_der()?,
            tbs.signature().to_der()?,
            tbs.issuer().to_der()?,
            tbs.validity().to_der()?,
            subject.to_vec(),
            match public_key {
                Some(key) => key.to_vec(),
                None => tbs.subject_public_key_info().to_der()?,
            },
            der_element(EXPLICIT_3, &extensions.to_der()?)?,
        ];
        let unsigned = der_element(SEQUENCE, &unsigned.concat())?;
        let signature = BitString::from_bytes(&self.issuer.key().sign(&unsigned)?)?;
        let signed = [unsigned, old.signature_algorithm().to_der()?, signature.to_der()?];
        Ok(der_element(SEQUENCE, &signed.concat())?)
    }
}

const SEQUENCE: u8 = 0x30;
/// The position of the version in a certificate.
const EXPLICIT_0: u8 = 0xa0;
/// The position of the extensions in a certificate.
const EXPLICIT_3: u8 = 0xa3;

/// Encodes a DER element: tag, length, content.
fn der_element(tag: u8, content: &[u8]) -> der::Result<Vec<u8>> {
    let length = Length::try_from(content.len())?.to_der()?;
    Ok([&[tag], &*length, content].concat())
}

fn subject(common_name: &str, organizations: &[&str]) -> der::Result<RdnSequence> {
    let organizations = organizations.iter().map(|name| attribute(ORGANIZATION, name));
    let mut all = organizations.collect::<der::Result<Vec<_>>>()?;
    all.push(attribute(COMMON_NAME, common_name)?);
    Ok(RdnSequence::from(all))
}

fn attribute(oid: ObjectIdentifier, value: &str) -> der::Result<RelativeDistinguishedName> {
    let value = Any::encode_from(&Utf8StringRef::new(value)?)?;
    Ok(SetOfVec::try_from(vec![AttributeTypeAndValue { oid, value }])?.into())
}

/// Generates a P-256 key.
pub(super) fn new_key() -> Result<KeyPair, PkiError> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

/// The parts of the authority's certificate that never change.
fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(CA_COMMON_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    params
}

pub(super) fn distinguished_name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

pub(super) fn validity(params: &mut CertificateParams, life: Duration, now: Timestamp) {
    let life = SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX);
    let skew = SignedDuration::try_from(CLOCK_SKEW).unwrap_or(SignedDuration::ZERO);
    set_validity(params, offset_time(now, -skew), offset_time(now, life));
}

fn set_validity(params: &mut CertificateParams, from: Timestamp, until: Timestamp) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    // Times before 1970 cannot be encoded, and no certificate needs them.
    let date = |moment: Timestamp| {
        epoch + Duration::from_secs(u64::try_from(moment.as_second()).unwrap_or_default())
    };
    params.not_before = date(from);
    params.not_after = date(until);
}

/// Returns a random serial number, so that two certificates of one key differ: clients distinguish
/// certificates by issuer and serial number.
pub(super) fn serial() -> Result<SerialNumber, PkiError> {
    let mut bytes = [0_u8; 16];
    rand::fill(&mut bytes).map_err(|error| PkiError::Generate(Box::new(error)))?;
    // Positive and of full length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem + "-----END CERTIFICATE-----\n"
}
