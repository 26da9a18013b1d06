//! One scheduling cycle: plans the next step of each pending pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_api::devices::{Consumer, DeviceAllocation, HoldState, LedgerEntry, PodClaims};
use gantry_devices::lower::ClaimSpecRef;
use gantry_pods::pod_condition::{PodConditionUpdate, update_pod_status};
use gantry_pods::view::{ConditionStatus, Pod};
use gantry_reconcile::{Event, Held, Plan, Step, Uid};
use jiff::Timestamp;
use serde_json::json;

use crate::allocation_ledger::{self, PoolLedgerEntry};
use crate::claim::{Claim, MAX_CONSUMERS, is_hold};
use crate::condition::{self, ConditionUpdate};
use crate::config::{self, ConfigCopies, ConfigObject};
use crate::pod_claims::{self, PendingReason};
use crate::scheduling_gate;
use crate::scheduling_gate::pod_reference;

use super::claim_status::{ClaimGrant, allocate_claim, consumer};
use super::cycle_state::CycleState;
use super::quota::{self, AdminQuota, DeviceCounts, QuotaUsage};
use super::search::{self, NodeAssignment, UNSCHEDULABLE};
use super::search_cache::{SearchCache, SearchKey, SearchResult};
use super::{PendingPod, messages};

/// A plan under construction.
pub(super) struct SchedulingCycle<'a> {
    pub(super) plan: Plan,
    state: CycleState<'a>,
    search_cache: SearchCache,
    quotas: QuotaUsage,
    /// The devices reserved by this plan, by pool.
    reservations: BTreeMap<String, Vec<LedgerEntry>>,
    /// The steps that follow the reservations, by pool.
    follow_up_steps: BTreeMap<String, Vec<Step>>,
    /// New consumers of claims that have their devices.
    new_consumers: BTreeMap<Uid, (Claim, Vec<Consumer>)>,
    /// Claims that this plan writes to for a pod. Other pods that use them wait for the result.
    claims_in_progress: BTreeSet<Uid>,
    /// Claims for which this plan writes why they are pending.
    explained: BTreeSet<Uid>,
}

/// A pod and its claims.
pub(super) struct PodWithClaims<'a, 'b> {
    pub(super) pod: &'a Arc<Pod>,
    pub(super) pod_claims: &'b PodClaims,
    /// The claims, with their names in the pod.
    pub(super) claims: &'b [(String, Claim)],
    /// The claims without devices.
    pub(super) unallocated: Vec<&'b (String, Claim)>,
    /// The claims with devices.
    pub(super) allocated: &'b [&'b Claim],
}

/// The devices that were found for the unallocated claims of a pod and may be allocated to them.
struct Solution {
    assignment: Arc<NodeAssignment>,
    copies: Vec<ConfigCopies>,
    counts: DeviceCounts,
}

impl<'a> SchedulingCycle<'a> {
    pub(super) fn new(scene: CycleState<'a>, admin: AdminQuota) -> Self {
        Self {
            plan: Plan::default(),
            search_cache: SearchCache::new(&scene),
            state: scene,
            quotas: QuotaUsage::new(admin),
            reservations: BTreeMap::new(),
            follow_up_steps: BTreeMap::new(),
            new_consumers: BTreeMap::new(),
            claims_in_progress: BTreeSet::new(),
            explained: BTreeSet::new(),
        }
    }

    /// Returns how many writes the plan makes; a sequence of steps for a pod counts as one.
    pub(super) fn write_count(&self) -> usize {
        let after: usize = self.follow_up_steps.values().map(Vec::len).sum();
        self.plan.steps.len() + self.reservations.len() + self.new_consumers.len() + after
    }

    /// Finishes the plan, with one write for each pool and each shared claim.
    pub(super) fn finish(mut self) -> Plan {
        for (name, more) in &self.reservations {
            let Some(pool) = self.state.pool(name) else { continue };
            let entries: Vec<LedgerEntry> =
                self.state.pool_entries(pool).chain(more).cloned().collect();
            let mut step = Step::new(allocation_ledger::write_entries(pool, &entries));
            step.then = self.follow_up_steps.remove(name).unwrap_or_default();
            self.plan.steps.push(step);
        }
        for (claim, more) in self.new_consumers.values() {
            let all: Vec<Consumer> = claim.consumers().iter().chain(more).cloned().collect();
            self.plan.write(claim.reserve_for(&all));
        }
        self.search_cache.finish(self.state.world);
        self.state.finish(&self.reservations);
        self.plan
    }

    /// Plans the next step for a pod.
    pub(super) fn schedule(&mut self, waiting: PendingPod<'a>) {
        let pod = waiting.pod;
        match waiting.resolved {
            Err(trouble) => self.report_pending(pod, trouble, &[]),
            Ok(resolved) if !resolved.missing.is_empty() => {
                match pod_claims::create_missing(self.state.world, pod, &resolved) {
                    Ok(steps) => self.plan.steps.extend(steps),
                    Err(trouble) => self.report_pending(pod, trouble, &[]),
                }
            }
            Ok(resolved) => {
                let requested = &resolved.requested;
                if let Err(trouble) = self.schedule_pod(pod, requested, &resolved.claims) {
                    self.report_pending(pod, trouble, &resolved.claims);
                }
            }
        }
    }

    fn schedule_pod(
        &mut self,
        pod: &'a Arc<Pod>,
        asked: &PodClaims,
        claims: &[(String, Claim)],
    ) -> Result<(), PendingReason> {
        if let Some((_, claim)) =
            claims.iter().find(|(_, it)| self.claims_in_progress.contains(it.uid()))
        {
            self.hold_for_busy_claim(pod, claim);
            return Ok(());
        }
        for (_, claim) in claims {
            self.check_claim(pod, claim)?;
        }
        if claims.is_empty() && scheduling_gate::is_gated(pod) {
            self.plan.steps.push(scheduling_gate::open_gate(pod, "", self.state.now)?);
            return Ok(());
        }
        let (had, open): (Vec<_>, Vec<_>) = claims.iter().partition(|(_, it)| it.is_allocated());
        let had: Vec<&Claim> = had.into_iter().map(|(_, it)| it).collect();
        self.revoke_over_quota(pod, &had)?;
        // From then on a node is allowed that was rejected recently.
        if let Some(until) = self.state.refusals.for_pod(pod).iter().map(|it| it.until.0).min() {
            self.plan.requeue_at(until, self.state.now);
        }
        let case =
            PodWithClaims { pod, pod_claims: asked, claims, unallocated: open, allocated: &had };
        let placed = match case.unallocated.is_empty() {
            true => self.bind_allocated(&case),
            false => self.allocate_devices(&case),
        };
        match placed {
            Err(trouble) if trouble.reason == UNSCHEDULABLE => {
                self.deallocate_blocking_claim(pod, &had, trouble)
            }
            other => other,
        }
    }

    /// Revokes devices that exceed the quota of the namespace, before the pod has a node.
    fn revoke_over_quota(&mut self, pod: &Pod, had: &[&Claim]) -> Result<(), PendingReason> {
        let alone = |claim: &Claim| {
            let mut others = claim.consumers().iter();
            others.all(|it| it.uid == pod.metadata.uid.as_str())
        };
        let beyond =
            had.iter().find(|it| alone(it) && self.quotas.is_over_quota(self.state.world, it));
        let Some(claim) = beyond.filter(|_| pod.spec.node_name.is_empty()) else { return Ok(()) };
        let since = self.state.ledger.entries_of(claim).iter().map(|it| it.entry.since.0);
        self.plan.write(claim.deallocate(since, self.state.now));
        self.claims_in_progress.insert(claim.uid().clone());
        let text = format!("claim \"{}\" exceeds the quota of its namespace", claim.name());
        Err(PendingReason::new("QuotaExceeded", text))
    }

    /// Waits for another pod's write to a claim; a change of the claim triggers the next plan.
    fn hold_for_busy_claim(&mut self, pod: &Pod, claim: &Claim) {
        self.plan.held.push(Held {
            about: pod_reference(pod),
            reason: "ClaimBusy".into(),
            message: format!("claim \"{}\" is being allocated", claim.name()),
            until: None,
        });
    }

    /// Checks what can be wrong with a claim regardless of the devices there are.
    fn check_claim(&self, pod: &Pod, claim: &Claim) -> Result<(), PendingReason> {
        let name = claim.name();
        let uid = &pod.metadata.uid;
        if claim.is_allocated() {
            let sharing = self.new_consumers.get(claim.uid()).map_or(0, |(_, more)| more.len());
            if !claim.is_reserved_for(uid) && claim.consumers().len() + sharing >= MAX_CONSUMERS {
                let text = format!("claim \"{name}\" has {MAX_CONSUMERS} pods, the maximum");
                return Err(PendingReason::new("ClaimFull", text));
            }
            return Ok(());
        }
        let wanted = claim.spec().map_err(|why| {
            PendingReason::new("InvalidClaim", format!("claim \"{name}\" is invalid: {why}"))
        })?;
        let looks_on = match wanted {
            ClaimSpecRef::Privileged(_) => true,
            ClaimSpecRef::Claim(spec) => {
                spec.claims.iter().flat_map(|it| it.alternatives()).any(|ask| {
                    let class = ask
                        .device_class
                        .as_deref()
                        .and_then(|it| self.state.inventory.catalog.class(it));
                    class.is_some_and(|it| it.admin_access)
                })
            }
        };
        if looks_on && !quota::allows_admin_access(self.state.world, &pod.metadata.namespace) {
            let text =
                format!("claim \"{name}\" needs administrator access, which its namespace lacks");
            return Err(PendingReason::new("AdminAccessDenied", text));
        }
        Ok(())
    }

    /// Binds a pod whose claims are all allocated, or adds it to the consumers of its claims.
    fn bind_allocated(&mut self, case: &PodWithClaims<'a, '_>) -> Result<(), PendingReason> {
        let pod = case.pod;
        let node = self.search(pod, &[], case.allocated, &[])?.node;
        let shares = self.reserve_claims_for(pod, case.allocated);
        self.assume_pod(pod, node);
        if shares {
            return Ok(());
        }
        if scheduling_gate::is_gated(pod) {
            let node = &self.state.nodes()[node].node.metadata.name;
            self.plan.steps.push(scheduling_gate::open_gate(pod, node, self.state.now)?);
        } else {
            self.plan.steps.extend(case.bind_step(&self.state, node, &[]));
        }
        Ok(())
    }

    /// Adds a pod to the consumers of these claims. Returns whether there was anything to do.
    fn reserve_claims_for(&mut self, pod: &Pod, had: &[&Claim]) -> bool {
        let mut any = false;
        for claim in had.iter().filter(|it| !it.is_reserved_for(&pod.metadata.uid)) {
            let known = self.new_consumers.entry(claim.uid().clone());
            known.or_insert_with(|| ((*claim).clone(), Vec::new())).1.push(consumer(pod));
            any = true;
        }
        any
    }

    fn assume_pod(&mut self, pod: &'a Pod, node: usize) {
        if scheduling_gate::assigned_node(pod).is_empty() {
            self.state.assume_pod(node, pod);
        }
    }

    /// Finds devices for the unallocated claims, and plans the next step to allocate them.
    fn allocate_devices(&mut self, case: &PodWithClaims<'a, '_>) -> Result<(), PendingReason> {
        let (pod, open, had) = (case.pod, case.unallocated.as_slice(), case.allocated);
        let live: Vec<Vec<PoolLedgerEntry<'a>>> =
            open.iter().map(|(_, claim)| self.state.ledger.live_entries(claim)).collect();
        let lines: Vec<PoolLedgerEntry<'a>> = live.iter().flatten().copied().collect();
        self.state.release_entries(&lines);
        let found = self.solve(pod, open, had, &lines);
        self.state.hold_entries(&lines);
        let solution = match found {
            Ok(solution) => solution,
            Err(_) if !lines.is_empty() => {
                self.void_reservations(open, &live);
                return Ok(());
            }
            Err(trouble) => return Err(trouble),
        };
        let found = &solution.assignment;
        let holds: Vec<Vec<&DeviceAllocation>> = found
            .grants
            .iter()
            .map(|it| it.allocations.iter().filter(|it| is_hold(it)).collect())
            .collect();
        let is_of = |line: &PoolLedgerEntry<'_>, holds: &[&DeviceAllocation]| {
            holds.iter().any(|it| allocation_ledger::is_entry_for(line.entry, line.pool, it))
        };
        let stray = live.iter().zip(&holds).any(|(l, h)| l.iter().any(|line| !is_of(line, h)));
        if stray {
            self.void_reservations(open, &live);
            return Ok(());
        }
        let mut missing = Vec::new();
        for (((_, claim), lines), holds) in open.iter().zip(&live).zip(&holds) {
            for hold in holds {
                let there = lines
                    .iter()
                    .any(|line| allocation_ledger::is_entry_for(line.entry, line.pool, hold));
                if !there {
                    let since = allocation_ledger::entry_time(claim, self.state.now);
                    let entry =
                        allocation_ledger::new_entry(claim, hold, HoldState::Reserved, since);
                    missing.push((hold.device_pool_name.clone(), entry));
                }
            }
        }
        if let Some(full) = self.full_pool(&missing) {
            // Other pools may do. There is one pool fewer each time.
            self.state.close_pool(&full, allocation_ledger::LEDGER_FULL_MESSAGE);
            return self.allocate_devices(case);
        }
        let pools: BTreeSet<String> = missing.iter().map(|(pool, _)| pool.clone()).collect();
        let since = missing.iter().map(|(_, entry)| entry.since.0);
        let since = lines.iter().map(|it| it.entry.since.0).chain(since).max();
        self.reserve(missing);
        for (_, claim) in open.iter().filter(|(_, it)| !it.has_finalizer()) {
            self.plan.write(claim.set_finalizer(true));
        }
        // With entries in several ledgers, the next plan knows whether all writes succeeded.
        if pools.len() <= 1 && open.iter().all(|(_, claim)| claim.has_finalizer()) {
            let mut steps = self.allocate_claims(case, since, &solution);
            if !self.reserve_claims_for(pod, case.allocated) {
                steps.extend(case.bind_step(&self.state, found.node, &found.grants));
            }
            let row = steps.into_iter().rev().reduce(|after, step| step.then(after));
            match pools.into_iter().next() {
                Some(pool) => self.follow_up_steps.entry(pool).or_default().extend(row),
                None => self.plan.steps.extend(row),
            }
        }
        self.claims_in_progress.extend(open.iter().map(|(_, claim)| claim.uid().clone()));
        self.quotas.charge(&pod.metadata.namespace, &solution.counts);
        self.assume_pod(pod, found.node);
        self.state.add_overhead(found.node, &found.device_overhead);
        Ok(())
    }

    /// Searches a node and devices for a pod. Devices that are reserved for it count as free, so
    /// with reservations it cannot share a cached result with other pods.
    fn search(
        &mut self,
        pod: &Arc<Pod>,
        open: &[&(String, Claim)],
        had: &[&Claim],
        lines: &[PoolLedgerEntry<'_>],
    ) -> SearchResult {
        let scene = &mut self.state;
        let question = match lines.is_empty() {
            true => SearchKey::new(scene, pod, open, had),
            false => None,
        };
        let revision = scene.revision();
        match question {
            Some(question) => self.search_cache.get_or_search(revision, question, || {
                search::find_node(scene, pod, open, had, lines)
            }),
            None => search::find_node(scene, pod, open, had, lines).map(Arc::new),
        }
    }

    fn solve(
        &mut self,
        pod: &Arc<Pod>,
        open: &[&(String, Claim)],
        had: &[&Claim],
        lines: &[PoolLedgerEntry<'_>],
    ) -> Result<Solution, PendingReason> {
        let found = self.search(pod, open, had, lines)?;
        let (mut copies, mut counts) = (Vec::new(), DeviceCounts::new());
        for ((_, claim), given) in open.iter().zip(&found.grants) {
            copies.push(self.copy_configs(claim, given)?);
            for (class, more) in quota::device_counts(claim, &given.selected, &given.allocations) {
                *counts.entry(class).or_default() += more;
            }
        }
        let (scene, namespace) = (&self.state, &pod.metadata.namespace);
        self.quotas.check(scene.world, &scene.inventory.catalog, namespace, &counts)?;
        Ok(Solution { assignment: found, copies, counts })
    }

    fn copy_configs(
        &self,
        claim: &Claim,
        given: &ClaimGrant,
    ) -> Result<ConfigCopies, PendingReason> {
        let scene = &self.state;
        let objects = scene.world.facts::<ConfigObject>();
        let (selected, got) = (&given.selected, &given.allocations);
        config::copy_configs(claim, &scene.inventory.catalog, selected, got, scene, &objects)
            .map_err(|why| {
                PendingReason::new("ConfigNotFound", format!("claim \"{}\": {why}", claim.name()))
            })
    }

    /// Returns the first pool whose ledger is too full for these entries.
    fn full_pool(&self, entries: &[(String, LedgerEntry)]) -> Option<String> {
        let mut more: BTreeMap<&str, Vec<LedgerEntry>> = BTreeMap::new();
        for (name, entry) in entries {
            let before = || self.reservations.get(name).cloned().unwrap_or_default();
            more.entry(name).or_insert_with(before).push(entry.clone());
        }
        let is_full = |(name, more): &(&str, Vec<LedgerEntry>)| {
            self.state.pool(name).is_some_and(|pool| allocation_ledger::is_full(pool, more))
        };
        more.into_iter().find(is_full).map(|(name, _)| name.to_owned())
    }

    /// Reserves devices, with one write for each pool.
    fn reserve(&mut self, entries: Vec<(String, LedgerEntry)>) {
        for (name, entry) in entries {
            self.state.hold_entry(&name, &entry);
            self.reservations.entry(name).or_default().push(entry);
        }
    }

    /// Allocates the devices to the claims, once the ledgers contain them.
    fn allocate_claims(
        &self,
        case: &PodWithClaims<'_, '_>,
        since: Option<Timestamp>,
        solution: &Solution,
    ) -> Vec<Step> {
        let found = &solution.assignment;
        let step = |(at, (entry, claim)): (usize, &&(String, Claim))| {
            let (given, copies) = (&found.grants[at], &solution.copies[at]);
            let write =
                allocate_claim(&self.state, case.pod, found.node, claim, given, copies, since);
            let told =
                found.warnings.iter().filter_map(|it| messages::warning_event(it, entry, claim));
            told.fold(Step::new(write), Step::on_success)
        };
        case.unallocated.iter().enumerate().map(step).collect()
    }

    /// Voids what was reserved for claims: from then on their entries do not count.
    fn void_reservations(&mut self, open: &[&(String, Claim)], live: &[Vec<PoolLedgerEntry<'_>>]) {
        for ((_, claim), lines) in open.iter().zip(live).filter(|(_, lines)| !lines.is_empty()) {
            let since = lines.iter().map(|it| it.entry.since.0);
            self.plan.write(claim.deallocate(since, self.state.now));
        }
        self.claims_in_progress.extend(open.iter().map(|(_, claim)| claim.uid().clone()));
    }

    /// Releases the devices of the first claim that only this pod uses and that makes every node
    /// infeasible: there may be suitable devices elsewhere.
    fn deallocate_blocking_claim(
        &mut self,
        pod: &Pod,
        had: &[&Claim],
        trouble: PendingReason,
    ) -> Result<(), PendingReason> {
        let uid = pod.metadata.uid.as_str();
        let alone = |it: &&&Claim| it.consumers().iter().all(|consumer| consumer.uid == uid);
        let first = had.iter().filter(alone).min_by_key(|it| it.name());
        let Some(claim) = first.filter(|_| scheduling_gate::assigned_node(pod).is_empty()) else {
            return Err(trouble);
        };
        let since = self.state.ledger.entries_of(claim).iter().map(|it| it.entry.since.0);
        self.plan.write(claim.deallocate(since, self.state.now));
        self.claims_in_progress.insert(claim.uid().clone());
        Ok(())
    }

    /// Reports why a pod is pending, if that has changed.
    fn report_pending(&mut self, pod: &Pod, trouble: PendingReason, claims: &[(String, Claim)]) {
        let PendingReason { reason, message } = trouble;
        // While the pod is gated, no scheduler has rejected any node yet.
        let word = if scheduling_gate::is_gated(pod) { "SchedulingGated" } else { "Unschedulable" };
        let said = PodConditionUpdate {
            kind: "PodScheduled",
            status: ConditionStatus::False,
            reason: word.to_owned(),
            message: message.clone(),
        };
        if scheduling_gate::assigned_node(pod).is_empty() && !said.is_set_on(pod) {
            let event = if reason == UNSCHEDULABLE { "FailedScheduling" } else { reason };
            let note = Event::warning(pod_reference(pod), event, message.clone())
                .with_action("Scheduling");
            let write = update_pod_status(pod, Some(&said), None, self.state.now);
            self.plan.steps.push(Step::new(write).on_success(note));
        }
        for (_, claim) in claims.iter().filter(|(_, it)| !it.is_allocated()) {
            let says = ConditionUpdate::new_false("Schedulable", reason, message.clone());
            // Of several pods that wait for it, the first says why.
            if self.explained.insert(claim.uid().clone()) && !says.is_current(claim.conditions()) {
                let generation = claim.meta().generation;
                let now = self.state.now;
                let said = condition::merge(claim.conditions(), &[says], generation, now);
                self.plan
                    .write(claim.update_status(&json!({"conditions": condition::to_json(&said)})));
            }
        }
        self.plan.held.push(Held {
            about: pod_reference(pod),
            reason: reason.into(),
            message,
            until: None,
        });
    }
}
