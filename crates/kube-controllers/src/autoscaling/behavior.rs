//! Limits how fast an autoscaler scales.

use jiff::Timestamp;

use super::history::History;
use super::ratio::ceiling;
use crate::view::{AutoscalerBehavior, ScalingRules};

/// The default downscale stabilization window, in seconds: the highest recommendation within it
/// counts.
const DOWNSCALE_STABILIZATION_SECONDS: i64 = 300;

/// The limits of a number of replicas.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicaLimits {
    pub(super) current: i64,
    pub(super) min: i64,
    pub(super) max: i64,
    pub(super) now: Timestamp,
}

/// The reason and the message of a condition.
type ConditionReason = (&'static str, &'static str);

/// A number of replicas within its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitedReplicas {
    pub(super) replicas: i64,
    /// Why an earlier recommendation is used instead of the current one, if one is.
    pub(super) stabilized: Option<ConditionReason>,
    /// Whether the limits changed the number, and why.
    pub(super) limited: (bool, &'static str, &'static str),
}

const SCALE_DOWN_STABILIZED: ConditionReason = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent \
     recommendation",
);
const SCALE_UP_STABILIZED: ConditionReason = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const TOO_MANY_REPLICAS: ConditionReason =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW_REPLICAS: ConditionReason =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const SCALE_UP_LIMIT: ConditionReason =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const SCALE_DOWN_LIMIT: ConditionReason = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);
const DESIRED_WITHIN_RANGE: ConditionReason =
    ("DesiredWithinRange", "the desired count is within the acceptable range");

/// Limits a recommendation, and records it in the history.
pub(super) fn limit(
    behavior: Option<&AutoscalerBehavior>,
    limits: ReplicaLimits,
    recommended: i64,
    history: &mut History,
) -> LimitedReplicas {
    let (stable, why) = match behavior {
        Some(behavior) => stabilize(behavior, limits, recommended, history),
        None => {
            let highest = history
                .recommendations_within(DOWNSCALE_STABILIZATION_SECONDS, limits.now)
                .chain([recommended])
                .max();
            (highest.unwrap_or(recommended), SCALE_DOWN_STABILIZED)
        }
    };
    history.record_recommendation(recommended, limits.now);
    let (replicas, reason) = match behavior {
        Some(behavior) => limit_by_behavior(behavior, limits, stable, history),
        None => limit_without_behavior(limits, stable),
    };
    let stabilized = (stable != recommended).then_some(why);
    LimitedReplicas { replicas, stabilized, limited: (replicas != stable, reason.0, reason.1) }
}

/// Returns the stabilized recommendation, and the reason if it differs from the current one.
fn stabilize(
    behavior: &AutoscalerBehavior,
    limits: ReplicaLimits,
    recommended: i64,
    history: &History,
) -> (i64, ConditionReason) {
    let up = behavior.scale_up.stabilization_window_seconds.unwrap_or_default();
    let down =
        behavior.scale_down.stabilization_window_seconds.unwrap_or(DOWNSCALE_STABILIZATION_SECONDS);
    let lowest = history.recommendations_within(up, limits.now).chain([recommended]).min();
    let highest = history.recommendations_within(down, limits.now).chain([recommended]).max();
    let stable = limits.current.max(lowest.unwrap_or(recommended));
    let stable = stable.min(highest.unwrap_or(recommended));
    (
        stable,
        if recommended >= limits.current { SCALE_UP_STABILIZED } else { SCALE_DOWN_STABILIZED },
    )
}

/// Applies the default limits to autoscalers without `behavior`.
fn limit_without_behavior(limits: ReplicaLimits, desired: i64) -> (i64, ConditionReason) {
    let fastest = (2 * limits.current).max(4);
    let (most, why) = if limits.max > fastest {
        (fastest, SCALE_UP_LIMIT)
    } else {
        (limits.max, TOO_MANY_REPLICAS)
    };
    if desired < limits.min {
        (limits.min, TOO_FEW_REPLICAS)
    } else if desired > most {
        (most, why)
    } else {
        (desired, DESIRED_WITHIN_RANGE)
    }
}

fn limit_by_behavior(
    behavior: &AutoscalerBehavior,
    limits: ReplicaLimits,
    desired: i64,
    history: &History,
) -> (i64, ConditionReason) {
    let ReplicaLimits { current, min: least, max: most, .. } = limits;
    if desired > current {
        let fastest =
            scaling_rate_limit(&behavior.scale_up, limits, history, Direction::Up).max(current);
        let (most, why) =
            if most > fastest { (fastest, SCALE_UP_LIMIT) } else { (most, TOO_MANY_REPLICAS) };
        if desired > most {
            return (most, why);
        }
    } else if desired < current {
        let slowest =
            scaling_rate_limit(&behavior.scale_down, limits, history, Direction::Down).min(current);
        let (least, why) =
            if least < slowest { (slowest, SCALE_DOWN_LIMIT) } else { (least, TOO_FEW_REPLICAS) };
        if desired < least {
            return (least, why);
        }
    }
    (desired, DESIRED_WITHIN_RANGE)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Returns the number of replicas up to which the scaling policies allow a change now.
fn scaling_rate_limit(
    rules: &ScalingRules,
    limits: ReplicaLimits,
    history: &History,
    way: Direction,
) -> i64 {
    let select = rules.select_policy.as_deref().unwrap_or("Max");
    if select == "Disabled" {
        return limits.current;
    }
    let proposed = rules.policies.iter().map(|policy| {
        let start = history.replicas_at_start_of(policy.period_seconds, limits.current, limits.now);
        match (policy.kind.as_str(), way) {
            ("Percent", Direction::Up) => {
                // Rounded up, or a small number would never grow.
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
