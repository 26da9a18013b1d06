//! Digests of content: reading, computing, and verifying while bytes pass by.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256, SHA512};

#[cfg(test)]
mod tests;

/// A hash function that names content.
///
/// The image specification registers more names; these two are the ones every registry and every
/// client implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// `sha256`, what everybody uses.
    Sha256,
    /// `sha512`.
    Sha512,
}

impl Algorithm {
    /// The name before the colon.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// The number of hexadecimal digits after the colon.
    #[must_use]
    pub const fn hex_length(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Sha512].into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// The digest of some content, for instance `sha256:e3b0…`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    /// The whole text, which is what everybody asks for.
    text: String,
}

impl Digest {
    /// Computes the SHA-256 digest of `content`.
    #[must_use]
    pub fn sha256(content: &[u8]) -> Self {
        Self::compute(Algorithm::Sha256, content)
    }

    /// Computes the digest of `content`.
    #[must_use]
    pub fn compute(algorithm: Algorithm, content: &[u8]) -> Self {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(content);
        hasher.finish()
    }

    /// The hash function.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hexadecimal digits, which are lower case.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.text[self.algorithm.name().len() + 1..]
    }

    /// The whole text: algorithm, colon, digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first twelve digits, for messages and names of files.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.hex()[..12]
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let (name, hex) = text.split_once(':').ok_or(DigestError::NoAlgorithm)?;
        let algorithm = Algorithm::from_name(name).ok_or(DigestError::UnknownAlgorithm)?;
        if hex.len() != algorithm.hex_length() {
            let (expected, actual) = (algorithm.hex_length(), hex.len());
            return Err(DigestError::Length { algorithm, expected, actual });
        }
        if !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(DigestError::NotHexadecimal);
        }
        Ok(Self { algorithm, text: text.to_owned() })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.text)
    }
}

impl AsRef<str> for Digest {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// Why a text is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// There is no colon.
    #[error("a digest has the form sha256:<64 hexadecimal digits>")]
    NoAlgorithm,
    /// What precedes the colon is not a known hash function.
    #[error("the algorithm of a digest must be sha256 or sha512")]
    UnknownAlgorithm,
    /// Too few or too many digits.
    #[error("a {} digest has {expected} hexadecimal digits, not {actual}", algorithm.name())]
    Length {
        /// The hash function.
        algorithm: Algorithm,
        /// How many digits it has.
        expected: usize,
        /// How many bytes follow the colon.
        actual: usize,
    },
    /// A character is not one of `0-9a-f`.
    #[error("the digits of a digest must be 0-9 and a-f, in lower case")]
    NotHexadecimal,
}

/// Computes a digest of content that comes in pieces.
#[derive(Clone)]
pub struct Hasher {
    algorithm: Algorithm,
    context: Context,
}

impl Hasher {
    /// Starts with no content.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        let context = match algorithm {
            Algorithm::Sha256 => Context::new(&SHA256),
            Algorithm::Sha512 => Context::new(&SHA512),
        };
        Self { algorithm, context }
    }

    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.context.update(piece);
    }

    /// Returns the digest of all pieces.
    #[must_use]
    pub fn finish(self) -> Digest {
        let algorithm = self.algorithm;
        let mut text = String::with_capacity(algorithm.name().len() + 1 + algorithm.hex_length());
        text.push_str(algorithm.name());
        text.push(':');
        for byte in self.context.finish().as_ref() {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
            }
        }
        Digest { algorithm, text }
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hasher({})", self.algorithm.name())
    }
}

impl Write for Hasher {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.update(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks content that comes in pieces against the digest and the size it must have.
///
/// Content that is too long is refused at the first byte too many, so that a sender cannot make
/// the receiver read on.
#[derive(Clone, Debug)]
pub struct Verifier {
    hasher: Hasher,
    expected: Digest,
    size: Option<u64>,
    received: u64,
}

impl Verifier {
    /// Expects content with this digest and exactly this size.
    #[must_use]
    pub fn new(expected: Digest, size: u64) -> Self {
        Self { size: Some(size), ..Self::without_size(expected) }
    }

    /// Expects content with this digest. The caller bounds the size.
    #[must_use]
    pub fn without_size(expected: Digest) -> Self {
        let hasher = Hasher::new(expected.algorithm());
        Self { hasher, expected, size: None, received: 0 }
    }

    /// Adds the next piece.
    ///
    /// # Errors
    ///
    /// [`VerifyError::TooLong`] if the content exceeds its size.
    pub fn update(&mut self, piece: &[u8]) -> Result<(), VerifyError> {
        // A slice is never longer than what 64 bits can count.
        self.received = self.received.saturating_add(piece.len() as u64);
        if let Some(size) = self.size.filter(|size| self.received > *size) {
            return Err(VerifyError::TooLong { digest: self.expected.clone(), size });
        }
        self.hasher.update(piece);
        Ok(())
    }

    /// How many bytes came so far.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Checks the whole content.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] if the content is too short or has another digest.
    pub fn finish(self) -> Result<(), VerifyError> {
        if let Some(size) = self.size.filter(|size| self.received < *size) {
            let received = self.received;
            return Err(VerifyError::TooShort { digest: self.expected, size, received });
        }
        let actual = self.hasher.finish();
        if actual == self.expected {
            Ok(())
        } else {
            Err(VerifyError::Mismatch { expected: self.expected, actual })
        }
    }
}

/// Why content is not what its descriptor promises.
///
/// The sender is at fault: fetching again may help after a broken transfer, and never helps for
/// content that was pushed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// There are more bytes than promised.
    #[error("the content of {digest} is longer than its {size} bytes")]
    TooLong {
        /// The promised digest.
        digest: Digest,
        /// The promised size.
        size: u64,
    },
    /// There are fewer bytes than promised.
    #[error("the content of {digest} ends after {received} of {size} bytes")]
    TooShort {
        /// The promised digest.
        digest: Digest,
        /// The promised size.
        size: u64,
        /// How many bytes came.
        received: u64,
    },
    /// The content has another digest.
    #[error("the content of {expected} has the digest {actual}")]
    Mismatch {
        /// The promised digest.
        expected: Digest,
        /// The digest of what came.
        actual: Digest,
    },
}

impl From<VerifyError> for io::Error {
    fn from(error: VerifyError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Reads content and checks it on the way: its last read fails if the content is wrong.
///
/// What was read before must not be acted on until the end was reached; [`Self::drain`] reads up
/// to it.
#[derive(Debug)]
pub struct VerifyingReader<R> {
    inner: R,
    /// None once the end was reached and the content was right.
    verifier: Option<Verifier>,
    failed: Option<VerifyError>,
}

impl<R: Read> VerifyingReader<R> {
    /// Wraps a reader of content with this digest and size.
    #[must_use]
    pub fn new(inner: R, expected: Digest, size: u64) -> Self {
        Self { inner, verifier: Some(Verifier::new(expected, size)), failed: None }
    }

    /// Why the content is wrong, once that is known.
    #[must_use]
    pub const fn failure(&self) -> Option<&VerifyError> {
        self.failed.as_ref()
    }

    /// Reads and checks what was not read yet.
    ///
    /// # Errors
    ///
    /// What the reader reports, or a [`VerifyError`] inside of an [`io::Error`].
    pub fn drain(&mut self) -> io::Result<()> {
        io::copy(self, &mut io::sink()).map(|_| ())
    }
}

impl<R: Read> Read for VerifyingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone().into());
        }
        if buffer.is_empty() || self.verifier.is_none() {
            return Ok(0);
        }
        let count = self.inner.read(buffer)?;
        let checked = match self.verifier.as_mut() {
            Some(verifier) if count > 0 => verifier.update(&buffer[..count]),
            Some(_) | None => self.verifier.take().map_or(Ok(()), Verifier::finish),
        };
        if let Err(error) = checked {
            self.failed = Some(error.clone());
            return Err(error.into());
        }
        Ok(count)
    }
}
