//! The key that signs tokens, and believes in no other.

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::claims::{Claims, Fault};
use crate::legacy::{LEGACY_ISSUER, LegacyClaims};

/// The one algorithm: ECDSA on P-256 with SHA-256, as JWTs name it.
pub const ALGORITHM: &str = "ES256";

/// What precedes the point of a P-256 key in the form certificates have it, by which keys are named.
const POINT_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Half a point, and half a signature.
const HALF: usize = 32;

/// A P-256 key that signs tokens.
pub struct Key {
    pair: EcdsaKeyPair,
    id: String,
}

impl fmt::Debug for Key {
    /// Names the key and never shows it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// There are no random numbers to make a key of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not make a key for tokens: the system gives no random numbers")]
pub struct NoKey;

/// The text is not a P-256 key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the key for tokens: it is not a P-256 key in PEM (PKCS#8)")]
pub struct KeyError;

/// The machine gave no randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not sign a token")]
pub struct SignError;

impl Key {
    /// The key in a PEM text (PKCS#8).
    ///
    /// # Errors
    /// There is none, or it is of another sort.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
        const END: &str = "-----END PRIVATE KEY-----";
        let (_, rest) = pem.split_once(BEGIN).ok_or(KeyError)?;
        let (text, _) = rest.split_once(END).ok_or(KeyError)?;
        let text: String = text.split_ascii_whitespace().collect();
        let der = STANDARD.decode(text).map_err(|_| KeyError)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der)
            .map_err(|_| KeyError)?;
        Ok(Self::of(pair))
    }

    /// A new key, for tokens that need not outlive the process.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn generate() -> Result<Self, NoKey> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| NoKey)?;
        Ok(Self::of(pair))
    }

    fn of(pair: EcdsaKeyPair) -> Self {
        let described = [&POINT_PREFIX[..], pair.public_key().as_ref()].concat();
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &described));
        Self { pair, id }
    }

    /// What the key is called in tokens: a digest of its public half.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its public half, as a set of keys (RFC 7517).
    #[must_use]
    pub fn public_set(&self) -> Value {
        // The first octet says that the point is not compressed.
        let point = self.pair.public_key().as_ref().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len().min(HALF));
        json!({ "keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": ALGORITHM,
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }] })
    }

    /// A token that makes these claims.
    ///
    /// # Errors
    /// The machine gave no randomness.
    pub fn sign(&self, claims: &Claims) -> Result<String, SignError> {
        self.sign_any(claims)
    }

    /// A token for a Secret of type `kubernetes.io/service-account-token`. It has no end of its own.
    ///
    /// # Errors
    /// The machine gave no randomness.
    pub fn sign_legacy(&self, claims: &LegacyClaims) -> Result<String, SignError> {
        self.sign_any(claims)
    }

    fn sign_any(&self, claims: &impl Serialize) -> Result<String, SignError> {
        let header = json!({ "alg": ALGORITHM, "kid": self.id }).to_string();
        let claims = serde_json::to_string(claims).map_err(|_| SignError)?;
        let mut token = URL_SAFE_NO_PAD.encode(header);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature =
            self.pair.sign(&SystemRandom::new(), token.as_bytes()).map_err(|_| SignError)?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    /// What a token claims, if this key has signed it for this issuer.
    ///
    /// Nothing of what it claims has been looked at but the issuer: see [`Claims::check`].
    ///
    /// # Errors
    /// It is no token of this issuer, or not of this key.
    pub fn read(&self, token: &str, issuer: &str) -> Result<Claims, Fault> {
        self.read_any(token, issuer)
    }

    /// What a token of a Secret claims, if this key has signed it: see [`LegacyClaims::check`].
    ///
    /// # Errors
    /// It is no such token, or not of this key.
    pub fn read_legacy(&self, token: &str) -> Result<LegacyClaims, Fault> {
        self.read_any(token, LEGACY_ISSUER)
    }

    fn read_any<C: DeserializeOwned>(&self, token: &str, issuer: &str) -> Result<C, Fault> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Fault::Foreign)?;
        let (header, claims) = signed.split_once('.').ok_or(Fault::Foreign)?;
        let part = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| Fault::Foreign);
        let (header, claims, signature) = (part(header)?, part(claims)?, part(signature)?);
        let about: Issuer = serde_json::from_slice(&claims).map_err(|_| Fault::Foreign)?;
        if about.iss != issuer {
            return Err(Fault::Foreign);
        }
        let header: Header = serde_json::from_slice(&header).map_err(|_| Fault::Foreign)?;
        if header.kid.is_some_and(|kid| !kid.is_empty() && kid != self.id) {
            return Err(Fault::UnknownKey);
        }
        // The token does not choose how it is checked. What it declares critical is not understood
        // here, and must then be refused.
        if header.alg != ALGORITHM || header.crit.is_some() {
            return Err(Fault::Signature);
        }
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key());
        public.verify(signed.as_bytes(), &signature).map_err(|_| Fault::Signature)?;
        serde_json::from_slice(&claims).map_err(|_| Fault::Foreign)
    }
}

/// As much of a token as is read before its signature: who says to have made it.
#[derive(Deserialize)]
struct Issuer {
    iss: String,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    alg: String,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

#[cfg(test)]
mod tests;
