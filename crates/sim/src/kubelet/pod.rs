//! Runs pods on simulated nodes, from admission to deletion.

use std::sync::Arc;

use gantry_kube_controllers::status::truncate_to_seconds;
use gantry_reconcile::{
    Change, Controller, Event, FactChange, FactKind, Fence, Held, Key, Kind, ObjectReference, Plan,
    Step, Subresource, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::container::{PodSync, running_since, waiting};
use super::health::PodHealth;
use super::image_pull::ImageState;
use super::pod_cidr::PodCidr;
use super::stage::{SimulationAnnotations, Stage};
use super::{Settings, SourcePolicy, admission, dependencies, status};
use crate::kernel;
use crate::pod_config::{self, ResolveContext, SourcesWithoutPrograms, Unresolved};
use crate::programs::action;
use crate::usage;
use crate::view::{
    Container, ContainerState, ContainerStatus, Node, PersistentVolumeClaim, Phase, Pod, PodIp,
    PodStatus, ProbeResult, Program, PulledImage, ResourceClaim, RestartPolicy, SourceObject,
};

/// The exit code of a container that stops on SIGTERM.
const SIGTERM_EXIT_CODE: i64 = 143;
/// The exit code of a container that is killed.
const SIGKILL_EXIT_CODE: i64 = 137;

/// The message of a pod that exceeded its active deadline.
const DEADLINE_EXCEEDED_MESSAGE: &str =
    "Pod was active on the node longer than the specified deadline";

/// Runs the pods of simulated nodes.
#[derive(Clone, Debug, Default)]
pub struct SimulatedPods {
    settings: Settings,
}

impl SimulatedPods {
    /// Creates a controller for the nodes that these settings simulate.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Controller for SimulatedPods {
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
            return dependencies::pods_waiting_for(world, change);
        }
        // The heartbeats of nodes do not affect their pods.
        let matters = |it: &Node| {
            let amounts = it.status.allocatable.clone();
            let runs = (self.settings.runs_pods(it), kernel::boot_time(it));
            (runs, it.spec.pod_cidr.clone(), amounts)
        };
        let (before, after) = (change.before::<Node>(), change.after::<Node>());
        if before.map(matters) == after.map(matters) {
            return Vec::new();
        }
        let pods = world.store::<Pod>().by_index(&Pod::node_tag(change.key.name()));
        pods.iter().map(|it| it.metadata.key()).collect()
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![
            FactKind::of::<Program>(),
            FactKind::of::<ProbeResult>(),
            FactKind::of::<SourceObject>(),
            FactKind::of::<PulledImage>(),
        ]
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        if let Some(source) = change.of::<SourceObject>().filter(|it| it.is_significant()) {
            return dependencies::pods_using_source(world, source.subject);
        }
        if let Some(image) = change.of::<PulledImage>().filter(|it| it.is_significant()) {
            return dependencies::pods_using_image(world, &self.settings, image.subject);
        }
        let program = change.of::<Program>().filter(|it| it.is_significant());
        let probe = change.of::<ProbeResult>().filter(|it| it.is_significant());
        let pod = program.map(|it| it.subject.pod.clone());
        pod.or_else(|| probe.map(|it| it.subject.container.pod.clone())).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.store::<Pod>().get(key) else { return plan };
        let node = world.store::<Node>().get(&Key::cluster(&pod.spec.node_name));
        let Some(node) = node.filter(|it| self.settings.runs_pods(it)) else { return plan };
        let annotations = SimulationAnnotations::parse(&pod.metadata.annotations);
        let unreadable = annotations.unreadable.iter().cloned();
        for message in unreadable.chain(usage::annotation_errors(&pod.metadata.annotations)) {
            plan.hold(held(&pod, "UnreadableAnnotation", message), now);
        }
        let health = PodHealth::of(world, &pod);
        let simulated = SourcesWithoutPrograms(world);
        let context = ResolveContext {
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
                SourcePolicy::Read => pod_config::environment(&context, container).map(|_| ()),
            }
        };
        let pulled = |container: &Container| ImageState::of(world, &self.settings, &pod, container);
        let mut sync = PodSync {
            settings: &self.settings,
            pod: &pod,
            annotations: &annotations,
            health: &health,
            configured: &configured,
            pulled: &pulled,
            booted_at: kernel::boot_time(&node),
            now,
            requeue_at: None,
            notes: Vec::new(),
        };
        if pod.metadata.is_terminating() {
            terminate_pod(&mut sync, &mut plan);
        } else if !pod.is_terminal() {
            let missing = dependencies::missing_dependency(world, &pod, &self.settings, &context);
            sync_pod(&mut sync, &mut plan, &node, missing, || {
                world.store::<Pod>().by_index(&Pod::node_tag(&node.metadata.name))
            });
        }
        // The events of a change are recorded when its write succeeded: a write that conflicts is
        // planned again, with its events.
        match plan.steps.first_mut() {
            Some(step) => step.success_events.append(&mut sync.notes),
            None => plan.events.append(&mut sync.notes),
        }
        if let Some(next) = sync.requeue_at {
            plan.requeue_at(next, now);
        }
        plan
    }
}

/// Advances a pod that is not being deleted.
fn sync_pod(
    sync: &mut PodSync<'_>,
    plan: &mut Plan,
    node: &Node,
    missing: Option<dependencies::MissingDependency>,
    on_node: impl Fn() -> Vec<Arc<Pod>>,
) {
    let (pod, now) = (sync.pod, sync.now);
    let mut next = pod.status.clone();
    if next.start_time.is_none() && !admit_pod(sync, plan, node, &on_node(), &mut next) {
        return;
    }
    let start = next.start_time.unwrap_or(now);
    let too_long = pod.spec.active_deadline_seconds;
    if too_long.is_some_and(|it| sync.is_due(start, SignedDuration::from_secs(it))) {
        stop_containers(sync, &mut next, SIGKILL_EXIT_CODE);
        next.phase = Phase::Failed;
        "DeadlineExceeded".clone_into(&mut next.reason);
        DEADLINE_EXCEEDED_MESSAGE.clone_into(&mut next.message);
        let about = ObjectReference::to(&Pod::RESOURCE, &pod.metadata);
        sync.notes.push(Event::normal(
            about,
            "DeadlineExceeded",
            DEADLINE_EXCEEDED_MESSAGE.to_owned(),
        ));
    } else if let Some(dependencies::MissingDependency { reason, message }) = missing {
        // An object that is only being read is neither reported nor a held reason: it takes a
        // moment.
        if !reason.is_empty() {
            let about = ObjectReference::to(&Pod::RESOURCE, &pod.metadata);
            sync.notes.push(Event::warning(about, reason, message.clone()));
            plan.hold(held(pod, reason, message), now);
        }
    } else {
        if next.pod_ip.is_empty() && !assign_address(sync, plan, node, &on_node, &mut next) {
            return;
        }
        report_unsupported(sync, plan, &next.pod_ip);
        let (inits, mains) = (&mut next.init_container_statuses, &mut next.container_statuses);
        sync.advance(inits, mains, start);
        next.phase = status::phase(pod, &next);
    }
    write_status(sync, plan, next);
}

/// Admits a pod, unless it is too early or the node rejects it.
fn admit_pod(
    sync: &mut PodSync<'_>,
    plan: &mut Plan,
    node: &Node,
    on_node: &[Arc<Pod>],
    next: &mut PodStatus,
) -> bool {
    let (pod, now) = (sync.pod, sync.now);
    let given = pod.condition("PodScheduled").and_then(|it| it.last_transition_time);
    let from = given.or(pod.metadata.creation_timestamp).unwrap_or(now);
    let wait = sync.delay(Stage::Create, "");
    if !sync.is_due(from, wait) {
        return false;
    }
    if let Some(rejection) = admission::admit(pod, node, on_node) {
        let about = ObjectReference::to(&Pod::RESOURCE, &pod.metadata);
        let note = Event::warning(about, "", rejection.message.clone());
        sync.notes.push(Event { reason: rejection.reason.clone().into(), ..note });
        let body = json!({"status": {
            "phase": "Failed",
            "reason": rejection.reason,
            "message": format!("Pod was rejected: {}", rejection.message),
            "startTime": truncate_to_seconds(now).to_string(),
        }});
        plan.write(status_patch(pod, body));
        return false;
    }
    let Some(range) = pod_cidr_of(sync, plan, node) else { return false };
    next.start_time = Some(truncate_to_seconds(now));
    next.host_ip = range.node_address().to_string();
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

/// Returns the pod CIDR of the node; without one, the pod is held.
fn pod_cidr_of(sync: &PodSync<'_>, plan: &mut Plan, node: &Node) -> Option<PodCidr> {
    let range = PodCidr::parse(&node.spec.pod_cidr);
    if range.is_none() {
        let message = format!("node {} has no pod CIDR yet", node.metadata.name);
        plan.hold(held(sync.pod, "NoAddress", message), sync.now);
    }
    range
}

/// Assigns the pod's address, which kubelets do when its volumes and devices are available.
fn assign_address(
    sync: &PodSync<'_>,
    plan: &mut Plan,
    node: &Node,
    on_node: &impl Fn() -> Vec<Arc<Pod>>,
    next: &mut PodStatus,
) -> bool {
    let pod = sync.pod;
    let Some(range) = pod_cidr_of(sync, plan, node) else { return false };
    let address = match pod.spec.host_network {
        true => Some(range.node_address()),
        false => range.assign_address(pod, &on_node()),
    };
    let Some(address) = address else {
        let name = &node.metadata.name;
        let message =
            format!("node {name} has no free pod address: all are assigned to other pods");
        plan.hold(held(pod, "NoAddress", message), sync.now);
        return false;
    };
    next.pod_ip = address.to_string();
    next.pod_ips = vec![PodIp { ip: next.pod_ip.clone() }];
    true
}

/// Reports the parts of a pod that simulated nodes do not support: as an event when it gets its
/// address, and as a held reason from then on.
fn report_unsupported(sync: &mut PodSync<'_>, plan: &mut Plan, address: &str) {
    let pod = sync.pod;
    let probes = action::unsupported_probes(sync.settings, pod, address);
    let probes = probes.into_iter().map(|it| ("UnsupportedProbe", it));
    let ignored = sync.annotations.ignored_annotations(sync.settings, pod);
    for (reason, message) in probes.chain(ignored.map(|it| ("IgnoredAnnotation", it))) {
        if pod.status.pod_ip.is_empty() {
            let about = ObjectReference::to(&Pod::RESOURCE, &pod.metadata);
            sync.notes.push(Event::warning(about, reason, message.clone()));
        }
        plan.hold(held(pod, reason, message), sync.now);
    }
}

/// Stops the containers of a pod that is being deleted, and completes the deletion.
fn terminate_pod(sync: &mut PodSync<'_>, plan: &mut Plan) {
    let pod = sync.pod;
    let meta = &pod.metadata;
    let grace = meta.deletion_grace_period_seconds.unwrap_or_default();
    let grace = SignedDuration::from_secs(grace.max(0));
    let until = meta.deletion_timestamp.unwrap_or(sync.now);
    let asked = until.checked_sub(grace).unwrap_or(until);
    let statuses = [&pod.status.init_container_statuses[..], &pod.status.container_statuses[..]];
    let statuses = statuses.concat();
    let runs = !pod.is_terminal() && statuses.iter().any(|it| running_since(it).is_some());
    let wanted = sync.delay(Stage::Delete, "");
    if runs {
        let busy = sync.health.has_running_programs(sync.settings, pod);
        let wait = if busy { grace } else { wanted.min(grace) };
        if !sync.is_due(asked, wait) {
            return;
        }
        for container in pod.spec.containers.iter() {
            let message = format!("Stopping container {}", container.name);
            sync.record_event(container, "Killing", message);
        }
        sync.report_failed_hooks();
    }
    // Controllers that wait for the pod's end must see how it ended.
    let awaited = !meta.finalizers.is_empty() || pod.spec.restart_policy != RestartPolicy::Always;
    if !pod.is_terminal() && pod.status.start_time.is_some() && awaited {
        let mut next = pod.status.clone();
        stop_containers(
            sync,
            &mut next,
            if wanted > grace { SIGKILL_EXIT_CODE } else { SIGTERM_EXIT_CODE },
        );
        let well = |it: &ContainerStatus| it.state.terminated.as_ref().map(|end| end.exit_code);
        let all_well = next.container_statuses.iter().all(|it| well(it) == Some(0));
        next.phase = if all_well { Phase::Succeeded } else { Phase::Failed };
        write_status(sync, plan, next);
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

fn stop_containers(sync: &mut PodSync<'_>, next: &mut PodStatus, code: i64) {
    let all = next.init_container_statuses.iter_mut().chain(&mut next.container_statuses);
    for container in all {
        sync.stop(container, code);
    }
}

/// Writes the changed status of a pod.
fn write_status(sync: &PodSync<'_>, plan: &mut Plan, mut next: PodStatus) {
    status::update_conditions(sync.pod, &mut next, sync.now);
    if next != sync.pod.status {
        let body = json!({"status": status::render(&next)});
        plan.steps.push(Step::new(status_patch(sync.pod, body)));
    }
}

fn status_patch(pod: &Pod, body: serde_json::Value) -> Write {
    Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        subresource: Subresource::Status,
        fence: pod.metadata.fence(),
        body,
    }
}

fn held(pod: &Pod, reason: &'static str, message: String) -> Held {
    let about = ObjectReference::to(&Pod::RESOURCE, &pod.metadata);
    Held { about, reason: reason.into(), message, until: None }
}

#[cfg(test)]
mod tests;
