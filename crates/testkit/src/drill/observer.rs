//! What can be seen from outside, and what must be true of it at every moment.
//!
//! Each collection is seen in the order in which the server changed it, so what is said of one collection
//! is exact: no node has more pods than room, no tree hands out more than it has. What is said of several
//! is said when nothing moves any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::amounts::Amounts;
use super::workload::{Limit, Wish, Workload};

/// What is watched.
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
            Self::Wrappers => super::WRAPPERS,
            Self::Jobs => "/apis/batch/v1/namespaces/default/jobs",
            Self::Pods => "/api/v1/namespaces/default/pods",
            Self::Nodes => "/api/v1/nodes",
            Self::Trees => "/apis/quota.codeflare.dev/v1alpha1/quotasubtrees",
        }
    }
}

/// The label by which what was made for an AppWrapper is known.
const OWNER: &str = "appwrapper.mcad.ibm.com";

/// An AppWrapper as it was seen last.
#[derive(Clone, Debug, Default)]
struct Wrapper {
    revision: String,
    state: String,
    step: String,
    message: String,
    holds: bool,
    /// How often it passed, and was taken back.
    passed: u32,
    taken_back: u32,
    /// How often it changed while nobody looked: something may have been missed.
    missed: u32,
    first_passed: Option<Duration>,
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
    is_over: bool,
    is_running: bool,
}

#[derive(Clone, Debug, Default)]
struct Node {
    has: Amounts,
    pods: usize,
    is_ready: bool,
}

/// Who looks on.
#[derive(Debug)]
pub(super) struct Observer {
    wishes: BTreeMap<String, Wish>,
    limits: Vec<Limit>,
    known: BTreeSet<Kind>,
    wrappers: BTreeMap<String, Wrapper>,
    jobs: BTreeMap<String, Job>,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    /// What is charged to the children of each QuotaSubtree, as its status says.
    charged: BTreeMap<String, Amounts>,
    submitted: BTreeMap<String, Duration>,
    /// How often each Job was made.
    made: BTreeMap<String, u32>,
    /// Why AppWrappers were taken back, in all and since the last line.
    reasons: BTreeMap<String, u32>,
    fresh: BTreeMap<String, u32>,
    deleting: bool,
    /// When an AppWrapper was last seen to complete, and to take a step.
    progress: Duration,
    stepped: Duration,
    events: u64,
    gaps: u32,
    most_charged: Vec<Amounts>,
    most_pods: usize,
    faults: Vec<String>,
}

impl Observer {
    pub(super) fn new(workload: &Workload) -> Self {
        let limits = workload.limits();
        let wishes = workload.wishes().iter().map(|it| (it.name.clone(), it.clone())).collect();
        Self {
            wishes,
            known: BTreeSet::new(),
            wrappers: BTreeMap::new(),
            jobs: BTreeMap::new(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            charged: BTreeMap::new(),
            submitted: BTreeMap::new(),
            made: BTreeMap::new(),
            reasons: BTreeMap::new(),
            fresh: BTreeMap::new(),
            deleting: false,
            progress: Duration::ZERO,
            stepped: Duration::ZERO,
            events: 0,
            gaps: 0,
            most_charged: vec![Amounts::default(); limits.len()],
            most_pods: 0,
            faults: Vec::new(),
            limits,
        }
    }

    /// Takes note of all there is of a kind. What is not among it is gone; what differs from before has
    /// changed while nobody looked.
    pub(super) fn listed(&mut self, kind: Kind, items: &[Value], at: Duration) {
        if !self.known.insert(kind) {
            self.gaps += 1;
        }
        let names: BTreeSet<String> =
            items.iter().map(|it| text(&it["metadata"]["name"])).collect();
        for name in self.names(kind).difference(&names).cloned().collect::<Vec<_>>() {
            self.forget(kind, &name);
        }
        for item in items {
            if kind == Kind::Wrappers
                && let Some(before) = self.wrappers.get_mut(&text(&item["metadata"]["name"]))
                && before.revision != text(&item["metadata"]["resourceVersion"])
            {
                before.missed += 1;
            }
            self.take(kind, item, at);
        }
        // Not before: half a list is the state of no moment.
        self.judge(kind);
    }

    /// Takes note of one that is there.
    pub(super) fn changed(&mut self, kind: Kind, object: &Value, at: Duration) {
        self.take(kind, object, at);
        self.judge(kind);
    }

    fn take(&mut self, kind: Kind, object: &Value, at: Duration) {
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

    /// Holds what there is now of a kind to what was promised about it.
    fn judge(&mut self, kind: Kind) {
        match kind {
            Kind::Wrappers => self.judge_quota(),
            Kind::Pods | Kind::Nodes => self.judge_nodes(),
            Kind::Jobs | Kind::Trees => {}
        }
    }

    /// Takes note of one that is gone.
    pub(super) fn gone(&mut self, kind: Kind, object: &Value) {
        self.events += 1;
        self.forget(kind, &text(&object["metadata"]["name"]));
    }

    fn forget(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::Wrappers => {
                self.wrappers.remove(name);
                if !self.deleting {
                    self.blame(format!("{name} is gone, and nobody deleted it"));
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
        if !self.wishes.contains_key(&name) {
            return self.blame(format!("nobody submitted {name}"));
        }
        let status = &object["status"];
        let (state, step) = (text(&status["state"]), text(&status["queuejobstate"]));
        let holds = status["canrun"] == true;
        let before = self.wrappers.get(&name).cloned().unwrap_or_default();
        let mut now = Wrapper {
            revision: text(&object["metadata"]["resourceVersion"]),
            state: state.clone(),
            step: step.clone(),
            message: text(&status["message"]),
            holds,
            passed: before.passed,
            taken_back: before.taken_back,
            missed: before.missed,
            first_passed: before.first_passed,
            done: before.done,
        };
        match state.as_str() {
            "" | "Pending" | "Running" | "RunningHoldCompletion" | "Completed" => {}
            _ => self.blame(format!("{name} ended as {state}: {status}")),
        }
        if before.state == "Completed" && state != "Completed" {
            self.blame(format!("{name} was Completed and is {state:?} now"));
        }
        if (&before.state, &before.step, before.holds) != (&state, &step, holds) {
            self.stepped = at;
        }
        if holds && !before.holds {
            now.passed += 1;
            now.first_passed = now.first_passed.or(Some(at));
        }
        if step != before.step && matches!(step.as_str(), "Preempted" | "PreemptCandidate") {
            now.taken_back += 1;
            let reason = reason(status, &step);
            *self.reasons.entry(reason.clone()).or_default() += 1;
            *self.fresh.entry(reason).or_default() += 1;
        }
        if state == "Completed" && now.done.is_none() {
            now.done = Some(at);
            self.progress = at;
        }
        self.wrappers.insert(name, now);
    }

    /// What those who passed take is within what each tree has. Who was told to make room is charged no
    /// more; that is written before anybody passes in its place.
    fn judge_quota(&mut self) {
        let mut broken = Vec::new();
        for (limit, most) in self.limits.iter().zip(&mut self.most_charged) {
            let mut sum = Amounts::default();
            for (name, wrapper) in &self.wrappers {
                let Some(wish) = self.wishes.get(name) else { continue };
                let here = limit.leaf.is_none_or(|leaf| wish.leaves.contains(&(limit.tree, leaf)));
                if here && wrapper.holds && wrapper.step != "Preempted" {
                    sum.add(wish.demand);
                }
            }
            if !sum.fits(limit.most) {
                let node = limit.leaf.unwrap_or("the root");
                let (tree, limit) = (limit.tree, limit.most);
                broken.push(format!("{node} of tree {tree} has {limit:?} and gave {sum:?}"));
            }
            if sum.cpu > most.cpu {
                *most = sum;
            }
        }
        self.faults.extend(broken);
    }

    fn job(&mut self, object: &Value) {
        let name = text(&object["metadata"]["name"]);
        let uid = text(&object["metadata"]["uid"]);
        let known = self.jobs.get(&name).is_some_and(|it| it.uid == uid);
        if !known {
            *self.made.entry(name.clone()).or_default() += 1;
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
            return self.blame(format!("pod {name} belongs to no AppWrapper"));
        }
        let mut takes = Amounts::default();
        for container in object["spec"]["containers"].as_array().into_iter().flatten() {
            takes.add(Amounts::read(&container["resources"]["requests"]));
        }
        let phase = object["status"]["phase"].as_str().unwrap_or_default();
        let pod = Pod {
            node: text(&object["spec"]["nodeName"]),
            takes,
            is_over: matches!(phase, "Succeeded" | "Failed"),
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

    /// The pods of each node that are not over take no more than it has. A node that is not known yet is
    /// looked at when it is.
    fn judge_nodes(&mut self) {
        let mut sums: BTreeMap<&str, (Amounts, usize)> = BTreeMap::new();
        for pod in self.pods.values().filter(|it| !it.is_over) {
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
                broken.push(format!("node {name} has {has:?} and gave {sum:?} to {count} pods"));
            }
        }
        self.faults.extend(broken);
    }

    /// Takes note of what is wrong.
    pub(super) fn blame(&mut self, what: String) {
        self.faults.push(what);
    }

    pub(super) fn faults(&self) -> &[String] {
        &self.faults
    }

    pub(super) fn submitted(&mut self, name: &str, at: Duration) {
        self.submitted.insert(name.to_owned(), at);
    }

    /// From now on AppWrappers may go.
    pub(super) fn expect_deletion(&mut self) {
        self.deleting = true;
    }

    /// Whether everything was read once.
    pub(super) fn is_complete(&self) -> bool {
        self.known.len() == Kind::ALL.len()
    }

    /// Whether nothing is there any more.
    pub(super) fn is_empty(&self) -> bool {
        self.wrappers.is_empty() && self.jobs.is_empty() && self.pods.is_empty()
    }

    /// How many are completed.
    pub(super) fn done(&self) -> u32 {
        count(self.wrappers.values().filter(|it| it.state == "Completed"))
    }

    /// Whether a node is known to be lost.
    pub(super) fn is_lost(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|it| !it.is_ready)
    }

    /// When one was last seen to complete.
    pub(super) fn last_progress(&self) -> Duration {
        self.progress
    }

    /// When one was last seen to take a step.
    pub(super) fn last_step(&self) -> Duration {
        self.stepped
    }

    /// Those that are not completed, and why.
    pub(super) fn open(&self) -> Vec<String> {
        let open = self.wrappers.iter().filter(|(_, it)| it.state != "Completed");
        open.map(|(name, it)| format!("{name}: {} {} {}", it.state, it.step, it.message)).collect()
    }

    /// What should not be there when all are completed: what was made is there, once, and complete;
    /// nobody holds anything, and nothing runs.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        for (name, wrapper) in &self.wrappers {
            if wrapper.holds {
                left.push(format!("{name} still holds its reservation"));
            }
            let items = self.wishes.get(name).map(|it| it.items.as_slice()).unwrap_or_default();
            for (item, pods) in items {
                match self.jobs.get(item) {
                    Some(job) if job.is_complete && job.succeeded == u64::from(*pods) => {}
                    job => left.push(format!("{name} is completed, and its item is {job:?}")),
                }
                let made = self.made.get(item).copied().unwrap_or_default();
                if made > 1 + wrapper.taken_back + wrapper.missed {
                    let times = wrapper.taken_back;
                    left.push(format!("{item} was made {made} times and taken back {times} times"));
                }
            }
        }
        let items: usize = self.wishes.values().map(|it| it.items.len()).sum();
        if self.jobs.len() != items {
            left.push(format!("there are {} Jobs for {items} items", self.jobs.len()));
        }
        for (name, pod) in self.pods.iter().filter(|(_, it)| !it.is_over) {
            left.push(format!("pod {name} is on node {:?} and not over", pod.node));
        }
        for (name, charged) in self.charged.iter().filter(|(_, it)| !it.is_nothing()) {
            left.push(format!("QuotaSubtree {name} is charged {charged:?}"));
        }
        left
    }
}

/// What became of AppWrappers, kept when they are deleted.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    wrappers: BTreeMap<String, Wrapper>,
}

fn count(all: impl Iterator) -> u32 {
    u32::try_from(all.count()).unwrap_or(u32::MAX)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Why an AppWrapper was taken back: the reason of the newest condition of that type.
fn reason(status: &Value, step: &str) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let newest = conditions
        .filter(|it| it["type"] == step)
        .max_by_key(|it| text(&it["lastUpdateMicroTime"]));
    newest.map_or_else(|| "for no reason".to_owned(), |it| text(&it["reason"]))
}

mod shown;

pub(super) use shown::HEAD;

#[cfg(test)]
mod tests;
