//! Deterministic random numbers: the result follows from the inputs.
//!
//! Plans must not use real randomness, or the same world would lead to two different plans.

use gantry_reconcile::names;

/// Returns an evenly distributed number that follows from `parts`.
#[must_use]
pub fn draw(parts: &[&str]) -> u64 {
    mix_bits(names::hash(parts))
}

/// Distributes a number over all its bits.
#[must_use]
pub fn mix_bits(mut number: u64) -> u64 {
    number ^= number >> 33;
    number = number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^= number >> 33;
    number = number.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

/// Returns a whole number below `bound` that follows from `parts`; zero when the bound is zero.
#[must_use]
pub fn draw_below(bound: u64, parts: &[&str]) -> u64 {
    // The upper half of the product is distributed better than a remainder.
    u64::try_from((u128::from(draw(parts)) * u128::from(bound)) >> 64).unwrap_or_default()
}

/// Returns 64 hexadecimal digits that follow from `parts`.
#[must_use]
pub fn digest(parts: &[&str]) -> String {
    let mut number = draw(parts);
    let mut text = String::with_capacity(64);
    for _ in 0..4 {
        text.push_str(&format!("{number:016x}"));
        number = mix_bits(number.wrapping_add(0x9e37_79b9_7f4a_7c15));
    }
    text
}

/// Returns an identifier in the form of a UUID that follows from `parts`.
#[must_use]
pub fn uuid(parts: &[&str]) -> String {
    let text = digest(parts);
    format!(
        "{}-{}-4{}-a{}-{}",
        &text[..8],
        &text[8..12],
        &text[13..16],
        &text[17..20],
        &text[20..32]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_repeat_and_spread() {
        assert_eq!(draw(&["a", "b"]), draw(&["a", "b"]));
        assert_ne!(draw(&["ab", "c"]), draw(&["a", "bc"]));
        let mut shares = [0_u32; 8];
        for n in 0..8000 {
            shares[usize::try_from(draw_below(8, &["x", &n.to_string()])).unwrap()] += 1;
        }
        assert!(shares.iter().all(|it| (900..1100).contains(it)), "{shares:?}");
        assert_eq!(draw_below(0, &["x"]), 0);
    }

    #[test]
    fn uuids_are_well_formed() {
        assert_eq!(digest(&["a"]).len(), 64);
        let uuid = uuid(&["a"]);
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
    }
}
