//! How what is used compares with what should be, without fractions that computers round.

/// One number above another, which is positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ratio {
    pub(super) used: i128,
    pub(super) target: i128,
}

impl Ratio {
    pub(super) fn new(used: i128, target: i128) -> Self {
        Self { used, target: target.max(1) }
    }

    pub(super) fn is_above(self) -> bool {
        self.used > self.target
    }

    pub(super) fn is_below(self) -> bool {
        self.used < self.target
    }

    /// Whether it is so close to one that nothing is changed: a tenth to either side.
    pub(super) fn is_tolerable(self) -> bool {
        9 * self.target <= 10 * self.used && 10 * self.used <= 11 * self.target
    }

    /// How many are needed where `count` do so much.
    pub(super) fn of(self, count: usize) -> i64 {
        ceiling(self.used * i128::try_from(count).unwrap_or(i128::MAX), self.target)
    }
}

/// A fraction, rounded up.
pub(super) fn ceiling(number: i128, by: i128) -> i64 {
    let whole = number.div_euclid(by) + i128::from(number.rem_euclid(by) != 0);
    i64::try_from(whole).unwrap_or(i64::MAX)
}
