//! Scales a deployment.

use super::sets::{DESIRED_REPLICAS, DeploymentSet, DeploymentSets, MAX_REPLICAS};
use crate::view::{Deployment, DeploymentStrategyKind};

/// Returns whether the deployment was scaled since its sets were last scaled.
///
/// With strategy `Recreate`, several sets with pods are not scaled but emptied, which a rollout
/// does.
pub(super) fn is_scaling_event(deployment: &Deployment, sets: &DeploymentSets<'_>) -> bool {
    let active = sets.all().filter(|it| it.size > 0).count();
    if deployment.spec.strategy.kind == DeploymentStrategyKind::Recreate && active > 1 {
        return false;
    }
    let differs = |it: &DeploymentSet<'_>| {
        let desired = number(it, DESIRED_REPLICAS);
        it.size > 0 && desired.is_some_and(|desired| desired != deployment.spec.replicas)
    };
    sets.all().any(differs)
}

/// Scales the sets to the deployment's size: the only one with pods or else the latest gets all of
/// it; a saturated set leaves nothing to the others; otherwise each gets its proportion.
pub(super) fn scale_sets(deployment: &Deployment, sets: &mut DeploymentSets<'_>) {
    let wanted = deployment.spec.replicas;
    let most = sets.max_size();
    if let Some(set) = only_or_latest(sets) {
        set.size = wanted;
        // Also where the size is right already: the annotations record the last desired size, and a
        // deployment whose sets disagree would never continue with a rollout.
        set.annotate(DESIRED_REPLICAS, wanted.to_string());
        set.annotate(MAX_REPLICAS, most.to_string());
        return;
    }
    if sets.new.as_ref().is_some_and(|it| is_saturated(it, wanted)) {
        sets.old.iter_mut().for_each(|it| it.size = 0);
        return;
    }
    if deployment.spec.strategy.kind == DeploymentStrategyKind::RollingUpdate {
        scale_proportionally(deployment, sets);
    }
}

/// Returns the only set with pods; when there is none, the current one or the newest.
fn only_or_latest<'s, 'a>(sets: &'s mut DeploymentSets<'a>) -> Option<&'s mut DeploymentSet<'a>> {
    match sets.all().filter(|it| it.size > 0).count() {
        0 if sets.new.is_some() => sets.new.as_mut(),
        0 => sets.old.last_mut(),
        1 => sets.all_mut().find(|it| it.size > 0),
        _ => None,
    }
}

/// Returns whether a set has all desired pods, available, and was meant to.
fn is_saturated(set: &DeploymentSet<'_>, wanted: i64) -> bool {
    set.size == wanted
        && number(set, DESIRED_REPLICAS) == Some(wanted)
        && set.view.status.available_replicas == wanted
}

/// Adds or removes pods in proportion to the size of each set. The remainder of rounding goes to
/// the largest.
fn scale_proportionally(deployment: &Deployment, sets: &mut DeploymentSets<'_>) {
    let most = sets.max_size();
    let allowed = if deployment.spec.replicas > 0 { most } else { 0 };
    let add = allowed - sets.size();
    let mut active: Vec<(usize, &mut DeploymentSet<'_>)> =
        sets.all_mut().filter(|it| it.size > 0).enumerate().collect();
    // Of sets of the same size, the newer ones grow first and the older ones shrink first.
    active.sort_by_key(|(age, set)| {
        let age = i64::try_from(*age).unwrap_or_default();
        (-set.size, if add > 0 { -age } else { age })
    });
    let mut added = 0;
    for (_, set) in &mut active {
        let part = proportional_change(deployment, set, most, add, added);
        set.size += part;
        added += part;
    }
    if let Some((_, largest)) = active.first_mut()
        && add != 0
    {
        largest.size = (largest.size + add - added).max(0);
    }
    for (_, set) in active {
        set.annotate(DESIRED_REPLICAS, deployment.spec.replicas.to_string());
        set.annotate(MAX_REPLICAS, most.to_string());
    }
}

/// Returns the change of a set, when `add` pods are to be added in all and `added` have been.
fn proportional_change(
    deployment: &Deployment,
    set: &DeploymentSet<'_>,
    most: i64,
    add: i64,
    added: i64,
) -> i64 {
    if add == 0 || add == added {
        return 0;
    }
    let fraction = fraction(deployment, set, most);
    let left = add - added;
    if add > 0 { fraction.min(left) } else { fraction.max(left) }
}

/// Returns the change of a set that preserves its proportion.
fn fraction(deployment: &Deployment, set: &DeploymentSet<'_>, most: i64) -> i64 {
    if deployment.spec.replicas == 0 {
        return -set.size;
    }
    let before =
        number(set, MAX_REPLICAS).filter(|it| *it > 0).unwrap_or(deployment.status.replicas);
    if before <= 0 {
        return 0;
    }
    // Halves are rounded up. The product of two sizes may overflow where each does not.
    let (size, most, before) = (i128::from(set.size), i128::from(most), i128::from(before));
    let size = (2 * size * most + before).div_euclid(2 * before) - size;
    i64::try_from(size).unwrap_or_default()
}

/// Parses an annotation that is a number of pods.
fn number(set: &DeploymentSet<'_>, name: &str) -> Option<i64> {
    let number: u32 = set.annotation(name)?.parse().ok()?;
    i32::try_from(number).ok().map(i64::from)
}
