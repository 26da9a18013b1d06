//! Encrypted PKCS#8 keys: PBES2 with PBKDF2 and AES, as `openssl pkcs8 -topk8` writes them.

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2;
use der::asn1::{AnyRef, ObjectIdentifier, OctetStringRef};
use der::{Decode, Sequence};
use std::num::NonZeroU32;
use x509_cert::spki::AlgorithmIdentifierRef;
use zeroize::Zeroizing;

/// How many rounds of key derivation a file may ask for: some seconds of work. OpenSSL writes
/// 2048.
const MAX_ITERATIONS: u32 = 10_000_000;

const PBES2: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.5.13");
const PBKDF2: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.5.12");

#[derive(Sequence)]
struct EncryptedPrivateKeyInfo<'a> {
    algorithm: AlgorithmIdentifierRef<'a>,
    data: &'a OctetStringRef,
}

#[derive(Sequence)]
struct Pbes2Parameters<'a> {
    derivation: AlgorithmIdentifierRef<'a>,
    encryption: AlgorithmIdentifierRef<'a>,
}

#[derive(Sequence)]
struct Pbkdf2Parameters<'a> {
    salt: &'a OctetStringRef,
    iterations: u32,
    #[asn1(optional = "true")]
    key_length: Option<u16>,
    #[asn1(optional = "true")]
    prf: Option<AlgorithmIdentifierRef<'a>>,
}

/// Why an encrypted key could not be decrypted.
#[derive(Debug)]
pub(crate) enum DecryptError {
    /// The bytes are no encrypted key.
    Damaged,
    /// The file uses an algorithm that is not supported.
    Unsupported(String),
    /// The passphrase is wrong.
    WrongPassphrase,
}

/// Whether DER bytes are an encrypted key.
pub(crate) fn is_encrypted(der: &[u8]) -> bool {
    EncryptedPrivateKeyInfo::from_der(der).is_ok()
}

/// Decrypts a key. The result is PKCS#8 if the passphrase is right.
pub(crate) fn decrypt(der: &[u8], passphrase: &[u8]) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
    let damaged = |_| DecryptError::Damaged;
    let info = EncryptedPrivateKeyInfo::from_der(der).map_err(damaged)?;
    let unsupported = |what: &str, oid| DecryptError::Unsupported(format!("{what} {oid}"));
    if info.algorithm.oid != PBES2 {
        return Err(unsupported("encryption", info.algorithm.oid));
    }
    let parameters: Pbes2Parameters<'_> = parameters(info.algorithm)?;
    if parameters.derivation.oid != PBKDF2 {
        return Err(unsupported("key derivation", parameters.derivation.oid));
    }
    let derivation: Pbkdf2Parameters<'_> = self::parameters(parameters.derivation)?;
    let prf = match derivation.prf.map(|prf| prf.oid.to_string()).as_deref() {
        None | Some("1.2.840.113549.2.7") => pbkdf2::PBKDF2_HMAC_SHA1,
        Some("1.2.840.113549.2.9") => pbkdf2::PBKDF2_HMAC_SHA256,
        Some("1.2.840.113549.2.10") => pbkdf2::PBKDF2_HMAC_SHA384,
        Some("1.2.840.113549.2.11") => pbkdf2::PBKDF2_HMAC_SHA512,
        Some(other) => return Err(DecryptError::Unsupported(format!("key derivation {other}"))),
    };
    let (cipher, key_length) = match parameters.encryption.oid.to_string().as_str() {
        "2.16.840.1.101.3.4.1.2" => (&AES_128, 16),
        "2.16.840.1.101.3.4.1.22" => (&AES_192, 24),
        "2.16.840.1.101.3.4.1.42" => (&AES_256, 32),
        other => return Err(DecryptError::Unsupported(format!("cipher {other}"))),
    };
    if derivation.key_length.is_some_and(|length| usize::from(length) != key_length) {
        return Err(DecryptError::Damaged);
    }
    let iterations = NonZeroU32::new(derivation.iterations).ok_or(DecryptError::Damaged)?;
    if iterations.get() > MAX_ITERATIONS {
        return Err(DecryptError::Unsupported(format!("{iterations} rounds of key derivation")));
    }
    let iv: &OctetStringRef = self::parameters(parameters.encryption)?;
    let iv: [u8; 16] = iv.as_bytes().try_into().map_err(|_| DecryptError::Damaged)?;
    let mut key = Zeroizing::new(vec![0; key_length]);
    pbkdf2::derive(prf, iterations, derivation.salt.as_bytes(), passphrase, &mut key);
    let mut data = Zeroizing::new(info.data.as_bytes().to_vec());
    let wrong = |_| DecryptError::WrongPassphrase;
    let key = UnboundCipherKey::new(cipher, &key).map_err(wrong)?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(wrong)?;
    let context = DecryptionContext::Iv128(FixedLength::from(iv));
    let length = key.decrypt(&mut data, context).map_err(wrong)?.len();
    data.truncate(length);
    Ok(data)
}

fn parameters<'a, T>(algorithm: AlgorithmIdentifierRef<'a>) -> Result<T, DecryptError>
where
    T: der::Choice<'a> + der::DecodeValue<'a>,
{
    let any: AnyRef<'a> = algorithm.parameters.ok_or(DecryptError::Damaged)?;
    any.decode_as().map_err(|_| DecryptError::Damaged)
}
