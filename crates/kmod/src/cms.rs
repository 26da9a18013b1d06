//! The CMS message of a module's signature: detached, without certificates and attributes.
//!
//! What is written equals what the kernel's `scripts/sign-file` writes, byte for byte where the
//! signature is deterministic (RSA). What is read may come from any signer.

use cms::cert::IssuerAndSerialNumber;
use cms::content_info::{CmsVersion, ContentInfo};
use cms::signed_data::{
    EncapsulatedContentInfo, SignedData, SignerIdentifier, SignerInfo, SignerInfos,
};
use der::asn1::{ObjectIdentifier, OctetString, SetOfVec};
use der::{Any, Decode, Encode};
use x509_cert::Certificate as X509Certificate;
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::spki::AlgorithmIdentifierOwned;

use crate::certificate::{Certificate, magnitude};
use crate::digest::Digest;
use crate::errno::Errno;
use crate::key::{KeyAlgorithm, RSA_ENCRYPTION};

/// The largest message that is read. One of RSA 4096 has 700 bytes; those with certificates some
/// KiB.
pub const MAX_CMS_SIZE: usize = 1 << 20;

const DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.1");
const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");

/// How a signature names the certificate to verify it with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IdentifyBy {
    /// By issuer and serial number, the default of `sign-file`.
    #[default]
    IssuerAndSerial,
    /// By the subject key identifier, `sign-file -k`. `modinfo` of kmod 30 does not show it.
    KeyIdentifier,
}

/// The certificate that a signature names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignerIdentity {
    /// By issuer and serial number.
    IssuerAndSerial {
        /// The issuer's name in DER.
        issuer: Vec<u8>,
        /// The serial number without leading zeros.
        serial: Vec<u8>,
    },
    /// By the subject key identifier.
    KeyIdentifier(Vec<u8>),
}

/// A signature as it was read: who made it over which digest. It is not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSignature {
    signer: SignerIdentity,
    digest: Digest,
    algorithm: SignatureAlgorithm,
    signature: Vec<u8>,
    attributes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignatureAlgorithm {
    Rsa,
    Ecdsa,
}

/// Why a message is not read as a module's signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CmsError {
    /// It is not the DER of a signature.
    #[error("cannot parse the module's signature: {0}; sign the module again")]
    Damaged(String),
    /// It contains what was signed.
    #[error("the module's signature contains content, and a module's must be detached")]
    NotDetached,
    /// It has no signer, or several.
    #[error("the module's signature has {0} signers, and exactly one is supported")]
    Signers(usize),
    /// It uses a digest that is not supported.
    #[error("the module's signature uses digest {0}; sign the module with sha256")]
    Digest(ObjectIdentifier),
    /// It uses a public-key algorithm that is not supported.
    #[error("the module's signature uses algorithm {0}; sign the module with RSA or ECDSA")]
    Algorithm(ObjectIdentifier),
}

impl CmsError {
    /// The error number that the kernel gives.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Damaged(_) | Self::NotDetached | Self::Signers(_) => Errno::BadMessage,
            Self::Digest(_) | Self::Algorithm(_) => Errno::NoPackage,
        }
    }
}

impl ModuleSignature {
    /// Reads a message.
    ///
    /// # Errors
    /// Returns an error for what is not a detached signature of one signer with known algorithms.
    pub fn parse(message: &[u8]) -> Result<Self, CmsError> {
        let damaged = |error: der::Error| CmsError::Damaged(error.to_string());
        if message.len() > MAX_CMS_SIZE {
            return Err(CmsError::Damaged(format!("it has {} bytes", message.len())));
        }
        let content = ContentInfo::from_der(message).map_err(damaged)?;
        if content.content_type != SIGNED_DATA {
            return Err(CmsError::Damaged(format!("its type is {}", content.content_type)));
        }
        let signed: SignedData = content.content.decode_as().map_err(damaged)?;
        if signed.encap_content_info.econtent.is_some() {
            return Err(CmsError::NotDetached);
        }
        let [signer] = signed.signer_infos.0.as_slice() else {
            return Err(CmsError::Signers(signed.signer_infos.0.len()));
        };
        // As in the kernel, both versions follow from the kind of identifier: RFC 5652, 5.1 and
        // 5.3.
        let version = match signer.sid {
            SignerIdentifier::IssuerAndSerialNumber(_) => CmsVersion::V1,
            SignerIdentifier::SubjectKeyIdentifier(_) => CmsVersion::V3,
        };
        if (signed.version, signer.version) != (version, version) {
            return Err(CmsError::Damaged("its versions do not fit its signer".to_owned()));
        }
        let oid = signer.digest_alg.oid;
        let digest = Digest::from_oid(oid).ok_or(CmsError::Digest(oid))?;
        Ok(Self {
            signer: SignerIdentity::of(&signer.sid).map_err(damaged)?,
            digest,
            algorithm: SignatureAlgorithm::of(signer.signature_algorithm.oid, digest)?,
            signature: signer.signature.as_bytes().to_vec(),
            attributes: signer.signed_attrs.is_some(),
        })
    }

    /// The certificate that the signature names.
    #[must_use]
    pub fn signer(&self) -> &SignerIdentity {
        &self.signer
    }

    /// The digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The signature itself.
    #[must_use]
    pub fn signature(&self) -> &[u8] {
        &self.signature
    }

    /// Whether it has signed attributes. The kernel refuses those for modules.
    #[must_use]
    pub fn has_attributes(&self) -> bool {
        self.attributes
    }

    /// Whether it names this certificate.
    #[must_use]
    pub fn names(&self, certificate: &Certificate) -> bool {
        match &self.signer {
            SignerIdentity::IssuerAndSerial { issuer, serial } => {
                issuer == certificate.issuer_der() && serial == certificate.serial()
            }
            SignerIdentity::KeyIdentifier(key) => certificate.key_identifier() == Some(key),
        }
    }

    /// Whether it is a valid signature of the payload by the certificate's key. `None`: the
    /// combination of algorithms is not supported.
    pub(crate) fn verify(&self, payload: &[u8], certificate: &Certificate) -> Option<bool> {
        let expected = SignatureAlgorithm::by(certificate.algorithm());
        if self.algorithm != expected {
            return Some(false);
        }
        certificate.public_key().verify(self.digest, payload, &self.signature)
    }
}

impl SignerIdentity {
    fn of(identifier: &SignerIdentifier) -> Result<Self, der::Error> {
        Ok(match identifier {
            SignerIdentifier::IssuerAndSerialNumber(it) => Self::IssuerAndSerial {
                issuer: it.issuer.to_der()?,
                serial: magnitude(it.serial_number.as_bytes()).to_vec(),
            },
            SignerIdentifier::SubjectKeyIdentifier(key) => {
                Self::KeyIdentifier(key.0.as_bytes().to_vec())
            }
        })
    }
}

impl SignatureAlgorithm {
    fn of(oid: ObjectIdentifier, digest: Digest) -> Result<Self, CmsError> {
        if oid == RSA_ENCRYPTION || oid == digest.rsa_oid() {
            Ok(Self::Rsa)
        } else if oid == digest.ecdsa_oid() {
            Ok(Self::Ecdsa)
        } else {
            Err(CmsError::Algorithm(oid))
        }
    }

    fn by(key: KeyAlgorithm) -> Self {
        match key {
            KeyAlgorithm::Rsa(_) => Self::Rsa,
            KeyAlgorithm::P256 | KeyAlgorithm::P384 => Self::Ecdsa,
        }
    }
}

/// Writes the message of a signature.
///
/// # Errors
/// Returns an error for a certificate without a key identifier if one is wanted.
pub(crate) fn write(
    certificate: &Certificate,
    identify_by: IdentifyBy,
    digest: Digest,
    signature: Vec<u8>,
) -> Result<Vec<u8>, der::Error> {
    let (version, sid) = match identify_by {
        IdentifyBy::IssuerAndSerial => {
            let x509 = X509Certificate::from_der(certificate.as_der())?;
            let issuer = x509.tbs_certificate().issuer().clone();
            let serial_number = x509.tbs_certificate().serial_number().clone();
            let sid = IssuerAndSerialNumber { issuer, serial_number };
            (CmsVersion::V1, SignerIdentifier::IssuerAndSerialNumber(sid))
        }
        IdentifyBy::KeyIdentifier => {
            let key = certificate.key_identifier().ok_or(der::ErrorKind::Failed)?;
            let sid = SubjectKeyIdentifier(OctetString::new(key)?);
            (CmsVersion::V3, SignerIdentifier::SubjectKeyIdentifier(sid))
        }
    };
    // `sign-file` leaves the parameters of a digest out and gives those of RSA as NULL.
    let digest_alg = AlgorithmIdentifierOwned { oid: digest.oid(), parameters: None };
    let signature_algorithm = match SignatureAlgorithm::by(certificate.algorithm()) {
        SignatureAlgorithm::Rsa => {
            AlgorithmIdentifierOwned { oid: RSA_ENCRYPTION, parameters: Some(Any::null()) }
        }
        SignatureAlgorithm::Ecdsa => {
            AlgorithmIdentifierOwned { oid: digest.ecdsa_oid(), parameters: None }
        }
    };
    let signer = SignerInfo {
        version,
        sid,
        digest_alg: digest_alg.clone(),
        signed_attrs: None,
        signature_algorithm,
        signature: OctetString::new(signature)?,
        unsigned_attrs: None,
    };
    let signed = SignedData {
        version,
        digest_algorithms: SetOfVec::try_from(vec![digest_alg])?,
        encap_content_info: EncapsulatedContentInfo { econtent_type: DATA, econtent: None },
        certificates: None,
        crls: None,
        signer_infos: SignerInfos(SetOfVec::try_from(vec![signer])?),
    };
    let content = ContentInfo { content_type: SIGNED_DATA, content: Any::encode_from(&signed)? };
    content.to_der()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::signature;

    const SIGNED: &[u8] = include_bytes!("../tests/fixtures/signed/rsa2048.sha256.ko");

    fn message() -> &'static [u8] {
        signature::split(SIGNED).unwrap().unwrap().cms
    }

    #[test]
    fn other_messages_are_refused() {
        let damaged =
            |message: &[u8]| matches!(ModuleSignature::parse(message), Err(CmsError::Damaged(_)));
        assert!(damaged(b""));
        assert!(damaged(&message()[..100]));
        assert!(damaged(&[message(), b"x"].concat()));
        assert!(damaged(&vec![0x30; MAX_CMS_SIZE + 1]));
        // The version of the SignedData is 1; 3 is for key identifiers.
        let mut version = message().to_vec();
        assert_eq!(version[23..26], [2, 1, 1]);
        version[25] = 3;
        assert!(damaged(&version));
        assert_eq!(CmsError::NotDetached.errno(), Errno::BadMessage);
        assert_eq!(CmsError::Digest(DATA).errno(), Errno::NoPackage);
    }

    proptest! {
        #[test]
        fn no_message_panics(
            at: prop::sample::Index,
            value: u8,
            random in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut changed = message().to_vec();
            let at = at.index(changed.len());
            changed[at] = value;
            let _ = ModuleSignature::parse(&changed);
            let _ = ModuleSignature::parse(&random);
        }
    }
}
