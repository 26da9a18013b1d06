//! Gives pods to nodes, as the scheduler of Kubernetes does by default.
//!
//! There is one decision about all pods that wait, because they compete. A plan takes them by
//! importance, then by age, and counts what it gives to each node before it goes on to the next pod.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gantry_pods::{Misfit, Reason};
use gantry_reconcile::{
    Change, Controller, Fence, Held, Key, Kind, Note, Part, Plan, Reference, Step, View, World,
    Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kubelet::{condition_body, second};
use crate::view::{
    Condition, DeviceClass, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    PodDisruptionBudget, ResourceClaim, StorageClass, Truth,
};

use board::Board;
use claims::Claims;
use preempt::{Budget, Preemption};
use want::Want;

pub(crate) use devices::consumer as claim_consumer;

mod board;
mod claims;
mod devices;
mod preempt;
mod reason;
mod score;
mod volumes;
mod want;

/// The name pods ask for this scheduler by.
pub const NAME: &str = "default-scheduler";

/// Writes of one plan at most. The next plan knows what became of them: more would be decided on
/// what is no longer true, less would count all pods too often.
const WRITES: usize = 256;

/// The scheduler.
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
                (_, Some(pod)) if waits(pod) => true,
                // Somebody makes room, or is another one to be near to.
                (Some(before), Some(after)) => {
                    before.is_over() != after.is_over()
                        || before.metadata.is_going() != after.metadata.is_going()
                        || before.metadata.labels != after.metadata.labels
                }
                (before, after) => {
                    let placed = |it: &Pod| !it.spec.node_name.is_empty() && !it.is_over();
                    before.or(after).is_some_and(placed)
                }
            }
        } else if change.is::<PodDisruptionBudget>() {
            // A budget says whom to push out, not whether.
            false
        } else if !change.is::<Node>() {
            // Claims, and what they are bound to or made of, are few.
            true
        } else {
            let of_nodes = |it: &Node| {
                (it.metadata.labels.clone(), it.spec.clone(), it.status.allocatable.clone())
            };
            let (before, after) = (change.before::<Node>(), change.after::<Node>());
            before.map(of_nodes) != after.map(of_nodes)
        };
        if matters { vec![Key::cluster(NAME)] } else { Vec::new() }
    }

    fn plan(&self, world: &World, _: &Key, now: Timestamp) -> Plan {
        let pods = world.shelf::<Pod>();
        let mut waiting = pods.tagged(&Pod::on_node(""));
        waiting.retain(|it| waits(it));
        let mut plan = Plan::default();
        if waiting.is_empty() {
            return plan;
        }
        waiting.sort_by_cached_key(|it| {
            let age = it.metadata.creation_timestamp.unwrap_or(Timestamp::MAX);
            (Reverse(it.spec.priority), age, it.metadata.key())
        });
        let (nodes, pods) = (world.shelf::<Node>().all(), pods.all());
        let namespaces = world.shelf::<Namespace>().all();
        let budgets = world.shelf::<PodDisruptionBudget>().all();
        let mut turn = Turn {
            world,
            taken: BTreeSet::new(),
            board: Board::new(&nodes, &pods, &namespaces),
            budgets: budgets.iter().filter_map(|it| Budget::new(it)).collect(),
            failed: None,
            now,
        };
        for pod in &waiting {
            if plan.steps.len() >= WRITES {
                plan.look_within(Duration::ZERO);
                break;
            }
            turn.take(pod, &mut plan);
        }
        plan
    }
}

/// Whether a pod is to be given to a node by this scheduler.
fn waits(pod: &Pod) -> bool {
    let spec = &pod.spec;
    spec.node_name.is_empty()
        && spec.scheduler_name == NAME
        && spec.scheduling_gates.is_empty()
        && !pod.metadata.is_going()
        && !pod.is_over()
}

/// The making of one plan.
struct Turn<'a> {
    world: &'a World,
    /// The volumes that were given to claims.
    taken: BTreeSet<String>,
    board: Board<'a>,
    budgets: Vec<Budget<'a>>,
    /// The last pod no node would do for, and what was said about it. Until another pod is placed
    /// the same holds for all pods like it.
    failed: Option<(&'a Pod, String)>,
    now: Timestamp,
}

impl<'a> Turn<'a> {
    fn take(&mut self, pod: &'a Arc<Pod>, plan: &mut Plan) {
        let plain = Claims::has_none(pod);
        if let Some((other, message)) = self.failed.as_ref().filter(|_| plain)
            && is_alike(pod, other)
        {
            let message = message.clone();
            self.hold(pod, message, Nominated::None, plan);
            return;
        }
        let claims = match Claims::of(self.world, pod, &self.taken) {
            Ok(claims) => claims,
            Err(why) => return self.refuse(pod, &why, plan),
        };
        let want = Want::new(&mut self.board, pod);
        let misfit = |site| want.misfit(site).or_else(|| claims.misfit(site.node));
        let misfits: Vec<Option<Misfit>> = self.board.sites.iter().map(misfit).collect();
        let fit = misfits.iter().enumerate().filter(|(_, misfit)| misfit.is_none());
        let fit: Vec<usize> = fit.map(|(at, _)| at).collect();
        match score::best(&mut self.board, &want, &fit) {
            Some(at) => self.bind(pod, &claims, at, plan),
            None => {
                let misfits: Vec<Misfit> = misfits.into_iter().flatten().collect();
                self.fail(pod, &claims, &misfits, plan);
            }
        }
    }

    fn bind(&mut self, pod: &'a Pod, claims: &Claims<'_>, at: usize, plan: &mut Plan) {
        let node = self.board.sites[at].node;
        self.board.put(pod, at);
        self.failed = None;
        if let Some(wait) = claims.volumes.bind(node, &mut self.taken, plan) {
            // Its place is kept until its volumes are bound; then it is its turn again.
            let reason = "WaitingForVolumes".into();
            plan.held.push(Held { about: about(pod), reason, message: wait, until: None });
            return;
        }
        let node = node.metadata.name.clone();
        let (key, uid) = (pod.metadata.key(), pod.metadata.uid.clone());
        let said = format!("Successfully assigned {key} to {node}");
        let note = Note::normal(about(pod), "Scheduled", said).doing("Binding");
        let bind = Step::new(Write::bind(key, uid, node)).done(note);
        plan.steps.push(claims.devices.reserve(pod, bind));
    }

    /// Holds a pod that no node will do for, whatever nodes there are.
    fn refuse(&mut self, pod: &'a Pod, why: &str, plan: &mut Plan) {
        let nodes = self.board.sites.len();
        if nodes == 0 {
            return self.hold(pod, reason::NO_NODES.to_owned(), Nominated::None, plan);
        }
        let message = reason::whatever_node(nodes, why);
        let misfits = vec![Misfit::lasting(Reason::NotHelpful); nodes];
        let none = Claims::default();
        let why = match preempt::search(&mut self.board, pod, &none, &misfits, &self.budgets) {
            Preemption::No(why) | Preemption::Wait(why) => why,
            // No node that lacks something for good is freed.
            Preemption::Leave { .. } => String::new(),
        };
        let message = reason::with_way_out(&message, reason::NO_NEW_CLAIMS, &why);
        self.hold(pod, message, Nominated::None, plan);
    }

    fn fail(&mut self, pod: &'a Pod, claims: &Claims<'_>, misfits: &[Misfit], plan: &mut Plan) {
        if misfits.is_empty() {
            self.hold(pod, reason::NO_NODES.to_owned(), Nominated::None, plan);
            return;
        }
        let reasons = misfits.iter().flat_map(|it| &it.reasons);
        let mut message = reason::message(misfits.len(), reasons);
        let about_claims = claims.devices.way_out();
        match preempt::search(&mut self.board, pod, claims, misfits, &self.budgets) {
            Preemption::No(why) => {
                message = reason::with_way_out(&message, about_claims, &why);
                if Claims::has_none(pod) {
                    self.failed = Some((pod, message.clone()));
                }
                // What was to be freed for it will not do.
                self.hold(pod, message, Nominated::None, plan);
            }
            Preemption::Wait(why) => {
                message = reason::with_way_out(&message, about_claims, &why);
                // Others less important must not take what is being freed for it.
                if let Some(at) = self.board.find(&pod.status.nominated_node_name) {
                    self.board.put(pod, at);
                }
                self.hold(pod, message, Nominated::As, plan);
            }
            Preemption::Leave { at, victims } => {
                let node = self.board.sites[at].node.metadata.name.clone();
                for victim in victims {
                    self.board.lift(victim, at);
                    push_out(victim, pod, &node, self.now, plan);
                }
                self.board.put(pod, at);
                self.failed = None;
                self.hold(pod, message, Nominated::Node(&node), plan);
            }
        }
    }

    /// Says why a pod waits, when that is news.
    fn hold(&self, pod: &Pod, message: String, nominated: Nominated<'_>, plan: &mut Plan) {
        let before = pod.condition("PodScheduled");
        let known = before.is_some_and(|it| {
            it.status == Truth::False && it.reason == "Unschedulable" && it.message == message
        });
        let nominee = match nominated {
            Nominated::As => pod.status.nominated_node_name.as_str(),
            Nominated::None => "",
            Nominated::Node(node) => node,
        };
        let moved = nominee != pod.status.nominated_node_name;
        if !known || moved {
            let same = before.filter(|it| it.status == Truth::False);
            let since =
                same.and_then(|it| it.last_transition_time).unwrap_or_else(|| second(self.now));
            let condition = Condition {
                kind: "PodScheduled".to_owned(),
                status: Truth::False,
                reason: "Unschedulable".to_owned(),
                message: message.clone(),
                last_transition_time: Some(since),
                observed_generation: Some(pod.metadata.generation),
                ..Condition::default()
            };
            let mut status = json!({"conditions": with(pod, &condition)});
            if moved {
                status["nominatedNodeName"] = json!((!nominee.is_empty()).then_some(nominee));
            }
            let note = Note::warning(about(pod), "FailedScheduling", message.clone());
            let note = note.doing("Scheduling");
            plan.steps.push(Step::new(merge(pod, &status)).done(note));
        }
        let reason = "Unschedulable".into();
        plan.held.push(Held { about: about(pod), reason, message, until: None });
    }
}

/// Which node is being freed for a pod.
#[derive(Clone, Copy)]
enum Nominated<'a> {
    /// The one it says.
    As,
    /// None.
    None,
    /// This one.
    Node(&'a str),
}

/// Whether what no node will do for is the same for two pods.
fn is_alike(one: &Pod, other: &Pod) -> bool {
    one.spec == other.spec
        && one.metadata.namespace == other.metadata.namespace
        && one.metadata.labels == other.metadata.labels
        && one.status.nominated_node_name == other.status.nominated_node_name
}

/// Makes a pod leave its node for another one.
fn push_out(victim: &Pod, by: &Pod, node: &str, now: Timestamp, plan: &mut Plan) {
    if victim.metadata.is_going() {
        return;
    }
    let condition = Condition {
        kind: "DisruptionTarget".to_owned(),
        status: Truth::True,
        reason: "PreemptionByScheduler".to_owned(),
        message: format!("{NAME}: preempting to accommodate a higher priority pod"),
        last_transition_time: Some(second(now)),
        observed_generation: Some(victim.metadata.generation),
        ..Condition::default()
    };
    plan.write(merge(victim, &json!({"conditions": with(victim, &condition)})));
    let said = format!("Preempted by pod {} on node {node}", by.metadata.uid);
    let delete = Write::Delete {
        resource: Pod::RESOURCE,
        key: victim.metadata.key(),
        fence: Fence { uid: victim.metadata.uid.clone(), revision: None },
        grace: None,
        propagation: None,
    };
    let note = Note::normal(about(victim), "Preempted", said).doing("Preempting");
    plan.steps.push(Step::new(delete).done(note));
}

/// A pod's conditions with this one among them.
fn with(pod: &Pod, condition: &Condition) -> Vec<Value> {
    let others = pod.status.conditions.iter().filter(|it| it.kind != condition.kind);
    others.chain([condition]).map(condition_body).collect()
}

fn merge(pod: &Pod, status: &Value) -> Write {
    Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        part: Part::Status,
        fence: pod.metadata.fence(),
        body: json!({"status": status}),
    }
}

fn about(pod: &Pod) -> Reference {
    Reference::to(&Pod::RESOURCE, &pod.metadata)
}

#[cfg(test)]
mod tests;
