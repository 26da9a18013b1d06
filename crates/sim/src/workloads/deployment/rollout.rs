//! The way from pods of old templates to pods of the new one.

use gantry_reconcile::world::Refused;
use gantry_reconcile::{Plan, View};

use super::sets::{Set, Sets};
use super::status::Report;
use super::{Seen, history, hold, sets};
use crate::view::{Deployment, ReplicaSet, StrategyKind};

/// Decides the next step of a rollout.
pub(super) fn step(seen: &Seen, sets: &mut Sets<'_>, report: &mut Report<'_>, plan: &mut Plan) {
    let deployment = &seen.deployment;
    let moved = match deployment.spec.strategy.kind {
        StrategyKind::RollingUpdate => roll(seen, sets, report, plan),
        StrategyKind::Recreate => recreate(seen, sets, report, plan),
    };
    if !moved && report.was_complete() {
        history::forget(deployment, sets, plan);
    }
}

/// Replaces a few pods at a time. Tells whether anything is to move.
fn roll(seen: &Seen, sets: &mut Sets<'_>, report: &mut Report<'_>, plan: &mut Plan) -> bool {
    let Some(size) = sets.new.as_ref().map(|it| it.size) else {
        make_new(seen, sets, sets.room_for_new(0), report, plan);
        return true;
    };
    let wanted = seen.deployment.spec.replicas;
    let next = if size > wanted { wanted } else { sets.room_for_new(size) };
    if let Some(new) = sets.new.as_mut()
        && next != size
    {
        new.size = next;
        return true;
    }
    shrink_old(&seen.deployment, sets)
}

/// Takes pods from old sets, as many as can be spared: first those that are not available anyway,
/// then others. Tells whether there are any.
fn shrink_old(deployment: &Deployment, sets: &mut Sets<'_>) -> bool {
    let needed = deployment.spec.replicas - sets.limits.unavailable;
    // Pods of the new set that are not available yet are counted as missing: otherwise a new set
    // that never gets available would take the place of old ones that are.
    let pending = sets.new.as_ref().map_or(0, |it| it.size - it.available());
    let mut spare = sets.size() - needed - pending;
    let before = sets.size();
    for set in &mut sets.old {
        let unavailable = set.size - set.available();
        let cut = unavailable.min(spare).max(0);
        set.size -= cut;
        spare -= cut;
    }
    let mut available = sets.all().map(Set::available).sum::<i64>() - needed;
    for set in &mut sets.old {
        let cut = set.size.min(available).min(spare).max(0);
        set.size -= cut;
        available -= cut;
        spare -= cut;
    }
    sets.size() < before
}

/// Takes all old pods away, and makes new ones when they are gone. Tells whether anything is to
/// move.
fn recreate(seen: &Seen, sets: &mut Sets<'_>, report: &mut Report<'_>, plan: &mut Plan) -> bool {
    let wanted = seen.deployment.spec.replicas;
    let mut moved = false;
    for set in sets.old.iter_mut().filter(|it| it.size > 0) {
        set.size = 0;
        moved = true;
    }
    if moved {
        return true;
    }
    let busy =
        |it: &&Set<'_>| it.view.status.replicas > 0 || seen.busy.contains(&it.view.metadata.uid);
    if let Some(set) = sets.old.iter().find(busy) {
        let message = format!("waits for the pods of replica set {}", set.view.metadata.name);
        hold(seen, plan, "OldPodsRunning", message);
        return true;
    }
    match sets.new.as_mut() {
        None => make_new(seen, sets, wanted, report, plan),
        Some(new) => new.size = wanted,
    }
    false
}

/// Makes the set of the present template. Should its name be taken by another, the next try has
/// another one.
fn make_new(seen: &Seen, sets: &Sets<'_>, size: i64, report: &mut Report<'_>, plan: &mut Plan) {
    if seen.name_taken {
        report.count_collision();
        return;
    }
    let annotations = history::first_annotations(&seen.deployment, sets);
    sets.make(&seen.hash, size, &annotations, plan);
    let name = sets::name(&seen.deployment, &seen.hash);
    let create = |it: &&Refused| {
        it.verb == "create" && it.resource == ReplicaSet::RESOURCE && it.key.name() == name
    };
    report.await_set(&name, seen.refused.iter().find(create).map(|it| &it.refusal));
}
