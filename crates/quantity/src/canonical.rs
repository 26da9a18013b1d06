//! Resource quantities, parsed and written exactly as Kubernetes does, oddities included.

use std::borrow::Cow;

use crate::text::{BINARY_SUFFIXES, DECIMAL_SUFFIXES, Format, QuantityText, Scale};

/// Why a text is not a quantity, with the messages of kube-apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a suffix.
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// There is no digit where there must be one.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Returns the text that kube-apiserver returns for `text`.
///
/// It is the shortest form in the same family of suffixes, except that a text which looks short
/// already is kept: `1.500` stays, `1.5` becomes `1500m`.
///
/// # Errors
/// If the text is not a quantity.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, QuantityError> {
    let read = ParsedQuantity::parse(text)?;
    if read.unchanged {
        Ok(Cow::Borrowed(text))
    } else {
        Ok(Cow::Owned(read.amount.write(read.family)))
    }
}

/// Returns the text that kube-apiserver returns where it keeps no more than thousandths: in the
/// resources of containers, nodes, volumes and limits. Finer amounts are rounded away from zero.
///
/// # Errors
/// If the text is not a quantity.
pub fn canonical_milli(text: &str) -> Result<String, QuantityError> {
    let mut read = ParsedQuantity::parse(text)?;
    read.amount.round_up(-3);
    Ok(read.amount.write(read.family))
}

struct ParsedQuantity {
    amount: Amount,
    family: Format,
    /// Whether the text is returned unchanged.
    unchanged: bool,
}

/// A decimal number of any length: digits times a power of ten.
struct Amount {
    negative: bool,
    /// Digits, the most significant first, each from 0 to 9.
    digits: Vec<u8>,
    exponent: i64,
}

/// As many decimal digits as always fit 63 bits.
const MAX_I64_DIGITS: usize = 18;

/// Nothing is finer than this power of ten.
const NANO: i64 = -9;

impl ParsedQuantity {
    fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        if text == "0" {
            let amount = Amount { negative: false, digits: Vec::new(), exponent: 0 };
            return Ok(Self { amount, family: Format::DecimalSi, unchanged: true });
        }
        let parts = NumberParts::split(text)?;
        let scale = Scale::parse(parts.suffix).filter(|it| it.is_known_upstream());
        let scale = scale.ok_or(QuantityError::Suffix)?;
        match scale.format {
            Format::BinarySi => parts.binary(scale.bits),
            format @ (Format::DecimalSi | Format::DecimalExponent) => {
                parts.decimal(format, scale.exponent)
            }
        }
    }
}

struct NumberParts<'a> {
    negative: bool,
    /// Before the point, without leading zeros; `0` if there is nothing.
    whole: &'a str,
    /// After the point.
    fraction: &'a str,
    suffix: &'a str,
    /// Whether there is any digit at all.
    is_number: bool,
}

impl<'a> NumberParts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let text = QuantityText::split(text);
        if !text.has_suffix_form() {
            return Err(QuantityError::Format);
        }
        let QuantityText { negative, whole, fraction, suffix } = text;
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(Self { negative, whole, fraction, suffix, is_number: text.has_digits() })
    }

    fn amount(&self, exponent: i64) -> Amount {
        let digits = self.whole.bytes().chain(self.fraction.bytes()).map(|byte| byte - b'0');
        let mut amount = Amount { negative: self.negative, digits: digits.collect(), exponent };
        amount.trim_start();
        amount
    }

    /// Long and very fine numbers are parsed more strictly: there a lone point or sign is an error,
    /// elsewhere it is zero, whatever the pattern in the error says.
    fn must_be_number(&self) -> Result<(), QuantityError> {
        if self.is_number { Ok(()) } else { Err(QuantityError::Numeric) }
    }

    fn decimal(&self, family: Format, power: i64) -> Result<ParsedQuantity, QuantityError> {
        let length = self.whole.len() + self.fraction.len();
        let exponent = power - length_of(self.fraction);
        let mut amount = self.amount(exponent);
        if length > MAX_I64_DIGITS || exponent < NANO {
            self.must_be_number()?;
            amount.round_up(NANO);
            return Ok(ParsedQuantity { amount, family, unchanged: false });
        }
        let long_tail = if self.fraction.len() >= 3 {
            self.fraction.ends_with("000")
        } else {
            let all = format!("{}{}", self.whole, self.fraction);
            all.ends_with("000")
        };
        let kept = exponent % 3 == 0 && !long_tail && !self.whole.starts_with('0');
        Ok(ParsedQuantity { amount, family, unchanged: kept })
    }

    fn binary(&self, power: u32) -> Result<ParsedQuantity, QuantityError> {
        let mut amount = self.amount(-length_of(self.fraction));
        for _ in 0..power / 10 {
            amount.multiply(1024);
        }
        let spare = 14 - length_of(self.whole) - i64::from(power) * 3 / 10;
        if self.fraction.is_empty() && spare >= 0 {
            let last = self.whole.bytes().rev().take(3).zip([1_u16, 10, 100]);
            let last: u16 = last.map(|(byte, place)| u16::from(byte - b'0') * place).sum();
            return Ok(ParsedQuantity {
                amount,
                family: Format::BinarySi,
                unchanged: !last.is_multiple_of(8),
            });
        }
        self.must_be_number()?;
        amount.round_up(NANO);
        if amount.whole().is_none_or(|whole| whole > i64::MAX.unsigned_abs()) {
            let digits = i64::MAX.to_string().bytes().map(|byte| byte - b'0').collect();
            amount = Amount { negative: self.negative, digits, exponent: 0 };
        }
        let is_small = amount.whole() == Some(0) && !amount.digits.is_empty();
        let family = if is_small { Format::DecimalSi } else { Format::BinarySi };
        Ok(ParsedQuantity { amount, family, unchanged: false })
    }
}

impl Amount {
    fn trim_start(&mut self) {
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
    }

    fn multiply(&mut self, factor: u32) {
        let mut carry = 0_u32;
        for digit in self.digits.iter_mut().rev() {
            let product = u32::from(*digit) * factor + carry;
            *digit = low_digit(product);
            carry = product / 10;
        }
        let mut front = Vec::new();
        while carry > 0 {
            front.push(low_digit(carry));
            carry /= 10;
        }
        front.reverse();
        self.digits.splice(0..0, front);
    }

    /// Drops everything finer than ten to the power of `finest`; a remainder rounds away from zero,
    /// so that a small request gets some.
    fn round_up(&mut self, finest: i64) {
        let Ok(dropped) = usize::try_from(finest - self.exponent) else { return };
        if dropped == 0 || self.digits.is_empty() {
            return;
        }
        let rest = self.digits.split_off(self.digits.len().saturating_sub(dropped));
        self.exponent = finest;
        if rest.iter().all(|digit| *digit == 0) {
            return;
        }
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
    }

    /// Returns the amount without its fraction and sign, if it is within bounds.
    fn whole(&self) -> Option<u64> {
        let fraction = usize::try_from(-self.exponent).unwrap_or(0);
        let kept = self.digits.len().saturating_sub(fraction);
        let zeros = usize::try_from(self.exponent).unwrap_or(0);
        if kept > 20 || (kept > 0 && zeros > 20) {
            return None;
        }
        let mut whole = 0_u64;
        for digit in self.digits[..kept].iter().copied().chain(std::iter::repeat_n(0, zeros)) {
            whole = whole.checked_mul(10)?.checked_add(u64::from(digit))?;
        }
        Some(whole)
    }

    fn is_whole(&self) -> bool {
        let fraction = usize::try_from(-self.exponent).unwrap_or(0);
        let kept = self.digits.len().saturating_sub(fraction);
        self.digits[kept..].iter().all(|digit| *digit == 0)
    }

    fn write(mut self, family: Format) -> String {
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        let sign = if self.negative { "-" } else { "" };
        if family == Format::BinarySi
            && let Some(mut whole) = self.whole()
            && whole >= 1024
            && self.is_whole()
        {
            let mut suffix = "";
            for (word, _) in BINARY_SUFFIXES {
                if whole % 1024 != 0 {
                    break;
                }
                whole /= 1024;
                suffix = word;
            }
            return format!("{sign}{whole}{suffix}");
        }
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
        while self.exponent % 3 != 0 {
            self.digits.push(0);
            self.exponent -= 1;
        }
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        match (family, self.exponent) {
            (_, 0) => format!("{sign}{digits}"),
            (Format::DecimalExponent, exponent) => format!("{sign}{digits}e{exponent}"),
            // Beyond the largest suffix upstream writes none, and so do we: clients compare texts.
            (Format::DecimalSi | Format::BinarySi, exponent) => {
                let known =
                    DECIMAL_SUFFIXES.iter().find(|(_, power)| i64::from(*power) == exponent);
                format!("{sign}{digits}{}", known.map_or("", |(word, _)| word))
            }
        }
    }
}

fn length_of(text: &str) -> i64 {
    i64::try_from(text.len()).expect("no text is longer than memory")
}

fn low_digit(number: u32) -> u8 {
    u8::try_from(number % 10).expect("a digit is below ten")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The right-hand side is what resource.ParseQuantity and MarshalJSON of v0.34.10 gave.
    const GOLDEN: &str = include_str!("canonical/golden.txt");

    #[test]
    fn amounts_are_written_as_upstream_writes_them() {
        let mut rows = 0;
        for row in GOLDEN.lines().filter(|row| !row.starts_with('#')) {
            let (text, expected) = row.split_once('\t').unwrap();
            let got = match canonical(text) {
                Ok(text) => text.into_owned(),
                Err(fault) => format!("!{fault}"),
            };
            assert_eq!(got, expected, "{text:?}");
            rows += 1;
        }
        assert!(rows > 100, "{rows} rows");
    }

    #[test]
    fn resources_of_containers_keep_thousandths() {
        let table = [
            ("1.500", "1500m"),
            ("0.0001", "1m"),
            ("100u", "1m"),
            ("-100u", "-1m"),
            ("1500m", "1500m"),
            ("1Gi", "1Gi"),
            ("9999u", "10m"),
        ];
        for (text, expected) in table {
            assert_eq!(canonical_milli(text).as_deref(), Ok(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn writing_again_changes_nothing(text in "[+-]?[0-9]{0,25}(\\.[0-9]{0,15})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2})?") {
            if let Ok(once) = canonical(&text) {
                prop_assert_eq!(canonical(&once), Ok(once.clone()));
            }
        }

        #[test]
        fn no_text_is_too_strange(text in any::<String>()) {
            let _ = canonical(&text);
            let _ = canonical_milli(&text);
        }
    }
}
