//! Gives pods that claim devices to nodes.
//!
//! There is one decision about all pods that wait, because they compete. A plan takes those first that
//! have something set aside already, then by importance and age, and counts what it gives to each
//! before it goes on to the next. What a plan writes for a pod is the next step of its way, whoever
//! made the steps before: its claims, entries in ledgers, the statuses of the claims, its node.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use gantry_api::devices::{
    DeviceClaim, DeviceClaimTemplate, DeviceClass, DeviceDriver, DevicePool, DevicePrivilegedClaim,
    PodClaims, PodDevices,
};
use gantry_devices::constraint::Constraints;
use gantry_pods::view::{Namespace, Node, Pod};
use gantry_reconcile::fact::Changed;
use gantry_reconcile::{Change, Controller, FactChange, FactKind, Key, Kind, Plan, World};
use jiff::Timestamp;

use crate::carrier::{self, Resolved, Trouble};
use crate::config::ConfigObject;
use crate::gate;
use crate::ledger::Ledgers;
use crate::results::ALLOCATIONS_ANNOTATION;
use crate::seen::{Quota, Seen};

pub use quota::AdminQuota;
use scene::Scene;
use shut::Shut;
use stock::Objects;
use turn::Turn;

pub(crate) mod answers;
mod bind;
mod offer;
mod overhead;
pub(crate) mod quota;
pub(crate) mod scene;
mod search;
mod shut;
mod status;
mod stock;
mod told;
mod turn;

/// The name pods ask for this scheduler by.
pub const NAME: &str = "gantry";

/// Writes of one plan at most. The next plan knows what became of them.
const WRITES: usize = 256;

/// The scheduler of pods with devices.
#[derive(Debug, Default)]
pub struct Scheduler {
    /// Constraints that were compiled before; they are the same whenever they are compiled.
    constraints: Constraints,
    admin_quota: AdminQuota,
}

impl Scheduler {
    /// One that asks for quotas in this way.
    #[must_use]
    pub fn new(admin_quota: AdminQuota) -> Self {
        Self { admin_quota, ..Self::default() }
    }
}

impl Controller for Scheduler {
    fn name(&self) -> &'static str {
        "device-scheduler"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Pod>(),
            Kind::of::<Node>(),
            Kind::of::<Namespace>(),
            Kind::of::<Quota>(),
            Kind::of::<Seen<DeviceClaim>>(),
            Kind::of::<Seen<DevicePrivilegedClaim>>(),
            Kind::of::<Seen<DeviceClaimTemplate>>(),
            Kind::of::<Seen<PodDevices>>(),
            Kind::of::<Seen<DevicePool>>(),
            Kind::of::<Seen<DeviceClass>>(),
            Kind::of::<Seen<DeviceDriver>>(),
        ]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<ConfigObject>()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let news = change.of::<ConfigObject>().filter(Changed::is_news);
        news.map(|_| Key::cluster(NAME)).into_iter().collect()
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let matters = if change.is::<Pod>() {
            match (change.before::<Pod>(), change.after::<Pod>()) {
                (_, Some(pod)) if is_ours(pod) && !is_told(pod) => true,
                // Somebody makes room, or takes it.
                (Some(before), Some(after)) => {
                    before.is_over() != after.is_over()
                        || before.spec.node_name != after.spec.node_name
                }
                (before, after) => {
                    let placed = |it: &Pod| !it.spec.node_name.is_empty() && !it.is_over();
                    before.or(after).is_some_and(placed)
                }
            }
        } else if change.is::<Node>() {
            let of_nodes = |it: &Node| {
                let labels = it.metadata.labels.clone();
                (labels, it.spec.clone(), it.status.allocatable.clone(), it.is_ready())
            };
            change.before::<Node>().map(of_nodes) != change.after::<Node>().map(of_nodes)
        } else {
            true
        };
        if matters { vec![Key::cluster(NAME)] } else { Vec::new() }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let pods = world.shelf::<Pod>().all();
        let waiting: Vec<&Arc<Pod>> = pods.iter().filter(|it| waits(world, it)).collect();
        if waiting.is_empty() {
            return Plan::default();
        }
        let objects = Objects::new(world);
        let ledgers = Ledgers::new(&objects.pools);
        let mut queue: Vec<Waiting<'_>> =
            waiting.iter().map(|pod| Waiting::new(world, pod, &ledgers)).collect();
        queue.sort_by_cached_key(|it| {
            let meta = &it.pod.metadata;
            let age = meta.creation_timestamp.unwrap_or(Timestamp::MAX);
            (!it.under_way, Reverse(it.pod.spec.priority), age, meta.key())
        });
        let mut scene = Scene::new(world, &objects, &pods, ledgers, &self.constraints, now);
        let shut = world.kept::<Shut>().learn(world, self.name(), key, now);
        for (pool, why) in shut::named(&objects.pools, &shut) {
            scene.close(pool, why);
        }
        let mut turn = Turn::new(scene, self.admin_quota);
        for waiting in queue {
            if turn.writes() >= WRITES {
                turn.plan.look_within(Duration::ZERO);
                break;
            }
            turn.take(waiting);
        }
        let mut plan = turn.finish();
        if !plan.held.is_empty() {
            shut.into_iter().for_each(|held| plan.hold(held, now));
        }
        plan
    }
}

/// A pod that wants something, and what is known of its claims.
#[derive(Debug)]
struct Waiting<'a> {
    pod: &'a Arc<Pod>,
    resolved: Result<(Arc<PodClaims>, Resolved), Trouble>,
    /// Whether something is set aside for it.
    under_way: bool,
}

impl<'a> Waiting<'a> {
    fn new(world: &World, pod: &'a Arc<Pod>, ledgers: &Ledgers<'_>) -> Self {
        let resolved = carrier::read(world, pod)
            .and_then(|claims| Ok((Arc::clone(&claims), carrier::resolve(world, pod, &claims)?)));
        let under_way = resolved.as_ref().is_ok_and(|(_, it)| {
            it.claims.iter().any(|(_, claim)| {
                claim.is_reserved_for(&pod.metadata.uid)
                    || (!claim.is_allocated() && !ledgers.live(claim).is_empty())
            })
        });
        Self { pod, resolved, under_way }
    }
}

/// Whether a pod is this scheduler's business: by its name, or by the gate before it, now or before.
fn is_ours(pod: &Pod) -> bool {
    let ours = pod.spec.scheduler_name == NAME || gate::is_gated(pod);
    (ours || gate::opened(pod).is_some()) && !pod.is_over()
}

/// Whether a pod has a node and was told what it has there: it had everything then.
fn is_told(pod: &Pod) -> bool {
    let told = pod.metadata.annotations.contains_key(ALLOCATIONS_ANNOTATION);
    told && !pod.spec.node_name.is_empty()
}

/// Whether a pod has no node, or has one, or is pinned to one, and not all that it claims.
///
/// The latter is nobody's plan. It comes of two who believe to lead, and is put right.
pub(crate) fn waits(world: &World, pod: &Pod) -> bool {
    if !is_ours(pod) || pod.metadata.is_going() {
        return false;
    }
    if !pod.spec.scheduling_gates.is_empty() {
        return gate::is_last(pod);
    }
    if pod.spec.node_name.is_empty() && pod.spec.scheduler_name == NAME {
        return true;
    }
    if !carrier::has_carrier(pod) || is_told(pod) {
        return false;
    }
    let resolved =
        carrier::read(world, pod).and_then(|claims| carrier::resolve(world, pod, &claims));
    resolved.is_ok_and(|it| {
        let lacking = |(_, claim): &(String, crate::claim::Claim)| {
            !claim.is_allocated() || !claim.is_reserved_for(&pod.metadata.uid)
        };
        !it.missing.is_empty() || it.claims.iter().any(lacking)
    })
}
