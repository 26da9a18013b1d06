//! Binds pods to nodes, as the default scheduler of Kubernetes does.
//!
//! There is one decision about all pending pods, because they compete. A plan takes them by
//! priority, then by age, and accounts for what it assigns to each node before it continues with
//! the next pod.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gantry_pods::{NodeRejection, RejectionReason};
use gantry_reconcile::{
    Change, Controller, Event, Fence, Held, Key, Kind, ObjectReference, Plan, Step, Subresource,
    View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::status::{condition_body, truncate_to_seconds};
use crate::view::{
    Condition, ConditionStatus, DeviceClass, Namespace, Node, PersistentVolume,
    PersistentVolumeClaim, Pod, PodDisruptionBudget, ResourceClaim, StorageClass,
};

use claims::PodClaims;
use preemption::{Preemption, PreemptionBudget};
use requirements::SchedulingRequirements;
use snapshot::SchedulingSnapshot;

pub(crate) use devices::consumer_reference as claim_consumer;

mod claims;
mod devices;
mod messages;
mod preemption;
mod requirements;
mod score;
mod snapshot;
mod volumes;

/// The name of this scheduler in `spec.schedulerName`.
pub const SCHEDULER_NAME: &str = "default-scheduler";

/// The most writes of one plan. The next plan knows their results: more would be decided on
/// outdated state, fewer would recount all pods too often.
const MAX_WRITES_PER_PLAN: usize = 256;

/// The default scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scheduler;

impl Controller for Scheduler {
    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Pod>(),
            Kind::of::<Node>(),
            Kind::of::<Namespace>(),
            Kind::of::<PodDisruptionBudget>(),
            Kind::of::<PersistentVolumeClaim>(),
            Kind::of::<PersistentVolume>(),
            Kind::of::<StorageClass>(),
            Kind::of::<ResourceClaim>(),
            Kind::of::<DeviceClass>(),
        ]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let matters = if change.is::<Pod>() {
            match (change.before::<Pod>(), change.after::<Pod>()) {
                (_, Some(pod)) if is_pending(pod) => true,
                // Capacity becomes free, or another pod is a target of affinity.
                (Some(before), Some(after)) => {
                    before.is_terminal() != after.is_terminal()
                        || before.metadata.is_terminating() != after.metadata.is_terminating()
                        || before.metadata.labels != after.metadata.labels
                }
                (before, after) => {
                    let placed = |it: &Pod| !it.spec.node_name.is_empty() && !it.is_terminal();
                    before.or(after).is_some_and(placed)
                }
            }
        } else if change.is::<PodDisruptionBudget>() {
            // A budget decides which pods are preempted, not whether.
            false
        } else if !change.is::<Node>() {
            // Claims, their volumes and their classes are few.
            true
        } else {
            let of_nodes = |it: &Node| {
                (it.metadata.labels.clone(), it.spec.clone(), it.status.allocatable.clone())
            };
            let (before, after) = (change.before::<Node>(), change.after::<Node>());
            before.map(of_nodes) != after.map(of_nodes)
        };
        if matters { vec![Key::cluster(SCHEDULER_NAME)] } else { Vec::new() }
    }

    fn plan(&self, world: &World, _: &Key, now: Timestamp) -> Plan {
        let pods = world.store::<Pod>();
        let mut waiting = pods.by_index(&Pod::node_tag(""));
        waiting.retain(|it| is_pending(it));
        let mut plan = Plan::default();
        if waiting.is_empty() {
            return plan;
        }
        waiting.sort_by_cached_key(|it| {
            let age = it.metadata.creation_timestamp.unwrap_or(Timestamp::MAX);
            (Reverse(it.spec.priority), age, it.metadata.key())
        });
        let (nodes, pods) = (world.store::<Node>().list(), pods.list());
        let namespaces = world.store::<Namespace>().list();
        let budgets = world.store::<PodDisruptionBudget>().list();
        let mut cycle = SchedulingCycle {
            world,
            assigned_volumes: BTreeSet::new(),
            snapshot: SchedulingSnapshot::new(&nodes, &pods, &namespaces),
            budgets: budgets.iter().filter_map(|it| PreemptionBudget::new(it)).collect(),
            failed: None,
            now,
        };
        for pod in &waiting {
            if plan.steps.len() >= MAX_WRITES_PER_PLAN {
                plan.requeue_after(Duration::ZERO);
                break;
            }
            cycle.schedule_pod(pod, &mut plan);
        }
        plan
    }
}

/// Returns whether a pod is to be scheduled by this scheduler.
fn is_pending(pod: &Pod) -> bool {
    let spec = &pod.spec;
    spec.node_name.is_empty()
        && spec.scheduler_name == SCHEDULER_NAME
        && spec.scheduling_gates.is_empty()
        && !pod.metadata.is_terminating()
        && !pod.is_terminal()
}

/// One scheduling cycle over all pending pods.
struct SchedulingCycle<'a> {
    world: &'a World,
    /// The volumes that were assigned to claims in this cycle.
    assigned_volumes: BTreeSet<String>,
    snapshot: SchedulingSnapshot<'a>,
    budgets: Vec<PreemptionBudget<'a>>,
    /// The last pod that fits no node, and its message. Until another pod is placed the same holds
    /// for all pods like it.
    failed: Option<(&'a Pod, String)>,
    now: Timestamp,
}

impl<'a> SchedulingCycle<'a> {
    fn schedule_pod(&mut self, pod: &'a Arc<Pod>, plan: &mut Plan) {
        let plain = PodClaims::has_none(pod);
        if let Some((other, message)) = self.failed.as_ref().filter(|_| plain)
            && has_same_requirements(pod, other)
        {
            let message = message.clone();
            self.set_unschedulable(pod, message, NominatedNode::Cleared, plan);
            return;
        }
        let claims = match PodClaims::of(self.world, pod, &self.assigned_volumes) {
            Ok(claims) => claims,
            Err(why) => return self.reject_pod(pod, &why, plan),
        };
        let want = SchedulingRequirements::new(&mut self.snapshot, pod);
        let misfit = |node_info| want.misfit(node_info).or_else(|| claims.misfit(node_info.node));
        let misfits: Vec<Option<NodeRejection>> =
            self.snapshot.node_infos.iter().map(misfit).collect();
        let fit = misfits.iter().enumerate().filter(|(_, misfit)| misfit.is_none());
        let fit: Vec<usize> = fit.map(|(at, _)| at).collect();
        match score::best_node(&mut self.snapshot, &want, &fit) {
            Some(at) => self.bind(pod, &claims, at, plan),
            None => {
                let misfits: Vec<NodeRejection> = misfits.into_iter().flatten().collect();
                self.handle_scheduling_failure(pod, &claims, &misfits, plan);
            }
        }
    }

    fn bind(&mut self, pod: &'a Pod, claims: &PodClaims<'_>, at: usize, plan: &mut Plan) {
        let node = self.snapshot.node_infos[at].node;
        self.snapshot.add_pod(pod, at);
        self.failed = None;
        if let Some(wait) = claims.volumes.bind(node, &mut self.assigned_volumes, plan) {
            // Its node is reserved until its volumes are bound; then it is scheduled again.
            let reason = "WaitingForVolumes".into();
            plan.held.push(Held { about: about(pod), reason, message: wait, until: None });
            return;
        }
        let node = node.metadata.name.clone();
        let (key, uid) = (pod.metadata.key(), pod.metadata.uid.clone());
        let said = format!("Successfully assigned {key} to {node}");
        let note = Event::normal(about(pod), "Scheduled", said).with_action("Binding");
        let bind = Step::new(Write::bind(key, uid, node)).on_success(note);
        plan.steps.push(claims.devices.reserve(pod, bind));
    }

    /// Rejects a pod that fits no node, whatever nodes there are.
    fn reject_pod(&mut self, pod: &'a Pod, why: &str, plan: &mut Plan) {
        let nodes = self.snapshot.node_infos.len();
        if nodes == 0 {
            return self.set_unschedulable(
                pod,
                messages::NO_NODES.to_owned(),
                NominatedNode::Cleared,
                plan,
            );
        }
        let message = messages::no_node_fits(nodes, why);
        let misfits =
            vec![NodeRejection::unresolvable(RejectionReason::PreemptionNotHelpful); nodes];
        let none = PodClaims::default();
        let why = match preemption::find_preemption(
            &mut self.snapshot,
            pod,
            &none,
            &misfits,
            &self.budgets,
        ) {
            Preemption::NotHelpful(why) | Preemption::Wait(why) => why,
            // Preemption does not help on a node that permanently lacks something.
            Preemption::Preempt { .. } => String::new(),
        };
        let message = messages::with_postfilter_message(&message, messages::NO_NEW_CLAIMS, &why);
        self.set_unschedulable(pod, message, NominatedNode::Cleared, plan);
    }

    fn handle_scheduling_failure(
        &mut self,
        pod: &'a Pod,
        claims: &PodClaims<'_>,
        misfits: &[NodeRejection],
        plan: &mut Plan,
    ) {
        if misfits.is_empty() {
            self.set_unschedulable(
                pod,
                messages::NO_NODES.to_owned(),
                NominatedNode::Cleared,
                plan,
            );
            return;
        }
        let reasons = misfits.iter().flat_map(|it| &it.reasons);
        let mut message = messages::misfit_message(misfits.len(), reasons);
        let about_claims = claims.devices.postfilter_message();
        match preemption::find_preemption(&mut self.snapshot, pod, claims, misfits, &self.budgets) {
            Preemption::NotHelpful(why) => {
                message = messages::with_postfilter_message(&message, about_claims, &why);
                if PodClaims::has_none(pod) {
                    self.failed = Some((pod, message.clone()));
                }
                // The nominated node does not fit any more.
                self.set_unschedulable(pod, message, NominatedNode::Cleared, plan);
            }
            Preemption::Wait(why) => {
                message = messages::with_postfilter_message(&message, about_claims, &why);
                // Pods of lower priority must not take the capacity that is being freed for it.
                if let Some(at) = self.snapshot.node_index(&pod.status.nominated_node_name) {
                    self.snapshot.add_pod(pod, at);
                }
                self.set_unschedulable(pod, message, NominatedNode::Unchanged, plan);
            }
            Preemption::Preempt { at, victims } => {
                let node = self.snapshot.node_infos[at].node.metadata.name.clone();
                for victim in victims {
                    self.snapshot.remove_pod(victim, at);
                    preempt_pod(victim, pod, &node, self.now, plan);
                }
                self.snapshot.add_pod(pod, at);
                self.failed = None;
                self.set_unschedulable(pod, message, NominatedNode::Node(&node), plan);
            }
        }
    }

    /// Sets the condition that a pod is unschedulable, when it has changed.
    fn set_unschedulable(
        &self,
        pod: &Pod,
        message: String,
        nominated: NominatedNode<'_>,
        plan: &mut Plan,
    ) {
        let before = pod.condition("PodScheduled");
        let known = before.is_some_and(|it| {
            it.status == ConditionStatus::False
                && it.reason == "Unschedulable"
                && it.message == message
        });
        let nominee = match nominated {
            NominatedNode::Unchanged => pod.status.nominated_node_name.as_str(),
            NominatedNode::Cleared => "",
            NominatedNode::Node(node) => node,
        };
        let moved = nominee != pod.status.nominated_node_name;
        if !known || moved {
            let same = before.filter(|it| it.status == ConditionStatus::False);
            let since = same
                .and_then(|it| it.last_transition_time)
                .unwrap_or_else(|| truncate_to_seconds(self.now));
            let condition = Condition {
                kind: "PodScheduled".to_owned(),
                status: ConditionStatus::False,
                reason: "Unschedulable".to_owned(),
                message: message.clone(),
                last_transition_time: Some(since),
                observed_generation: Some(pod.metadata.generation),
                ..Condition::default()
            };
            let mut status = json!({"conditions": with_condition(pod, &condition)});
            if moved {
                status["nominatedNodeName"] = json!((!nominee.is_empty()).then_some(nominee));
            }
            let note = Event::warning(about(pod), "FailedScheduling", message.clone());
            let note = note.with_action("Scheduling");
            plan.steps.push(Step::new(status_patch(pod, &status)).on_success(note));
        }
        let reason = "Unschedulable".into();
        plan.held.push(Held { about: about(pod), reason, message, until: None });
    }
}

/// The change of a pod's nominated node.
#[derive(Clone, Copy)]
enum NominatedNode<'a> {
    /// The nominated node stays.
    Unchanged,
    /// The nominated node is removed.
    Cleared,
    /// This node is nominated.
    Node(&'a str),
}

/// Returns whether two pods have the same requirements, so that what fits no node for one does not
/// for the other.
fn has_same_requirements(one: &Pod, other: &Pod) -> bool {
    one.spec == other.spec
        && one.metadata.namespace == other.metadata.namespace
        && one.metadata.labels == other.metadata.labels
        && one.status.nominated_node_name == other.status.nominated_node_name
}

/// Preempts a pod for another one.
fn preempt_pod(victim: &Pod, by: &Pod, node: &str, now: Timestamp, plan: &mut Plan) {
    if victim.metadata.is_terminating() {
        return;
    }
    let condition = Condition {
        kind: "DisruptionTarget".to_owned(),
        status: ConditionStatus::True,
        reason: "PreemptionByScheduler".to_owned(),
        message: format!("{SCHEDULER_NAME}: preempting to accommodate a higher priority pod"),
        last_transition_time: Some(truncate_to_seconds(now)),
        observed_generation: Some(victim.metadata.generation),
        ..Condition::default()
    };
    plan.write(status_patch(victim, &json!({"conditions": with_condition(victim, &condition)})));
    let said = format!("Preempted by pod {} on node {node}", by.metadata.uid);
    let delete = Write::Delete {
        resource: Pod::RESOURCE,
        key: victim.metadata.key(),
        fence: Fence { uid: victim.metadata.uid.clone(), revision: None },
        grace: None,
        propagation: None,
    };
    let note = Event::normal(about(victim), "Preempted", said).with_action("Preempting");
    plan.steps.push(Step::new(delete).on_success(note));
}

/// Returns a pod's conditions with this one among them.
fn with_condition(pod: &Pod, condition: &Condition) -> Vec<Value> {
    let others = pod.status.conditions.iter().filter(|it| it.kind != condition.kind);
    others.chain([condition]).map(condition_body).collect()
}

fn status_patch(pod: &Pod, status: &Value) -> Write {
    Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        subresource: Subresource::Status,
        fence: pod.metadata.fence(),
        body: json!({"status": status}),
    }
}

fn about(pod: &Pod) -> ObjectReference {
    ObjectReference::to(&Pod::RESOURCE, &pod.metadata)
}

#[cfg(test)]
mod tests;
