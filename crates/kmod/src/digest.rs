//! Digests of signatures, and which of them are good enough.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use der::asn1::ObjectIdentifier;

/// The digest that a signature is made over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Digest {
    /// Broken, and still accepted by kernels.
    Sha1,
    /// Too short, and still accepted by kernels.
    Sha224,
    /// The default; every kernel with module signatures has it.
    #[default]
    Sha256,
    /// Kernels may have it as a module only.
    Sha384,
    /// Kernels may have it as a module only.
    Sha512,
}

/// Whether SHA-1 and SHA-224 may be used.
///
/// Kernels accept both, so the refusal is policy: a collision would let a signature cover another
/// module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WeakDigests {
    /// They are refused.
    #[default]
    Refuse,
    /// They are used, for instance because another tool signed with them.
    Allow,
}

/// A name that is no digest of module signatures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown digest {0:?}: use sha256, sha384 or sha512")]
pub struct UnknownDigest(String);

impl Digest {
    /// All digests.
    pub const ALL: [Self; 5] = [Self::Sha1, Self::Sha224, Self::Sha256, Self::Sha384, Self::Sha512];

    /// The name that `sign-file` and `modinfo` use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Whether [`WeakDigests`] decides about this digest.
    #[must_use]
    pub fn is_weak(self) -> bool {
        match self {
            Self::Sha1 | Self::Sha224 => true,
            Self::Sha256 | Self::Sha384 | Self::Sha512 => false,
        }
    }

    pub(crate) fn oid(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            Self::Sha1 => "1.3.14.3.2.26",
            Self::Sha224 => "2.16.840.1.101.3.4.2.4",
            Self::Sha256 => "2.16.840.1.101.3.4.2.1",
            Self::Sha384 => "2.16.840.1.101.3.4.2.2",
            Self::Sha512 => "2.16.840.1.101.3.4.2.3",
        })
    }

    /// The algorithm `ecdsa-with-SHA…` of this digest.
    pub(crate) fn ecdsa_oid(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            Self::Sha1 => "1.2.840.10045.4.1",
            Self::Sha224 => "1.2.840.10045.4.3.1",
            Self::Sha256 => "1.2.840.10045.4.3.2",
            Self::Sha384 => "1.2.840.10045.4.3.3",
            Self::Sha512 => "1.2.840.10045.4.3.4",
        })
    }

    /// The algorithm `sha…WithRSAEncryption` of this digest, which some tools write.
    pub(crate) fn rsa_oid(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            Self::Sha1 => "1.2.840.113549.1.1.5",
            Self::Sha224 => "1.2.840.113549.1.1.14",
            Self::Sha256 => "1.2.840.113549.1.1.11",
            Self::Sha384 => "1.2.840.113549.1.1.12",
            Self::Sha512 => "1.2.840.113549.1.1.13",
        })
    }

    pub(crate) fn from_oid(oid: ObjectIdentifier) -> Option<Self> {
        Self::ALL.into_iter().find(|digest| digest.oid() == oid)
    }

    pub(crate) fn of(self, bytes: &[u8]) -> digest::Digest {
        let algorithm = match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha224 => &digest::SHA224,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Digest {
    type Err = UnknownDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownDigest(text.chars().take(32).collect());
        Self::ALL.into_iter().find(|digest| digest.name() == text).ok_or_else(unknown)
    }
}

impl WeakDigests {
    pub(crate) fn allow(self, digest: Digest) -> bool {
        match self {
            Self::Refuse => !digest.is_weak(),
            Self::Allow => true,
        }
    }
}
