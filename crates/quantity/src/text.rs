//! The text of a quantity: a sign, digits, and a suffix that scales them.

/// Nano-units in one unit.
pub const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// Suffixes of powers of 1000 and their powers of ten.
pub const DECIMAL_SUFFIXES: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// Suffixes of powers of 1024 and their powers of two.
pub const BINARY_SUFFIXES: [(&str, u32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The family of suffixes a quantity is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Powers of 1000 with a letter: `500m`, `12M`.
    #[default]
    DecimalSi,
    /// Powers of 1024 with two letters: `12Mi`. An amount that is not whole, or is closer to zero
    /// than 1024, is displayed in [`Format::DecimalSi`].
    BinarySi,
    /// Powers of 1000 with an exponent: `12e6`.
    DecimalExponent,
}

/// The parts of a text that may be a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantityText<'a> {
    /// Whether it begins with a minus sign.
    pub negative: bool,
    /// The digits before the point.
    pub whole: &'a str,
    /// The digits after the point.
    pub fraction: &'a str,
    /// Everything after the digits.
    pub suffix: &'a str,
}

impl<'a> QuantityText<'a> {
    /// Splits any text.
    #[must_use]
    pub fn split(text: &'a str) -> Self {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        Self { negative, whole, fraction, suffix }
    }

    /// Whether there is any digit.
    #[must_use]
    pub fn has_digits(&self) -> bool {
        !self.whole.is_empty() || !self.fraction.is_empty()
    }

    /// Whether the suffix has the form that the message of an API server shows: letters, a sign,
    /// digits.
    #[must_use]
    pub fn has_suffix_form(&self) -> bool {
        let letters = ['e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G', 'T', 'P'];
        let power = self.suffix.trim_start_matches(letters);
        let power = power.strip_prefix(['-', '+']).unwrap_or(power);
        power.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// The amount without its sign at a scale, in nano-units and rounded up; none if 128 bits do
    /// not hold it.
    ///
    /// The digits may be many more than any integer holds, so those below one nano-unit are
    /// multiplied one by one from the right, as on paper: what is left over in the end is what
    /// they carry into the digits above. An exponent can drop more places than there are digits,
    /// but has a factor of one, and then nothing carries.
    #[must_use]
    pub fn magnitude(&self, scale: Scale) -> Option<i128> {
        let digits = self.whole.bytes().chain(self.fraction.bytes());
        let digits = digits.map(|digit| i128::from(digit - b'0'));
        let count = self.whole.len() + self.fraction.len();
        let places = i64::try_from(self.fraction.len()).ok()?;
        let shift = scale.exponent.saturating_add(9).saturating_sub(places);
        let factor = 1_i128 << scale.bits;

        let dropped = usize::try_from(shift.min(0).unsigned_abs()).unwrap_or(usize::MAX);
        let (mut carry, mut exact) = (0, true);
        for digit in digits.clone().rev().take(dropped) {
            carry += digit * factor;
            exact &= carry % 10 == 0;
            carry /= 10;
        }

        let mut kept: i128 = 0;
        for digit in digits.take(count.saturating_sub(dropped)) {
            kept = kept.checked_mul(10)?.checked_add(digit)?;
        }
        if kept != 0 && shift > 0 {
            kept = kept.checked_mul(10_i128.checked_pow(u32::try_from(shift).ok()?)?)?;
        }
        kept.checked_mul(factor)?.checked_add(carry + i128::from(!exact))
    }
}

/// What a suffix stands for: a factor of 2^`bits` × 10^`exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The power of two.
    pub bits: u32,
    /// The power of ten.
    pub exponent: i64,
    /// The family of the suffix.
    pub format: Format,
}

impl Scale {
    /// Reads a suffix; nothing if it is none. API servers read exponents of 32 bits only: see
    /// [`Scale::is_known_upstream`].
    #[must_use]
    pub fn parse(suffix: &str) -> Option<Self> {
        // Letters first: `E` alone is exa, and only `E` with digits is an exponent.
        if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
            return Some(Self {
                bits: 0,
                exponent: i64::from(*exponent),
                format: Format::DecimalSi,
            });
        }
        if let Some((_, bits)) = BINARY_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
            return Some(Self { bits: *bits, exponent: 0, format: Format::BinarySi });
        }
        let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        Some(Self { bits: 0, exponent, format: Format::DecimalExponent })
    }

    /// Whether an API server reads the suffix too: its exponents have 32 bits.
    #[must_use]
    pub fn is_known_upstream(self) -> bool {
        i32::try_from(self.exponent).is_ok()
    }
}

/// The ASCII digits a text starts with, and the rest of it.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}
