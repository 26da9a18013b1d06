//! Values that must not be shown.

use std::fmt;

use zeroize::Zeroizing;

/// A secret: it has no text form, is not serialised, and is erased from memory when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Keeps bytes secret.
    #[must_use]
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// The bytes, for the writer of an input alone.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pvs_46_a_secret_is_not_shown() {
        let secret = Secret::new(Zeroizing::new(b"hunter2".to_vec()));
        assert_eq!(format!("{secret:?} {:?}", [&secret]), "Secret [Secret]");
        assert_eq!(secret.bytes(), b"hunter2");
    }
}
