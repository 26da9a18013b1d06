//! Private keys that sign modules.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaEncoding,
};
use der::asn1::ObjectIdentifier;
use der::{Decode, Reader, SliceReader};
use x509_cert::spki::AlgorithmIdentifierRef;

use crate::digest::Digest;
use crate::pbes2::{self, DecryptError};
use crate::pem::{self, MAX_FILE_SIZE};

/// The smallest RSA key that is accepted, in bits.
pub const MIN_RSA_BITS: usize = 2048;

pub(crate) const RSA_ENCRYPTION: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
pub(crate) const EC_PUBLIC_KEY: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
pub(crate) const CURVE_P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
pub(crate) const CURVE_P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

/// A private key: RSA of 2048 bits and more, or an elliptic curve, P-256 or P-384.
///
/// Its memory is cleared when it is dropped, and it is never printed.
pub struct PrivateKey {
    pair: Pair,
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
}

/// The kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// RSA with this many bits.
    Rsa(usize),
    /// ECDSA on the curve P-256, which OpenSSL calls prime256v1.
    P256,
    /// ECDSA on the curve P-384, which OpenSSL calls secp384r1.
    P384,
}

/// Why a file is not accepted as a private key. No text has any part of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The file holds no private key.
    #[error(
        "there is no private key in the file: it needs a PEM block such as PRIVATE KEY, \
         RSA PRIVATE KEY or EC PRIVATE KEY, or the same in DER"
    )]
    NoKey,
    /// The key cannot be parsed.
    #[error("cannot parse the private key; check it with `openssl pkey -noout -check`")]
    Damaged,
    /// The key is encrypted.
    #[error("the private key is encrypted: put its passphrase in the data key `pin` of the Secret")]
    PassphraseMissing,
    /// The passphrase does not decrypt the key.
    #[error("the passphrase does not decrypt the private key; check the data key `pin`")]
    WrongPassphrase,
    /// The key is encrypted in a way that is not supported.
    #[error(
        "cannot decrypt the private key: {0} is not supported; convert it with \
         `openssl pkcs8 -topk8 -v2 aes-256-cbc -in KEY -out NEW`"
    )]
    Encryption(String),
    /// The key has an algorithm or a curve that is not supported.
    #[error("the private key has algorithm {0}, and modules are signed with RSA, P-256 or P-384")]
    Algorithm(String),
    /// The RSA key is too short.
    #[error("the RSA key is too short: it needs 2048 bits or more, better 3072")]
    TooShort,
    /// The file is too large for a key.
    #[error("the file of the private key has {0} bytes: that is no key")]
    TooLarge(usize),
}

/// Why a digest could not be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeySignError {
    /// The library does not sign this digest with this kind of key.
    #[error("cannot sign {0} with this key; use sha256, or the kernel's own sign-file")]
    Unsupported(Digest),
    /// The library failed, for instance for lack of randomness.
    #[error("could not sign with the private key")]
    Failed,
}

impl PrivateKey {
    /// Reads a key: PEM or DER; PKCS#8, PKCS#1 or SEC1; or PKCS#8 encrypted with the passphrase.
    ///
    /// Other PEM blocks in the file, such as curve parameters or certificates, are skipped. Copies
    /// made on the way are cleared; the caller clears the file and the passphrase.
    ///
    /// # Errors
    /// Returns an error for files without a key, and for keys that cannot be used.
    pub fn parse(file: &[u8], passphrase: Option<&[u8]>) -> Result<Self, KeyError> {
        if file.len() > MAX_FILE_SIZE {
            return Err(KeyError::TooLarge(file.len()));
        }
        // Short keys have short lengths, so the two bytes that tell a certificate are not enough.
        if file.first() == Some(&0x30) {
            return from_any_der(file, passphrase);
        }
        let text = std::str::from_utf8(file).map_err(|_| KeyError::NoKey)?;
        let block = pem::blocks(text).find(|block| block.label.ends_with("PRIVATE KEY"));
        let block = block.ok_or(KeyError::NoKey)?;
        if block.is_traditionally_encrypted() {
            return Err(KeyError::Encryption("the encryption from before PKCS#8".to_owned()));
        }
        let der = block.decode().ok_or(KeyError::Damaged)?;
        match block.label {
            "PRIVATE KEY" => from_pkcs8(&der),
            "RSA PRIVATE KEY" => from_pkcs1(&der),
            "EC PRIVATE KEY" => from_sec1(&der),
            "ENCRYPTED PRIVATE KEY" => from_encrypted(&der, passphrase),
            other => Err(KeyError::Algorithm(other.chars().take(40).collect())),
        }
    }

    /// The kind of the key.
    #[must_use]
    pub fn algorithm(&self) -> KeyAlgorithm {
        match &self.pair {
            Pair::Rsa(pair) => KeyAlgorithm::Rsa(pair.public_modulus_len() * 8),
            Pair::P256(_) => KeyAlgorithm::P256,
            Pair::P384(_) => KeyAlgorithm::P384,
        }
    }

    /// The public key as the certificate holds it.
    pub(crate) fn public_key(&self) -> &[u8] {
        match &self.pair {
            Pair::Rsa(pair) => pair.public_key().as_ref(),
            Pair::P256(pair) | Pair::P384(pair) => pair.public_key().as_ref(),
        }
    }

    /// Signs a payload, with PKCS#1 v1.5 or ECDSA.
    pub(crate) fn sign(&self, digest: Digest, payload: &[u8]) -> Result<Vec<u8>, KeySignError> {
        let failed = |_| KeySignError::Failed;
        match (&self.pair, digest) {
            (Pair::Rsa(pair), digest) => {
                let encoding: &dyn RsaEncoding = match digest {
                    Digest::Sha256 => &RSA_PKCS1_SHA256,
                    Digest::Sha384 => &RSA_PKCS1_SHA384,
                    Digest::Sha512 => &RSA_PKCS1_SHA512,
                    Digest::Sha1 | Digest::Sha224 => {
                        return Err(KeySignError::Unsupported(digest));
                    }
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                let random = SystemRandom::new();
                pair.sign(encoding, &random, payload, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            (Pair::P256(pair), Digest::Sha256) | (Pair::P384(pair), Digest::Sha384) => {
                let signature = pair.sign(&SystemRandom::new(), payload).map_err(failed)?;
                Ok(signature.as_ref().to_vec())
            }
            (Pair::P256(pair), _) => odd_pairs::sign_p256(pair, digest, payload),
            (Pair::P384(pair), _) => odd_pairs::sign_p384(pair, digest, payload),
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.algorithm())
    }
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "RSA {bits}"),
            Self::P256 => f.write_str("P-256"),
            Self::P384 => f.write_str("P-384"),
        }
    }
}

fn from_any_der(der: &[u8], passphrase: Option<&[u8]>) -> Result<PrivateKey, KeyError> {
    if pbes2::is_encrypted(der) {
        from_encrypted(der, passphrase)
    } else if pkcs8_algorithm(der).is_some() {
        from_pkcs8(der)
    } else if sec1_curve(der).is_some() {
        from_sec1(der)
    } else {
        from_pkcs1(der)
    }
}

fn from_encrypted(der: &[u8], passphrase: Option<&[u8]>) -> Result<PrivateKey, KeyError> {
    let passphrase = passphrase.ok_or(KeyError::PassphraseMissing)?;
    let pkcs8 = pbes2::decrypt(der, passphrase).map_err(|error| match error {
        DecryptError::Damaged => KeyError::Damaged,
        DecryptError::Unsupported(what) => KeyError::Encryption(what),
        DecryptError::WrongPassphrase => KeyError::WrongPassphrase,
    })?;
    from_pkcs8(&pkcs8).map_err(|error| match error {
        // One wrong passphrase of 256 leaves a correct padding and random bytes.
        KeyError::Damaged => KeyError::WrongPassphrase,
        other => other,
    })
}

fn from_pkcs8(der: &[u8]) -> Result<PrivateKey, KeyError> {
    let (algorithm, curve) = pkcs8_algorithm(der).ok_or(KeyError::Damaged)?;
    match (algorithm, curve) {
        (RSA_ENCRYPTION, _) => rsa(RsaKeyPair::from_pkcs8(der)),
        (EC_PUBLIC_KEY, Some(curve)) => elliptic(curve, |signing| {
            EcdsaKeyPair::from_pkcs8(signing, der).map_err(|_| KeyError::Damaged)
        }),
        (other, _) => Err(KeyError::Algorithm(other.to_string())),
    }
}

fn from_pkcs1(der: &[u8]) -> Result<PrivateKey, KeyError> {
    rsa(RsaKeyPair::from_der(der))
}

fn from_sec1(der: &[u8]) -> Result<PrivateKey, KeyError> {
    let curve = sec1_curve(der).ok_or(KeyError::Damaged)?;
    elliptic(curve, |signing| {
        EcdsaKeyPair::from_private_key_der(signing, der).map_err(|_| KeyError::Damaged)
    })
}

fn rsa(pair: Result<RsaKeyPair, aws_lc_rs::error::KeyRejected>) -> Result<PrivateKey, KeyError> {
    let pair = pair.map_err(|rejected| match rejected.to_string().as_str() {
        "TooSmall" => KeyError::TooShort,
        _ => KeyError::Damaged,
    })?;
    // The library refuses shorter keys as well; the limit must not move with its releases.
    if pair.public_modulus_len() * 8 < MIN_RSA_BITS {
        return Err(KeyError::TooShort);
    }
    Ok(PrivateKey { pair: Pair::Rsa(Box::new(pair)) })
}

fn elliptic(
    curve: ObjectIdentifier,
    read: impl FnOnce(
        &'static aws_lc_rs::signature::EcdsaSigningAlgorithm,
    ) -> Result<EcdsaKeyPair, KeyError>,
) -> Result<PrivateKey, KeyError> {
    let pair = match curve {
        CURVE_P256 => Pair::P256(read(&ECDSA_P256_SHA256_ASN1_SIGNING)?),
        CURVE_P384 => Pair::P384(read(&ECDSA_P384_SHA384_ASN1_SIGNING)?),
        other => return Err(KeyError::Algorithm(format!("elliptic curve {other}"))),
    };
    Ok(PrivateKey { pair })
}

/// The algorithm of a PKCS#8 key, and the curve of one that has a curve.
fn pkcs8_algorithm(der: &[u8]) -> Option<(ObjectIdentifier, Option<ObjectIdentifier>)> {
    let mut reader = SliceReader::new(der).ok()?;
    let mut inside = fields(&mut reader)?;
    u8::decode(&mut inside).ok()?;
    let algorithm = AlgorithmIdentifierRef::decode(&mut inside).ok()?;
    let curve = algorithm.parameters.and_then(|it| it.decode_as::<ObjectIdentifier>().ok());
    Some((algorithm.oid, curve))
}

/// The curve of a SEC1 key.
fn sec1_curve(der: &[u8]) -> Option<ObjectIdentifier> {
    let mut reader = SliceReader::new(der).ok()?;
    let mut inside = fields(&mut reader)?;
    u8::decode(&mut inside).ok()?;
    <&der::asn1::OctetStringRef>::decode(&mut inside).ok()?;
    let curve = der::asn1::ContextSpecific::<ObjectIdentifier>::decode_explicit(
        &mut inside,
        der::TagNumber(0),
    );
    Some(curve.ok()??.value)
}

/// A reader of what is inside a SEQUENCE.
fn fields<'a>(reader: &mut SliceReader<'a>) -> Option<SliceReader<'a>> {
    let header = der::Header::decode(reader).ok().filter(|it| it.tag() == der::Tag::Sequence)?;
    SliceReader::new(reader.read_slice(header.length()).ok()?).ok()
}

/// Pairs of curve and digest that the library does not sign; a kernel may ask for any of them.
mod odd_pairs {
    use aws_lc_rs::encoding::{AsBigEndian, EcPrivateKeyBin};
    use aws_lc_rs::signature::EcdsaKeyPair;
    use p256::ecdsa::signature::hazmat::PrehashSigner;

    use super::KeySignError;
    use crate::digest::Digest;

    pub(super) fn sign_p256(
        pair: &EcdsaKeyPair,
        digest: Digest,
        payload: &[u8],
    ) -> Result<Vec<u8>, KeySignError> {
        let scalar = scalar(pair)?;
        let key = p256::ecdsa::SigningKey::from_slice(scalar.as_ref());
        let key = key.map_err(|_| KeySignError::Failed)?;
        let signature: Result<p256::ecdsa::Signature, _> =
            key.sign_prehash(digest.of(payload).as_ref());
        let signature = signature.map_err(|_| KeySignError::Unsupported(digest))?;
        Ok(signature.to_der().as_bytes().to_vec())
    }

    pub(super) fn sign_p384(
        pair: &EcdsaKeyPair,
        digest: Digest,
        payload: &[u8],
    ) -> Result<Vec<u8>, KeySignError> {
        let scalar = scalar(pair)?;
        let key = p384::ecdsa::SigningKey::from_slice(scalar.as_ref());
        let key = key.map_err(|_| KeySignError::Failed)?;
        let signature: Result<p384::ecdsa::Signature, _> =
            key.sign_prehash(digest.of(payload).as_ref());
        let signature = signature.map_err(|_| KeySignError::Unsupported(digest))?;
        Ok(signature.to_der().as_bytes().to_vec())
    }

    /// The secret number; its buffer is cleared when it is dropped.
    fn scalar(pair: &EcdsaKeyPair) -> Result<EcPrivateKeyBin<'static>, KeySignError> {
        pair.private_key().as_be_bytes().map_err(|_| KeySignError::Failed)
    }
}

#[cfg(test)]
mod tests;
