//! Numbers of pods given as an integer or as a percentage.

use serde::Deserialize;

/// A number of pods, or a percentage of all of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    /// An absolute number.
    Number(i64),
    /// A percentage such as `25%`.
    Percent(String),
}

/// The direction in which a percentage is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the greater number.
    Up,
    /// To the smaller number.
    Down,
}

impl IntOrPercent {
    /// Returns how many of `whole` it is; `None` if it is not a valid percentage.
    #[must_use]
    pub fn of(&self, whole: i64, rounding: Rounding) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Percent(text) => {
                let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
                let parts = percent.checked_mul(whole)?;
                Some(match rounding {
                    Rounding::Up => parts.checked_add(99)?.div_euclid(100),
                    Rounding::Down => parts.div_euclid(100),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn resolves_numbers_and_percentages() {
        let table: [(Value, i64, Option<i64>, Option<i64>); 7] = [
            (json!(3), 10, Some(3), Some(3)),
            (json!("25%"), 10, Some(3), Some(2)),
            (json!("100%"), 7, Some(7), Some(7)),
            (json!("0%"), 7, Some(0), Some(0)),
            (json!("1%"), 1, Some(1), Some(0)),
            (json!("many"), 1, None, None),
            (json!("9223372036854775807%"), 2, None, None),
        ];
        for (text, whole, up, down) in table {
            let share: IntOrPercent = serde_json::from_value(text.clone()).unwrap();
            assert_eq!(share.of(whole, Rounding::Up), up, "{text} of {whole}, up");
            assert_eq!(share.of(whole, Rounding::Down), down, "{text} of {whole}, down");
        }
    }
}
