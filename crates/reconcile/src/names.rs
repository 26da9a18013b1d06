//! Names that controllers make up: the same ones whenever the same plan is made.
//!
//! A name that follows from what a plan was made from makes a repeated create harmless: when the
//! first reply was lost, the second finds the name taken instead of making one object too many.

/// Letters and digits that read well and form no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Five characters that follow from `parts`.
#[must_use]
pub fn suffix(parts: &[&str]) -> String {
    let mut number = spread(parts);
    let mut text = String::with_capacity(5);
    for _ in 0..5 {
        let letter = ALPHABET[usize::try_from(number % 27).unwrap_or_default()];
        text.push(char::from(letter));
        number /= 27;
    }
    text
}

/// Up to ten characters that follow from `parts`: what stands for the content of a template.
#[must_use]
pub fn fingerprint(parts: &[&str]) -> String {
    let number = spread(parts);
    let folded = (number >> 32) ^ (number & 0xffff_ffff);
    let digits = folded.to_string();
    digits.bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % 27])).collect()
}

/// `base` and `suffix` joined by a hyphen, the base cut so that the whole is a valid name.
#[must_use]
pub fn join(base: &str, suffix: &str) -> String {
    /// The longest name a pod or a label value may have.
    const LONGEST: usize = 63;
    let room = LONGEST.saturating_sub(suffix.len() + 1);
    let cut = base.char_indices().map(|(at, _)| at).take_while(|at| *at <= room).last();
    let base = if base.len() > room { &base[..cut.unwrap_or(0)] } else { base };
    format!("{base}-{suffix}")
}

/// A number that follows from `parts`, in which neighbours differ in all five characters.
fn spread(parts: &[&str]) -> u64 {
    // The low bits of FNV are weak.
    let mut number = hash(parts);
    number ^= number >> 33;
    number = number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^ (number >> 33)
}

/// FNV-1a over the parts and their borders.
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
