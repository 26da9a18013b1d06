//! What it costs to find out whether one AppWrapper fits, in a large cluster that is full.
//!
//! There is no server: objects are shown to the decision as a watch would show them. No two AppWrappers
//! that wait ask for the same, because nobody is looked at who is like one that did not fit.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_pods::view::{Node, Pod};
use gantry_process::clock::Clock;
use gantry_queue::app_wrapper::AppWrapper;
use gantry_queue::quota::Subtree;
use gantry_queue::{Dispatch, Live, Settings};
use gantry_reconcile::{Controller as _, Plan, Resource, View as _, World};
use jiff::Timestamp;
use serde_json::{Value, json};

/// How large a cluster is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    /// Pods that run, on all nodes alike.
    pub(crate) pods: usize,
    /// Half of them run, with as many pods each.
    pub(crate) wrappers: usize,
}

impl Size {
    /// That of the budget.
    pub(crate) const LARGE: Self = Self { nodes: 5_000, pods: 50_000, wrappers: 10_000 };

    fn running(self) -> usize {
        self.wrappers / 2
    }

    fn waiting(self) -> usize {
        self.wrappers - self.running()
    }

    /// What is free on each node, in thousandths of a cpu.
    fn free(self) -> usize {
        NODE - POD * (self.pods / self.nodes)
    }
}

/// Cpus of a node and of a pod, in thousandths.
const NODE: usize = 20_000;
const POD: usize = 1_900;
/// The leaves of the quota tree. All they have is used.
const LEAVES: usize = 50;
/// How often all are evaluated.
const TIMES: u32 = 5;
/// One of so many pods ends while somebody looks.
const ENDS: usize = 50;

/// What keeps everybody waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// All nodes together have too little.
    Sum,
    /// No node has enough.
    Places,
    /// The quota is used up.
    Quota,
    /// All nodes together have too little, even if those that run were taken back for it.
    All,
    /// No node has enough, even so.
    Any,
}

impl Lack {
    pub(crate) const ALL: [Self; 5] = [Self::Sum, Self::Places, Self::Quota, Self::All, Self::Any];

    /// In words, for a table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sum => "no room in sum",
            Self::Places => "no room on any node",
            Self::Quota => "no quota",
            Self::All => "no room if all are evicted",
            Self::Any => "no node if all are evicted",
        }
    }

    fn settings(self) -> Settings {
        let usual = Settings::default();
        match self {
            Self::Sum => usual,
            Self::Places => Settings { packing_check: true, ..usual },
            Self::Quota => Settings { quota: true, preemption: true, ..usual },
            Self::All | Self::Any => Settings { preemption: true, active_eviction: true, ..usual },
        }
    }

    /// What the nth of those that wait asks for, in thousandths of a cpu.
    fn asks(self, nth: usize, size: Size) -> usize {
        match self {
            Self::Sum => size.free() * size.nodes + 1 + nth,
            Self::Places => size.free() + 1 + nth,
            Self::Quota => 1 + nth,
            Self::All => NODE * size.nodes + 1 + nth,
            Self::Any => NODE + 1 + nth,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Evaluation {
    /// The first decision, with all that is kept for the next ones.
    pub(crate) first: Duration,
    /// One evaluation, when that is known.
    pub(crate) each: Duration,
    /// To take note of one pod that ended.
    pub(crate) end: Duration,
}

/// Shows everything, and asks who passes.
pub(crate) fn measure(lack: Lack, size: Size, clock: &Clock) -> anyhow::Result<Evaluation> {
    let dispatch = Dispatch::new(Live::new(lack.settings()));
    let world = World::new(dispatch.kinds());
    fill(&world, lack, size)?;
    let plan = || {
        let begun = clock.moment();
        let plan = dispatch.plan(&world, &Dispatch::queue(), Timestamp::UNIX_EPOCH);
        (clock.moment() - begun, plan)
    };
    let (first, decided) = plan();
    check(&decided, size)?;
    let mut all = Duration::ZERO;
    for _ in 0..TIMES {
        let (took, decided) = plan();
        check(&decided, size)?;
        all += took;
    }
    let mut end = Duration::ZERO;
    let ends = (0..size.pods).step_by(ENDS);
    let ended = u32::try_from(ends.len())?;
    for nth in ends {
        let ended = pod(nth, "Succeeded", size).to_string();
        let change = shelf(&world, &Pod::RESOURCE)?.saw(&ended)?.context("it was known so")?;
        let begun = clock.moment();
        dispatch.observer().context("the queue has a cache")?.observe(&world, &change);
        let woken = dispatch.enqueue(&world, &change);
        end += clock.moment() - begun;
        ensure!(!woken.is_empty(), "who waits may pass when a pod has ended");
    }
    let evaluations = TIMES * u32::try_from(size.waiting())?;
    Ok(Evaluation { first, each: all / evaluations, end: end / ended })
}

/// A decision in which somebody passes, or is not looked at, is none to measure.
fn check(plan: &Plan, size: Size) -> anyhow::Result<()> {
    let kept = plan.held.len();
    ensure!(kept == size.waiting(), "{kept} were evaluated and do not fit");
    Ok(())
}

fn shelf(
    world: &World,
    resource: &Resource,
) -> anyhow::Result<std::sync::Arc<dyn gantry_reconcile::world::AnyShelf>> {
    world.find(resource).with_context(|| format!("nobody looks at {resource}"))
}

fn fill(world: &World, lack: Lack, size: Size) -> anyhow::Result<()> {
    let show = |resource: &Resource, object: &Value| {
        shelf(world, resource)?.saw(&object.to_string())?.context("shown twice")?;
        anyhow::Ok(())
    };
    (0..size.nodes).try_for_each(|nth| show(&Node::RESOURCE, &node(nth)))?;
    (0..size.pods).try_for_each(|nth| show(&Pod::RESOURCE, &pod(nth, "Running", size)))?;
    (0..size.wrappers)
        .try_for_each(|nth| show(&AppWrapper::RESOURCE, &wrapper(nth, lack, size)))?;
    if lack == Lack::Quota {
        quotas(size).iter().try_for_each(|it| show(&Subtree::RESOURCE, it))?;
    }
    Ok(())
}

fn metadata(name: &str, labels: &Value) -> Value {
    json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
           "creationTimestamp": "1970-01-01T00:00:00Z", "labels": labels})
}

fn node(nth: usize) -> Value {
    let mut metadata = metadata(&format!("node-{nth}"), &json!({}));
    metadata["namespace"] = json!("");
    json!({
        "metadata": metadata,
        "status": {
            "allocatable": {"cpu": format!("{NODE}m"), "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// A pod of one that runs; those of each are on as many nodes.
fn pod(nth: usize, phase: &str, size: Size) -> Value {
    let owner = format!("job-{}", nth / (size.pods / size.running()));
    let mut metadata = metadata(&format!("pod-{nth}"), &json!({Pod::APP_WRAPPER: owner}));
    metadata["resourceVersion"] = json!(if phase == "Running" { "1" } else { "2" });
    json!({
        "metadata": metadata,
        "spec": {
            "nodeName": format!("node-{}", nth % size.nodes),
            "containers": [{"name": "main", "resources": {"requests": {"cpu": format!("{POD}m")}}}],
        },
        "status": {"phase": phase},
    })
}

fn wrapper(nth: usize, lack: Lack, size: Size) -> Value {
    let (priority, replicas, asks, status) = match nth.checked_sub(size.running()) {
        None => (0, size.pods / size.running(), POD, json!({"state": "Running", "canrun": true})),
        Some(nth) => {
            let ranks = matches!(lack, Lack::All | Lack::Any);
            (i32::from(ranks), 1, lack.asks(nth, size), json!({"state": "Pending"}))
        }
    };
    let labels = json!({"team": format!("leaf-{}", nth % LEAVES)});
    json!({
        "metadata": metadata(&format!("job-{nth}"), &labels),
        "spec": {"priority": priority, "resources": {"GenericItems": [{"custompodresources": [
            {"replicas": replicas, "requests": {"cpu": format!("{asks}m")}}]}]}},
        "status": status,
    })
}

/// A tree that owns what those have who run, and not more.
fn quotas(size: Size) -> Vec<Value> {
    let all = POD * size.pods;
    let child = |name: &str, cpu: usize| json!({"name": name, "quotas": {"requests": {"cpu": format!("{cpu}m")}}});
    let subtree = |name: &str, parent: &str, children: Vec<Value>| {
        json!({"metadata": metadata(name, &json!({"tree": "team"})),
               "spec": {"parent": parent, "children": children}})
    };
    let leaves = (0..LEAVES).map(|nth| child(&format!("leaf-{nth}"), all / LEAVES)).collect();
    vec![subtree("top", "nil", vec![child("root", all)]), subtree("leaves", "root", leaves)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_4_nobody_passes_and_everybody_is_looked_at() {
        let size = Size { nodes: 100, pods: 1_000, wrappers: 200 };
        for lack in Lack::ALL {
            measure(lack, size, &Clock::system()).unwrap();
        }
    }
}
