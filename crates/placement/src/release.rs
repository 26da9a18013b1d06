//! Releases devices that are not used any more.
//!
//! A claim keeps its devices for as long as one of its pods may use them. A running pod that is
//! being deleted still does. A pod that is in no cache may be gone or may be new: the server is
//! asked before it is dropped.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_api::devices::{
    Consumer, DeviceClaim, DeviceClaimTemplate, DevicePool, DevicePrivilegedClaim, LedgerEntry,
    PodDevices, TaintEffect, Toleration,
};
use gantry_devices::lower::ClaimSpecRef;
use gantry_devices::tolerates;
use gantry_pods::view::{Pod, PodDisruptionBudget};
use gantry_reconcile::{
    Change, Controller, Event, Fence, Held, Key, Kind, ObjectReference, Plan, Step, Uid, View,
    World, Write,
};
use jiff::Timestamp;
use serde_json::json;

use crate::allocation_ledger;
use crate::claim::{
    self, Claim, holds_device_tag, is_hold, reserved_for_pod_tag, unallocated_claims_tag,
};
use crate::condition::{self, ConditionUpdate};
use crate::pod_claims;
use crate::scheduler;
use crate::views::DeviceObject;

/// Removes what is not used: consumers, allocations, reservations, and the finalizers of claims.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReleaseController;

/// How long to wait before a PodDisruptionBudget is checked again.
const BUDGET_RETRY_DELAY: Duration = Duration::from_secs(10);
/// How many pods one claim evicts at once.
const MAX_EVICTIONS_PER_PLAN: usize = 10;

type ClaimObject = DeviceObject<DeviceClaim>;
type PrivilegedClaimObject = DeviceObject<DevicePrivilegedClaim>;

impl Controller for ReleaseController {
    fn name(&self) -> &'static str {
        "device-release"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<ClaimObject>(),
            Kind::of::<PrivilegedClaimObject>(),
            Kind::of::<Pod>(),
            Kind::of::<DeviceObject<DevicePool>>(),
            Kind::of::<DeviceObject<PodDevices>>(),
            Kind::of::<DeviceObject<DeviceClaimTemplate>>(),
            Kind::of::<PodDisruptionBudget>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        let mut tagged = |tag| {
            keys.extend(
                world.store::<ClaimObject>().by_index(&tag).iter().map(|it| it.metadata.key()),
            );
            let privileged = world.store::<PrivilegedClaimObject>().by_index(&tag);
            keys.extend(privileged.iter().map(|it| it.metadata.key()));
        };
        if let Some(pod) = change.after::<Pod>().or_else(|| change.before::<Pod>()) {
            tagged(reserved_for_pod_tag(&pod.metadata.uid));
            tagged(gantry_reconcile::world::IndexValue::owner(&pod.metadata.uid));
            tagged(unallocated_claims_tag(&pod.metadata.namespace));
        } else if change.is::<DeviceObject<DevicePool>>() {
            tagged(claim::allocated_from_pool_tag(change.key.name()));
            for pool in change.both::<DeviceObject<DevicePool>>() {
                keys.extend(pool.status.allocations.iter().map(allocation_ledger::claim_key));
            }
        } else if change.is::<ClaimObject>() || change.is::<PrivilegedClaimObject>() {
            keys.insert(change.key.clone());
            // Claims that share a device with it may conflict with it no longer, or from now on.
            for seen in change.both::<ClaimObject>() {
                for held in seen.status.allocations.iter().filter(|it| is_hold(it)) {
                    if let Some(device) = &held.device_name {
                        let tag = holds_device_tag(&held.device_pool_name, device);
                        let holders = world.store::<ClaimObject>().by_index(&tag);
                        keys.extend(holders.iter().map(|it| it.metadata.key()));
                    }
                }
            }
        } else if !change.is::<PodDisruptionBudget>() {
            tagged(unallocated_claims_tag(change.key.namespace()));
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        for claim in Claim::by_key(world, key) {
            let claim = ReleaseCycle { world, claim: &claim, now };
            if claim.report_warnings(&mut plan) {
                continue;
            }
            match claim.claim.is_allocated() {
                true => claim.reconcile_allocated(&mut plan),
                false => claim.reconcile_unallocated(&mut plan),
            }
        }
        plan
    }
}

struct ReleaseCycle<'a> {
    world: &'a World,
    claim: &'a Claim,
    now: Timestamp,
}

/// The state of a pod that uses a claim.
enum ConsumerState {
    Active,
    Finished,
    /// It is in no cache.
    Missing,
}

impl ReleaseCycle<'_> {
    fn consumer_state(&self, consumer: &Consumer) -> ConsumerState {
        let key = self.claim.meta().key().in_same_namespace(&consumer.name);
        let pods = self.world.store::<Pod>();
        match pods.get(&key).filter(|it| it.metadata.uid.as_str() == consumer.uid) {
            Some(pod) if pod.is_terminal() => ConsumerState::Finished,
            Some(pod) if pod.metadata.is_terminating() && pod.spec.node_name.is_empty() => {
                ConsumerState::Finished
            }
            Some(_) => ConsumerState::Active,
            None if pods.is_unreadable(&key) => ConsumerState::Active,
            None => ConsumerState::Missing,
        }
    }

    /// Reports the warnings about a claim, if they have changed. Then everything else waits for the
    /// updated claim.
    fn report_warnings(&self, plan: &mut Plan) -> bool {
        let (claim, before) = (self.claim, self.claim.conditions());
        let says = condition::spec_normalized(claim.warnings(), before);
        let Some(says) = says.filter(|it| !it.is_current(before) && !claim.meta().is_terminating())
        else {
            return false;
        };
        let conditions = condition::merge(before, &[says], claim.meta().generation, self.now);
        plan.write(claim.update_status(&json!({"conditions": condition::to_json(&conditions)})));
        true
    }

    /// Reconciles a claim that has devices.
    fn reconcile_allocated(&self, plan: &mut Plan) {
        let claim = self.claim;
        let mut left = Vec::new();
        let mut missing = Vec::new();
        for consumer in claim.consumers() {
            match self.consumer_state(consumer) {
                ConsumerState::Active => left.push(consumer.clone()),
                ConsumerState::Finished => {}
                ConsumerState::Missing => missing.push(pod_reference(claim, consumer)),
            }
        }
        if left.len() == claim.consumers().len() && !left.is_empty() {
            let strays = self.stale_entry_times();
            match strays.is_empty() {
                true => self.check_allocated_devices(&left, plan),
                false => plan.write(claim.void_other_entries(strays, self.now)),
            }
            return;
        }
        let step = match left.is_empty() {
            // The claim's own allocation was reserved before it was written.
            true => Step::new(claim.deallocate([], self.now)),
            false => Step::new(claim.reserve_for(&left)),
        };
        plan.steps.push(missing.into_iter().fold(step, Step::require_absent));
    }

    /// Returns the times of reservations that the claim will never use, because it has other
    /// devices. They come from a process that believed it was the leader while another one was, and
    /// wrote too late.
    fn stale_entry_times(&self) -> Vec<Timestamp> {
        let (claim, horizon) = (self.claim, self.claim.allocation_changed_at());
        let is_had = |pool: &str, entry: &LedgerEntry| {
            let mut held = claim.allocations().iter().filter(|it| is_hold(it));
            held.any(|it| allocation_ledger::is_entry_for(entry, pool, it))
        };
        let mut strays = Vec::new();
        for pool in self
            .world
            .store::<DeviceObject<DevicePool>>()
            .by_index(&allocation_ledger::ledger_claim_tag(claim.uid()))
        {
            let own = pool.status.allocations.iter();
            let own = own.filter(|it| it.claim_ref.uid == claim.uid().as_str());
            let stray = own.filter(|it| {
                allocation_ledger::is_live(it, horizon) && !is_had(&pool.metadata.name, it)
            });
            strays.extend(stray.map(|it| it.since.0));
        }
        strays
    }

    /// Reconciles a claim without devices: reservations that are not needed are voided, and when
    /// nothing is left, the finalizer is removed.
    fn reconcile_unallocated(&self, plan: &mut Plan) {
        let claim = self.claim;
        let pools = self
            .world
            .store::<DeviceObject<DevicePool>>()
            .by_index(&allocation_ledger::ledger_claim_tag(claim.uid()));
        let uid = claim.uid().as_str();
        let entries = pools.iter().flat_map(|it| &it.status.allocations);
        let entries: Vec<_> = entries.filter(|it| it.claim_ref.uid == uid).collect();
        if entries.is_empty() && !claim.has_finalizer() && claim.consumers().is_empty() {
            return;
        }
        if !claim.meta().is_terminating() && self.has_pending_pod() {
            return;
        }
        let horizon = claim.allocation_changed_at();
        let live = entries
            .iter()
            .filter(|it| allocation_ledger::is_live(it, horizon))
            .map(|it| it.since.0);
        let live: Vec<Timestamp> = live.collect();
        if !live.is_empty() || !claim.consumers().is_empty() {
            plan.write(claim.deallocate(live, self.now));
        } else if entries.is_empty() && claim.has_finalizer() {
            plan.write(claim.set_finalizer(false));
        }
    }

    /// Whether a pod waits for the claim and has everything else it needs to be scheduled.
    fn has_pending_pod(&self) -> bool {
        let (pods, meta) = (self.world.store::<Pod>(), self.claim.meta());
        // A claim that was created for a pod is of use to no other pod.
        if let Some(owner) = meta.controller().filter(|it| it.kind == "Pod") {
            let pod = pods.get(&meta.key().in_same_namespace(&owner.name));
            return pod.is_some_and(|it| it.metadata.uid == owner.uid && self.is_awaited_by(&it));
        }
        pods.in_namespace(&meta.namespace).iter().any(|pod| self.is_awaited_by(pod))
    }

    /// Whether this pod waits for the claim and has everything else it needs to be scheduled.
    fn is_awaited_by(&self, pod: &Pod) -> bool {
        if !scheduler::is_pending(self.world, pod) {
            return false;
        }
        let resolved = pod_claims::resolve(self.world, pod);
        resolved.is_ok_and(|it| {
            it.missing.is_empty() && it.claims.iter().any(|(_, it)| it.uid() == self.claim.uid())
        })
    }

    /// Reports the state of the devices of a claim in use, and evicts its pods if they may not
    /// stay.
    fn check_allocated_devices(&self, consumers: &[Consumer], plan: &mut Plan) {
        let claim = self.claim;
        let mut says = Vec::new();
        for (kind, reason, found) in [
            ("DeviceLost", "NotPublished", self.missing_devices()),
            ("Conflict", "HeldTwice", self.conflicting_claims()),
        ] {
            let known = condition::find(claim.conditions(), kind).is_some();
            match found {
                Some(message) => {
                    says.push(ConditionUpdate {
                        message,
                        ..ConditionUpdate::new_true(kind, reason)
                    });
                }
                None if known => {
                    says.push(ConditionUpdate::new_false(kind, "AsItShouldBe", String::new()));
                }
                None => {}
            }
        }
        says.retain(|it| !it.is_current(claim.conditions()));
        if !says.is_empty() {
            let warn = says
                .iter()
                .filter(|it| it.is_true)
                .map(|it| Event::warning(claim.reference(), it.kind, it.message.clone()));
            let notes: Vec<Event> = warn.collect();
            let conditions =
                condition::merge(claim.conditions(), &says, claim.meta().generation, self.now);
            let write =
                claim.update_status(&json!({"conditions": condition::to_json(&conditions)}));
            plan.steps.push(notes.into_iter().fold(Step::new(write), Step::on_success));
        }
        if let Some(why) = self.eviction_reason() {
            self.evict_pods(consumers, &why, plan);
        }
    }

    /// Returns the devices that the claim has and that no pool publishes.
    fn missing_devices(&self) -> Option<String> {
        let pools = self.world.store::<DeviceObject<DevicePool>>();
        let lost = self.claim.allocations().iter().filter_map(|it| {
            let pool = &it.device_pool_name;
            let Some(seen) = pools.get(&Key::cluster(pool)) else {
                let unreadable = pools.is_unreadable(&Key::cluster(pool));
                return (!unreadable).then(|| format!("pool {pool} is gone"));
            };
            let (Ok(object), Some(name)) = (&seen.object, &it.device_name) else { return None };
            let there = object.spec.devices.iter().any(|device| device.name == *name);
            (!there).then(|| format!("pool {pool} no longer has device {name}"))
        });
        let lost: BTreeSet<String> = lost.collect();
        (!lost.is_empty()).then(|| lost.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Returns the devices that another claim has too and may not share. That happens when a status
    /// is edited by hand, or a pool loses its ledger while no controller runs.
    fn conflicting_claims(&self) -> Option<String> {
        let claims = self.world.store::<ClaimObject>();
        for held in self.claim.allocations().iter().filter(|it| is_hold(it)) {
            let (Some(device), Some(mode)) = (&held.device_name, held.access_mode) else {
                continue;
            };
            let pool = &held.device_pool_name;
            for other in claims.by_index(&holds_device_tag(pool, device)) {
                let same = |it: &&gantry_api::devices::DeviceAllocation| {
                    it.device_pool_name == *pool && it.device_name.as_ref() == Some(device)
                };
                let modes = other.status.allocations.iter().filter(same);
                let mut modes = modes.filter_map(|it| it.access_mode);
                if other.metadata.uid != *self.claim.uid()
                    && modes.any(|it| !allocation_ledger::are_compatible(it, mode))
                {
                    let key = other.metadata.key();
                    return Some(format!("claim {key} has device {device} of pool {pool} as well"));
                }
            }
        }
        None
    }

    /// Returns why the pods of the claim must be evicted: a taint on one of its devices.
    fn eviction_reason(&self) -> Option<String> {
        let pools = self.world.store::<DeviceObject<DevicePool>>();
        self.claim.allocations().iter().find_map(|it| {
            let pool = pools.get(&Key::cluster(&it.device_pool_name))?;
            let name = it.device_name.as_ref()?;
            let spec = &pool.object.as_ref().ok()?.spec;
            let device = spec.devices.iter().find(|device| device.name == *name)?;
            let tolerations = self.tolerations(it.claim_name.as_deref().unwrap_or_default());
            let taint = device.taints.iter().find(|taint| {
                taint.effect == TaintEffect::NoExecute && !tolerates(&tolerations, taint)
            })?;
            let pool = &it.device_pool_name;
            Some(format!("device {name} of pool {pool} has taint \"{}\"", taint.key))
        })
    }

    fn tolerations(&self, term: &str) -> Vec<Toleration> {
        match (self.claim, self.claim.spec()) {
            (Claim::Plain(seen), Ok(ClaimSpecRef::Claim(spec))) => {
                let nth = seen.status.selected.get(term).copied().unwrap_or_default();
                let term = spec.claims.iter().find(|it| it.name == term);
                let nth = nth.try_into().unwrap_or(usize::MAX);
                let ask = term.and_then(|it| it.alternatives().nth(nth));
                ask.map(|it| it.tolerations.clone()).unwrap_or_default()
            }
            (_, Ok(ClaimSpecRef::Privileged(spec))) => spec.tolerations.clone(),
            (Claim::Privileged(_), Ok(ClaimSpecRef::Claim(_))) | (_, Err(_)) => Vec::new(),
        }
    }

    fn evict_pods(&self, consumers: &[Consumer], why: &str, plan: &mut Plan) {
        let namespace = &self.claim.meta().namespace;
        let budgets = self.world.store::<PodDisruptionBudget>().in_namespace(namespace);
        for consumer in consumers.iter().take(MAX_EVICTIONS_PER_PLAN) {
            let key = self.claim.meta().key().in_same_namespace(&consumer.name);
            let Some(pod) = self.world.store::<Pod>().get(&key) else { continue };
            if pod.metadata.is_terminating() || pod.metadata.uid.as_str() != consumer.uid {
                continue;
            }
            let about = ObjectReference::to(&Pod::RESOURCE, &pod.metadata);
            let spent = budgets.iter().find(|it| {
                let selector = it.spec.selector.as_ref();
                selector.is_some_and(|selector| selector.matches(&pod.metadata.labels))
                    && it.status.disruptions_allowed <= 0
            });
            if let Some(budget) = spent {
                let message = format!(
                    "{why}; PodDisruptionBudget {} does not allow its eviction",
                    budget.metadata.name
                );
                plan.held.push(Held { about, reason: "DeviceTaint".into(), message, until: None });
                plan.requeue_after(BUDGET_RETRY_DELAY);
                continue;
            }
            let delete = Write::Delete {
                resource: Pod::RESOURCE,
                key,
                fence: Fence { uid: pod.metadata.uid.clone(), revision: None },
                grace: None,
                propagation: None,
            };
            let note = Event::warning(about, "DeviceTaint", why.to_owned());
            plan.steps.push(Step::new(delete).on_success(note));
        }
    }
}

fn pod_reference(claim: &Claim, consumer: &Consumer) -> ObjectReference {
    ObjectReference {
        resource: Pod::RESOURCE,
        key: claim.meta().key().in_same_namespace(&consumer.name),
        uid: Uid::new(&consumer.uid),
        field: String::new(),
    }
}
