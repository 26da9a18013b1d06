//! The making of one plan, pod by pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_api::devices::{Consumer, DeviceAllocation, HoldState, LedgerEntry, PodClaims};
use gantry_devices::lower::Wanted;
use gantry_pods::said::{Said, say};
use gantry_pods::view::{Pod, Truth};
use gantry_reconcile::{Held, Note, Plan, Reference, Step, Uid, View};
use jiff::Timestamp;
use serde_json::json;

use crate::carrier::{self, Trouble};
use crate::claim::{Claim, MOST_CONSUMERS, is_hold};
use crate::condition::{self, Says};
use crate::config::{self, ConfigObject, Copies};
use crate::gate;
use crate::ledger::{self, Line};

use super::answers::{Answer, Answers, Question};
use super::quota::{self, AdminQuota, Counts, Quotas};
use super::scene::Scene;
use super::search::{self, Found, NO_NODE};
use super::status::{Given, commit, consumer};
use super::{Waiting, told};

/// A plan in the making.
pub(super) struct Turn<'a> {
    pub(super) plan: Plan,
    scene: Scene<'a>,
    answers: Answers,
    quotas: Quotas,
    /// What is set aside by this plan, by pool.
    entries: BTreeMap<String, Vec<LedgerEntry>>,
    /// What comes after that, by pool.
    after: BTreeMap<String, Vec<Step>>,
    /// Who is to share a claim that has its devices.
    sharing: BTreeMap<Uid, (Claim, Vec<Consumer>)>,
    /// Claims that this plan writes to for a pod. Others who want them wait for what comes of it.
    busy: BTreeSet<Uid>,
    /// Claims of which this plan says why they wait.
    explained: BTreeSet<Uid>,
}

/// A pod and its claims.
pub(super) struct Case<'a, 'b> {
    pub(super) pod: &'a Arc<Pod>,
    pub(super) asked: &'b PodClaims,
    /// What the pod calls its claims, and what they are.
    pub(super) claims: &'b [(String, Claim)],
    /// Those without devices.
    pub(super) open: Vec<&'b (String, Claim)>,
    /// The others.
    pub(super) had: &'b [&'b Claim],
}

/// What was found for the claims of a pod that have no devices, and may be given to them.
struct Solution {
    found: Arc<Found>,
    copies: Vec<Copies>,
    counts: Counts,
}

impl<'a> Turn<'a> {
    pub(super) fn new(scene: Scene<'a>, admin: AdminQuota) -> Self {
        Self {
            plan: Plan::default(),
            answers: Answers::new(&scene),
            scene,
            quotas: Quotas::new(admin),
            entries: BTreeMap::new(),
            after: BTreeMap::new(),
            sharing: BTreeMap::new(),
            busy: BTreeSet::new(),
            explained: BTreeSet::new(),
        }
    }

    /// How much the plan writes; what comes one after the other for a pod is one.
    pub(super) fn writes(&self) -> usize {
        let after: usize = self.after.values().map(Vec::len).sum();
        self.plan.steps.len() + self.entries.len() + self.sharing.len() + after
    }

    /// The plan, with one write for each pool and each shared claim.
    pub(super) fn finish(mut self) -> Plan {
        for (name, more) in &self.entries {
            let Some(pool) = self.scene.pool(name) else { continue };
            let entries: Vec<LedgerEntry> = self.scene.entries(pool).chain(more).cloned().collect();
            let mut step = Step::new(ledger::write(pool, &entries));
            step.then = self.after.remove(name).unwrap_or_default();
            self.plan.steps.push(step);
        }
        for (claim, more) in self.sharing.values() {
            let all: Vec<Consumer> = claim.consumers().iter().chain(more).cloned().collect();
            self.plan.write(claim.share(&all));
        }
        self.answers.finish(self.scene.world);
        self.scene.finish(&self.entries);
        self.plan
    }

    /// Takes the next step for a pod.
    pub(super) fn take(&mut self, waiting: Waiting<'a>) {
        let pod = waiting.pod;
        match waiting.resolved {
            Err(trouble) => self.hold(pod, trouble, &[]),
            Ok((claims, resolved)) if !resolved.missing.is_empty() => {
                match carrier::supply(self.scene.world, pod, &claims, &resolved.missing) {
                    Ok(steps) => self.plan.steps.extend(steps),
                    Err(trouble) => self.hold(pod, trouble, &[]),
                }
            }
            Ok((asked, resolved)) => {
                if let Err(trouble) = self.decide(pod, &asked, &resolved.claims) {
                    self.hold(pod, trouble, &resolved.claims);
                }
            }
        }
    }

    fn decide(
        &mut self,
        pod: &'a Arc<Pod>,
        asked: &PodClaims,
        claims: &[(String, Claim)],
    ) -> Result<(), Trouble> {
        if let Some((_, claim)) = claims.iter().find(|(_, it)| self.busy.contains(it.uid())) {
            self.wait(pod, claim);
            return Ok(());
        }
        for (_, claim) in claims {
            self.check(pod, claim)?;
        }
        if claims.is_empty() && gate::is_gated(pod) {
            self.plan.steps.push(gate::open(pod, "", self.scene.now)?);
            return Ok(());
        }
        let (had, open): (Vec<_>, Vec<_>) = claims.iter().partition(|(_, it)| it.is_allocated());
        let had: Vec<&Claim> = had.into_iter().map(|(_, it)| it).collect();
        self.within_quota(pod, &had)?;
        // Then a node will do that was refused of late.
        if let Some(until) = self.scene.refusals.of(pod).iter().map(|it| it.until.0).min() {
            self.plan.look_at(until, self.scene.now);
        }
        let case = Case { pod, asked, claims, open, had: &had };
        let placed = match case.open.is_empty() {
            true => self.place(&case),
            false => self.equip(&case),
        };
        match placed {
            Err(trouble) if trouble.reason == NO_NODE => self.give_back(pod, &had, trouble),
            other => other,
        }
    }

    /// Takes devices back that were given beyond what the namespace may have, before the pod has a node.
    fn within_quota(&mut self, pod: &Pod, had: &[&Claim]) -> Result<(), Trouble> {
        let alone = |claim: &Claim| {
            let mut others = claim.consumers().iter();
            others.all(|it| it.uid == pod.metadata.uid.as_str())
        };
        let beyond = had.iter().find(|it| alone(it) && self.quotas.is_beyond(self.scene.world, it));
        let Some(claim) = beyond.filter(|_| pod.spec.node_name.is_empty()) else { return Ok(()) };
        let since = self.scene.ledgers.of(claim).iter().map(|it| it.entry.since.0);
        self.plan.write(claim.clear(since, self.scene.now));
        self.busy.insert(claim.uid().clone());
        let text = format!("claim \"{}\" got more than its namespace may have", claim.name());
        Err(Trouble::new("QuotaExceeded", text))
    }

    /// Waits for what another pod does with a claim; that is told soon enough.
    fn wait(&mut self, pod: &Pod, claim: &Claim) {
        self.plan.held.push(Held {
            about: about(pod),
            reason: "ClaimBusy".into(),
            message: format!("claim \"{}\" is being allocated", claim.name()),
            until: None,
        });
    }

    /// What can be found wrong with a claim whatever devices there are.
    fn check(&self, pod: &Pod, claim: &Claim) -> Result<(), Trouble> {
        let name = claim.name();
        let uid = &pod.metadata.uid;
        if claim.is_allocated() {
            let sharing = self.sharing.get(claim.uid()).map_or(0, |(_, more)| more.len());
            if !claim.is_reserved_for(uid) && claim.consumers().len() + sharing >= MOST_CONSUMERS {
                let text = format!("claim \"{name}\" has {MOST_CONSUMERS} pods, and takes no more");
                return Err(Trouble::new("ClaimFull", text));
            }
            return Ok(());
        }
        let wanted = claim.wanted().map_err(|why| {
            Trouble::new("InvalidClaim", format!("claim \"{name}\" is invalid: {why}"))
        })?;
        let looks_on = match wanted {
            Wanted::Privileged(_) => true,
            Wanted::Claim(spec) => spec.claims.iter().flat_map(|it| it.alternatives()).any(|ask| {
                let class =
                    ask.device_class.as_deref().and_then(|it| self.scene.stock.catalog.class(it));
                class.is_some_and(|it| it.admin_access)
            }),
        };
        if looks_on && !quota::may_look_on(self.scene.world, &pod.metadata.namespace) {
            let text =
                format!("claim \"{name}\" looks at devices of others, which its namespace may not");
            return Err(Trouble::new("AdminAccessDenied", text));
        }
        Ok(())
    }

    /// Gives a pod to a node that has everything, or makes it one of the users of its claims.
    fn place(&mut self, case: &Case<'a, '_>) -> Result<(), Trouble> {
        let pod = case.pod;
        let node = self.search(pod, &[], case.had, &[])?.node;
        let shares = self.share(pod, case.had);
        self.put(pod, node);
        if shares {
            return Ok(());
        }
        if gate::is_gated(pod) {
            let node = &self.scene.sites()[node].node.metadata.name;
            self.plan.steps.push(gate::open(pod, node, self.scene.now)?);
        } else {
            self.plan.steps.extend(case.bind(&self.scene, node, &[]));
        }
        Ok(())
    }

    /// Makes a pod one of the users of these claims. Returns whether there was anything to do.
    fn share(&mut self, pod: &Pod, had: &[&Claim]) -> bool {
        let mut any = false;
        for claim in had.iter().filter(|it| !it.is_reserved_for(&pod.metadata.uid)) {
            let known = self.sharing.entry(claim.uid().clone());
            known.or_insert_with(|| ((*claim).clone(), Vec::new())).1.push(consumer(pod));
            any = true;
        }
        any
    }

    fn put(&mut self, pod: &'a Pod, node: usize) {
        if gate::node_of(pod).is_empty() {
            self.scene.put(node, pod);
        }
    }

    /// Finds devices for the claims that have none, and takes the next step to give them.
    fn equip(&mut self, case: &Case<'a, '_>) -> Result<(), Trouble> {
        let (pod, open, had) = (case.pod, case.open.as_slice(), case.had);
        let live: Vec<Vec<Line<'a>>> =
            open.iter().map(|(_, claim)| self.scene.ledgers.live(claim)).collect();
        let lines: Vec<Line<'a>> = live.iter().flatten().copied().collect();
        self.scene.release(&lines);
        let found = self.solve(pod, open, had, &lines);
        self.scene.enter(&lines);
        let solution = match found {
            Ok(solution) => solution,
            Err(_) if !lines.is_empty() => {
                self.void(open, &live);
                return Ok(());
            }
            Err(trouble) => return Err(trouble),
        };
        let found = &solution.found;
        let holds: Vec<Vec<&DeviceAllocation>> = found
            .given
            .iter()
            .map(|it| it.allocations.iter().filter(|it| is_hold(it)).collect())
            .collect();
        let is_of = |line: &Line<'_>, holds: &[&DeviceAllocation]| {
            holds.iter().any(|it| ledger::is_about(line.entry, line.pool, it))
        };
        let stray = live.iter().zip(&holds).any(|(l, h)| l.iter().any(|line| !is_of(line, h)));
        if stray {
            self.void(open, &live);
            return Ok(());
        }
        let mut missing = Vec::new();
        for (((_, claim), lines), holds) in open.iter().zip(&live).zip(&holds) {
            for hold in holds {
                let there = lines.iter().any(|line| ledger::is_about(line.entry, line.pool, hold));
                if !there {
                    let since = ledger::since(claim, self.scene.now);
                    let entry = ledger::entry(claim, hold, HoldState::Reserved, since);
                    missing.push((hold.device_pool_name.clone(), entry));
                }
            }
        }
        if let Some(full) = self.full(&missing) {
            // Elsewhere there may be others. There is one pool fewer each time.
            self.scene.close(&full, ledger::FULL);
            return self.equip(case);
        }
        let pools: BTreeSet<String> = missing.iter().map(|(pool, _)| pool.clone()).collect();
        let since = missing.iter().map(|(_, entry)| entry.since.0);
        let since = lines.iter().map(|it| it.entry.since.0).chain(since).max();
        self.reserve(missing);
        for (_, claim) in open.iter().filter(|(_, it)| !it.is_protected()) {
            self.plan.write(claim.protect(true));
        }
        // With entries in several ledgers to come, the next plan knows whether all of them took.
        if pools.len() <= 1 && open.iter().all(|(_, claim)| claim.is_protected()) {
            let mut steps = self.commit(case, since, &solution);
            if !self.share(pod, case.had) {
                steps.extend(case.bind(&self.scene, found.node, &found.given));
            }
            let row = steps.into_iter().rev().reduce(|after, step| step.then(after));
            match pools.into_iter().next() {
                Some(pool) => self.after.entry(pool).or_default().extend(row),
                None => self.plan.steps.extend(row),
            }
        }
        self.busy.extend(open.iter().map(|(_, claim)| claim.uid().clone()));
        self.quotas.give(&pod.metadata.namespace, &solution.counts);
        self.put(pod, found.node);
        self.scene.burden(found.node, &found.extra);
        Ok(())
    }

    /// What is found for a pod. What is set aside for it counts as free, so with that nobody else's
    /// answer is its own.
    fn search(
        &mut self,
        pod: &Arc<Pod>,
        open: &[&(String, Claim)],
        had: &[&Claim],
        lines: &[Line<'_>],
    ) -> Answer {
        let scene = &mut self.scene;
        let question = match lines.is_empty() {
            true => Question::new(scene, pod, open, had),
            false => None,
        };
        let revision = scene.revision();
        match question {
            Some(question) => {
                self.answers.ask(revision, question, || search::find(scene, pod, open, had, lines))
            }
            None => search::find(scene, pod, open, had, lines).map(Arc::new),
        }
    }

    fn solve(
        &mut self,
        pod: &Arc<Pod>,
        open: &[&(String, Claim)],
        had: &[&Claim],
        lines: &[Line<'_>],
    ) -> Result<Solution, Trouble> {
        let found = self.search(pod, open, had, lines)?;
        let (mut copies, mut counts) = (Vec::new(), Counts::new());
        for ((_, claim), given) in open.iter().zip(&found.given) {
            copies.push(self.configs(claim, given)?);
            for (class, more) in quota::counts(claim, &given.selected, &given.allocations) {
                *counts.entry(class).or_default() += more;
            }
        }
        let (scene, namespace) = (&self.scene, &pod.metadata.namespace);
        self.quotas.check(scene.world, &scene.stock.catalog, namespace, &counts)?;
        Ok(Solution { found, copies, counts })
    }

    fn configs(&self, claim: &Claim, given: &Given) -> Result<Copies, Trouble> {
        let scene = &self.scene;
        let objects = scene.world.facts::<ConfigObject>();
        let (selected, got) = (&given.selected, &given.allocations);
        config::copy(claim, &scene.stock.catalog, selected, got, scene, &objects).map_err(|why| {
            Trouble::new("ConfigNotFound", format!("claim \"{}\": {why}", claim.name()))
        })
    }

    /// The first pool whose ledger has no room for what is to be set aside.
    fn full(&self, entries: &[(String, LedgerEntry)]) -> Option<String> {
        let mut more: BTreeMap<&str, Vec<LedgerEntry>> = BTreeMap::new();
        for (name, entry) in entries {
            let before = || self.entries.get(name).cloned().unwrap_or_default();
            more.entry(name).or_insert_with(before).push(entry.clone());
        }
        let is_full = |(name, more): &(&str, Vec<LedgerEntry>)| {
            self.scene.pool(name).is_some_and(|pool| ledger::is_full(pool, more))
        };
        more.into_iter().find(is_full).map(|(name, _)| name.to_owned())
    }

    /// Sets devices aside, all of them in one write for each pool.
    fn reserve(&mut self, entries: Vec<(String, LedgerEntry)>) {
        for (name, entry) in entries {
            self.scene.enter_one(&name, &entry);
            self.entries.entry(name).or_default().push(entry);
        }
    }

    /// Gives the claims their devices, when the ledgers say so.
    fn commit(
        &self,
        case: &Case<'_, '_>,
        since: Option<Timestamp>,
        solution: &Solution,
    ) -> Vec<Step> {
        let found = &solution.found;
        let step = |(at, (entry, claim)): (usize, &&(String, Claim))| {
            let (given, copies) = (&found.given[at], &solution.copies[at]);
            let write = commit(&self.scene, case.pod, found.node, claim, given, copies, since);
            let told = found.remarks.iter().filter_map(|it| told::remark(it, entry, claim));
            told.fold(Step::new(write), Step::done)
        };
        case.open.iter().enumerate().map(step).collect()
    }

    /// Takes back what was set aside for claims: from then on their entries do not count.
    fn void(&mut self, open: &[&(String, Claim)], live: &[Vec<Line<'_>>]) {
        for ((_, claim), lines) in open.iter().zip(live).filter(|(_, lines)| !lines.is_empty()) {
            let since = lines.iter().map(|it| it.entry.since.0);
            self.plan.write(claim.clear(since, self.scene.now));
        }
        self.busy.extend(open.iter().map(|(_, claim)| claim.uid().clone()));
    }

    /// Takes devices back from the first claim that only this pod uses and that keeps it from every
    /// node: elsewhere there may be others.
    fn give_back(&mut self, pod: &Pod, had: &[&Claim], trouble: Trouble) -> Result<(), Trouble> {
        let uid = pod.metadata.uid.as_str();
        let alone = |it: &&&Claim| it.consumers().iter().all(|consumer| consumer.uid == uid);
        let first = had.iter().filter(alone).min_by_key(|it| it.name());
        let Some(claim) = first.filter(|_| gate::node_of(pod).is_empty()) else {
            return Err(trouble);
        };
        let since = self.scene.ledgers.of(claim).iter().map(|it| it.entry.since.0);
        self.plan.write(claim.clear(since, self.scene.now));
        self.busy.insert(claim.uid().clone());
        Ok(())
    }

    /// Says why a pod waits, when that is news.
    fn hold(&mut self, pod: &Pod, trouble: Trouble, claims: &[(String, Claim)]) {
        let Trouble { reason, message } = trouble;
        // With the gate before it, it is not yet for anybody to say that no node will do.
        let word = if gate::is_gated(pod) { "SchedulingGated" } else { "Unschedulable" };
        let said = Said {
            kind: "PodScheduled",
            status: Truth::False,
            reason: word.to_owned(),
            message: message.clone(),
        };
        if gate::node_of(pod).is_empty() && !said.is_true_of(pod) {
            let event = if reason == NO_NODE { "FailedScheduling" } else { reason };
            let note = Note::warning(about(pod), event, message.clone()).doing("Scheduling");
            let write = say(pod, Some(&said), None, self.scene.now);
            self.plan.steps.push(Step::new(write).done(note));
        }
        for (_, claim) in claims.iter().filter(|(_, it)| !it.is_allocated()) {
            let says = Says::no("Schedulable", reason, message.clone());
            // Of several pods that wait for it, the first says why.
            if self.explained.insert(claim.uid().clone()) && !says.is_said(claim.conditions()) {
                let generation = claim.meta().generation;
                let now = self.scene.now;
                let said = condition::with(claim.conditions(), &[says], generation, now);
                self.plan.write(claim.write(&json!({"conditions": condition::spell(&said)})));
            }
        }
        self.plan.held.push(Held {
            about: about(pod),
            reason: reason.into(),
            message,
            until: None,
        });
    }
}

pub(super) fn about(pod: &Pod) -> Reference {
    Reference::to(&Pod::RESOURCE, &pod.metadata)
}
