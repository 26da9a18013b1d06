//! The key that signs and verifies tokens.

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

use crate::claims::{Claims, TokenError};
use crate::legacy::{LEGACY_ISSUER, LegacyClaims};

/// The only algorithm: ECDSA on P-256 with SHA-256, as JWTs name it.
pub const ALGORITHM: &str = "ES256";

/// The DER prefix of a P-256 public key (SubjectPublicKeyInfo); key IDs are digests of this form.
const POINT_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The length of half a point, and of half a signature.
const SCALAR_BYTES: usize = 32;

/// A P-256 key that signs tokens.
pub struct Key {
    pair: EcdsaKeyPair,
    id: String,
}

impl fmt::Debug for Key {
    /// Shows the ID of the key, never the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The system has no random numbers to make a key of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not make a key for tokens: the system gives no random numbers")]
pub struct KeyGenerationError;

/// The text is not a P-256 key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the key for tokens: it is not a P-256 key in PEM (PKCS#8)")]
pub struct KeyError;

/// The system has no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not sign a token")]
pub struct SignError;

impl Key {
    /// Reads the key in a PEM text (PKCS#8).
    ///
    /// # Errors
    /// The text has no key, or one of another type.
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

    /// Generates a key, for tokens that need not outlive the process.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, KeyGenerationError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
            .map_err(|_| KeyGenerationError)?;
        Ok(Self::of(pair))
    }

    fn of(pair: EcdsaKeyPair) -> Self {
        let described = [&POINT_PREFIX[..], pair.public_key().as_ref()].concat();
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &described));
        Self { pair, id }
    }

    /// Returns the key ID in tokens: a digest of the public key.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the public key as a JSON Web Key Set (RFC 7517).
    #[must_use]
    pub fn jwks(&self) -> Value {
        // The first octet says that the point is not compressed.
        let point = self.pair.public_key().as_ref().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len().min(SCALAR_BYTES));
        json!({ "keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": ALGORITHM,
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }] })
    }

    /// Signs a token with these claims.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn sign(&self, claims: &Claims) -> Result<String, SignError> {
        self.sign_any(claims)
    }

    /// Signs a token for a Secret of type `kubernetes.io/service-account-token`. It does not
    /// expire.
    ///
    /// # Errors
    /// The system has no random numbers.
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

    /// Verifies the signature and the issuer of a token and returns its claims.
    ///
    /// No other claim is checked here: see [`Claims::check`].
    ///
    /// # Errors
    /// The token is not of this issuer, or not signed by this key.
    pub fn verify(&self, token: &str, issuer: &str) -> Result<Claims, TokenError> {
        self.verify_any(token, issuer)
    }

    /// Verifies the signature of a Secret's token and returns its claims: see
    /// [`LegacyClaims::check`].
    ///
    /// # Errors
    /// It is no such token, or not signed by this key.
    pub fn verify_legacy(&self, token: &str) -> Result<LegacyClaims, TokenError> {
        self.verify_any(token, LEGACY_ISSUER)
    }

    fn verify_any<C: DeserializeOwned>(&self, token: &str, issuer: &str) -> Result<C, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::OtherIssuer)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::OtherIssuer)?;
        let part = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::OtherIssuer);
        let (header, claims, signature) = (part(header)?, part(claims)?, part(signature)?);
        let about: Issuer = serde_json::from_slice(&claims).map_err(|_| TokenError::OtherIssuer)?;
        if about.iss != issuer {
            return Err(TokenError::OtherIssuer);
        }
        let header: Header =
            serde_json::from_slice(&header).map_err(|_| TokenError::OtherIssuer)?;
        if header.kid.is_some_and(|kid| !kid.is_empty() && kid != self.id) {
            return Err(TokenError::UnknownKey);
        }
        // The token does not choose the algorithm. Headers that it declares critical are not
        // supported here, so such a token must be refused.
        if header.alg != ALGORITHM || header.crit.is_some() {
            return Err(TokenError::Signature);
        }
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key());
        public.verify(signed.as_bytes(), &signature).map_err(|_| TokenError::Signature)?;
        serde_json::from_slice(&claims).map_err(|_| TokenError::OtherIssuer)
    }
}

/// The part of a token that is read before its signature is verified: the claimed issuer.
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
