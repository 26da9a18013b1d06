//! Numbers of templates, and the sets kept for going back to them.

use gantry_reconcile::Plan;
use serde_json::{Value, json};

use super::sets::{self, DESIRED, MOST, REVISION, REVISIONS, Set, Sets};
use crate::view::{Deployment, ReplicaSet};
use crate::workloads::writes;

/// The most characters the list of former numbers may have: room for a few hundred.
const LONGEST_HISTORY: usize = 2000;

/// A limit that stands for none.
const UNLIMITED: i64 = i32::MAX as i64;

/// Annotations of a deployment that its sets do not take over.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISIONS,
    DESIRED,
    MOST,
    "deprecated.deployment.rollback.to",
];

/// The number of a set's template; zero when it has none, nothing when it is no number.
pub(super) fn revision(set: &ReplicaSet) -> Option<i64> {
    set.metadata.annotations.get(REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// The number the present template has to have at least: one more than all others.
fn next_revision(sets: &Sets<'_>) -> i64 {
    let highest = sets.old.iter().filter_map(|it| revision(it.view)).max().unwrap_or_default();
    highest.max(0).saturating_add(1)
}

/// Gives the present set the deployment's annotations, and the highest number. A set that had
/// another number is one that was gone back to; it keeps the number in its history.
pub(super) fn annotate(deployment: &Deployment, sets: &mut Sets<'_>) {
    let next = next_revision(sets);
    let Some(new) = sets.new.as_mut() else { return };
    for (name, value) in taken_over(deployment) {
        new.annotate(name, value.clone());
    }
    let seconds = deployment.spec.min_ready_seconds;
    if new.view.spec.min_ready_seconds != seconds {
        new.min_ready = Some(seconds);
    }
    let Some(has) = revision(new.view).filter(|has| *has < next) else { return };
    new.annotate(REVISION, next.to_string());
    if new.view.metadata.annotations.contains_key(REVISION) {
        remember(new, has);
    }
}

/// Notes a former number of a set, and drops the oldest ones when there are too many.
fn remember(set: &mut Set<'_>, revision: i64) {
    let before = set.annotation(REVISIONS).unwrap_or_default();
    let mut numbers: Vec<String> =
        before.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
    numbers.push(revision.to_string());
    while numbers.len() > 1 && numbers.join(",").len() > LONGEST_HISTORY {
        numbers.remove(0);
    }
    set.annotate(REVISIONS, numbers.join(","));
}

/// The annotations of a set that is about to be made.
pub(super) fn first_annotations(deployment: &Deployment, sets: &Sets<'_>) -> Value {
    let mut annotations = json!({});
    for (name, value) in taken_over(deployment) {
        annotations[name] = json!(value);
    }
    annotations[REVISION] = json!(next_revision(sets).to_string());
    annotations[DESIRED] = json!(deployment.spec.replicas.to_string());
    annotations[MOST] = json!(sets.most().to_string());
    annotations
}

fn taken_over(deployment: &Deployment) -> impl Iterator<Item = (&String, &String)> {
    let all = deployment.metadata.annotations.iter();
    all.filter(|(name, _)| !OWN.contains(&name.as_str()))
}

/// Removes old sets beyond those to be kept, the lowest numbers first, and only ones that are
/// empty and known to be.
pub(super) fn forget(deployment: &Deployment, sets: &Sets<'_>, plan: &mut Plan) {
    let limit = deployment.spec.revision_history_limit.filter(|it| *it != UNLIMITED);
    let Some(limit) = limit.and_then(|it| usize::try_from(it).ok()) else { return };
    let staying = |it: &&Set<'_>| !it.view.metadata.is_going();
    let mut old: Vec<&Set<'_>> = sets.old.iter().filter(staying).collect();
    old.sort_by_cached_key(|it| (revision(it.view), sets::age(it.view)));
    let surplus = old.len().saturating_sub(limit);
    for Set { view: set, size, .. } in old.into_iter().take(surplus) {
        let empty = set.status.replicas == 0 && set.spec.replicas == 0 && *size == 0;
        if empty && set.metadata.generation <= set.status.observed_generation {
            plan.write(writes::delete::<ReplicaSet>(&set.metadata));
        }
    }
}
