//! Deployments: replica sets that take turns.
//!
//! Each template has a replica set. A change of the template makes a new one, and pods move over a
//! few at a time ([`rollout`]); a change of the size spreads over all sets that have pods ([`scale`]).
//! The sets of former templates are kept for going back ([`history`]).

use std::sync::Arc;

use gantry_reconcile::world::Refused;
use gantry_reconcile::{Change, Controller, Held, Key, Kind, Plan, Reference, Uid, View, World};
use jiff::Timestamp;

use super::claim::Claim;
use super::template;
use crate::view::{Deployment, Pod, ReplicaSet, StrategyKind};

mod history;
mod limits;
mod rollout;
mod scale;
mod sets;
mod status;

use sets::Sets;

/// The controller of deployments.
#[derive(Clone, Copy, Debug)]
pub struct Deployments;

impl Controller for Deployments {
    fn name(&self) -> &'static str {
        "deployment"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Deployment>(), Kind::of::<ReplicaSet>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Deployment>() {
            return vec![change.key.clone()];
        }
        let mut keys: Vec<Key> =
            change.both::<ReplicaSet>().flat_map(|set| owners(world, set)).collect();
        keys.extend(waiting_for(world, change));
        keys.dedup();
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe(world, key, now).map(|seen| plan(&seen)).unwrap_or_default()
    }
}

/// The deployment a set belongs to, or those that may want it.
fn owners(world: &World, set: &ReplicaSet) -> Vec<Key> {
    let key = set.metadata.key();
    match set.metadata.controller() {
        Some(owner) if owner.kind == Deployment::RESOURCE.kind => vec![key.beside(&owner.name)],
        Some(_) => Vec::new(),
        None => {
            let all = world.shelf::<Deployment>().within(key.namespace());
            let means = all.iter().filter(|it| {
                let selector = &it.spec.selector.selector;
                !selector.is_empty() && selector.matches(&set.metadata.labels)
            });
            means.map(|it| it.metadata.key()).collect()
        }
    }
}

/// The deployment that waits for a pod to be gone, if the pod has just gone.
fn waiting_for(world: &World, change: &Change) -> Option<Key> {
    let ended = change.after::<Pod>().is_none_or(Pod::is_over);
    let owner = change.before::<Pod>().filter(|_| ended)?.metadata.controller()?;
    let set = world.shelf::<ReplicaSet>().get(&change.key.beside(&owner.name))?;
    let owner = set.metadata.controller().filter(|_| set.metadata.uid == owner.uid)?;
    let deployment = world.shelf::<Deployment>().get(&change.key.beside(&owner.name))?;
    let waits = deployment.spec.strategy.kind == StrategyKind::Recreate;
    waits.then(|| deployment.metadata.key())
}

/// What one decision about a deployment may use.
#[derive(Debug)]
struct Seen {
    now: Timestamp,
    deployment: Arc<Deployment>,
    claim: Claim<ReplicaSet>,
    /// Sets that have pods which are not over, as far as somebody waits for that.
    busy: Vec<Uid>,
    /// What stands for the template.
    hash: String,
    /// Whether a set is there already under the name the next one would have.
    name_taken: bool,
    /// What the server said no to when the last plan was carried out.
    refused: Vec<Refused>,
}

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<Seen> {
    let deployment = world.shelf::<Deployment>().get(key)?;
    let shelf = world.shelf::<ReplicaSet>();
    let owned = shelf.owned_by(&deployment.metadata.uid);
    let mut orphans = shelf.within(key.namespace());
    orphans.retain(|it| it.metadata.controller().is_none());
    // An empty selector means everything to others, and nothing to a deployment.
    let selector = &deployment.spec.selector.selector;
    let means = |set: &ReplicaSet| !selector.is_empty() && selector.matches(&set.metadata.labels);
    let mut claim = Claim::of::<Deployment>(&deployment.metadata, means, owned, orphans);
    claim.mine.sort_by_cached_key(|it| sets::age(it));
    let hash = template::hash(&deployment.spec.template, deployment.status.collision_count);
    let name_taken = shelf.get(&key.beside(&sets::name(&deployment, &hash))).is_some();
    let busy = match deployment.spec.strategy.kind {
        StrategyKind::RollingUpdate => Vec::new(),
        StrategyKind::Recreate => busy(world, &claim.mine),
    };
    let refused = world.refused(Deployments.name(), key);
    Some(Seen { now, deployment, claim, busy, hash, name_taken, refused })
}

fn busy(world: &World, sets: &[Arc<ReplicaSet>]) -> Vec<Uid> {
    let pods = world.shelf::<Pod>();
    let has = |uid: &Uid| pods.owned_by(uid).iter().any(|pod| !pod.is_over());
    sets.iter().map(|it| it.metadata.uid.clone()).filter(has).collect()
}

fn plan(seen: &Seen) -> Plan {
    let mut plan = Plan::default();
    let deployment = &seen.deployment;
    if deployment.spec.selector.selector.is_empty() {
        let message =
            "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
        hold(seen, &mut plan, "SelectingAll", message);
        return plan;
    }
    if !seen.claim.steps.is_empty() {
        // What is counted changes with these, so they come first and alone.
        plan.steps.extend(seen.claim.steps.iter().cloned());
        return plan;
    }
    let mut sets = Sets::of(deployment, &seen.claim.mine);
    history::annotate(deployment, &mut sets);
    let mut report = status::Report::of(seen, &sets);
    // Progress is judged only while something is rolled out.
    if deployment.metadata.is_going() {
        // Its sets go with it or stay as they are.
    } else if deployment.spec.paused {
        hold(seen, &mut plan, "DeploymentPaused", "Deployment is paused".to_owned());
        scale::spread(deployment, &mut sets);
        history::forget(deployment, &sets, &mut plan);
    } else if scale::is_due(deployment, &sets) {
        scale::spread(deployment, &mut sets);
    } else {
        rollout::step(seen, &mut sets, &mut report, &mut plan);
        report.judge(&mut plan);
    }
    sets.write(&mut plan);
    report.write(&mut plan);
    plan
}

/// Says what is not done.
fn hold(seen: &Seen, plan: &mut Plan, reason: &'static str, message: String) {
    let about = Reference::to(&Deployment::RESOURCE, &seen.deployment.metadata);
    plan.hold(Held { about, reason: reason.into(), message, until: None }, seen.now);
}

#[cfg(test)]
mod tests;
