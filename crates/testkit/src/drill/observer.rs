//! Observes the cluster through watches, and checks the guarantees that must hold at every moment.
//!
//! Each collection is observed in the order in which the server changed it, so checks of one
//! collection are exact: no node has more pods than capacity, no tree admits more than its quota.
//! Checks across several collections are made when nothing changes any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::amounts::Amounts;
use super::workload::{PlannedAppWrapper, QuotaLimit, Workload};

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Wrappers,
    Jobs,
    Pods,
    Nodes,
    Trees,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Nodes, Self::Trees, Self::Wrappers, Self::Jobs, Self::Pods];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Wrappers => super::APP_WRAPPERS_PATH,
            Self::Jobs => "/apis/batch/v1/namespaces/default/jobs",
            Self::Pods => "/api/v1/namespaces/default/pods",
            Self::Nodes => "/api/v1/nodes",
            Self::Trees => "/apis/quota.codeflare.dev/v1alpha1/quotasubtrees",
        }
    }
}

/// The label of objects that were created for an AppWrapper.
const OWNER: &str = "appwrapper.mcad.ibm.com";

/// The last observed state of an AppWrapper.
#[derive(Clone, Debug, Default)]
struct Wrapper {
    revision: String,
    state: String,
    queue_state: String,
    message: String,
    holds: bool,
    /// How often it was admitted, and preempted.
    admissions: u32,
    preemptions: u32,
    /// How often it changed during a gap of the watch: a transition may have been missed.
    missed: u32,
    first_admitted: Option<Duration>,
    done: Option<Duration>,
}

#[derive(Clone, Debug, Default)]
struct Job {
    uid: String,
    is_complete: bool,
    succeeded: u64,
}

#[derive(Clone, Debug, Default)]
struct Pod {
    node: String,
    takes: Amounts,
    is_finished: bool,
    is_running: bool,
}

#[derive(Clone, Debug, Default)]
struct Node {
    has: Amounts,
    pods: usize,
    is_ready: bool,
}

/// Records the observed objects and the violations of guarantees.
#[derive(Debug)]
pub(super) struct Observer {
    app_wrappers: BTreeMap<String, PlannedAppWrapper>,
    limits: Vec<QuotaLimit>,
    listed_kinds: BTreeSet<Kind>,
    wrappers: BTreeMap<String, Wrapper>,
    jobs: BTreeMap<String, Job>,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    /// The amounts charged to the children of each QuotaSubtree, from its status.
    charged: BTreeMap<String, Amounts>,
    submitted: BTreeMap<String, Duration>,
    /// How often each Job was created.
    job_creations: BTreeMap<String, u32>,
    /// Why AppWrappers were preempted, in total and since the last line.
    reasons: BTreeMap<String, u32>,
    new_reasons: BTreeMap<String, u32>,
    deleting: bool,
    /// When an AppWrapper was last observed to complete, and to change its state.
    progress: Duration,
    last_transition: Duration,
    events: u64,
    gaps: u32,
    most_charged: Vec<Amounts>,
    most_pods: usize,
    violations: Vec<String>,
}

impl Observer {
    pub(super) fn new(workload: &Workload) -> Self {
        let limits = workload.limits();
        let app_wrappers =
            workload.app_wrappers().iter().map(|it| (it.name.clone(), it.clone())).collect();
        Self {
            app_wrappers,
            listed_kinds: BTreeSet::new(),
            wrappers: BTreeMap::new(),
            jobs: BTreeMap::new(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            charged: BTreeMap::new(),
            submitted: BTreeMap::new(),
            job_creations: BTreeMap::new(),
            reasons: BTreeMap::new(),
            new_reasons: BTreeMap::new(),
            deleting: false,
            progress: Duration::ZERO,
            last_transition: Duration::ZERO,
            events: 0,
            gaps: 0,
            most_charged: vec![Amounts::default(); limits.len()],
            most_pods: 0,
            violations: Vec::new(),
            limits,
        }
    }

    /// Records a list of a kind. Objects that are not in it are deleted; those that differ from
    /// before have changed during a gap of the watch.
    pub(super) fn listed(&mut self, kind: Kind, items: &[Value], at: Duration) {
        if !self.listed_kinds.insert(kind) {
            self.gaps += 1;
        }
        let names: BTreeSet<String> =
            items.iter().map(|it| text(&it["metadata"]["name"])).collect();
        for name in self.names(kind).difference(&names).cloned().collect::<Vec<_>>() {
            self.remove(kind, &name);
        }
        for item in items {
            if kind == Kind::Wrappers
                && let Some(before) = self.wrappers.get_mut(&text(&item["metadata"]["name"]))
                && before.revision != text(&item["metadata"]["resourceVersion"])
            {
                before.missed += 1;
            }
            self.apply(kind, item, at);
        }
        // Not before: half a list is not a consistent state.
        self.check(kind);
    }

    /// Records an object that was added or modified.
    pub(super) fn changed(&mut self, kind: Kind, object: &Value, at: Duration) {
        self.apply(kind, object, at);
        self.check(kind);
    }

    fn apply(&mut self, kind: Kind, object: &Value, at: Duration) {
        self.events += 1;
        match kind {
            Kind::Wrappers => self.wrapper(object, at),
            Kind::Jobs => self.job(object),
            Kind::Pods => self.pod(object),
            Kind::Nodes => self.node(object),
            Kind::Trees => {
                let charged = Amounts::read(&object["status"]["totalAllocation"]);
                self.charged.insert(text(&object["metadata"]["name"]), charged);
            }
        }
    }

    /// Checks the guarantees about a kind.
    fn check(&mut self, kind: Kind) {
        match kind {
            Kind::Wrappers => self.check_quota(),
            Kind::Pods | Kind::Nodes => self.check_nodes(),
            Kind::Jobs | Kind::Trees => {}
        }
    }

    /// Records a deleted object.
    pub(super) fn deleted(&mut self, kind: Kind, object: &Value) {
        self.events += 1;
        self.remove(kind, &text(&object["metadata"]["name"]));
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::Wrappers => {
                self.wrappers.remove(name);
                if !self.deleting {
                    self.add_violation(format!("{name} was deleted, but not by the drill"));
                }
            }
            Kind::Jobs => drop(self.jobs.remove(name)),
            Kind::Pods => drop(self.pods.remove(name)),
            Kind::Nodes => drop(self.nodes.remove(name)),
            Kind::Trees => drop(self.charged.remove(name)),
        }
    }

    fn names(&self, kind: Kind) -> BTreeSet<String> {
        match kind {
            Kind::Wrappers => self.wrappers.keys().cloned().collect(),
            Kind::Jobs => self.jobs.keys().cloned().collect(),
            Kind::Pods => self.pods.keys().cloned().collect(),
            Kind::Nodes => self.nodes.keys().cloned().collect(),
            Kind::Trees => self.charged.keys().cloned().collect(),
        }
    }

    fn wrapper(&mut self, object: &Value, at: Duration) {
        let name = text(&object["metadata"]["name"]);
        if !self.app_wrappers.contains_key(&name) {
            return self.add_violation(format!("{name} was not submitted by the drill"));
        }
        let status = &object["status"];
        let (state, step) = (text(&status["state"]), text(&status["queuejobstate"]));
        let holds = status["canrun"] == true;
        let before = self.wrappers.get(&name).cloned().unwrap_or_default();
        let mut now = Wrapper {
            revision: text(&object["metadata"]["resourceVersion"]),
            state: state.clone(),
            queue_state: step.clone(),
            message: text(&status["message"]),
            holds,
            admissions: before.admissions,
            preemptions: before.preemptions,
            missed: before.missed,
            first_admitted: before.first_admitted,
            done: before.done,
        };
        match state.as_str() {
            "" | "Pending" | "Running" | "RunningHoldCompletion" | "Completed" => {}
            _ => self.add_violation(format!("{name} ended as {state}: {status}")),
        }
        if before.state == "Completed" && state != "Completed" {
            self.add_violation(format!("{name} was Completed and is {state:?} now"));
        }
        if (&before.state, &before.queue_state, before.holds) != (&state, &step, holds) {
            self.last_transition = at;
        }
        if holds && !before.holds {
            now.admissions += 1;
            now.first_admitted = now.first_admitted.or(Some(at));
        }
        if step != before.queue_state && matches!(step.as_str(), "Preempted" | "PreemptCandidate") {
            now.preemptions += 1;
            let reason = reason(status, &step);
            *self.reasons.entry(reason.clone()).or_default() += 1;
            *self.new_reasons.entry(reason).or_default() += 1;
        }
        if state == "Completed" && now.done.is_none() {
            now.done = Some(at);
            self.progress = at;
        }
        self.wrappers.insert(name, now);
    }

    /// Checks that the admitted AppWrappers use no more than the quota of each tree. A preempted
    /// AppWrapper is no longer charged; its preemption is written before another one is admitted in
    /// its place.
    fn check_quota(&mut self) {
        let mut broken = Vec::new();
        for (limit, most) in self.limits.iter().zip(&mut self.most_charged) {
            let mut sum = Amounts::default();
            for (name, wrapper) in &self.wrappers {
                let Some(planned) = self.app_wrappers.get(name) else { continue };
                let here =
                    limit.leaf.is_none_or(|leaf| planned.leaves.contains(&(limit.tree, leaf)));
                if here && wrapper.holds && wrapper.queue_state != "Preempted" {
                    sum.add(planned.demand);
                }
            }
            if !sum.fits(limit.most) {
                let node = limit.leaf.unwrap_or("the root");
                let (tree, limit) = (limit.tree, limit.most);
                broken.push(format!("{node} of tree {tree} has {limit:?} and is charged {sum:?}"));
            }
            if sum.cpu > most.cpu {
                *most = sum;
            }
        }
        self.violations.extend(broken);
    }

    fn job(&mut self, object: &Value) {
        let name = text(&object["metadata"]["name"]);
        let uid = text(&object["metadata"]["uid"]);
        let known = self.jobs.get(&name).is_some_and(|it| it.uid == uid);
        if !known {
            *self.job_creations.entry(name.clone()).or_default() += 1;
        }
        let status = &object["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let is_complete =
            conditions.into_iter().any(|it| it["type"] == "Complete" && it["status"] == "True");
        let succeeded = status["succeeded"].as_u64().unwrap_or_default();
        self.jobs.insert(name, Job { uid, is_complete, succeeded });
    }

    fn pod(&mut self, object: &Value) {
        let name = text(&object["metadata"]["name"]);
        if object["metadata"]["labels"][OWNER].is_null() {
            return self.add_violation(format!("pod {name} belongs to no AppWrapper"));
        }
        let mut takes = Amounts::default();
        for container in object["spec"]["containers"].as_array().into_iter().flatten() {
            takes.add(Amounts::read(&container["resources"]["requests"]));
        }
        let phase = object["status"]["phase"].as_str().unwrap_or_default();
        let pod = Pod {
            node: text(&object["spec"]["nodeName"]),
            takes,
            is_finished: matches!(phase, "Succeeded" | "Failed"),
            is_running: phase == "Running",
        };
        self.pods.insert(name, pod);
    }

    fn node(&mut self, object: &Value) {
        let name = text(&object["metadata"]["name"]);
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready =
            conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        let allocatable = &object["status"]["allocatable"];
        let pods = text(&allocatable["pods"]).parse().unwrap_or(0);
        self.nodes.insert(name, Node { has: Amounts::read(allocatable), pods, is_ready });
    }

    /// Checks that the unfinished pods of each node use no more than its capacity. A node that is
    /// not known yet is checked once it is.
    fn check_nodes(&mut self) {
        let mut sums: BTreeMap<&str, (Amounts, usize)> = BTreeMap::new();
        for pod in self.pods.values().filter(|it| !it.is_finished) {
            let (sum, count) = sums.entry(pod.node.as_str()).or_default();
            sum.add(pod.takes);
            *count += 1;
        }
        let mut broken = Vec::new();
        for (name, (sum, count)) in sums {
            let Some(node) = self.nodes.get(name).filter(|it| it.pods > 0) else { continue };
            self.most_pods = self.most_pods.max(count);
            if !sum.fits(node.has) || count > node.pods {
                let has = node.has;
                broken.push(format!("node {name} has {has:?}, but its {count} pods use {sum:?}"));
            }
        }
        self.violations.extend(broken);
    }

    /// Records a violation.
    pub(super) fn add_violation(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(super) fn violations(&self) -> &[String] {
        &self.violations
    }

    pub(super) fn submitted(&mut self, name: &str, at: Duration) {
        self.submitted.insert(name.to_owned(), at);
    }

    /// Allows AppWrappers to be deleted from now on.
    pub(super) fn expect_deletion(&mut self) {
        self.deleting = true;
    }

    /// Returns whether every kind was listed once.
    pub(super) fn has_listed_all_kinds(&self) -> bool {
        self.listed_kinds.len() == Kind::ALL.len()
    }

    /// Returns whether all objects are deleted.
    pub(super) fn is_empty(&self) -> bool {
        self.wrappers.is_empty() && self.jobs.is_empty() && self.pods.is_empty()
    }

    /// Returns how many AppWrappers are completed.
    pub(super) fn completed(&self) -> u32 {
        count(self.wrappers.values().filter(|it| it.state == "Completed"))
    }

    /// Returns whether a node is known and not ready.
    pub(super) fn is_not_ready(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|it| !it.is_ready)
    }

    /// Returns when an AppWrapper was last observed to complete.
    pub(super) fn last_progress(&self) -> Duration {
        self.progress
    }

    /// Returns when an AppWrapper was last observed to change its state.
    pub(super) fn last_transition(&self) -> Duration {
        self.last_transition
    }

    /// Returns the AppWrappers that are not completed, and why.
    pub(super) fn incomplete(&self) -> Vec<String> {
        let open = self.wrappers.iter().filter(|(_, it)| it.state != "Completed");
        open.map(|(name, it)| format!("{name}: {} {} {}", it.state, it.queue_state, it.message))
            .collect()
    }

    /// Returns what is wrong once all AppWrappers are completed: every item must exist once and be
    /// complete, no AppWrapper may hold a reservation, and no pod may run.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        for (name, wrapper) in &self.wrappers {
            if wrapper.holds {
                left.push(format!("{name} still holds its reservation"));
            }
            let items =
                self.app_wrappers.get(name).map(|it| it.items.as_slice()).unwrap_or_default();
            for (item, pods) in items {
                match self.jobs.get(item) {
                    Some(job) if job.is_complete && job.succeeded == u64::from(*pods) => {}
                    job => left.push(format!("{name} is completed, and its item is {job:?}")),
                }
                let made = self.job_creations.get(item).copied().unwrap_or_default();
                if made > 1 + wrapper.preemptions + wrapper.missed {
                    let times = wrapper.preemptions;
                    left.push(format!(
                        "{item} was created {made} times but preempted {times} times"
                    ));
                }
            }
        }
        let items: usize = self.app_wrappers.values().map(|it| it.items.len()).sum();
        if self.jobs.len() != items {
            left.push(format!("there are {} Jobs for {items} items", self.jobs.len()));
        }
        for (name, pod) in self.pods.iter().filter(|(_, it)| !it.is_finished) {
            left.push(format!("pod {name} on node {:?} is not finished", pod.node));
        }
        for (name, charged) in self.charged.iter().filter(|(_, it)| !it.is_zero()) {
            left.push(format!("QuotaSubtree {name} is charged {charged:?}"));
        }
        left
    }
}

/// The final states of AppWrappers, kept when they are deleted.
#[derive(Clone, Debug)]
pub(super) struct FinalAppWrappers {
    wrappers: BTreeMap<String, Wrapper>,
}

fn count(all: impl Iterator) -> u32 {
    u32::try_from(all.count()).unwrap_or(u32::MAX)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns why an AppWrapper was preempted: the reason of the newest condition of that type.
fn reason(status: &Value, step: &str) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let newest = conditions
        .filter(|it| it["type"] == step)
        .max_by_key(|it| text(&it["lastUpdateMicroTime"]));
    newest.map_or_else(|| "without a reason".to_owned(), |it| text(&it["reason"]))
}

mod display;

pub(super) use display::STATUS_HEADER;

#[cfg(test)]
mod tests;
