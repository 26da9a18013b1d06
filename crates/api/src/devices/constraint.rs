//! Constraints, as far as they can be judged without compiling them.

/// The byte offset of the first `=` outside string literals that belongs to no CEL operator.
///
/// Two classes of the original compare with `=`. They are kept, and never match; this is how the
/// user learns of it before an expression compiler is at hand.
///
/// ```
/// use gantry_api::devices::single_equals;
///
/// assert_eq!(single_equals("device.speed = '10G'"), Some(13));
/// assert_eq!(single_equals("device.speed >= '1G' && device.model == 'a=b'"), None);
/// ```
#[must_use]
pub fn single_equals(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut place = 0;
    while let Some(&byte) = bytes.get(place) {
        match byte {
            b'\'' | b'"' => place = after_string(bytes, place),
            b'/' if bytes.get(place + 1) == Some(&b'/') => {
                place += bytes[place..].iter().position(|b| *b == b'\n')?;
            }
            b'=' | b'!' | b'<' | b'>' if bytes.get(place + 1) == Some(&b'=') => place += 2,
            b'=' => return Some(place),
            _ => place += 1,
        }
    }
    None
}

/// Where the literal that opens at `start` has ended; the end of the text if it never does.
fn after_string(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let tripled = bytes[start..].starts_with(&[quote; 3]);
    let close: &[u8] = if tripled { &[quote; 3] } else { &[quote] };
    let raw = start
        .checked_sub(1)
        .is_some_and(|before| matches!(bytes[before], b'r' | b'R') && !is_word(bytes, before));
    let mut place = start + close.len();
    while place < bytes.len() {
        if bytes[place] == b'\\' && !raw {
            place += 2;
        } else if bytes[place..].starts_with(close) {
            return place + close.len();
        } else {
            place += 1;
        }
    }
    bytes.len()
}

/// Whether the letter at `place` continues a longer word.
fn is_word(bytes: &[u8], place: usize) -> bool {
    // `br` and `rb` also introduce a raw literal.
    place.checked_sub(1).is_some_and(|before| {
        let byte = bytes[before];
        (byte.is_ascii_alphanumeric() || byte == b'_') && !matches!(byte, b'b' | b'B')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_a_lone_equals_sign_counts() {
        let table = [
            ("a comparison", "a == b", None),
            ("other operators", "a != b && a <= b && a >= b", None),
            ("a lone sign", "a = b", Some(2)),
            ("a lone sign after a right one", "a == b && c = d", Some(12)),
            ("inside a string", "a == 'x=y'", None),
            ("inside double quotes", "a == \"x=y\"", None),
            ("after an escaped quote", r"a == 'x\'=y'", None),
            ("after a raw string with a backslash", r"a == r'\' && b = c", Some(15)),
            ("inside triple quotes", "a == '''x'=y'''", None),
            ("inside a comment", "a == b // = c\n&& d = e", Some(19)),
            ("in a comment that ends the text", "a == b // = c", None),
            ("three in a row", "a === b", Some(4)),
            ("a string that never ends", "a == 'x = y", None),
        ];
        for (why, text, expected) in table {
            assert_eq!(single_equals(text), expected, "{why}: {text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_scanned_to_its_end(text in "[a-cr='\"\\\\ é\n/<>!]{0,40}") {
            let found = single_equals(&text);
            prop_assert!(found.is_none_or(|place| text.as_bytes()[place] == b'='));
        }
    }
}
