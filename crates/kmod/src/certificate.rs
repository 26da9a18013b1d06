//! Certificates of module signers.

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1, ECDSA_P384_SHA256_ASN1,
    ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    UnparsedPublicKey, VerificationAlgorithm,
};
use der::asn1::{ObjectIdentifier, UintRef};
use der::{Decode, Encode, Sequence};
use jiff::Timestamp;
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::name::Name;
use x509_cert::time::Time;

use crate::digest::Digest;
use crate::key::{
    CURVE_P256, CURVE_P384, EC_PUBLIC_KEY, KeyAlgorithm, MIN_RSA_BITS, PrivateKey, RSA_ENCRYPTION,
};
use crate::module::colon_hex;
use crate::pem::{self, MAX_FILE_SIZE};

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// A certificate: the name under which a kernel knows a public key.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    issuer: Vec<u8>,
    serial: Vec<u8>,
    subject_name: String,
    issuer_name: String,
    self_issued: bool,
    not_before: Timestamp,
    not_after: Timestamp,
    key_identifier: Option<Vec<u8>>,
    public_key: PublicKey,
}

/// Why a file is not accepted as a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The file holds no certificate.
    #[error(
        "there is no certificate in the file: it needs a PEM block CERTIFICATE, or DER; \
         check the data key `cert` of the Secret"
    )]
    NoCertificate,
    /// The certificate cannot be parsed.
    #[error("cannot parse the certificate: {0}; check it with `openssl x509 -noout -text`")]
    Damaged(String),
    /// Its public key has an algorithm or a curve that is not supported.
    #[error("the certificate's key has algorithm {0}, and modules need RSA, P-256 or P-384")]
    Algorithm(String),
    /// Its RSA key is too short.
    #[error("the certificate's RSA key has {0} bits, and needs 2048 or more")]
    TooShort(usize),
    /// The file is too large for a certificate.
    #[error("the file of the certificate has {0} bytes: that is no certificate")]
    TooLarge(usize),
}

impl Certificate {
    /// Reads a certificate: DER if the file begins as DER does, else the first PEM block
    /// `CERTIFICATE`.
    ///
    /// # Errors
    /// Returns an error for files without a certificate, and for keys that kernels or we refuse.
    pub fn parse(file: &[u8]) -> Result<Self, CertificateError> {
        if file.len() > MAX_FILE_SIZE {
            return Err(CertificateError::TooLarge(file.len()));
        }
        if pem::is_der(file) {
            return Self::from_der(file);
        }
        let text = std::str::from_utf8(file).map_err(|_| CertificateError::NoCertificate)?;
        let is_certificate = |label| matches!(label, "CERTIFICATE" | "X509 CERTIFICATE");
        let block = pem::blocks(text).find(|block| is_certificate(block.label));
        let block = block.ok_or(CertificateError::NoCertificate)?;
        let damaged = || CertificateError::Damaged("its PEM block is not base64".to_owned());
        Self::from_der(&block.decode().ok_or_else(damaged)?)
    }

    fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let damaged = |error: der::Error| CertificateError::Damaged(error.to_string());
        let certificate = x509_cert::Certificate::from_der(der).map_err(damaged)?;
        // A signature repeats issuer and serial byte for byte, which holds only if writing what
        // was read gives the same bytes.
        if certificate.to_der().map_err(damaged)? != der {
            return Err(CertificateError::Damaged("it is not in canonical DER".to_owned()));
        }
        let content = certificate.tbs_certificate();
        let key_identifier = content.get_extension::<SubjectKeyIdentifier>().map_err(damaged)?;
        let validity = content.validity();
        Ok(Self {
            der: der.to_vec(),
            issuer: content.issuer().to_der().map_err(damaged)?,
            serial: magnitude(content.serial_number().as_bytes()).to_vec(),
            subject_name: content.subject().to_string(),
            issuer_name: content.issuer().to_string(),
            self_issued: content.issuer() == content.subject(),
            not_before: timestamp(&validity.not_before),
            not_after: timestamp(&validity.not_after),
            key_identifier: key_identifier.map(|(_, it)| it.0.as_bytes().to_vec()),
            public_key: PublicKey::of(content.subject_public_key_info())?,
        })
    }

    /// The certificate in DER, which is what is enrolled in a keyring.
    #[must_use]
    pub fn as_der(&self) -> &[u8] {
        &self.der
    }

    /// The SHA-256 of the certificate in lower-case hexadecimal.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let digest = Digest::Sha256.of(&self.der);
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The issuer's name in DER, as a signature repeats it.
    #[must_use]
    pub fn issuer_der(&self) -> &[u8] {
        &self.issuer
    }

    /// The serial number without leading zeros.
    #[must_use]
    pub fn serial(&self) -> &[u8] {
        &self.serial
    }

    /// The name of the certificate's subject, such as `CN=example,O=Example Ltd`.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject_name
    }

    /// The name of the certificate's issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer_name
    }

    /// Whether subject and issuer are the same, as in most certificates of module signers.
    #[must_use]
    pub fn is_self_issued(&self) -> bool {
        self.self_issued
    }

    /// The subject key identifier, if the certificate has one.
    #[must_use]
    pub fn key_identifier(&self) -> Option<&[u8]> {
        self.key_identifier.as_deref()
    }

    /// From when to when the certificate is valid. Kernels do not look at these times.
    #[must_use]
    pub fn validity(&self) -> (Timestamp, Timestamp) {
        (self.not_before, self.not_after)
    }

    /// The kind of the certificate's key.
    #[must_use]
    pub fn algorithm(&self) -> KeyAlgorithm {
        match &self.public_key {
            PublicKey::Rsa { bits, .. } => KeyAlgorithm::Rsa(*bits),
            PublicKey::P256(_) => KeyAlgorithm::P256,
            PublicKey::P384(_) => KeyAlgorithm::P384,
        }
    }

    pub(crate) fn public_key(&self) -> &PublicKey {
        &self.public_key
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("subject", &self.subject_name)
            .field("issuer", &self.issuer_name)
            .field("serial", &colon_hex(&self.serial))
            .finish_non_exhaustive()
    }
}

/// The public key of a certificate.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum PublicKey {
    /// The key in PKCS#1.
    Rsa { bits: usize, der: Vec<u8> },
    /// An uncompressed point.
    P256(Vec<u8>),
    /// An uncompressed point.
    P384(Vec<u8>),
}

#[derive(Sequence)]
struct RsaPublicKey<'a> {
    modulus: UintRef<'a>,
    exponent: UintRef<'a>,
}

impl PublicKey {
    fn of(info: &x509_cert::spki::SubjectPublicKeyInfoOwned) -> Result<Self, CertificateError> {
        let damaged = |text: &str| CertificateError::Damaged(text.to_owned());
        let key = info.subject_public_key.as_bytes().map(<[u8]>::to_vec);
        let key = key.ok_or_else(|| damaged("its key is no whole number of bytes"))?;
        let parameters = info.algorithm.parameters.as_ref();
        let curve = parameters.and_then(|any| any.decode_as::<ObjectIdentifier>().ok());
        match (info.algorithm.oid, curve) {
            (RSA_ENCRYPTION, _) => {
                let public = RsaPublicKey::from_der(&key);
                let public = public.map_err(|_| damaged("its RSA key cannot be read"))?;
                let bits = public.modulus.as_bytes().len() * 8;
                if bits < MIN_RSA_BITS {
                    return Err(CertificateError::TooShort(bits));
                }
                Ok(Self::Rsa { bits, der: key })
            }
            (EC_PUBLIC_KEY, Some(CURVE_P256)) => Ok(Self::P256(key)),
            (EC_PUBLIC_KEY, Some(CURVE_P384)) => Ok(Self::P384(key)),
            (EC_PUBLIC_KEY, Some(curve)) => {
                Err(CertificateError::Algorithm(format!("elliptic curve {curve}")))
            }
            (other, _) => Err(CertificateError::Algorithm(other.to_string())),
        }
    }

    /// Whether this is the public key of a private key.
    pub(crate) fn is_of(&self, key: &PrivateKey) -> bool {
        match (self, key.algorithm()) {
            (Self::Rsa { der, .. }, KeyAlgorithm::Rsa(_)) => der == key.public_key(),
            (Self::P256(point), KeyAlgorithm::P256) | (Self::P384(point), KeyAlgorithm::P384) => {
                point == key.public_key()
            }
            (Self::Rsa { .. } | Self::P256(_) | Self::P384(_), _) => false,
        }
    }

    /// Whether a signature over the payload is valid. `None`: the library lacks the combination.
    pub(crate) fn verify(&self, digest: Digest, payload: &[u8], signature: &[u8]) -> Option<bool> {
        let (key, algorithm): (_, &'static dyn VerificationAlgorithm) = match (self, digest) {
            (Self::Rsa { der, .. }, digest) => (
                der,
                match digest {
                    Digest::Sha1 => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
                    Digest::Sha224 => return None,
                    Digest::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
                    Digest::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
                    Digest::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
                },
            ),
            (Self::P256(point), digest) => (
                point,
                match digest {
                    Digest::Sha1 | Digest::Sha224 => {
                        return weak_ecdsa::verify_p256(point, digest, payload, signature);
                    }
                    Digest::Sha256 => &ECDSA_P256_SHA256_ASN1,
                    Digest::Sha384 => &ECDSA_P256_SHA384_ASN1,
                    Digest::Sha512 => &ECDSA_P256_SHA512_ASN1,
                },
            ),
            (Self::P384(point), digest) => (
                point,
                match digest {
                    Digest::Sha1 | Digest::Sha224 => {
                        return weak_ecdsa::verify_p384(point, digest, payload, signature);
                    }
                    Digest::Sha256 => &ECDSA_P384_SHA256_ASN1,
                    Digest::Sha384 => &ECDSA_P384_SHA384_ASN1,
                    Digest::Sha512 => &ECDSA_P384_SHA512_ASN1,
                },
            ),
        };
        Some(UnparsedPublicKey::new(algorithm, key).verify(payload, signature).is_ok())
    }
}

/// ECDSA over digests that the library does not verify.
mod weak_ecdsa {
    use p256::ecdsa::signature::hazmat::PrehashVerifier;

    use crate::digest::Digest;

    pub(super) fn verify_p256(
        point: &[u8],
        digest: Digest,
        payload: &[u8],
        signature: &[u8],
    ) -> Option<bool> {
        let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(point).ok()?;
        let Ok(signature) = p256::ecdsa::Signature::from_der(signature) else { return Some(false) };
        Some(key.verify_prehash(digest.of(payload).as_ref(), &signature).is_ok())
    }

    pub(super) fn verify_p384(
        point: &[u8],
        digest: Digest,
        payload: &[u8],
        signature: &[u8],
    ) -> Option<bool> {
        let key = p384::ecdsa::VerifyingKey::from_sec1_bytes(point).ok()?;
        let Ok(signature) = p384::ecdsa::Signature::from_der(signature) else { return Some(false) };
        Some(key.verify_prehash(digest.of(payload).as_ref(), &signature).is_ok())
    }
}

/// The first common name of a name in DER, which `modinfo` shows as the signer.
pub(crate) fn common_name(name: &[u8]) -> Option<String> {
    let name = Name::from_der(name).ok()?;
    let common = name.iter().find(|attribute| attribute.oid == COMMON_NAME)?;
    Some(String::from_utf8_lossy(common.value.value()).into_owned())
}

/// The bytes of a number without the zero that only says that it is not negative.
pub(crate) fn magnitude(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros.min(bytes.len().saturating_sub(1))..]
}

/// A time beyond what `Timestamp` holds counts as its last.
fn timestamp(time: &Time) -> Timestamp {
    let seconds = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! fixture {
        ($name:literal) => {
            include_bytes!(concat!("../tests/fixtures/certificates/", $name))
        };
    }

    #[test]
    fn a_certificate_is_read_from_pem_and_der() {
        let pem = Certificate::parse(fixture!("rsa2048.pem")).unwrap();
        assert_eq!(pem, Certificate::parse(fixture!("rsa2048.der")).unwrap());
        assert_eq!(pem.as_der(), fixture!("rsa2048.der"));
        assert_eq!(pem.serial(), [0xfa, 0x01, 0x20, 0x48]);
        assert_eq!(pem.algorithm(), KeyAlgorithm::Rsa(2048));
        assert!(pem.is_self_issued());
        assert_eq!(pem.key_identifier().map(<[u8]>::len), Some(20));
        assert!(pem.subject().contains("CN=rsa2048"), "{}", pem.subject());
        assert_eq!(common_name(pem.issuer_der()).as_deref(), Some("rsa2048"));
        assert_eq!(pem.fingerprint().len(), 64);
        let debug = format!("{pem:?}");
        assert!(debug.contains("FA:01:20:48"), "{debug}");
    }

    #[test]
    fn text_and_keys_before_a_certificate_are_skipped() {
        let pem = fixture!("p256.pem");
        let key = &include_bytes!("../tests/fixtures/keys/p256.pkcs8.pem")[..];
        let file = [&b"subject=a\n"[..], key, pem].concat();
        let read = Certificate::parse(&file).unwrap();
        assert_eq!(read, Certificate::parse(pem).unwrap());
    }

    #[test]
    fn kms_53_an_issued_certificate_is_known() {
        let issued = Certificate::parse(fixture!("issued.pem")).unwrap();
        assert!(!issued.is_self_issued());
        assert!(issued.issuer().contains("Gantry test authority"), "{}", issued.issuer());
        assert_eq!(issued.serial(), [0xc0, 0xff, 0xee, 0, 0, 0, 1]);
    }

    #[test]
    fn certificates_that_cannot_be_used_are_refused() {
        let large = vec![0x30; MAX_FILE_SIZE + 1];
        let table: [(&str, &[u8], &str); 6] = [
            ("nothing", b"", "there is no certificate"),
            ("not text", b"\xff\xff", "there is no certificate"),
            ("a key", include_bytes!("../tests/fixtures/keys/p256.pkcs8.pem"), "no certificate"),
            ("cut", &fixture!("p256.der")[..100], "cannot parse the certificate"),
            ("P-521", fixture!("p521.pem"), "elliptic curve 1.3.132.0.35"),
            ("1024 bits", fixture!("rsa1024.pem"), "has 1024 bits"),
        ];
        for (why, file, expected) in table {
            let error = Certificate::parse(file).unwrap_err().to_string();
            assert!(error.contains(expected), "{why}: {error}");
        }
        assert_eq!(Certificate::parse(&large), Err(CertificateError::TooLarge(MAX_FILE_SIZE + 1)));
    }

    proptest::proptest! {
        #[test]
        fn no_file_panics(at: proptest::sample::Index, value: u8) {
            let mut der = fixture!("p256.der").to_vec();
            let at = at.index(der.len());
            der[at] = value;
            let _ = Certificate::parse(&der);
        }
    }
}
