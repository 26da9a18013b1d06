//! The life of a pod on a pretended node.

use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Fence, Held, Key, Kind, Note, Part, Plan, Reference,
    Step, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::container::{Course, running_since, waiting};
use super::health::Health;
use super::range::Range;
use super::stage::{Stage, Wishes};
use super::{Settings, SourcePolicy, admit, prepare, second, status};
use crate::pod_config::{self, Surroundings, Unresolved, WithoutPrograms};
use crate::programs::action;
use crate::usage;
use crate::view::{
    Container, ContainerState, ContainerStatus, Node, PersistentVolumeClaim, Phase, Pod,
    PodAddress, PodStatus, ProbeResult, Program, ResourceClaim, RestartPolicy, SourceObject,
};

/// The code of a container that ends because it is asked to.
const ASKED_TO_END: i64 = 143;
/// The code of a container that is ended.
const ENDED: i64 = 137;

/// What is said of a pod that ran too long.
const TOO_LONG: &str = "Pod was active on the node longer than the specified deadline";

/// Runs the pods of pretended nodes.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    settings: Settings,
}

impl Pods {
    /// For the nodes that these settings pretend.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Controller for Pods {
    fn name(&self) -> &'static str {
        "kubelet-pods"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Pod>(),
            Kind::of::<Node>(),
            Kind::of::<PersistentVolumeClaim>(),
            Kind::of::<ResourceClaim>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if let Some(pod) = change.after::<Pod>() {
            let given = !pod.spec.node_name.is_empty();
            return if given { vec![change.key.clone()] } else { Vec::new() };
        }
        if change.is::<PersistentVolumeClaim>() || change.is::<ResourceClaim>() {
            return prepare::waiting_for(world, change);
        }
        // What nodes say of themselves all the time means nothing to their pods.
        let matters = |it: &Node| {
            let amounts = it.status.allocatable.clone();
            (self.settings.is_up(it), it.spec.pod_cidr.clone(), amounts)
        };
        let (before, after) = (change.before::<Node>(), change.after::<Node>());
        if before.map(matters) == after.map(matters) {
            return Vec::new();
        }
        let pods = world.shelf::<Pod>().tagged(&Pod::on_node(change.key.name()));
        pods.iter().map(|it| it.metadata.key()).collect()
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![
            FactKind::of::<Program>(),
            FactKind::of::<ProbeResult>(),
            FactKind::of::<SourceObject>(),
        ]
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        if let Some(source) = change.of::<SourceObject>().filter(|it| it.is_news()) {
            return prepare::naming(world, source.subject);
        }
        let program = change.of::<Program>().filter(|it| it.is_news());
        let probe = change.of::<ProbeResult>().filter(|it| it.is_news());
        let pod = program.map(|it| it.subject.pod.clone());
        pod.or_else(|| probe.map(|it| it.subject.container.pod.clone())).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.shelf::<Pod>().get(key) else { return plan };
        let node = world.shelf::<Node>().get(&Key::cluster(&pod.spec.node_name));
        let Some(node) = node.filter(|it| self.settings.is_up(it)) else { return plan };
        let wishes = Wishes::read(&pod.metadata.annotations);
        let unreadable = wishes.unreadable.iter().cloned();
        for message in unreadable.chain(usage::faults(&pod.metadata.annotations)) {
            plan.hold(held(&pod, "UnreadableAnnotation", message), now);
        }
        for message in action::unsupported(&self.settings, &pod) {
            plan.hold(held(&pod, "UnsupportedProbe", message), now);
        }
        let health = Health::of(world, &pod);
        let simulated = WithoutPrograms(world);
        let around = Surroundings {
            pod: &pod,
            node: Some(&node),
            sources: match self.settings.has_programs(&pod) {
                true => world,
                false => &simulated,
            },
            api_server: self.settings.api_server.as_ref(),
        };
        let configured = |container: &Container| -> Result<(), Unresolved> {
            match self.settings.sources {
                SourcePolicy::Assumed => Ok(()),
                SourcePolicy::Read => pod_config::environment(&around, container).map(|_| ()),
            }
        };
        let mut course = Course {
            settings: &self.settings,
            pod: &pod,
            wishes: &wishes,
            health: &health,
            configured: &configured,
            now,
            next: None,
            notes: Vec::new(),
        };
        if pod.metadata.is_going() {
            see_off(&mut course, &mut plan);
        } else if !pod.is_over() {
            let missing = prepare::missing(world, &pod, &self.settings, &around);
            live(&mut course, &mut plan, &node, missing, || {
                world.shelf::<Pod>().tagged(&Pod::on_node(&node.metadata.name))
            });
        }
        // What is told of a change is told when the change took: one that comes too late is planned
        // again, and then told again.
        match plan.steps.first_mut() {
            Some(step) => step.done.append(&mut course.notes),
            None => plan.notes.append(&mut course.notes),
        }
        if let Some(next) = course.next {
            plan.look_at(next, now);
        }
        plan
    }
}

/// Moves a pod on that is to live.
fn live(
    course: &mut Course<'_>,
    plan: &mut Plan,
    node: &Node,
    missing: Option<prepare::Missing>,
    on_node: impl FnOnce() -> Vec<Arc<Pod>>,
) {
    let (pod, now) = (course.pod, course.now);
    let mut next = pod.status.clone();
    if next.start_time.is_none() && !take_on(course, plan, node, &on_node(), &mut next) {
        return;
    }
    let start = next.start_time.unwrap_or(now);
    let too_long = pod.spec.active_deadline_seconds;
    if too_long.is_some_and(|it| course.is_due(start, SignedDuration::from_secs(it))) {
        stop_all(course, &mut next, ENDED);
        next.phase = Phase::Failed;
        "DeadlineExceeded".clone_into(&mut next.reason);
        TOO_LONG.clone_into(&mut next.message);
        let about = Reference::to(&Pod::RESOURCE, &pod.metadata);
        course.notes.push(Note::normal(about, "DeadlineExceeded", TOO_LONG.to_owned()));
    } else if let Some(prepare::Missing { reason, message }) = missing {
        // What is only being read is neither said nor held: it takes a moment.
        if !reason.is_empty() {
            let about = Reference::to(&Pod::RESOURCE, &pod.metadata);
            course.notes.push(Note::warning(about, reason, message.clone()));
            plan.hold(held(pod, reason, message), now);
        }
    } else {
        let (inits, mains) = (&mut next.init_container_statuses, &mut next.container_statuses);
        course.advance(inits, mains, start);
        next.phase = status::phase(pod, &next);
    }
    write(course, plan, next);
}

/// Takes a pod on, unless it is too early or the node rejects it.
fn take_on(
    course: &mut Course<'_>,
    plan: &mut Plan,
    node: &Node,
    on_node: &[Arc<Pod>],
    next: &mut PodStatus,
) -> bool {
    let (pod, now) = (course.pod, course.now);
    let given = pod.condition("PodScheduled").and_then(|it| it.last_transition_time);
    let from = given.or(pod.metadata.creation_timestamp).unwrap_or(now);
    let wait = course.delay(Stage::Create, "");
    if !course.is_due(from, wait) {
        return false;
    }
    if let Some(rejection) = admit::check(pod, node, on_node) {
        let about = Reference::to(&Pod::RESOURCE, &pod.metadata);
        let note = Note::warning(about, "", rejection.message.clone());
        course.notes.push(Note { reason: rejection.reason.clone().into(), ..note });
        let body = json!({"status": {
            "phase": "Failed",
            "reason": rejection.reason,
            "message": format!("Pod was rejected: {}", rejection.message),
            "startTime": second(now).to_string(),
        }});
        plan.write(merge(pod, body));
        return false;
    }
    let Some(range) = Range::read(&node.spec.pod_cidr) else {
        let message = format!("node {} has no range of addresses yet", node.metadata.name);
        plan.hold(held(pod, "NoAddress", message), now);
        return false;
    };
    let address = match pod.spec.host_network {
        true => Some(range.host()),
        false => range.address(pod, on_node),
    };
    let Some(address) = address else {
        let name = &node.metadata.name;
        let message = format!("node {name} has given all its addresses to other pods");
        plan.hold(held(pod, "NoAddress", message), now);
        return false;
    };
    next.start_time = Some(second(now));
    next.host_ip = range.host().to_string();
    next.pod_ip = address.to_string();
    next.pod_ips = vec![PodAddress { ip: next.pod_ip.clone() }];
    let reason =
        if pod.spec.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let fresh = |container: &Container| ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        state: waiting(reason, String::new()),
        last_state: ContainerState::default(),
        ..ContainerStatus::default()
    };
    next.init_container_statuses = pod.spec.init_containers.iter().map(fresh).collect();
    next.container_statuses = pod.spec.containers.iter().map(fresh).collect();
    true
}

/// Brings a pod to its end that is to go.
fn see_off(course: &mut Course<'_>, plan: &mut Plan) {
    let pod = course.pod;
    let meta = &pod.metadata;
    let grace = meta.deletion_grace_period_seconds.unwrap_or_default();
    let grace = SignedDuration::from_secs(grace.max(0));
    let until = meta.deletion_timestamp.unwrap_or(course.now);
    let asked = until.checked_sub(grace).unwrap_or(until);
    let statuses = [&pod.status.init_container_statuses[..], &pod.status.container_statuses[..]];
    let statuses = statuses.concat();
    let runs = !pod.is_over() && statuses.iter().any(|it| running_since(it).is_some());
    let wanted = course.delay(Stage::Delete, "");
    if runs {
        let busy = course.health.is_busy(course.settings, pod);
        let wait = if busy { grace } else { wanted.min(grace) };
        if !course.is_due(asked, wait) {
            return;
        }
        for container in pod.spec.containers.iter() {
            let message = format!("Stopping container {}", container.name);
            course.tell(container, "Killing", message);
        }
        course.tell_failed_hooks();
    }
    // Whoever waits for its end must be shown how it ended.
    let awaited = !meta.finalizers.is_empty() || pod.spec.restart_policy != RestartPolicy::Always;
    if !pod.is_over() && pod.status.start_time.is_some() && awaited {
        let mut next = pod.status.clone();
        stop_all(course, &mut next, if wanted > grace { ENDED } else { ASKED_TO_END });
        let well = |it: &ContainerStatus| it.state.terminated.as_ref().map(|end| end.exit_code);
        let all_well = next.container_statuses.iter().all(|it| well(it) == Some(0));
        next.phase = if all_well { Phase::Succeeded } else { Phase::Failed };
        write(course, plan, next);
        return;
    }
    // Nothing is left to do about a pod that only its finalizers keep.
    if !grace.is_zero() || meta.finalizers.is_empty() {
        plan.write(Write::Delete {
            resource: Pod::RESOURCE,
            key: meta.key(),
            fence: Fence { uid: meta.uid.clone(), revision: None },
            grace: Some(0),
            propagation: None,
        });
    }
}

fn stop_all(course: &mut Course<'_>, next: &mut PodStatus, code: i64) {
    let all = next.init_container_statuses.iter_mut().chain(&mut next.container_statuses);
    for container in all {
        course.stop(container, code);
    }
}

/// Writes what is new about a pod.
fn write(course: &Course<'_>, plan: &mut Plan, mut next: PodStatus) {
    status::conclude(course.pod, &mut next, course.now);
    if next != course.pod.status {
        let body = json!({"status": status::render(&next)});
        plan.steps.push(Step::new(merge(course.pod, body)));
    }
}

fn merge(pod: &Pod, body: serde_json::Value) -> Write {
    Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        part: Part::Status,
        fence: pod.metadata.fence(),
        body,
    }
}

fn held(pod: &Pod, reason: &'static str, message: String) -> Held {
    let about = Reference::to(&Pod::RESOURCE, &pod.metadata);
    Held { about, reason: reason.into(), message, until: None }
}

#[cfg(test)]
mod tests;
