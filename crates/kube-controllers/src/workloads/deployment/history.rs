//! Revision numbers, and the sets kept for rollbacks.

use gantry_reconcile::Plan;
use serde_json::{Value, json};

use super::sets::{
    self, DESIRED_REPLICAS, DeploymentSet, DeploymentSets, MAX_REPLICAS, REVISION, REVISION_HISTORY,
};
use crate::view::{Deployment, ReplicaSet};
use crate::workloads::writes;

/// The most characters of the list of former revisions: enough for a few hundred.
const MAX_HISTORY_LENGTH: usize = 2000;

/// The limit that means none.
const UNLIMITED: i64 = i32::MAX as i64;

/// Annotations of a deployment that are not copied to its sets.
const EXCLUDED_ANNOTATIONS: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];

/// Returns the revision of a set; zero when it has none, `None` when it is not a number.
pub(super) fn revision(set: &ReplicaSet) -> Option<i64> {
    set.metadata.annotations.get(REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// Returns the least revision of the current template: one more than all others.
fn next_revision(sets: &DeploymentSets<'_>) -> i64 {
    let highest = sets.old.iter().filter_map(|it| revision(it.view)).max().unwrap_or_default();
    highest.max(0).saturating_add(1)
}

/// Copies the deployment's annotations to the current set, and gives it the highest revision. A set
/// that had another revision is the target of a rollback; it keeps the former one in its history.
pub(super) fn update_revision(deployment: &Deployment, sets: &mut DeploymentSets<'_>) {
    let next = next_revision(sets);
    let Some(new) = sets.new.as_mut() else { return };
    for (name, value) in inherited_annotations(deployment) {
        new.annotate(name, value.clone());
    }
    let seconds = deployment.spec.min_ready_seconds;
    if new.view.spec.min_ready_seconds != seconds {
        new.min_ready = Some(seconds);
    }
    let Some(has) = revision(new.view).filter(|has| *has < next) else { return };
    new.annotate(REVISION, next.to_string());
    if new.view.metadata.annotations.contains_key(REVISION) {
        record_old_revision(new, has);
    }
}

/// Records a former revision of a set, and drops the oldest ones when there are too many.
fn record_old_revision(set: &mut DeploymentSet<'_>, revision: i64) {
    let before = set.annotation(REVISION_HISTORY).unwrap_or_default();
    let mut numbers: Vec<String> =
        before.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
    numbers.push(revision.to_string());
    while numbers.len() > 1 && numbers.join(",").len() > MAX_HISTORY_LENGTH {
        numbers.remove(0);
    }
    set.annotate(REVISION_HISTORY, numbers.join(","));
}

/// Returns the annotations of a set that is about to be created.
pub(super) fn initial_annotations(deployment: &Deployment, sets: &DeploymentSets<'_>) -> Value {
    let mut annotations = json!({});
    for (name, value) in inherited_annotations(deployment) {
        annotations[name] = json!(value);
    }
    annotations[REVISION] = json!(next_revision(sets).to_string());
    annotations[DESIRED_REPLICAS] = json!(deployment.spec.replicas.to_string());
    annotations[MAX_REPLICAS] = json!(sets.max_size().to_string());
    annotations
}

fn inherited_annotations(deployment: &Deployment) -> impl Iterator<Item = (&String, &String)> {
    let all = deployment.metadata.annotations.iter();
    all.filter(|(name, _)| !EXCLUDED_ANNOTATIONS.contains(&name.as_str()))
}

/// Deletes old sets beyond the history limit, the lowest revisions first, and only empty ones whose
/// status is current.
pub(super) fn delete_old_sets(deployment: &Deployment, sets: &DeploymentSets<'_>, plan: &mut Plan) {
    let limit = deployment.spec.revision_history_limit.filter(|it| *it != UNLIMITED);
    let Some(limit) = limit.and_then(|it| usize::try_from(it).ok()) else { return };
    let staying = |it: &&DeploymentSet<'_>| !it.view.metadata.is_terminating();
    let mut old: Vec<&DeploymentSet<'_>> = sets.old.iter().filter(staying).collect();
    old.sort_by_cached_key(|it| (revision(it.view), sets::age_order(it.view)));
    let surplus = old.len().saturating_sub(limit);
    for DeploymentSet { view: set, size, .. } in old.into_iter().take(surplus) {
        let empty = set.status.replicas == 0 && set.spec.replicas == 0 && *size == 0;
        if empty && set.metadata.generation <= set.status.observed_generation {
            plan.write(writes::delete::<ReplicaSet>(&set.metadata));
        }
    }
}
