//! Deployments: rollouts from one replica set to the next.
//!
//! Each template has a replica set. A change of the template creates a new one, and pods are
//! replaced a few at a time ([`rollout`]); a change of the size is distributed over all sets that
//! have pods ([`scale`]). The sets of former templates are kept for rollbacks ([`history`]).

use std::sync::Arc;

use gantry_reconcile::world::RefusedWrite;
use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, ObjectReference, Plan, Uid, View, World,
};
use jiff::Timestamp;

use super::claim::ClaimedObjects;
use super::template;
use crate::view::{Deployment, DeploymentStrategyKind, Pod, ReplicaSet};

mod history;
mod limits;
mod rollout;
mod scale;
mod sets;
mod status;

use sets::DeploymentSets;

/// The Deployment controller.
#[derive(Clone, Copy, Debug)]
pub struct DeploymentController;

impl Controller for DeploymentController {
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
            change.both::<ReplicaSet>().flat_map(|set| owning_deployments(world, set)).collect();
        keys.extend(deployment_waiting_for(world, change));
        keys.dedup();
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe(world, key, now).map(|observed| plan(&observed)).unwrap_or_default()
    }
}

/// Returns the deployment of a set, or those that may adopt it.
fn owning_deployments(world: &World, set: &ReplicaSet) -> Vec<Key> {
    let key = set.metadata.key();
    match set.metadata.controller() {
        Some(owner) if owner.kind == Deployment::RESOURCE.kind => {
            vec![key.in_same_namespace(&owner.name)]
        }
        Some(_) => Vec::new(),
        None => {
            let all = world.store::<Deployment>().in_namespace(key.namespace());
            let means = all.iter().filter(|it| {
                let selector = &it.spec.selector.selector;
                !selector.is_empty() && selector.matches(&set.metadata.labels)
            });
            means.map(|it| it.metadata.key()).collect()
        }
    }
}

/// Returns the deployment that waits for the deletion of a pod, if the pod was just deleted.
fn deployment_waiting_for(world: &World, change: &Change) -> Option<Key> {
    let ended = change.after::<Pod>().is_none_or(Pod::is_terminal);
    let owner = change.before::<Pod>().filter(|_| ended)?.metadata.controller()?;
    let set = world.store::<ReplicaSet>().get(&change.key.in_same_namespace(&owner.name))?;
    let owner = set.metadata.controller().filter(|_| set.metadata.uid == owner.uid)?;
    let deployment = world.store::<Deployment>().get(&change.key.in_same_namespace(&owner.name))?;
    let waits = deployment.spec.strategy.kind == DeploymentStrategyKind::Recreate;
    waits.then(|| deployment.metadata.key())
}

/// The inputs of one decision about a deployment.
#[derive(Debug)]
struct ObservedDeployment {
    now: Timestamp,
    deployment: Arc<Deployment>,
    claim: ClaimedObjects<ReplicaSet>,
    /// Sets that have unfinished pods, as far as the strategy waits for that.
    sets_with_pods: Vec<Uid>,
    /// The hash of the template.
    hash: String,
    /// Whether another set has the name the next one would have.
    name_taken: bool,
    /// The writes of the last plan that the server rejected.
    refused: Vec<RefusedWrite>,
}

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<ObservedDeployment> {
    let deployment = world.store::<Deployment>().get(key)?;
    let shelf = world.store::<ReplicaSet>();
    let owned = shelf.owned_by(&deployment.metadata.uid);
    let mut orphans = shelf.in_namespace(key.namespace());
    orphans.retain(|it| it.metadata.controller().is_none());
    // An empty selector selects everything elsewhere, and nothing for a deployment.
    let selector = &deployment.spec.selector.selector;
    let means = |set: &ReplicaSet| !selector.is_empty() && selector.matches(&set.metadata.labels);
    let mut claim = ClaimedObjects::of::<Deployment>(&deployment.metadata, means, owned, orphans);
    claim.owned.sort_by_cached_key(|it| sets::age_order(it));
    let hash = template::hash(&deployment.spec.template, deployment.status.collision_count);
    let name_taken =
        shelf.get(&key.in_same_namespace(&sets::set_name(&deployment, &hash))).is_some();
    let busy = match deployment.spec.strategy.kind {
        DeploymentStrategyKind::RollingUpdate => Vec::new(),
        DeploymentStrategyKind::Recreate => sets_with_pods(world, &claim.owned),
    };
    let refused = world.refused_writes(DeploymentController.name(), key);
    Some(ObservedDeployment {
        now,
        deployment,
        claim,
        sets_with_pods: busy,
        hash,
        name_taken,
        refused,
    })
}

fn sets_with_pods(world: &World, sets: &[Arc<ReplicaSet>]) -> Vec<Uid> {
    let pods = world.store::<Pod>();
    let has = |uid: &Uid| pods.owned_by(uid).iter().any(|pod| !pod.is_terminal());
    sets.iter().map(|it| it.metadata.uid.clone()).filter(has).collect()
}

fn plan(observed: &ObservedDeployment) -> Plan {
    let mut plan = Plan::default();
    let deployment = &observed.deployment;
    if deployment.spec.selector.selector.is_empty() {
        let message =
            "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
        hold(observed, &mut plan, "SelectingAll", message);
        return plan;
    }
    if !observed.claim.steps.is_empty() {
        // Adoptions and releases change the counts, so they come first and alone.
        plan.steps.extend(observed.claim.steps.iter().cloned());
        return plan;
    }
    let mut sets = DeploymentSets::of(deployment, &observed.claim.owned);
    history::update_revision(deployment, &mut sets);
    let mut report = status::StatusReport::of(observed, &sets);
    // Progress is evaluated only during a rollout.
    if deployment.metadata.is_terminating() {
        // Its sets are deleted with it or stay as they are.
    } else if deployment.spec.paused {
        hold(observed, &mut plan, "DeploymentPaused", "Deployment is paused".to_owned());
        scale::scale_sets(deployment, &mut sets);
        history::delete_old_sets(deployment, &sets, &mut plan);
    } else if scale::is_scaling_event(deployment, &sets) {
        scale::scale_sets(deployment, &mut sets);
    } else {
        rollout::step(observed, &mut sets, &mut report, &mut plan);
        report.update_conditions(&mut plan);
    }
    sets.write(&mut plan);
    report.write(&mut plan);
    plan
}

/// Adds a held reason about what is not done.
fn hold(observed: &ObservedDeployment, plan: &mut Plan, reason: &'static str, message: String) {
    let about = ObjectReference::to(&Deployment::RESOURCE, &observed.deployment.metadata);
    plan.hold(Held { about, reason: reason.into(), message, until: None }, observed.now);
}

#[cfg(test)]
mod tests;
