//! Generates names and UIDs.

/// Characters without vowels, so that no word appears by chance.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many characters are added to a prefix.
const SUFFIX_LENGTH: usize = 5;
/// The longest generated name: it must be valid as a label.
const MAX_GENERATED_NAME: usize = 63;

/// Generates a name that begins with `prefix`.
#[must_use]
pub(crate) fn generate(prefix: &str) -> String {
    let mut name: String = prefix.chars().take(MAX_GENERATED_NAME - SUFFIX_LENGTH).collect();
    for _ in 0..SUFFIX_LENGTH {
        name.push(char::from(SUFFIX_ALPHABET[fastrand::usize(..SUFFIX_ALPHABET.len())]));
    }
    name
}

/// Generates a random UID in the form of a version 4 UUID.
#[must_use]
pub(crate) fn uid() -> String {
    let bits = (fastrand::u128(..) & !(0xf000_u128 << 64) & !(0xc000_u128 << 48))
        | (0x4000_u128 << 64)
        | (0x8000_u128 << 48);
    let text = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_version_4() {
        for _ in 0..100 {
            let uid = uid();
            let parts: Vec<&str> = uid.split('-').collect();
            assert_eq!(parts.iter().map(|it| it.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
            assert!(parts[2].starts_with('4'), "{uid}");
            assert!(parts[3].starts_with(['8', '9', 'a', 'b']), "{uid}");
        }
    }

    #[test]
    fn generated_names_fit_a_label() {
        assert_eq!(generate(&"p".repeat(80)).len(), 63);
        let name = generate("some-");
        assert!(name.starts_with("some-") && name.len() == 10, "{name}");
    }
}
