//! PEM blocks of keys and certificates.

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

/// The largest file with a key or a certificate; real ones have some KiB.
pub(crate) const MAX_FILE_SIZE: usize = 1 << 20;

/// How many blocks of one file are looked at.
const MAX_BLOCKS: usize = 64;

/// Whether a file is DER: the rule of `sign-file`, a SEQUENCE whose length takes one to four bytes.
pub(crate) fn is_der(file: &[u8]) -> bool {
    matches!(file, [0x30, 0x81..=0x84, ..])
}

/// One block between its BEGIN and END lines.
pub(crate) struct Block<'a> {
    pub(crate) label: &'a str,
    body: &'a str,
}

impl Block<'_> {
    /// Whether the block is encrypted as before PKCS#8, which its headers say.
    pub(crate) fn is_traditionally_encrypted(&self) -> bool {
        self.body.contains("Proc-Type:") && self.body.contains("ENCRYPTED")
    }

    /// The bytes of the block, or nothing if they are not base64.
    pub(crate) fn decode(&self) -> Option<Zeroizing<Vec<u8>>> {
        // Sized beforehand: a vector that grows leaves copies of the key behind.
        let mut text = Zeroizing::new(Vec::with_capacity(self.body.len()));
        text.extend(self.body.bytes().filter(|byte| !byte.is_ascii_whitespace()));
        let padding = DecodePaddingMode::Indifferent;
        let config = GeneralPurposeConfig::new().with_decode_padding_mode(padding);
        let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, config);
        let mut bytes = Zeroizing::new(vec![0; base64::decoded_len_estimate(text.len())]);
        let length = engine.decode_slice(&*text, &mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }
}

/// The blocks of a file in their order. Text around them is skipped.
pub(crate) fn blocks(file: &str) -> impl Iterator<Item = Block<'_>> {
    let mut rest = file;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once("-----BEGIN ")?;
        let (label, after) = after.split_once("-----")?;
        let (body, after) = after.split_once("-----END ")?;
        rest = after;
        Some(Block { label, body })
    })
    .take(MAX_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_among_text() {
        let file = "note\n-----BEGIN A-----\r\nAQID\r\n-----END A-----\n\
                    -----BEGIN B-----\nBA=\n=\n-----END B-----\n-----BEGIN C-----\n";
        let found: Vec<_> =
            blocks(file).map(|block| (block.label, block.decode().unwrap().to_vec())).collect();
        assert_eq!(found, [("A", vec![1, 2, 3]), ("B", vec![4])]);
        assert!(blocks("-----BEGIN A-----\n?\n-----END A-----").next().unwrap().decode().is_none());
    }

    #[test]
    fn der_is_told_from_pem_by_two_bytes() {
        assert!(is_der(&[0x30, 0x82, 1]) && is_der(&[0x30, 0x81]));
        assert!(!is_der(&[0x30, 0x80]) && !is_der(b"-----") && !is_der(&[0x30]) && !is_der(&[]));
    }
}
