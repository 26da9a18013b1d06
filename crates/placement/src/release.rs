//! Takes devices back when nobody uses them any more.
//!
//! A claim keeps its devices for as long as one of its pods may use them. A pod that runs and is asked
//! to go still does. A pod that no cache shows may be gone or may be new: the server is asked before
//! it is forgotten.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_api::devices::{
    Consumer, DeviceClaim, DeviceClaimTemplate, DevicePool, DevicePrivilegedClaim, LedgerEntry,
    PodDevices, TaintEffect, Toleration,
};
use gantry_devices::lower::Wanted;
use gantry_devices::tolerates;
use gantry_pods::view::{Pod, PodDisruptionBudget};
use gantry_reconcile::{
    Change, Controller, Fence, Held, Key, Kind, Note, Plan, Reference, Step, Uid, View, World,
    Write,
};
use jiff::Timestamp;
use serde_json::json;

use crate::carrier;
use crate::claim::{self, Claim, holder_of, idle_in, is_hold, used_by};
use crate::condition::{self, Says};
use crate::ledger;
use crate::scheduler;
use crate::seen::Seen;

/// Ends what is not used: consumers, allocations, what was set aside, and what keeps claims from
/// going.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release;

/// How long to wait before a budget is looked at again.
const BUDGET_WAIT: Duration = Duration::from_secs(10);
/// Pods that one claim sends away at once.
const EVICTED: usize = 10;

type Claims = Seen<DeviceClaim>;
type Privileged = Seen<DevicePrivilegedClaim>;

impl Controller for Release {
    fn name(&self) -> &'static str {
        "device-release"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Claims>(),
            Kind::of::<Privileged>(),
            Kind::of::<Pod>(),
            Kind::of::<Seen<DevicePool>>(),
            Kind::of::<Seen<PodDevices>>(),
            Kind::of::<Seen<DeviceClaimTemplate>>(),
            Kind::of::<PodDisruptionBudget>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        let mut tagged = |tag| {
            keys.extend(world.shelf::<Claims>().tagged(&tag).iter().map(|it| it.metadata.key()));
            let privileged = world.shelf::<Privileged>().tagged(&tag);
            keys.extend(privileged.iter().map(|it| it.metadata.key()));
        };
        if let Some(pod) = change.after::<Pod>().or_else(|| change.before::<Pod>()) {
            tagged(used_by(&pod.metadata.uid));
            tagged(gantry_reconcile::world::Tag::owner(&pod.metadata.uid));
            tagged(idle_in(&pod.metadata.namespace));
        } else if change.is::<Seen<DevicePool>>() {
            tagged(claim::has_of(change.key.name()));
            for pool in change.both::<Seen<DevicePool>>() {
                keys.extend(pool.status.allocations.iter().map(ledger::claim_key));
            }
        } else if change.is::<Claims>() || change.is::<Privileged>() {
            keys.insert(change.key.clone());
            // Whoever shares a device with it may no longer, or may from now on.
            for seen in change.both::<Claims>() {
                for held in seen.status.allocations.iter().filter(|it| is_hold(it)) {
                    if let Some(device) = &held.device_name {
                        let tag = holder_of(&held.device_pool_name, device);
                        let holders = world.shelf::<Claims>().tagged(&tag);
                        keys.extend(holders.iter().map(|it| it.metadata.key()));
                    }
                }
            }
        } else if !change.is::<PodDisruptionBudget>() {
            tagged(idle_in(change.key.namespace()));
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        for claim in Claim::all(world, key) {
            let claim = Turn { world, claim: &claim, now };
            if claim.remark(&mut plan) {
                continue;
            }
            match claim.claim.is_allocated() {
                true => claim.used(&mut plan),
                false => claim.unused(&mut plan),
            }
        }
        plan
    }
}

struct Turn<'a> {
    world: &'a World,
    claim: &'a Claim,
    now: Timestamp,
}

/// What is known of a pod that uses a claim.
enum Life {
    Goes,
    Over,
    /// No cache shows it.
    Missing,
}

impl Turn<'_> {
    fn life(&self, consumer: &Consumer) -> Life {
        let key = self.claim.meta().key().beside(&consumer.name);
        let pods = self.world.shelf::<Pod>();
        match pods.get(&key).filter(|it| it.metadata.uid.as_str() == consumer.uid) {
            Some(pod) if pod.is_over() => Life::Over,
            Some(pod) if pod.metadata.is_going() && pod.spec.node_name.is_empty() => Life::Over,
            Some(_) => Life::Goes,
            None if pods.is_unreadable(&key) => Life::Goes,
            None => Life::Missing,
        }
    }

    /// Says what in the claim should be written differently, when that is news. Then the rest waits for
    /// the claim as it is afterwards.
    fn remark(&self, plan: &mut Plan) -> bool {
        let (claim, before) = (self.claim, self.claim.conditions());
        let says = condition::normalized(claim.remarks(), before);
        let Some(says) = says.filter(|it| !it.is_said(before) && !claim.meta().is_going()) else {
            return false;
        };
        let conditions = condition::with(before, &[says], claim.meta().generation, self.now);
        plan.write(claim.write(&json!({"conditions": condition::spell(&conditions)})));
        true
    }

    /// A claim that has devices.
    fn used(&self, plan: &mut Plan) {
        let claim = self.claim;
        let mut left = Vec::new();
        let mut missing = Vec::new();
        for consumer in claim.consumers() {
            match self.life(consumer) {
                Life::Goes => left.push(consumer.clone()),
                Life::Over => {}
                Life::Missing => missing.push(pod_reference(claim, consumer)),
            }
        }
        if left.len() == claim.consumers().len() && !left.is_empty() {
            let strays = self.strays();
            match strays.is_empty() {
                true => self.look_after(&left, plan),
                false => plan.write(claim.outlive(strays, self.now)),
            }
            return;
        }
        let step = match left.is_empty() {
            // What it has was written before it had it.
            true => Step::new(claim.clear([], self.now)),
            false => Step::new(claim.share(&left)),
        };
        plan.steps.push(missing.into_iter().fold(step, Step::gone));
    }

    /// When devices were set aside for the claim that it will never have, because it has others. Whoever did
    /// so believed to lead when somebody else did, and came too late to give them to it.
    fn strays(&self) -> Vec<Timestamp> {
        let (claim, horizon) = (self.claim, self.claim.horizon());
        let is_had = |pool: &str, entry: &LedgerEntry| {
            let mut held = claim.allocations().iter().filter(|it| is_hold(it));
            held.any(|it| ledger::is_about(entry, pool, it))
        };
        let mut strays = Vec::new();
        for pool in self.world.shelf::<Seen<DevicePool>>().tagged(&ledger::names(claim.uid())) {
            let own = pool.status.allocations.iter();
            let own = own.filter(|it| it.claim_ref.uid == claim.uid().as_str());
            let stray =
                own.filter(|it| ledger::is_live(it, horizon) && !is_had(&pool.metadata.name, it));
            strays.extend(stray.map(|it| it.since.0));
        }
        strays
    }

    /// A claim that has none: what was set aside and is not needed is taken back, and when nothing is
    /// left, nothing keeps it from going.
    fn unused(&self, plan: &mut Plan) {
        let claim = self.claim;
        let pools = self.world.shelf::<Seen<DevicePool>>().tagged(&ledger::names(claim.uid()));
        let uid = claim.uid().as_str();
        let entries = pools.iter().flat_map(|it| &it.status.allocations);
        let entries: Vec<_> = entries.filter(|it| it.claim_ref.uid == uid).collect();
        if entries.is_empty() && !claim.is_protected() && claim.consumers().is_empty() {
            return;
        }
        if !claim.meta().is_going() && self.is_needed() {
            return;
        }
        let horizon = claim.horizon();
        let live = entries.iter().filter(|it| ledger::is_live(it, horizon)).map(|it| it.since.0);
        let live: Vec<Timestamp> = live.collect();
        if !live.is_empty() || !claim.consumers().is_empty() {
            plan.write(claim.clear(live, self.now));
        } else if entries.is_empty() && claim.is_protected() {
            plan.write(claim.protect(false));
        }
    }

    /// Whether a pod waits for the claim and has everything else it needs to go on.
    fn is_needed(&self) -> bool {
        let (pods, meta) = (self.world.shelf::<Pod>(), self.claim.meta());
        // What was made for a pod is of use to no other.
        if let Some(owner) = meta.controller().filter(|it| it.kind == "Pod") {
            let pod = pods.get(&meta.key().beside(&owner.name));
            return pod.is_some_and(|it| it.metadata.uid == owner.uid && self.is_for(&it));
        }
        pods.within(&meta.namespace).iter().any(|pod| self.is_for(pod))
    }

    /// Whether a pod waits for the claim and has everything else it needs to go on.
    fn is_for(&self, pod: &Pod) -> bool {
        if !scheduler::waits(self.world, pod) {
            return false;
        }
        let resolved = carrier::read(self.world, pod)
            .and_then(|claims| carrier::resolve(self.world, pod, &claims));
        resolved.is_ok_and(|it| {
            it.missing.is_empty() && it.claims.iter().any(|(_, it)| it.uid() == self.claim.uid())
        })
    }

    /// Says what became of the devices of a claim that is used, and sends its pods away if they may
    /// not stay.
    fn look_after(&self, consumers: &[Consumer], plan: &mut Plan) {
        let claim = self.claim;
        let mut says = Vec::new();
        for (kind, reason, found) in [
            ("DeviceLost", "NotPublished", self.lost()),
            ("Conflict", "HeldTwice", self.conflicts()),
        ] {
            let known = condition::find(claim.conditions(), kind).is_some();
            match found {
                Some(message) => {
                    says.push(Says { message, ..Says::yes(kind, reason) });
                }
                None if known => says.push(Says::no(kind, "AsItShouldBe", String::new())),
                None => {}
            }
        }
        says.retain(|it| !it.is_said(claim.conditions()));
        if !says.is_empty() {
            let warn = says
                .iter()
                .filter(|it| it.holds)
                .map(|it| Note::warning(claim.reference(), it.kind, it.message.clone()));
            let notes: Vec<Note> = warn.collect();
            let conditions =
                condition::with(claim.conditions(), &says, claim.meta().generation, self.now);
            let write = claim.write(&json!({"conditions": condition::spell(&conditions)}));
            plan.steps.push(notes.into_iter().fold(Step::new(write), Step::done));
        }
        if let Some(why) = self.evicted() {
            self.send_away(consumers, &why, plan);
        }
    }

    /// Devices the claim has and nobody publishes.
    fn lost(&self) -> Option<String> {
        let pools = self.world.shelf::<Seen<DevicePool>>();
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

    /// Devices that another claim has too, and not beside this one. It takes a hand that writes
    /// statuses, or a pool that lost its ledger while nobody looked.
    fn conflicts(&self) -> Option<String> {
        let claims = self.world.shelf::<Claims>();
        for held in self.claim.allocations().iter().filter(|it| is_hold(it)) {
            let (Some(device), Some(mode)) = (&held.device_name, held.access_mode) else {
                continue;
            };
            let pool = &held.device_pool_name;
            for other in claims.tagged(&holder_of(pool, device)) {
                let same = |it: &&gantry_api::devices::DeviceAllocation| {
                    it.device_pool_name == *pool && it.device_name.as_ref() == Some(device)
                };
                let modes = other.status.allocations.iter().filter(same);
                let mut modes = modes.filter_map(|it| it.access_mode);
                if other.metadata.uid != *self.claim.uid()
                    && modes.any(|it| !ledger::beside(it, mode))
                {
                    let key = other.metadata.key();
                    return Some(format!("claim {key} has device {device} of pool {pool} as well"));
                }
            }
        }
        None
    }

    /// Why the pods of the claim may not stay: a taint on one of its devices.
    fn evicted(&self) -> Option<String> {
        let pools = self.world.shelf::<Seen<DevicePool>>();
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
        match (self.claim, self.claim.wanted()) {
            (Claim::Plain(seen), Ok(Wanted::Claim(spec))) => {
                let nth = seen.status.selected.get(term).copied().unwrap_or_default();
                let term = spec.claims.iter().find(|it| it.name == term);
                let nth = nth.try_into().unwrap_or(usize::MAX);
                let ask = term.and_then(|it| it.alternatives().nth(nth));
                ask.map(|it| it.tolerations.clone()).unwrap_or_default()
            }
            (_, Ok(Wanted::Privileged(spec))) => spec.tolerations.clone(),
            (Claim::Privileged(_), Ok(Wanted::Claim(_))) | (_, Err(_)) => Vec::new(),
        }
    }

    fn send_away(&self, consumers: &[Consumer], why: &str, plan: &mut Plan) {
        let namespace = &self.claim.meta().namespace;
        let budgets = self.world.shelf::<PodDisruptionBudget>().within(namespace);
        for consumer in consumers.iter().take(EVICTED) {
            let key = self.claim.meta().key().beside(&consumer.name);
            let Some(pod) = self.world.shelf::<Pod>().get(&key) else { continue };
            if pod.metadata.is_going() || pod.metadata.uid.as_str() != consumer.uid {
                continue;
            }
            let about = Reference::to(&Pod::RESOURCE, &pod.metadata);
            let spent = budgets.iter().find(|it| {
                let selector = it.spec.selector.as_ref();
                selector.is_some_and(|selector| selector.matches(&pod.metadata.labels))
                    && it.status.disruptions_allowed <= 0
            });
            if let Some(budget) = spent {
                let message = format!("{why}; budget {} lets it stay", budget.metadata.name);
                plan.held.push(Held { about, reason: "DeviceTaint".into(), message, until: None });
                plan.look_within(BUDGET_WAIT);
                continue;
            }
            let delete = Write::Delete {
                resource: Pod::RESOURCE,
                key,
                fence: Fence { uid: pod.metadata.uid.clone(), revision: None },
                grace: None,
                propagation: None,
            };
            let note = Note::warning(about, "DeviceTaint", why.to_owned());
            plan.steps.push(Step::new(delete).done(note));
        }
    }
}

fn pod_reference(claim: &Claim, consumer: &Consumer) -> Reference {
    Reference {
        resource: Pod::RESOURCE,
        key: claim.meta().key().beside(&consumer.name),
        uid: Uid::new(&consumer.uid),
        field: String::new(),
    }
}
