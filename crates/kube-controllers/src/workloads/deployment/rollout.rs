//! Rollouts from pods of old templates to pods of the new one.

use gantry_reconcile::world::RefusedWrite;
use gantry_reconcile::{Plan, View};

use super::sets::{DeploymentSet, DeploymentSets};
use super::status::StatusReport;
use super::{ObservedDeployment, history, hold, sets};
use crate::view::{Deployment, DeploymentStrategyKind, ReplicaSet};

/// Decides the next step of a rollout.
pub(super) fn step(
    observed: &ObservedDeployment,
    sets: &mut DeploymentSets<'_>,
    report: &mut StatusReport<'_>,
    plan: &mut Plan,
) {
    let deployment = &observed.deployment;
    let moved = match deployment.spec.strategy.kind {
        DeploymentStrategyKind::RollingUpdate => rolling_update(observed, sets, report, plan),
        DeploymentStrategyKind::Recreate => recreate(observed, sets, report, plan),
    };
    if !moved && report.was_complete() {
        history::delete_old_sets(deployment, sets, plan);
    }
}

/// Replaces a few pods at a time. Returns whether anything changes.
fn rolling_update(
    observed: &ObservedDeployment,
    sets: &mut DeploymentSets<'_>,
    report: &mut StatusReport<'_>,
    plan: &mut Plan,
) -> bool {
    let Some(size) = sets.new.as_ref().map(|it| it.size) else {
        create_new_set(observed, sets, sets.max_new_size(0), report, plan);
        return true;
    };
    let wanted = observed.deployment.spec.replicas;
    let next = if size > wanted { wanted } else { sets.max_new_size(size) };
    if let Some(new) = sets.new.as_mut()
        && next != size
    {
        new.size = next;
        return true;
    }
    scale_down_old(&observed.deployment, sets)
}

/// Scales old sets down, by as many pods as possible: first those that are not available anyway,
/// then others. Returns whether there are any.
fn scale_down_old(deployment: &Deployment, sets: &mut DeploymentSets<'_>) -> bool {
    let needed = deployment.spec.replicas - sets.limits.unavailable;
    // Pods of the new set that are not available yet count as unavailable: otherwise a new set that
    // never becomes available would replace old ones that are.
    let pending = sets.new.as_ref().map_or(0, |it| it.size - it.available());
    let mut spare = sets.size() - needed - pending;
    let before = sets.size();
    for set in &mut sets.old {
        let unavailable = set.size - set.available();
        let cut = unavailable.min(spare).max(0);
        set.size -= cut;
        spare -= cut;
    }
    let mut available = sets.all().map(DeploymentSet::available).sum::<i64>() - needed;
    for set in &mut sets.old {
        let cut = set.size.min(available).min(spare).max(0);
        set.size -= cut;
        available -= cut;
        spare -= cut;
    }
    sets.size() < before
}

/// Deletes all old pods, and creates new ones when they are gone. Returns whether anything changes.
fn recreate(
    observed: &ObservedDeployment,
    sets: &mut DeploymentSets<'_>,
    report: &mut StatusReport<'_>,
    plan: &mut Plan,
) -> bool {
    let wanted = observed.deployment.spec.replicas;
    let mut moved = false;
    for set in sets.old.iter_mut().filter(|it| it.size > 0) {
        set.size = 0;
        moved = true;
    }
    if moved {
        return true;
    }
    let busy = |it: &&DeploymentSet<'_>| {
        it.view.status.replicas > 0 || observed.sets_with_pods.contains(&it.view.metadata.uid)
    };
    if let Some(set) = sets.old.iter().find(busy) {
        let message =
            format!("waits for the deletion of the pods of replica set {}", set.view.metadata.name);
        hold(observed, plan, "OldPodsRunning", message);
        return true;
    }
    match sets.new.as_mut() {
        None => create_new_set(observed, sets, wanted, report, plan),
        Some(new) => new.size = wanted,
    }
    false
}

/// Creates the set of the current template. If another set has its name, the next attempt uses
/// another one.
fn create_new_set(
    observed: &ObservedDeployment,
    sets: &DeploymentSets<'_>,
    size: i64,
    report: &mut StatusReport<'_>,
    plan: &mut Plan,
) {
    if observed.name_taken {
        report.count_collision();
        return;
    }
    let annotations = history::initial_annotations(&observed.deployment, sets);
    sets.create_set(&observed.hash, size, &annotations, plan);
    let name = sets::set_name(&observed.deployment, &observed.hash);
    let create = |it: &&RefusedWrite| {
        it.verb == "create" && it.resource == ReplicaSet::RESOURCE && it.key.name() == name
    };
    report.record_pending_set(&name, observed.refused.iter().find(create).map(|it| &it.refusal));
}
