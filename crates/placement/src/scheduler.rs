//! Schedules pods that claim devices.
//!
//! There is one decision about all pending pods, because they compete. A plan starts with the pods
//! that have reservations already, then goes by priority and age, and counts what it allocates to
//! each before it goes on to the next. What a plan writes for a pod is its next step, whichever
//! process made the steps before: its claims, entries in ledgers, the statuses of the claims, its
//! node.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use gantry_api::devices::{
    DeviceClaim, DeviceClaimTemplate, DeviceClass, DeviceDriver, DevicePool, DevicePrivilegedClaim,
    PodDevices,
};
use gantry_devices::constraint::Constraints;
use gantry_pods::view::{Namespace, Node, Pod};
use gantry_reconcile::fact::TypedFactChange;
use gantry_reconcile::{Change, Controller, FactChange, FactKind, Key, Kind, Plan, World};
use jiff::Timestamp;

use crate::allocation_ledger::AllocationLedger;
use crate::config::ConfigObject;
use crate::pod_annotations::ALLOCATIONS_ANNOTATION;
use crate::pod_claims::{self, PendingReason, ResolvedClaims};
use crate::scheduling_gate;
use crate::views::{DeviceObject, ResourceQuota};

use closed_pools::ClosedPools;
use cycle_state::CycleState;
use inventory_cache::SourceObjects;
pub use quota::AdminQuota;
use scheduling_cycle::SchedulingCycle;

mod bind;
mod claim_status;
mod closed_pools;
pub(crate) mod cycle_state;
mod inventory_cache;
mod messages;
mod node_filter;
mod overhead;
pub(crate) mod quota;
mod scheduling_cycle;
mod search;
pub(crate) mod search_cache;

/// The name by which pods select this scheduler.
pub const SCHEDULER_NAME: &str = "gantry";

/// How many writes one plan makes at most. The next plan sees their results.
const MAX_WRITES_PER_PLAN: usize = 256;

/// The scheduler of pods with devices.
#[derive(Debug, Default)]
pub struct Scheduler {
    /// Constraints that were compiled before; compiling them again gives the same.
    constraints: Constraints,
    admin_quota: AdminQuota,
}

impl Scheduler {
    /// Creates a scheduler that enforces quotas in this way.
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
            Kind::of::<ResourceQuota>(),
            Kind::of::<DeviceObject<DeviceClaim>>(),
            Kind::of::<DeviceObject<DevicePrivilegedClaim>>(),
            Kind::of::<DeviceObject<DeviceClaimTemplate>>(),
            Kind::of::<DeviceObject<PodDevices>>(),
            Kind::of::<DeviceObject<DevicePool>>(),
            Kind::of::<DeviceObject<DeviceClass>>(),
            Kind::of::<DeviceObject<DeviceDriver>>(),
        ]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<ConfigObject>()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let news = change.of::<ConfigObject>().filter(TypedFactChange::is_significant);
        news.map(|_| Key::cluster(SCHEDULER_NAME)).into_iter().collect()
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let matters = if change.is::<Pod>() {
            match (change.before::<Pod>(), change.after::<Pod>()) {
                (_, Some(pod)) if is_responsible_for(pod) && !is_bound_and_annotated(pod) => true,
                // A pod frees capacity, or uses it.
                (Some(before), Some(after)) => {
                    before.is_terminal() != after.is_terminal()
                        || before.spec.node_name != after.spec.node_name
                }
                (before, after) => {
                    let placed = |it: &Pod| !it.spec.node_name.is_empty() && !it.is_terminal();
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
        if matters { vec![Key::cluster(SCHEDULER_NAME)] } else { Vec::new() }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let pods = world.store::<Pod>().list();
        let waiting: Vec<&Arc<Pod>> = pods.iter().filter(|it| is_pending(world, it)).collect();
        if waiting.is_empty() {
            return Plan::default();
        }
        let objects = SourceObjects::new(world);
        let ledgers = AllocationLedger::new(&objects.pools);
        let mut queue: Vec<PendingPod<'_>> =
            waiting.iter().map(|pod| PendingPod::new(world, pod, &ledgers)).collect();
        queue.sort_by_cached_key(|it| {
            let meta = &it.pod.metadata;
            let age = meta.creation_timestamp.unwrap_or(Timestamp::MAX);
            (!it.has_reservation, Reverse(it.pod.spec.priority), age, meta.key())
        });
        let mut scene = CycleState::new(world, &objects, &pods, ledgers, &self.constraints, now);
        let shut =
            world.derived::<ClosedPools>().observe_refused_writes(world, self.name(), key, now);
        for (pool, why) in closed_pools::closed_among(&objects.pools, &shut) {
            scene.close_pool(pool, why);
        }
        let mut turn = SchedulingCycle::new(scene, self.admin_quota);
        for waiting in queue {
            if turn.write_count() >= MAX_WRITES_PER_PLAN {
                turn.plan.requeue_after(Duration::ZERO);
                break;
            }
            turn.schedule(waiting);
        }
        let mut plan = turn.finish();
        if !plan.held.is_empty() {
            shut.into_iter().for_each(|held| plan.hold(held, now));
        }
        plan
    }
}

/// A pending pod, and its claims.
#[derive(Debug)]
struct PendingPod<'a> {
    pod: &'a Arc<Pod>,
    resolved: Result<ResolvedClaims, PendingReason>,
    /// Whether devices are reserved for it.
    has_reservation: bool,
}

impl<'a> PendingPod<'a> {
    fn new(world: &World, pod: &'a Arc<Pod>, ledgers: &AllocationLedger<'_>) -> Self {
        let resolved = pod_claims::resolve(world, pod);
        let under_way = resolved.as_ref().is_ok_and(|it| {
            it.claims.iter().any(|(_, claim)| {
                claim.is_reserved_for(&pod.metadata.uid)
                    || (!claim.is_allocated() && !ledgers.live_entries(claim).is_empty())
            })
        });
        Self { pod, resolved, has_reservation: under_way }
    }
}

/// Whether this scheduler is responsible for a pod: by its scheduler name, or by the gate, now or
/// before.
fn is_responsible_for(pod: &Pod) -> bool {
    let ours = pod.spec.scheduler_name == SCHEDULER_NAME || scheduling_gate::is_gated(pod);
    (ours || scheduling_gate::opened_gate(pod).is_some()) && !pod.is_terminal()
}

/// Whether a pod is bound and annotated with its devices: it had everything then.
fn is_bound_and_annotated(pod: &Pod) -> bool {
    let told = pod.metadata.annotations.contains_key(ALLOCATIONS_ANNOTATION);
    told && !pod.spec.node_name.is_empty()
}

/// Whether a pod has no node, or is bound or pinned to one and lacks some of its claims' devices.
///
/// The latter is never planned. It happens when two processes believe they are the leader, and is
/// repaired.
pub(crate) fn is_pending(world: &World, pod: &Pod) -> bool {
    if !is_responsible_for(pod) || pod.metadata.is_terminating() {
        return false;
    }
    if !pod.spec.scheduling_gates.is_empty() {
        return scheduling_gate::is_only_gate(pod);
    }
    if pod.spec.node_name.is_empty() && pod.spec.scheduler_name == SCHEDULER_NAME {
        return true;
    }
    if !pod_claims::claims_devices(pod) || is_bound_and_annotated(pod) {
        return false;
    }
    let resolved = pod_claims::resolve(world, pod);
    resolved.is_ok_and(|it| {
        let lacking = |(_, claim): &(String, crate::claim::Claim)| {
            !claim.is_allocated() || !claim.is_reserved_for(&pod.metadata.uid)
        };
        !it.missing.is_empty() || it.claims.iter().any(lacking)
    })
}
