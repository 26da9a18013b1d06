//! Deterministic names for the objects that controllers create.
//!
//! A name that is derived from the input of a plan makes a repeated create harmless: when the first
//! response was lost, the second create finds the name taken instead of creating one object too
//! many.

/// Letters and digits that are easy to tell apart and form no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Five characters derived from `parts`.
#[must_use]
pub fn suffix(parts: &[&str]) -> String {
    let mut number = mixed_hash(parts);
    let mut text = String::with_capacity(5);
    for _ in 0..5 {
        let letter = ALPHABET[usize::try_from(number % 27).unwrap_or_default()];
        text.push(char::from(letter));
        number /= 27;
    }
    text
}

/// Up to ten characters derived from `parts`: the hash of a template.
#[must_use]
pub fn fingerprint(parts: &[&str]) -> String {
    let number = mixed_hash(parts);
    let folded = (number >> 32) ^ (number & 0xffff_ffff);
    let digits = folded.to_string();
    digits.bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % 27])).collect()
}

/// `base` and `suffix` joined by a hyphen, the base cut so that the whole is a valid name.
#[must_use]
pub fn join(base: &str, suffix: &str) -> String {
    /// The longest name a pod or a label value may have.
    const MAX_NAME_LENGTH: usize = 63;
    let room = MAX_NAME_LENGTH.saturating_sub(suffix.len() + 1);
    let cut = base.char_indices().map(|(at, _)| at).take_while(|at| *at <= room).last();
    let base = if base.len() > room { &base[..cut.unwrap_or(0)] } else { base };
    format!("{base}-{suffix}")
}

/// A hash of `parts` in which similar inputs differ in all five characters.
fn mixed_hash(parts: &[&str]) -> u64 {
    // The low bits of FNV are weak.
    let mut number = hash(parts);
    number ^= number >> 33;
    number = number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^ (number >> 33)
}

/// FNV-1a over the parts and their boundaries.
#[must_use]
pub fn hash(parts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |byte: u8| {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(0x0100_0000_01b3);
    };
    for part in parts {
        part.bytes().for_each(&mut eat);
        // No UTF-8 text contains this byte, so ["ab", "c"] and ["a", "bc"] differ.
        eat(0xff);
    }
    hash
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_from_their_parts_alone() {
        assert_eq!(suffix(&["a", "1"]), suffix(&["a", "1"]));
        assert_ne!(suffix(&["ab", "c"]), suffix(&["a", "bc"]));
        let many: BTreeSet<String> = (0..1000).map(|n| suffix(&["x", &n.to_string()])).collect();
        assert_eq!(many.len(), 1000, "neighbours do not collide");
    }

    #[test]
    fn long_names_are_cut_before_the_suffix() {
        let table = [("web", "abcde", "web-abcde".to_owned()), ("", "x", "-x".to_owned())];
        for (base, suffix, expected) in table {
            assert_eq!(join(base, suffix), expected);
        }
        let long = join(&"é".repeat(60), "abcde");
        assert!(long.len() <= 63 && long.ends_with("-abcde"), "{long}");
    }
}
