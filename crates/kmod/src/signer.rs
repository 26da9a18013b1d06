//! Signers: a private key with its certificate, and what users should know about it.

use std::fmt;

use jiff::Timestamp;

use crate::certificate::Certificate;
use crate::cms::{self, IdentifyBy};
use crate::digest::{Digest, WeakDigests};
use crate::key::{KeyAlgorithm, KeySignError, PrivateKey};
use crate::sign::SignError;

/// A private key with its certificate, and how it signs.
#[derive(Debug)]
pub struct Signer {
    key: PrivateKey,
    certificate: Certificate,
    options: SignerOptions,
}

/// How a signer signs. The default is that of the kernel's `sign-file` with SHA-256.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SignerOptions {
    /// The digest.
    pub digest: Digest,
    /// Whether SHA-1 and SHA-224 are accepted.
    pub weak_digests: WeakDigests,
    /// How signatures name the certificate.
    pub identify_by: IdentifyBy,
}

/// Why a key and a certificate make no signer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignerError {
    /// They do not belong together.
    #[error(
        "the private key ({key}) does not match the certificate of {subject} ({certificate}); \
         check keySecret and certSecret"
    )]
    Mismatch {
        /// The kind of the key.
        key: KeyAlgorithm,
        /// The kind of the certificate's key.
        certificate: KeyAlgorithm,
        /// The certificate's subject.
        subject: String,
    },
    /// The digest is too weak.
    #[error("digest {0} is too weak to sign modules; use sha256, or allow weak digests")]
    WeakDigest(Digest),
    /// The key does not sign this digest.
    #[error("cannot sign {digest} with a key of type {key}; use sha256, or the kernel's sign-file")]
    UnsupportedDigest {
        /// The digest.
        digest: Digest,
        /// The kind of the key.
        key: KeyAlgorithm,
    },
    /// Signatures are to name the key identifier, and the certificate has none.
    #[error(
        "the certificate has no subject key identifier; create it with the extension \
         subjectKeyIdentifier=hash, or identify the signer by issuer and serial"
    )]
    NoKeyIdentifier,
}

/// What users should know about a signer that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignerWarning {
    /// The certificate is no longer valid. Kernels do not look at it.
    Expired(Timestamp),
    /// The certificate is not yet valid. Kernels do not look at it.
    NotYetValid(Timestamp),
    /// Some kernels lack the digest.
    DigestNotInEveryKernel(Digest),
    /// Some kernels lack ECDSA.
    EcdsaNotInEveryKernel,
    /// The certificate was issued by an authority, which kernels do not ask.
    IssuedCertificate,
    /// The digest is weak, and was allowed.
    WeakDigest(Digest),
}

impl Signer {
    /// Joins a key and its certificate.
    ///
    /// # Errors
    /// Returns an error if they do not match, or if the options do not fit them.
    pub fn new(
        key: PrivateKey,
        certificate: Certificate,
        options: SignerOptions,
    ) -> Result<Self, SignerError> {
        if !certificate.public_key().is_of(&key) {
            return Err(SignerError::Mismatch {
                key: key.algorithm(),
                certificate: certificate.algorithm(),
                subject: certificate.subject().to_owned(),
            });
        }
        if !options.weak_digests.allow(options.digest) {
            return Err(SignerError::WeakDigest(options.digest));
        }
        if let Err(KeySignError::Unsupported(digest)) = key.sign(options.digest, b"") {
            return Err(SignerError::UnsupportedDigest { digest, key: key.algorithm() });
        }
        let by_key = options.identify_by == IdentifyBy::KeyIdentifier;
        if by_key && certificate.key_identifier().is_none() {
            return Err(SignerError::NoKeyIdentifier);
        }
        Ok(Self { key, certificate, options })
    }

    /// How it signs.
    #[must_use]
    pub fn options(&self) -> SignerOptions {
        self.options
    }

    /// The certificate, which kernels must trust.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// What users should know before they rely on the signatures.
    #[must_use]
    pub fn warnings(&self, now: Timestamp) -> Vec<SignerWarning> {
        let (not_before, not_after) = self.certificate.validity();
        let digest = self.options.digest;
        let newer_digest = matches!(digest, Digest::Sha384 | Digest::Sha512);
        let elliptic = match self.certificate.algorithm() {
            KeyAlgorithm::Rsa(_) => false,
            KeyAlgorithm::P256 | KeyAlgorithm::P384 => true,
        };
        let warnings = [
            (now > not_after).then_some(SignerWarning::Expired(not_after)),
            (now < not_before).then_some(SignerWarning::NotYetValid(not_before)),
            newer_digest.then_some(SignerWarning::DigestNotInEveryKernel(digest)),
            digest.is_weak().then_some(SignerWarning::WeakDigest(digest)),
            elliptic.then_some(SignerWarning::EcdsaNotInEveryKernel),
            (!self.certificate.is_self_issued()).then_some(SignerWarning::IssuedCertificate),
        ];
        warnings.into_iter().flatten().collect()
    }

    /// The CMS message of a payload.
    pub(crate) fn sign(&self, payload: &[u8]) -> Result<Vec<u8>, SignError> {
        let SignerOptions { digest, weak_digests: _, identify_by } = self.options;
        let signature = self.key.sign(digest, payload)?;
        cms::write(&self.certificate, identify_by, digest, signature)
            .map_err(|error| SignError::Encode(error.to_string()))
    }
}

impl fmt::Display for SignerWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired(end) => {
                write!(f, "the certificate expired at {end}; kernels load modules signed with it")
            }
            Self::NotYetValid(start) => {
                write!(f, "the certificate is valid from {start}; kernels do not wait for that")
            }
            Self::DigestNotInEveryKernel(digest) => write!(
                f,
                "kernels before 6.7 may refuse {digest} signatures (unsupported crypto): \
                 use sha256 if one of the nodes has such a kernel"
            ),
            Self::EcdsaNotInEveryKernel => f.write_str(
                "kernels before 6.7 may refuse ECDSA certificates: \
                 use an RSA key if one of the nodes has such a kernel",
            ),
            Self::IssuedCertificate => f.write_str(
                "the certificate was issued by an authority: \
                 enroll this certificate itself on the nodes, its authority is not enough",
            ),
            Self::WeakDigest(digest) => {
                write!(f, "digest {digest} is weak, and was allowed by the configuration")
            }
        }
    }
}
