//! Counts the pods of an AppWrapper.

use std::sync::Arc;

use gantry_api::queue::{AppWrapperStatus, PendingPod};
use gantry_pods::Requests;
use gantry_pods::view::{Condition, ConditionStatus, Phase, Pod};
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use gantry_reconcile::World;

use crate::amounts::{Amounts, GPU, OtherResources};
use crate::app_wrapper::AppWrapper;
use crate::charge;
use crate::settings::{Inference, Settings};
use crate::unreachable::{self, UnreachablePod, UnreachableReason};

/// Pods by phase, and what they request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodCounts {
    /// Pending pods.
    pub pending: i64,
    /// Running pods.
    pub running: i64,
    /// Succeeded pods.
    pub succeeded: i64,
    /// Failed pods.
    pub failed: i64,
    /// What running and succeeded pods request.
    pub used: Amounts,
    /// Unschedulable pods.
    pub unschedulable: Vec<PendingPod>,
    /// Pods on nodes that are not ready or gone. They are in none of the counts.
    pub unreachable: Vec<UnreachablePod>,
    /// What pods request that are on reachable nodes, and not being deleted.
    pub requested: Amounts,
    /// The message if that is more than was admitted.
    pub excess_message: Option<String>,
}

/// Messages of co-schedulers about pods that will be tried again: all words of a row occur.
const TRANSIENT_MESSAGES: [&[&str]; 3] = [
    &["pgName", "last", "failed", "deny"],
    &["optimistic", "rejection", "PostFilter"],
    &["cannot", "find", "enough", "sibling"],
];

impl PodCounts {
    /// Counts these pods in a world that has their nodes.
    #[must_use]
    pub fn of(world: &World, pods: &[Arc<Pod>]) -> Self {
        Self::count(pods, |pod| unreachable::unreachable_reason(world, pod))
    }

    /// Counts these pods, of which some are unreachable.
    fn count(pods: &[Arc<Pod>], unreachable: impl Fn(&Pod) -> Option<UnreachableReason>) -> Self {
        let mut tally = Self::default();
        for pod in pods {
            if let Some(why) = unreachable(pod) {
                let (pod, node) = (pod.metadata.name.clone(), pod.spec.node_name.clone());
                tally.unreachable.push(UnreachablePod { pod, node, why });
                continue;
            }
            if charge::is_running(pod) {
                tally.requested.add(&Amounts::of(&Requests::of(pod), OtherResources::Counted));
            }
            match pod.status.phase {
                Phase::Pending => tally.pending += 1,
                Phase::Running => tally.running += 1,
                Phase::Succeeded => tally.succeeded += 1,
                Phase::Failed => tally.failed += 1,
                Phase::Unknown => {}
            }
            if matches!(pod.status.phase, Phase::Running | Phase::Succeeded) {
                tally.used.add(&Amounts::of(&Requests::of(pod), OtherResources::Ignored));
            }
            tally.unschedulable.extend(unschedulable(pod));
        }
        tally
    }

    /// Adds the comparison with what was admitted.
    #[must_use]
    pub fn compare_with_admitted(mut self, wrapper: &AppWrapper, settings: &Settings) -> Self {
        let excess = charge::usage_over_admitted(wrapper, settings, &self.requested).map(|_| {
            let admitted = charge::charged_amounts(wrapper, settings);
            let lacks: Vec<String> = self
                .requested
                .insufficient(&admitted)
                .iter()
                .filter(|it| settings.inference == Inference::Full || is_always_counted(it.name))
                .map(|it| {
                    let spell = |amount| crate::amounts::format_amount(it.name, amount);
                    format!("{} {} of {}", it.name, spell(it.requested), spell(it.available))
                })
                .collect();
            format!(
                "{EXCEEDED_MESSAGE_PREFIX} ({}): it is charged for it, and is the first to be \
                 preempted; scale it down, or declare what it needs and create it again",
                lacks.join(", ")
            )
        });
        self.excess_message = excess;
        self
    }

    /// Returns the message about the pods beside their counts: which nodes are unreachable, and
    /// that the pods request more than was admitted. It is the message of a running AppWrapper.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        let nodes = unreachable::describe(&self.unreachable);
        let nodes = nodes.map(|it| format!("{it}: what is there does not count as running"));
        let remarks: Vec<String> = self.excess_message.iter().cloned().chain(nodes).collect();
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }

    /// Returns the event reason for the message.
    #[must_use]
    pub fn message_reason(&self) -> &'static str {
        match self.excess_message {
            Some(_) => "DemandExceeded",
            None => "PodsUnreachable",
        }
    }

    /// Writes the counts to a status.
    pub fn write_to(&self, status: &mut AppWrapperStatus) {
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

/// The beginning of the message of an AppWrapper whose pods request more than was admitted.
const EXCEEDED_MESSAGE_PREFIX: &str = "its pods ask for more than was admitted";

/// Returns whether a status reports pods that request more than was admitted.
#[must_use]
pub fn reports_excess(status: &AppWrapperStatus) -> bool {
    status.can_run
        && status.message.as_deref().is_some_and(|it| it.starts_with(EXCEEDED_MESSAGE_PREFIX))
}

/// Returns whether a resource is counted whatever the settings are.
fn is_always_counted(name: &str) -> bool {
    ["cpu", "memory", GPU].contains(&name)
}

/// Clamps a number to the range of the wire format.
fn clamp(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Returns an unschedulable pod, with the condition that says so.
fn unschedulable(pod: &Pod) -> Option<PendingPod> {
    let condition = pod.condition("PodScheduled").filter(|it| {
        pod.status.phase == Phase::Pending
            && it.status == ConditionStatus::False
            && it.reason == "Unschedulable"
            && !TRANSIENT_MESSAGES
                .iter()
                .any(|words| words.iter().all(|word| it.message.contains(word)))
    })?;
    Some(PendingPod {
        pod_name: pod.metadata.name.clone(),
        conditions: vec![to_pod_condition(condition)],
    })
}

fn to_pod_condition(condition: &Condition) -> PodCondition {
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
        let tally = PodCounts::count(&pods, |_| None);
        assert_eq!((tally.pending, tally.running), (1, 2));
        assert_eq!((tally.succeeded, tally.failed), (1, 1));
        let mut status = AppWrapperStatus::default();
        tally.write_to(&mut status);
        assert_eq!((status.total_cpu, status.total_gpu), (750, 3), "those that run or succeeded");
        assert_eq!(tally.used.memory, 6 << 30);
        assert_eq!(status.total_memory, i32::MAX, "as much as the wire format can say");
    }

    #[test]
    fn pods_on_nodes_that_are_not_ready_are_not_counted() {
        let pods: Vec<_> =
            ["Running", "Pending"].iter().map(|it| pod(it, "2Gi", &json!([]))).collect();
        let tally = PodCounts::count(&pods, |_| Some(UnreachableReason::NotReady));
        assert_eq!((tally.pending, tally.running, tally.unreachable.len()), (0, 0, 2));
        assert!(tally.used.is_zero(), "nothing is known of what they use");
        let expected =
            "2 pods on node \"\", which is not ready: what is there does not count as running";
        assert_eq!(tally.message().as_deref(), Some(expected));
    }

    #[test]
    fn unschedulable_pods_are_distinguished_from_transient_ones() {
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
            let tally = PodCounts::count(&[pod(phase, "1", &conditions)], |_| None);
            assert_eq!(tally.unschedulable.len(), expected, "{why}");
        }
    }
}
