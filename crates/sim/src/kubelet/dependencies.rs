//! Checks what must be available before the containers of a pod are started: its volumes and its
//! devices.
//!
//! Schedulers wait for these, but a pod may be bound to a node by others.

use std::sync::Arc;

use gantry_reconcile::{Change, Key, World};

use super::{Settings, SourcePolicy};
use crate::image::ImagePull;
use crate::pod_config::{self, ResolveContext, Unresolved};
use crate::view::{ContainerStatus, PersistentVolumeClaim, Pod, ResourceClaim, SourceKey};

/// A dependency that a pod waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MissingDependency {
    /// The reason; empty while an object is being read.
    pub(super) reason: &'static str,
    /// The message.
    pub(super) message: String,
}

/// Returns what the containers of a pod wait for before the first of them is started.
pub(super) fn missing_dependency(
    world: &World,
    pod: &Pod,
    settings: &Settings,
    context: &ResolveContext<'_>,
) -> Option<MissingDependency> {
    if has_started(pod) {
        return None;
    }
    let files = || match settings.sources {
        SourcePolicy::Assumed => None,
        // Volumes that simulated nodes do not provide matter only to programs.
        SourcePolicy::Read if has_bundle(pod) && !settings.has_programs(pod) => None,
        SourcePolicy::Read => missing_source(context),
    };
    missing_volume(world, pod).or_else(files).or_else(|| missing_device(world, pod))
}

fn has_bundle(pod: &Pod) -> bool {
    let projected = pod.spec.volumes.iter().filter_map(|it| it.projected.as_ref());
    projected.flat_map(|it| &it.sources).any(|it| it.cluster_trust_bundle.is_some())
}

/// Returns what is missing for the files of volumes.
fn missing_source(context: &ResolveContext<'_>) -> Option<MissingDependency> {
    match pod_config::volumes(context) {
        Ok(_) => None,
        Err(Unresolved::Pending) => Some(MissingDependency { reason: "", message: String::new() }),
        Err(Unresolved::Invalid(message)) => {
            Some(MissingDependency { reason: "FailedMount", message })
        }
    }
}

/// Returns the pods that reference a ConfigMap or a Secret and have containers to start.
pub(super) fn pods_using_source(world: &World, source: &SourceKey) -> Vec<Key> {
    let pods = world.store::<Pod>().in_namespace(&source.namespace);
    let waits = |pod: &&Arc<Pod>| {
        !pod.spec.node_name.is_empty() && pod_config::sources_of(pod).contains(source)
    };
    pods.iter().filter(waits).map(|it| it.metadata.key()).collect()
}

/// Returns the pods on nodes with a container of this image.
pub(super) fn pods_using_image(world: &World, settings: &Settings, pull: &ImagePull) -> Vec<Key> {
    let pods = world.store::<Pod>().in_namespace(&pull.namespace);
    let uses = |pod: &&Arc<Pod>| {
        let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        !pod.spec.node_name.is_empty() && all.any(|it| it.image == pull.image && settings.pulls(it))
    };
    pods.iter().filter(uses).map(|it| it.metadata.key()).collect()
}

fn has_started(pod: &Pod) -> bool {
    let status = &pod.status;
    let began = |it: &ContainerStatus| {
        it.state.running.is_some()
            || it.state.terminated.is_some()
            || it.last_state.terminated.is_some()
    };
    status.init_container_statuses.iter().chain(&status.container_statuses).any(began)
}

fn missing_volume(world: &World, pod: &Pod) -> Option<MissingDependency> {
    let claims = world.store::<PersistentVolumeClaim>();
    pod.volume_claims().find_map(|used| {
        let key = Key::new(&pod.metadata.namespace, &used.claim);
        let why = match claims.get(&key) {
            None => {
                let name = &used.claim;
                format!(
                    "failed to fetch PVC from API server: persistentvolumeclaims \"{name}\" not \
                     found"
                )
            }
            Some(claim) if claim.is_bound() => return None,
            Some(_) => "PVC is not bound".to_owned(),
        };
        let volume = used.volume;
        let message = format!(
            "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached \
             volumes=[], failed to process volumes=[{volume}]: error processing PVC {key}: {why}"
        );
        Some(MissingDependency { reason: "FailedMount", message })
    })
}

fn missing_device(world: &World, pod: &Pod) -> Option<MissingDependency> {
    let claims = world.store::<ResourceClaim>();
    let meta = &pod.metadata;
    pod.spec.resource_claims.iter().find_map(|entry| {
        let made = pod.status.resource_claim_statuses.iter().find(|it| it.name == entry.name);
        let name = match (&entry.resource_claim_name, made) {
            (Some(name), _) => name,
            (None, Some(made)) => made.resource_claim_name.as_ref()?,
            (None, None) => {
                return Some(unprepared(&format!(
                    "pod \"{}\": ResourceClaim not created yet",
                    meta.key()
                )));
            }
        };
        let (pod_name, uid) = (&meta.name, &meta.uid);
        match claims.get(&Key::new(&meta.namespace, name)) {
            None => {
                let why = format!("resourceclaims.resource.k8s.io \"{name}\" not found");
                let words = "failed to fetch ResourceClaim";
                Some(unprepared(&format!("{words} {name} referenced by pod {pod_name}: {why}")))
            }
            Some(claim) if claim.status.allocation.is_some() && claim.is_reserved_for(uid) => None,
            Some(claim) => {
                let claim_uid = &claim.metadata.uid;
                let words = "is not allowed to use resource claim";
                Some(unprepared(&format!("pod {pod_name} ({uid}) {words} {name} ({claim_uid})")))
            }
        }
    })
}

fn unprepared(why: &str) -> MissingDependency {
    let message = format!("Failed to prepare dynamic resources: prepare dynamic resources: {why}");
    MissingDependency { reason: "FailedPrepareDynamicResources", message }
}

/// Returns the pods that may continue after a change of a claim.
pub(super) fn pods_waiting_for(world: &World, change: &Change) -> Vec<Key> {
    let pods = world.store::<Pod>();
    let (namespace, name) = (change.key.namespace(), change.key.name());
    let waits = |pod: &&Arc<Pod>| !pod.spec.node_name.is_empty() && !has_started(pod);
    let using = match change.is::<PersistentVolumeClaim>() {
        true => pods.by_index(&Pod::volume_claim_tag(namespace, name)),
        false => {
            let mut pods = pods.in_namespace(namespace);
            pods.retain(|it| !it.spec.resource_claims.is_empty());
            pods
        }
    };
    using.iter().filter(waits).map(|it| it.metadata.key()).collect()
}
