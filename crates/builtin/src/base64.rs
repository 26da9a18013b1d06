//! Base64 for bytes in JSON, as Go reads it, with Go's offsets in errors.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Encodes bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes and encodes base64 again; line ends are dropped and stray bits at the end cleared.
///
/// # Errors
/// If it is not base64: the offset of the first invalid byte.
pub(crate) fn canonical(text: String) -> Result<String, usize> {
    // Nearly always the text is canonical already, and stays as it is.
    if STANDARD.decode(&text).is_ok() {
        return Ok(text);
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut rest = Reader { text: text.as_bytes(), at: 0 };
    while rest.quantum(&mut bytes)? {}
    Ok(encode(&bytes))
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// Decodes up to four letters; `false` at the end.
    fn quantum(&mut self, bytes: &mut Vec<u8>) -> Result<bool, usize> {
        let mut letters = [0_u8; 4];
        let mut count = 0;
        while count < 4 {
            let Some(&letter) = self.text.get(self.at) else {
                return if count == 0 { Ok(false) } else { Err(self.at - count) };
            };
            self.at += 1;
            match value(letter) {
                Some(value) => {
                    letters[count] = value;
                    count += 1;
                }
                None if letter == b'\n' || letter == b'\r' => {}
                None if letter == b'=' => {
                    self.padding(count)?;
                    break;
                }
                None => return Err(self.at - 1),
            }
        }
        let whole = letters.iter().fold(0_u32, |sum, letter| sum << 6 | u32::from(*letter));
        bytes.extend(&whole.to_be_bytes()[1..count.max(1)]);
        Ok(true)
    }

    /// Handles the first `=` after `count` letters.
    fn padding(&mut self, count: usize) -> Result<(), usize> {
        if count < 2 {
            return Err(self.at - 1);
        }
        if count == 2 {
            self.line_ends();
            match self.text.get(self.at) {
                None => return Err(self.text.len()),
                Some(b'=') => self.at += 1,
                Some(_) => return Err(self.at - 1),
            }
        }
        self.line_ends();
        if self.at < self.text.len() { Err(self.at) } else { Ok(()) }
    }

    fn line_ends(&mut self) {
        while let Some(b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }
}

fn value(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn line_ends_are_dropped(bytes in any::<Vec<u8>>(), at in any::<prop::sample::Index>()) {
            let written = encode(&bytes);
            let mut broken = written.clone();
            broken.insert(at.index(written.len() + 1), '\n');
            prop_assert_eq!(canonical(broken), Ok(written));
        }

        #[test]
        fn no_text_is_too_strange(text in "[A-Za-z0-9+/=\n$]{0,12}") {
            if let Ok(once) = canonical(text) {
                prop_assert_eq!(canonical(once.clone()), Ok(once));
            }
        }
    }
}
