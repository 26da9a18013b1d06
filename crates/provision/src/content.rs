//! Contents of files, and digests that stand for them.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The SHA-256 of a content in hexadecimal; in a journal, of a salt and that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

/// Hexadecimal digits of a digest that are shown to users.
const SHOWN_DIGITS: usize = 8;

impl Digest {
    /// The digest of a content.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::over(&[bytes])
    }

    fn over(parts: &[&[u8]]) -> Self {
        let mut context = Context::new(&SHA256);
        for part in parts {
            context.update(part);
        }
        Self(hexadecimal(context.finish().as_ref()))
    }

    /// The digest as a journal has it: without the salt it says nothing about a short secret.
    #[must_use]
    pub fn salted(&self, salt: &Salt) -> Self {
        Self::over(&[salt.0.as_bytes(), self.0.as_bytes()])
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its first digits.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..SHOWN_DIGITS).unwrap_or(&self.0)
    }

    /// Reads 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (text.len() == 64 && text.chars().all(is_digit)).then(|| Self(text.to_owned()))
    }
}

/// What the digests of a journal are mixed with; made once for each journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Salt(String);

impl Salt {
    /// Makes a salt of random bytes.
    #[must_use]
    pub fn of(random: &[u8; 32]) -> Self {
        Self(hexadecimal(random))
    }

    /// The digits, as a name for a file that nobody can guess.
    pub(crate) fn into_name(self) -> String {
        self.0
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

/// The bytes of a file that is to be written. It is never printed or serialized: the bytes go to a
/// host as the body of a frame, and everything else names their digest.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    bytes: Zeroizing<Vec<u8>>,
    is_secret: bool,
}

impl Content {
    /// A content that may be shown.
    #[must_use]
    pub fn public(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: Zeroizing::new(bytes.into()), is_secret: false }
    }

    /// A content that is shown as a digest only.
    #[must_use]
    pub fn secret(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: Zeroizing::new(bytes.into()), is_secret: true }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether it is shown as a digest only.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// The digest of the bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes, sha256:{})", self.bytes.len(), self.digest().short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_sha256() {
        let empty = Digest::of(b"");
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(empty.as_str(), expected);
        assert_eq!(Digest::parse(expected), Some(empty.clone()));
        assert_eq!(Digest::parse("E3"), None);
        assert_ne!(empty.salted(&Salt::of(&[1; 32])), empty.salted(&Salt::of(&[2; 32])));
    }

    #[test]
    fn pvs_46_a_content_is_not_printed() {
        let secret = Content::secret("hunter2");
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
