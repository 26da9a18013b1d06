//! How fast an autoscaler may go.

use jiff::Timestamp;

use super::history::History;
use super::ratio::ceiling;
use crate::view::{Behavior, ScalingRules};

/// For how long the highest recommendation counts before less is wanted, in seconds.
const DOWN_WINDOW: i64 = 300;

/// What a number of replicas must keep to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) current: i64,
    pub(super) least: i64,
    pub(super) most: i64,
    pub(super) now: Timestamp,
}

/// Why, in one word and in a sentence.
type Why = (&'static str, &'static str);

/// A number of replicas that keeps to its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) replicas: i64,
    /// Why another recommendation than this one counts, if one does.
    pub(super) stabilized: Option<Why>,
    /// Whether it would be another number without limits, and why.
    pub(super) limited: (bool, &'static str, &'static str),
}

const HIGHEST: Why = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const LOWEST: Why = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const TOO_MANY: Why =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: Why =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_FAST_UP: Why =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: Why = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);
const WITHIN: Why = ("DesiredWithinRange", "the desired count is within the acceptable range");

/// Limits what is recommended, and takes note of it.
pub(super) fn limit(
    behavior: Option<&Behavior>,
    limits: Limits,
    recommended: i64,
    history: &mut History,
) -> Limited {
    let (stable, why) = match behavior {
        Some(behavior) => stabilize(behavior, limits, recommended, history),
        None => {
            let highest = history.within(DOWN_WINDOW, limits.now).chain([recommended]).max();
            (highest.unwrap_or(recommended), HIGHEST)
        }
    };
    history.recommend(recommended, limits.now);
    let (replicas, reason) = match behavior {
        Some(behavior) => by_rules(behavior, limits, stable, history),
        None => by_old_rules(limits, stable),
    };
    let stabilized = (stable != recommended).then_some(why);
    Limited { replicas, stabilized, limited: (replicas != stable, reason.0, reason.1) }
}

/// The recommendation that counts, and why if it is another.
fn stabilize(
    behavior: &Behavior,
    limits: Limits,
    recommended: i64,
    history: &History,
) -> (i64, Why) {
    let up = behavior.scale_up.stabilization_window_seconds.unwrap_or_default();
    let down = behavior.scale_down.stabilization_window_seconds.unwrap_or(DOWN_WINDOW);
    let lowest = history.within(up, limits.now).chain([recommended]).min();
    let highest = history.within(down, limits.now).chain([recommended]).max();
    let stable = limits.current.max(lowest.unwrap_or(recommended));
    let stable = stable.min(highest.unwrap_or(recommended));
    (stable, if recommended >= limits.current { LOWEST } else { HIGHEST })
}

/// The rules for autoscalers that say nothing about it.
fn by_old_rules(limits: Limits, desired: i64) -> (i64, Why) {
    let fastest = (2 * limits.current).max(4);
    let (most, why) =
        if limits.most > fastest { (fastest, TOO_FAST_UP) } else { (limits.most, TOO_MANY) };
    if desired < limits.least {
        (limits.least, TOO_FEW)
    } else if desired > most {
        (most, why)
    } else {
        (desired, WITHIN)
    }
}

fn by_rules(behavior: &Behavior, limits: Limits, desired: i64, history: &History) -> (i64, Why) {
    let Limits { current, least, most, .. } = limits;
    if desired > current {
        let fastest = fastest(&behavior.scale_up, limits, history, Direction::Up).max(current);
        let (most, why) = if most > fastest { (fastest, TOO_FAST_UP) } else { (most, TOO_MANY) };
        if desired > most {
            return (most, why);
        }
    } else if desired < current {
        let slowest = fastest(&behavior.scale_down, limits, history, Direction::Down).min(current);
        let (least, why) =
            if least < slowest { (slowest, TOO_FAST_DOWN) } else { (least, TOO_FEW) };
        if desired < least {
            return (least, why);
        }
    }
    (desired, WITHIN)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The furthest that rules allow to go now.
fn fastest(rules: &ScalingRules, limits: Limits, history: &History, way: Direction) -> i64 {
    let select = rules.select_policy.as_deref().unwrap_or("Max");
    if select == "Disabled" {
        return limits.current;
    }
    let proposed = rules.policies.iter().map(|policy| {
        let start = history.at_start_of(policy.period_seconds, limits.current, limits.now);
        match (policy.kind.as_str(), way) {
            ("Percent", Direction::Up) => {
                // Rounded up, or it would never grow.
                ceiling(i128::from(start) * i128::from(100 + policy.value), 100)
            }
            ("Percent", Direction::Down) => start * (100 - policy.value).max(0) / 100,
            (_, Direction::Up) => start + policy.value,
            (_, Direction::Down) => start - policy.value,
        }
    });
    let furthest = (way == Direction::Up) == (select != "Min");
    let chosen = if furthest { proposed.max() } else { proposed.min() };
    chosen.unwrap_or(limits.current)
}
