//! Certificate signing requests: parsed, verified, and signed with the key of the authority.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1,
    ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::string::Ia5String;
use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::{DirectoryString, GeneralName};
use x509_cert::request::{CertReq, ExtensionReq};

use super::authority::{CertificateAuthority, CertificateSpec};
use super::{LEAF_LIFETIME, PkiError, offset_time};
use crate::peer::{COMMON_NAME, ORGANIZATION};

/// The contents of a certificate signing request (PKCS#10).
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    /// The common name of the subject; the last if there are several.
    pub common_name: String,
    /// The organisations of the subject, in its order.
    pub organizations: Vec<String>,
    /// The requested DNS names.
    pub dns_names: Vec<String>,
    /// The requested addresses.
    pub addresses: Vec<IpAddr>,
    /// The requested mail addresses.
    pub emails: Vec<String>,
    /// The requested URIs.
    pub uris: Vec<String>,
    parsed: CertReq,
}

/// Why a certificate signing request cannot be used, in the words of Kubernetes where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It is not a PEM request.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    /// The PEM block has another type.
    #[error("asn1: the PEM block does not hold a PKCS#10 certificate request")]
    Structure,
    /// The algorithm of its key or its signature is not supported.
    #[error("x509: cannot verify signature: algorithm unimplemented")]
    Algorithm,
    /// Its signature does not match its key.
    #[error("{0}")]
    Signature(&'static str),
}

const BEGIN: &str = "-----BEGIN ";
const LABEL: &str = "CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

impl CertificateRequest {
    /// Parses the first block of a PEM text.
    ///
    /// # Errors
    /// There is no block, or it is not a request.
    pub fn parse(pem: &[u8]) -> Result<Self, RequestError> {
        let text = std::str::from_utf8(pem).map_err(|_| RequestError::Pem)?;
        let (_, block) = text.split_once(BEGIN).ok_or(RequestError::Pem)?;
        let block = block.strip_prefix(LABEL).ok_or(RequestError::Pem)?;
        let (body, _) = block.split_once(END).ok_or(RequestError::Pem)?;
        let body: String = body.split_ascii_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| RequestError::Pem)?;
        let parsed = CertReq::from_der(&der).map_err(|_| RequestError::Structure)?;
        let mut request = Self {
            common_name: String::new(),
            organizations: Vec::new(),
            dns_names: Vec::new(),
            addresses: Vec::new(),
            emails: Vec::new(),
            uris: Vec::new(),
            parsed,
        };
        request.read_subject()?;
        request.read_names()?;
        Ok(request)
    }

    fn read_subject(&mut self) -> Result<(), RequestError> {
        for attribute in self.parsed.info.subject.iter() {
            let text = || {
                let value = DirectoryString::try_from(&attribute.value);
                value.map(|it| it.value().into_owned()).map_err(|_| RequestError::Structure)
            };
            if attribute.oid == COMMON_NAME {
                self.common_name = text()?;
            } else if attribute.oid == ORGANIZATION {
                self.organizations.push(text()?);
            }
        }
        Ok(())
    }

    fn read_names(&mut self) -> Result<(), RequestError> {
        let broken = |_| RequestError::Structure;
        for attribute in self.parsed.info.attributes.iter() {
            if attribute.oid != EXTENSION_REQUEST {
                continue;
            }
            for value in attribute.values.iter() {
                let ExtensionReq(extensions) = value.decode_as().map_err(broken)?;
                let meant = extensions.iter().filter(|it| it.extn_id == SUBJECT_ALT_NAME);
                for extension in meant {
                    let value = extension.extn_value.as_bytes();
                    let names = SubjectAltName::from_der(value).map_err(broken)?;
                    for name in names.0 {
                        match name {
                            GeneralName::DnsName(name) => self.dns_names.push(name.to_string()),
                            GeneralName::Rfc822Name(name) => self.emails.push(name.to_string()),
                            GeneralName::UniformResourceIdentifier(name) => {
                                self.uris.push(name.to_string());
                            }
                            GeneralName::IpAddress(octets) => {
                                let address = address(octets.as_bytes());
                                self.addresses.push(address.ok_or(RequestError::Structure)?);
                            }
                            // Names that Kubernetes ignores are not signed either.
                            GeneralName::OtherName(_)
                            | GeneralName::DirectoryName(_)
                            | GeneralName::EdiPartyName(_)
                            | GeneralName::RegisteredId(_) => {}
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks that the request is signed with the key it is for.
    ///
    /// # Errors
    /// It is not, or the signature cannot be checked.
    pub fn check_signature(&self) -> Result<(), RequestError> {
        let CertReq { info, algorithm, signature } = &self.parsed;
        let signed = info.to_der().map_err(|_| RequestError::Structure)?;
        let key = info.public_key.subject_public_key.raw_bytes();
        let curve = info.public_key.algorithm.parameters.as_ref();
        let curve = curve.and_then(|it| it.decode_as::<ObjectIdentifier>().ok());
        let (verify, failure) = signature_algorithm(algorithm.oid, curve)?;
        UnparsedPublicKey::new(verify, key)
            .verify(&signed, signature.raw_bytes())
            .map_err(|_| RequestError::Signature(failure))
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");

/// Returns the algorithm that checks a signature, and the error text if it does not match.
fn signature_algorithm(
    algorithm: ObjectIdentifier,
    curve: Option<ObjectIdentifier>,
) -> Result<(&'static dyn VerificationAlgorithm, &'static str), RequestError> {
    const ECDSA: &str = "x509: ECDSA verification failure";
    const RSA: &str = "crypto/rsa: verification error";
    let by_curve = |table: [(ObjectIdentifier, &'static dyn VerificationAlgorithm); 3]| {
        let found = table.into_iter().find(|(oid, _)| Some(*oid) == curve);
        found.map(|(_, verify)| (verify, ECDSA)).ok_or(RequestError::Algorithm)
    };
    match algorithm.to_string().as_str() {
        "1.2.840.10045.4.3.2" => by_curve([
            (P256, &ECDSA_P256_SHA256_ASN1),
            (P384, &ECDSA_P384_SHA256_ASN1),
            (P521, &ECDSA_P521_SHA256_ASN1),
        ]),
        "1.2.840.10045.4.3.3" => by_curve([
            (P256, &ECDSA_P256_SHA384_ASN1),
            (P384, &ECDSA_P384_SHA384_ASN1),
            (P521, &ECDSA_P521_SHA384_ASN1),
        ]),
        "1.2.840.10045.4.3.4" if curve == Some(P521) => Ok((&ECDSA_P521_SHA512_ASN1, ECDSA)),
        "1.2.840.113549.1.1.11" => Ok((&RSA_PKCS1_2048_8192_SHA256, RSA)),
        "1.2.840.113549.1.1.12" => Ok((&RSA_PKCS1_2048_8192_SHA384, RSA)),
        "1.2.840.113549.1.1.13" => Ok((&RSA_PKCS1_2048_8192_SHA512, RSA)),
        "1.3.101.112" => Ok((&ED25519, "x509: Ed25519 verification failure")),
        _ => Err(RequestError::Algorithm),
    }
}

/// Signs requests with the key of a server's authority, which never leaves this module.
#[derive(Clone)]
pub struct RequestSigner(pub(super) Arc<CertificateAuthority>);

impl std::fmt::Debug for RequestSigner {
    /// Never shows a key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("RequestSigner(…)")
    }
}

/// The shortest life of a certificate.
const MIN_VALIDITY: Duration = Duration::from_secs(10 * 60);
/// Certificates are valid from a little before they are signed: clocks differ.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// The end of certificates with a shorter life than this is not moved back by the backdating.
const SHORT_VALIDITY: Duration = Duration::from_secs(8 * 60 * 60);

impl RequestSigner {
    /// Signs a certificate (PEM) for the subject, the names and the key of a request.
    ///
    /// It does not authorize the request: that is up to the caller.
    ///
    /// # Errors
    /// A usage is not supported for servers and clients, or the system has no random numbers.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        usages: &[&str],
        seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, PkiError> {
        let asked = seconds.map(|it| Duration::from_secs(u64::try_from(it).unwrap_or_default()));
        let life = asked.unwrap_or(LEAF_LIFETIME).clamp(MIN_VALIDITY, LEAF_LIFETIME);
        let end = SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX);
        let end = if life < SHORT_VALIDITY { end } else { end - BACKDATE };
        let validity = (offset_time(now, -BACKDATE), offset_time(now, end));
        let mut wanted = CertificateSpec { validity, ..CertificateSpec::default() };
        for usage in usages {
            match *usage {
                "digital signature" | "signing" => {
                    wanted.usages.push(KeyUsagePurpose::DigitalSignature);
                }
                "key encipherment" => wanted.usages.push(KeyUsagePurpose::KeyEncipherment),
                "client auth" => wanted.purposes.push(ExtendedKeyUsagePurpose::ClientAuth),
                "server auth" => wanted.purposes.push(ExtendedKeyUsagePurpose::ServerAuth),
                other => return Err(PkiError::Usage { usage: other.to_owned() }),
            }
        }
        for name in &request.dns_names {
            wanted.names.push(SanType::DnsName(Ia5String::try_from(name.as_str())?));
        }
        wanted.names.extend(request.addresses.iter().copied().map(SanType::IpAddress));
        for name in &request.emails {
            wanted.names.push(SanType::Rfc822Name(Ia5String::try_from(name.as_str())?));
        }
        for name in &request.uris {
            wanted.names.push(SanType::URI(Ia5String::try_from(name.as_str())?));
        }
        let info = &request.parsed.info;
        self.0.sign_request(wanted, &info.subject.to_der()?, &info.public_key.to_der()?)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SignatureAlgorithm};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::peer;
    use crate::tls::ClientAuthority;

    /// Returns a request in PEM, and its key.
    fn request(algorithm: &'static SignatureAlgorithm, names: &[&str]) -> (String, KeyPair) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(Ia5String::try_from(*name).unwrap()),
            });
        }
        (params.serialize_request(&key).unwrap().pem().unwrap(), key)
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn requests_are_parsed_and_their_signatures_checked() {
        for algorithm in
            [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
        {
            let (pem, _) = request(algorithm, &["a.test", "10.0.0.1"]);
            let read = CertificateRequest::parse(pem.as_bytes()).unwrap();
            assert_eq!(read.common_name, "system:node:a");
            assert_eq!(read.organizations, ["system:nodes"]);
            assert_eq!(read.dns_names, ["a.test"]);
            assert_eq!(read.addresses, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
            assert!(read.emails.is_empty() && read.uris.is_empty());
            assert_eq!(read.check_signature(), Ok(()));
            // The same request with another key is not signed by the holder of that key.
            let (other, _) = request(algorithm, &[]);
            let other = CertificateRequest::parse(other.as_bytes()).unwrap();
            let mut forged = read.clone();
            forged.parsed.info.public_key = other.parsed.info.public_key;
            assert!(matches!(forged.check_signature(), Err(RequestError::Signature(_))));
        }
    }

    #[test]
    fn invalid_requests_are_refused() {
        let (pem, _) = request(&rcgen::PKCS_ECDSA_P256_SHA256, &[]);
        let block = |label: &str, body: &str| {
            format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
        };
        let table = [
            (String::new(), RequestError::Pem),
            ("x".to_owned(), RequestError::Pem),
            (pem.replace("CERTIFICATE REQUEST", "CERTIFICATE"), RequestError::Pem),
            (pem.replace("-----END", ""), RequestError::Pem),
            (block("CERTIFICATE REQUEST", "!"), RequestError::Pem),
            (block("CERTIFICATE REQUEST", "eA=="), RequestError::Structure),
        ];
        for (text, expected) in table {
            assert_eq!(CertificateRequest::parse(text.as_bytes()).unwrap_err(), expected, "{text}");
        }
        let words = RequestError::Pem.to_string();
        assert_eq!(words, "PEM block type must be CERTIFICATE REQUEST");
    }

    #[test]
    fn signed_certificates_name_the_subject_and_verify() {
        let authority = Arc::new(CertificateAuthority::create(None, now()).unwrap());
        let clients = ClientAuthority::new(&authority.identity.certificate).unwrap();
        let signer = RequestSigner(authority);
        let (pem, key) = request(&rcgen::PKCS_ECDSA_P384_SHA384, &["a.test", "10.0.0.1"]);
        let read = CertificateRequest::parse(pem.as_bytes()).unwrap();
        let usages = ["digital signature", "client auth"];
        let hours = |count: i64| SignedDuration::from_hours(count);
        let year = hours(365 * 24) - BACKDATE;
        let table = [
            (None, year),
            (Some(3600), hours(1)),
            (Some(1), SignedDuration::from_mins(10)),
            (Some(-1), SignedDuration::from_mins(10)),
            (Some(9 * 3600), hours(9) - BACKDATE),
            (Some(i64::from(i32::MAX)), year),
        ];
        for (asked, expected) in table {
            let signed = signer.sign(&read, &usages, asked, now()).unwrap();
            let certificate = CertificateDer::from_pem_slice(signed.as_bytes()).unwrap();
            let facts = peer::parse_certificate(&certificate).unwrap();
            assert_eq!(facts.not_after.duration_since(now()), expected, "{asked:?}");
            assert_eq!(now().duration_since(facts.not_before), BACKDATE);
            let tbs = facts.parsed.tbs_certificate();
            assert_eq!(tbs.subject_public_key_info().to_der().unwrap(), {
                read.parsed.info.public_key.to_der().unwrap()
            });
            assert_eq!(tbs.subject_public_key_info().subject_public_key.raw_bytes(), {
                key.public_key_raw()
            });
            let subject = peer::verified_subject(&certificate).unwrap().unwrap();
            assert_eq!(subject.common_name, "system:node:a");
            assert_eq!(subject.organizations, ["system:nodes"]);
            assert!(clients.verifies(&[certificate], now()));
        }
        // A certificate for servers is not accepted from clients.
        let serving =
            signer.sign(&read, &["digital signature", "server auth"], None, now()).unwrap();
        let serving = CertificateDer::from_pem_slice(serving.as_bytes()).unwrap();
        assert!(!clients.verifies(&[serving], now()));
        let refused = signer.sign(&read, &["cert sign"], None, now()).unwrap_err();
        assert_eq!(refused.to_string(), "cannot sign a certificate for the usage \"cert sign\"");
        assert_eq!(format!("{signer:?}"), "RequestSigner(…)");
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let authority = Arc::new(CertificateAuthority::create(None, now()).unwrap());
        let own =
            CertificateDer::from_pem_slice(authority.identity.certificate.as_bytes()).unwrap();
        let end = peer::parse_certificate(&own).unwrap().not_after;
        let (pem, _) = request(&rcgen::PKCS_ECDSA_P256_SHA256, &[]);
        let read = CertificateRequest::parse(pem.as_bytes()).unwrap();
        let late = end - SignedDuration::from_hours(24);
        let signed = RequestSigner(authority).sign(&read, &["client auth"], None, late).unwrap();
        let signed = CertificateDer::from_pem_slice(signed.as_bytes()).unwrap();
        assert_eq!(peer::parse_certificate(&signed).unwrap().not_after, end);
    }
}
