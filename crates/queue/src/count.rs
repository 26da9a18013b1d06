//! The pods of an AppWrapper, counted.

use std::sync::Arc;

use gantry_api::queue::{AppWrapperStatus, PendingPod};
use gantry_pods::Requests;
use gantry_pods::view::{Condition, Phase, Pod, Truth};
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use gantry_reconcile::World;

use crate::amounts::{Amounts, GPU, Rest};
use crate::app_wrapper::AppWrapper;
use crate::charge;
use crate::settings::{Inference, Settings};
use crate::unreachable::{self, Unreachable, UnreachablePod};

/// Pods by phase, and what they ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Pods that wait.
    pub pending: i64,
    /// Pods that run.
    pub running: i64,
    /// Pods that have succeeded.
    pub succeeded: i64,
    /// Pods that have failed.
    pub failed: i64,
    /// What running and succeeded pods ask for.
    pub used: Amounts,
    /// Pods that no node takes.
    pub unschedulable: Vec<PendingPod>,
    /// Pods on nodes that are not ready or gone. They are in none of the counts.
    pub unreachable: Vec<UnreachablePod>,
    /// What those ask for that are on nodes which answer, and not being deleted.
    pub asked: Amounts,
    /// What is said if that is more than was admitted.
    pub exceeded: Option<String>,
}

/// Words of co-schedulers about pods that will be tried again: all words of a row.
const NOISE: [&[&str]; 3] = [
    &["pgName", "last", "failed", "deny"],
    &["optimistic", "rejection", "PostFilter"],
    &["cannot", "find", "enough", "sibling"],
];

impl Tally {
    /// Counts these pods of a world that has their nodes.
    #[must_use]
    pub fn of(world: &World, pods: &[Arc<Pod>]) -> Self {
        Self::count(pods, |pod| unreachable::of(world, pod))
    }

    /// Counts these pods, of which some are unreachable.
    fn count(pods: &[Arc<Pod>], unreachable: impl Fn(&Pod) -> Option<Unreachable>) -> Self {
        let mut tally = Self::default();
        for pod in pods {
            if let Some(why) = unreachable(pod) {
                let (pod, node) = (pod.metadata.name.clone(), pod.spec.node_name.clone());
                tally.unreachable.push(UnreachablePod { pod, node, why });
                continue;
            }
            if charge::runs(pod) {
                tally.asked.add(&Amounts::of(&Requests::of(pod), Rest::Counted));
            }
            match pod.status.phase {
                Phase::Pending => tally.pending += 1,
                Phase::Running => tally.running += 1,
                Phase::Succeeded => tally.succeeded += 1,
                Phase::Failed => tally.failed += 1,
                Phase::Unknown => {}
            }
            if matches!(pod.status.phase, Phase::Running | Phase::Succeeded) {
                tally.used.add(&Amounts::of(&Requests::of(pod), Rest::Ignored));
            }
            tally.unschedulable.extend(unschedulable(pod));
        }
        tally
    }

    /// The same, held against what was admitted.
    #[must_use]
    pub fn against(mut self, wrapper: &AppWrapper, settings: &Settings) -> Self {
        let excess = charge::exceeded(wrapper, settings, &self.asked).map(|_| {
            let admitted = charge::taken(wrapper, settings);
            let lacks: Vec<String> = self
                .asked
                .lacking(&admitted)
                .iter()
                .filter(|it| settings.inference == Inference::Full || is_always_counted(it.name))
                .map(|it| {
                    let spell = |amount| crate::amounts::spell(it.name, amount);
                    format!("{} {} of {}", it.name, spell(it.wanted), spell(it.available))
                })
                .collect();
            format!(
                "{EXCEEDED} ({}): it is charged for it, and is the first to be preempted; scale it down, or \
                 declare what it needs and create it anew",
                lacks.join(", ")
            )
        });
        self.exceeded = excess;
        self
    }

    /// What people should know of the pods beside their counts: which nodes do not answer, and that they ask
    /// for more than was admitted. It is the message of an AppWrapper that runs.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let nodes = unreachable::describe(&self.unreachable);
        let nodes = nodes.map(|it| format!("{it}: what is there does not count as running"));
        let remarks: Vec<String> = self.exceeded.iter().cloned().chain(nodes).collect();
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }

    /// What the remark is about, in one word.
    #[must_use]
    pub fn remark_reason(&self) -> &'static str {
        match self.exceeded {
            Some(_) => "DemandExceeded",
            None => "PodsUnreachable",
        }
    }

    /// Says so in a status.
    pub fn write(&self, status: &mut AppWrapperStatus) {
        status.pending = clamp(self.pending);
        status.running = clamp(self.running);
        status.succeeded = clamp(self.succeeded);
        status.failed = clamp(self.failed);
        status.total_cpu = clamp(self.used.cpu);
        status.total_memory = clamp(self.used.memory);
        status.total_gpu = clamp(self.used.gpu);
        status.pending_pods.clone_from(&self.unschedulable);
    }
}

/// How the message of an AppWrapper begins whose pods ask for more than was admitted.
const EXCEEDED: &str = "its pods ask for more than was admitted";

/// Whether an AppWrapper is said to have pods that ask for more than was admitted.
#[must_use]
pub fn is_said_to_exceed(status: &AppWrapperStatus) -> bool {
    status.can_run && status.message.as_deref().is_some_and(|it| it.starts_with(EXCEEDED))
}

/// Whether a resource is counted whatever the settings say.
fn is_always_counted(name: &str) -> bool {
    ["cpu", "memory", GPU].contains(&name)
}

/// As large as the wire format allows.
fn clamp(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A pod that no node takes, with the condition that says so.
fn unschedulable(pod: &Pod) -> Option<PendingPod> {
    let condition = pod.condition("PodScheduled").filter(|it| {
        pod.status.phase == Phase::Pending
            && it.status == Truth::False
            && it.reason == "Unschedulable"
            && !NOISE.iter().any(|words| words.iter().all(|word| it.message.contains(word)))
    })?;
    Some(PendingPod { pod_name: pod.metadata.name.clone(), conditions: vec![spell(condition)] })
}

fn spell(condition: &Condition) -> PodCondition {
    let text = |it: &String| (!it.is_empty()).then(|| it.clone());
    PodCondition {
        type_: condition.kind.clone(),
        status: condition.status.as_str().to_owned(),
        reason: text(&condition.reason),
        message: text(&condition.message),
        last_transition_time: condition.last_transition_time.map(Time),
        observed_generation: condition.observed_generation,
        ..PodCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(phase: &str, memory: &str, conditions: &Value) -> Arc<Pod> {
        let object = json!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {"containers": [{"name": "c", "resources": {"requests":
                {"cpu": "250m", "memory": memory, "nvidia.com/gpu": 1}}}]},
            "status": {"phase": phase, "conditions": conditions},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn pods_are_counted_by_phase() {
        let phases = ["Pending", "Running", "Running", "Succeeded", "Failed", "Unknown"];
        let pods: Vec<_> = phases.iter().map(|it| pod(it, "2Gi", &json!([]))).collect();
        let tally = Tally::count(&pods, |_| None);
        assert_eq!((tally.pending, tally.running), (1, 2));
        assert_eq!((tally.succeeded, tally.failed), (1, 1));
        let mut status = AppWrapperStatus::default();
        tally.write(&mut status);
        assert_eq!((status.total_cpu, status.total_gpu), (750, 3), "those that run or succeeded");
        assert_eq!(tally.used.memory, 6 << 30);
        assert_eq!(status.total_memory, i32::MAX, "as much as the wire format can say");
    }

    #[test]
    fn pods_on_nodes_that_are_not_ready_are_not_counted() {
        let pods: Vec<_> =
            ["Running", "Pending"].iter().map(|it| pod(it, "2Gi", &json!([]))).collect();
        let tally = Tally::count(&pods, |_| Some(Unreachable::NotReady));
        assert_eq!((tally.pending, tally.running, tally.unreachable.len()), (0, 0, 2));
        assert!(tally.used.is_nothing(), "nothing is known of what they use");
        let expected =
            "2 pods on node \"\", which is not ready: what is there does not count as running";
        assert_eq!(tally.remark().as_deref(), Some(expected));
    }

    #[test]
    fn pods_that_no_node_takes_are_told_apart_from_noise() {
        let said = |reason: &str, message: &str| json!([{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]);
        let table = [
            ("no node takes it", "Pending", said("Unschedulable", "0/2 nodes are available"), 1),
            ("another reason", "Pending", said("SchedulingGated", "gated"), 0),
            ("it runs", "Running", said("Unschedulable", "x"), 0),
            (
                "one kind of noise",
                "Pending",
                said("Unschedulable", "pgName: a last tried failed, deny"),
                0,
            ),
            ("another", "Pending", said("Unschedulable", "optimistic rejection in PostFilter"), 0),
            ("a third", "Pending", said("Unschedulable", "cannot find enough sibling pods"), 0),
            ("some words are not all", "Pending", said("Unschedulable", "cannot find nodes"), 1),
        ];
        for (why, phase, conditions, expected) in table {
            let tally = Tally::count(&[pod(phase, "1", &conditions)], |_| None);
            assert_eq!(tally.unschedulable.len(), expected, "{why}");
        }
    }
}
