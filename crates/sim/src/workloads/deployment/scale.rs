//! Changes of a deployment's size.

use super::sets::{DESIRED, MOST, Set, Sets};
use crate::view::{Deployment, StrategyKind};

/// Whether the deployment was given another size since its sets were last sized.
///
/// Where old pods must be gone before new ones come, several sets with pods are not sized but
/// emptied, which a rollout does.
pub(super) fn is_due(deployment: &Deployment, sets: &Sets<'_>) -> bool {
    let active = sets.all().filter(|it| it.size > 0).count();
    if deployment.spec.strategy.kind == StrategyKind::Recreate && active > 1 {
        return false;
    }
    let differs = |it: &Set<'_>| {
        let desired = number(it, DESIRED);
        it.size > 0 && desired.is_some_and(|desired| desired != deployment.spec.replicas)
    };
    sets.all().any(differs)
}

/// Sizes the sets by the deployment's size: the only one with pods or else the latest gets all of
/// it; a set that has all of it already leaves nothing to the others; otherwise each gets its part.
pub(super) fn spread(deployment: &Deployment, sets: &mut Sets<'_>) {
    let wanted = deployment.spec.replicas;
    let most = sets.most();
    if let Some(set) = only_or_latest(sets) {
        set.size = wanted;
        // Also where the size is right already: these say which size it was last given, and a
        // deployment whose sets disagree would never go on with a rollout.
        set.annotate(DESIRED, wanted.to_string());
        set.annotate(MOST, most.to_string());
        return;
    }
    if sets.new.as_ref().is_some_and(|it| is_saturated(it, wanted)) {
        sets.old.iter_mut().for_each(|it| it.size = 0);
        return;
    }
    if deployment.spec.strategy.kind == StrategyKind::RollingUpdate {
        in_proportion(deployment, sets);
    }
}

/// The only set with pods; when there is none, the present one or the youngest.
fn only_or_latest<'s, 'a>(sets: &'s mut Sets<'a>) -> Option<&'s mut Set<'a>> {
    match sets.all().filter(|it| it.size > 0).count() {
        0 if sets.new.is_some() => sets.new.as_mut(),
        0 => sets.old.last_mut(),
        1 => sets.all_mut().find(|it| it.size > 0),
        _ => None,
    }
}

/// Whether a set has all pods that are wanted, available, and was meant to.
fn is_saturated(set: &Set<'_>, wanted: i64) -> bool {
    set.size == wanted
        && number(set, DESIRED) == Some(wanted)
        && set.view.status.available_replicas == wanted
}

/// Gives or takes pods by the size of each set. What rounding leaves over goes to the largest.
fn in_proportion(deployment: &Deployment, sets: &mut Sets<'_>) {
    let most = sets.most();
    let allowed = if deployment.spec.replicas > 0 { most } else { 0 };
    let add = allowed - sets.size();
    let mut active: Vec<(usize, &mut Set<'_>)> =
        sets.all_mut().filter(|it| it.size > 0).enumerate().collect();
    // Of sets of the same size, the younger ones grow first and the older ones shrink first.
    active.sort_by_key(|(age, set)| {
        let age = i64::try_from(*age).unwrap_or_default();
        (-set.size, if add > 0 { -age } else { age })
    });
    let mut added = 0;
    for (_, set) in &mut active {
        let part = part(deployment, set, most, add, added);
        set.size += part;
        added += part;
    }
    if let Some((_, largest)) = active.first_mut()
        && add != 0
    {
        largest.size = (largest.size + add - added).max(0);
    }
    for (_, set) in active {
        set.annotate(DESIRED, deployment.spec.replicas.to_string());
        set.annotate(MOST, most.to_string());
    }
}

/// By how much a set changes, when `add` pods are to be added in all and `added` have been.
fn part(deployment: &Deployment, set: &Set<'_>, most: i64, add: i64, added: i64) -> i64 {
    if add == 0 || add == added {
        return 0;
    }
    let fraction = fraction(deployment, set, most);
    let left = add - added;
    if add > 0 { fraction.min(left) } else { fraction.max(left) }
}

/// By how much a set would change if it kept its part of the whole.
fn fraction(deployment: &Deployment, set: &Set<'_>, most: i64) -> i64 {
    if deployment.spec.replicas == 0 {
        return -set.size;
    }
    let before = number(set, MOST).filter(|it| *it > 0).unwrap_or(deployment.status.replicas);
    if before <= 0 {
        return 0;
    }
    // Halves are rounded up. The product of two sizes may not fit where each does.
    let (size, most, before) = (i128::from(set.size), i128::from(most), i128::from(before));
    let size = (2 * size * most + before).div_euclid(2 * before) - size;
    i64::try_from(size).unwrap_or_default()
}

/// An annotation that is a number of pods.
fn number(set: &Set<'_>, name: &str) -> Option<i64> {
    let number: u32 = set.annotation(name)?.parse().ok()?;
    i32::try_from(number).ok().map(i64::from)
}
