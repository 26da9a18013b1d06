//! The ratio of measured to desired usage, in integers, so that nothing is lost to floating-point
//! rounding.

/// A fraction with a positive denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsageRatio {
    pub(super) used: i128,
    pub(super) target: i128,
}

impl UsageRatio {
    pub(super) fn new(used: i128, target: i128) -> Self {
        Self { used, target: target.max(1) }
    }

    pub(super) fn is_above(self) -> bool {
        self.used > self.target
    }

    pub(super) fn is_below(self) -> bool {
        self.used < self.target
    }

    /// Returns whether the ratio is so close to one that nothing is changed: within a tenth on
    /// either side.
    pub(super) fn is_within_tolerance(self) -> bool {
        9 * self.target <= 10 * self.used && 10 * self.used <= 11 * self.target
    }

    /// Returns how many replicas are needed where `count` replicas have this ratio.
    pub(super) fn of(self, count: usize) -> i64 {
        ceiling(self.used * i128::try_from(count).unwrap_or(i128::MAX), self.target)
    }
}

/// Divides and rounds up.
pub(super) fn ceiling(number: i128, by: i128) -> i64 {
    let whole = number.div_euclid(by) + i128::from(number.rem_euclid(by) != 0);
    i64::try_from(whole).unwrap_or(i64::MAX)
}
