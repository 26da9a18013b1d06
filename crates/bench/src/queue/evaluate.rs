//! Measures what it costs to find out whether one AppWrapper fits, in a large cluster that is full.
//!
//! There is no server: objects are passed to the admission decision as a watch would deliver them.
//! No two pending AppWrappers have the same requests, because an AppWrapper is not evaluated if an
//! identical one did not fit.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_pods::view::{Node, Pod};
use gantry_process::clock::Clock;
use gantry_queue::app_wrapper::AppWrapper;
use gantry_queue::quota::Subtree;
use gantry_queue::{Dispatch, LiveSettings, Settings};
use gantry_reconcile::{Controller as _, Plan, Resource, View as _, World};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The size of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    /// Running pods, spread evenly over all nodes.
    pub(crate) pods: usize,
    /// AppWrappers; half of them run, with the same number of pods each.
    pub(crate) wrappers: usize,
}

impl Size {
    /// The cluster that the performance budget names.
    pub(crate) const LARGE: Self = Self { nodes: 5_000, pods: 50_000, wrappers: 10_000 };

    fn running(self) -> usize {
        self.wrappers / 2
    }

    fn pending(self) -> usize {
        self.wrappers - self.running()
    }

    /// Free CPU of each node, in thousandths.
    fn free(self) -> usize {
        NODE - POD * (self.pods / self.nodes)
    }
}

/// CPU of a node and of a pod, in thousandths.
const NODE: usize = 20_000;
const POD: usize = 1_900;
/// The leaves of the quota tree. All of their quota is used.
const QUOTA_LEAVES: usize = 50;
/// How often all pending AppWrappers are evaluated.
const EVALUATION_ROUNDS: u32 = 5;
/// Of this many pods one ends, and the time to observe that is measured.
const ENDED_POD_INTERVAL: usize = 50;

/// What keeps all AppWrappers pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// All nodes together have too little capacity.
    TotalCapacity,
    /// No single node has enough.
    NodeCapacity,
    /// The quota is used up.
    Quota,
    /// All nodes together have too little capacity, even if the running AppWrappers were preempted.
    TotalAfterEviction,
    /// No single node has enough, even after preemption.
    NodeAfterEviction,
}

impl Shortage {
    pub(crate) const ALL: [Self; 5] = [
        Self::TotalCapacity,
        Self::NodeCapacity,
        Self::Quota,
        Self::TotalAfterEviction,
        Self::NodeAfterEviction,
    ];

    /// Returns the description for the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TotalCapacity => "no free capacity in total",
            Self::NodeCapacity => "no free capacity on any node",
            Self::Quota => "no quota",
            Self::TotalAfterEviction => "no free capacity if all are evicted",
            Self::NodeAfterEviction => "no node if all are evicted",
        }
    }

    fn settings(self) -> Settings {
        let usual = Settings::default();
        match self {
            Self::TotalCapacity => usual,
            Self::NodeCapacity => Settings { packing_check: true, ..usual },
            Self::Quota => Settings { quota: true, preemption: true, ..usual },
            Self::TotalAfterEviction | Self::NodeAfterEviction => {
                Settings { preemption: true, active_eviction: true, ..usual }
            }
        }
    }

    /// The request of the nth pending AppWrapper, in thousandths of a CPU.
    fn requested_millicpu(self, nth: usize, size: Size) -> usize {
        match self {
            Self::TotalCapacity => size.free() * size.nodes + 1 + nth,
            Self::NodeCapacity => size.free() + 1 + nth,
            Self::Quota => 1 + nth,
            Self::TotalAfterEviction => NODE * size.nodes + 1 + nth,
            Self::NodeAfterEviction => NODE + 1 + nth,
        }
    }
}

/// The result of an evaluation.
#[derive(Debug)]
pub(crate) struct Evaluation {
    /// Time of the first decision, which also fills the caches for the next ones.
    pub(crate) first: Duration,
    /// Time of one evaluation with filled caches.
    pub(crate) each: Duration,
    /// Time to observe one pod that ended.
    pub(crate) end: Duration,
}

/// Shows all objects to the queue, and measures its admission cycles and the observed ends of pods.
pub(crate) fn measure(lack: Shortage, size: Size, clock: &Clock) -> anyhow::Result<Evaluation> {
    let dispatch = Dispatch::new(LiveSettings::new(lack.settings()));
    let world = World::new(dispatch.kinds());
    fill(&world, lack, size)?;
    let plan = || {
        let begun = clock.moment();
        let plan = dispatch.plan(&world, &Dispatch::queue_key(), Timestamp::UNIX_EPOCH);
        (clock.moment() - begun, plan)
    };
    let (first, decided) = plan();
    ensure_all_pending(&decided, size)?;
    let mut all = Duration::ZERO;
    for _ in 0..EVALUATION_ROUNDS {
        let (took, decided) = plan();
        ensure_all_pending(&decided, size)?;
        all += took;
    }
    let mut end = Duration::ZERO;
    let ends = (0..size.pods).step_by(ENDED_POD_INTERVAL);
    let ended = u32::try_from(ends.len())?;
    for nth in ends {
        let ended = pod(nth, "Succeeded", size).to_string();
        let change = store(&world, &Pod::RESOURCE)?
            .observe(&ended)?
            .context("the pod was already observed in this state")?;
        let begun = clock.moment();
        dispatch.observer().context("the queue has a cache")?.observe(&world, &change);
        let woken = dispatch.enqueue(&world, &change);
        end += clock.moment() - begun;
        ensure!(!woken.is_empty(), "the end of a pod does not enqueue the pending AppWrappers");
    }
    let evaluations = EVALUATION_ROUNDS * u32::try_from(size.pending())?;
    Ok(Evaluation { first, each: all / evaluations, end: end / ended })
}

/// Fails if an AppWrapper is admitted or skipped: such a decision is not one to measure.
fn ensure_all_pending(plan: &Plan, size: Size) -> anyhow::Result<()> {
    let kept = plan.held.len();
    ensure!(kept == size.pending(), "{kept} AppWrappers were evaluated and do not fit");
    Ok(())
}

fn store(
    world: &World,
    resource: &Resource,
) -> anyhow::Result<std::sync::Arc<dyn gantry_reconcile::world::AnyStore>> {
    world.single_store_for(resource).with_context(|| format!("no store for {resource}"))
}

fn fill(world: &World, lack: Shortage, size: Size) -> anyhow::Result<()> {
    let show = |resource: &Resource, object: &Value| {
        store(world, resource)?
            .observe(&object.to_string())?
            .context("the object was already observed")?;
        anyhow::Ok(())
    };
    (0..size.nodes).try_for_each(|nth| show(&Node::RESOURCE, &node(nth)))?;
    (0..size.pods).try_for_each(|nth| show(&Pod::RESOURCE, &pod(nth, "Running", size)))?;
    (0..size.wrappers)
        .try_for_each(|nth| show(&AppWrapper::RESOURCE, &wrapper(nth, lack, size)))?;
    if lack == Shortage::Quota {
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

/// A pod of a running AppWrapper; the pods of each AppWrapper are spread over as many nodes.
fn pod(nth: usize, phase: &str, size: Size) -> Value {
    let owner = format!("job-{}", nth / (size.pods / size.running()));
    let mut metadata = metadata(&format!("pod-{nth}"), &json!({Pod::APP_WRAPPER_LABEL: owner}));
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

fn wrapper(nth: usize, lack: Shortage, size: Size) -> Value {
    let (priority, replicas, asks, status) = match nth.checked_sub(size.running()) {
        None => (0, size.pods / size.running(), POD, json!({"state": "Running", "canrun": true})),
        Some(nth) => {
            let ranks = matches!(lack, Shortage::TotalAfterEviction | Shortage::NodeAfterEviction);
            (i32::from(ranks), 1, lack.requested_millicpu(nth, size), json!({"state": "Pending"}))
        }
    };
    let labels = json!({"team": format!("leaf-{}", nth % QUOTA_LEAVES)});
    json!({
        "metadata": metadata(&format!("job-{nth}"), &labels),
        "spec": {"priority": priority, "resources": {"GenericItems": [{"custompodresources": [
            {"replicas": replicas, "requests": {"cpu": format!("{asks}m")}}]}]}},
        "status": status,
    })
}

/// A quota tree that owns what the running AppWrappers use, and not more.
fn quotas(size: Size) -> Vec<Value> {
    let all = POD * size.pods;
    let child = |name: &str, cpu: usize| {
        json!({
            "name": name, "quotas": {"requests": {"cpu": format!("{cpu}m")}},
        })
    };
    let subtree = |name: &str, parent: &str, children: Vec<Value>| {
        json!({"metadata": metadata(name, &json!({"tree": "team"})),
               "spec": {"parent": parent, "children": children}})
    };
    let leaves =
        (0..QUOTA_LEAVES).map(|nth| child(&format!("leaf-{nth}"), all / QUOTA_LEAVES)).collect();
    vec![subtree("top", "nil", vec![child("root", all)]), subtree("leaves", "root", leaves)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_4_all_are_evaluated_none_admitted() {
        let size = Size { nodes: 100, pods: 1_000, wrappers: 200 };
        for lack in Shortage::ALL {
            measure(lack, size, &Clock::system()).unwrap();
        }
    }
}
