//! What must be there before the containers of a pod are started: its volumes and its devices.
//!
//! Schedulers wait for these, but a pod may be given to a node by others.

use std::sync::Arc;

use gantry_reconcile::{Change, Key, World};

use super::{Settings, SourcePolicy};
use crate::pod_config::{self, Surroundings, Unresolved};
use crate::view::{ContainerStatus, PersistentVolumeClaim, Pod, ResourceClaim, SourceKey};

/// What a pod waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// In one word; empty for what is being read.
    pub(super) reason: &'static str,
    /// In a sentence.
    pub(super) message: String,
}

/// What the containers of a pod wait for before the first of them is started.
pub(super) fn missing(
    world: &World,
    pod: &Pod,
    settings: &Settings,
    around: &Surroundings<'_>,
) -> Option<Missing> {
    if has_started(pod) {
        return None;
    }
    let files = || match settings.sources {
        SourcePolicy::Assumed => None,
        // Nobody looks at what simulated nodes do not provide unless a program does.
        SourcePolicy::Read if has_bundle(pod) && !settings.has_programs(pod) => None,
        SourcePolicy::Read => file(around),
    };
    volume(world, pod).or_else(files).or_else(|| device(world, pod))
}

fn has_bundle(pod: &Pod) -> bool {
    let projected = pod.spec.volumes.iter().filter_map(|it| it.projected.as_ref());
    projected.flat_map(|it| &it.sources).any(|it| it.cluster_trust_bundle.is_some())
}

/// What files of volumes lack.
fn file(around: &Surroundings<'_>) -> Option<Missing> {
    match pod_config::volumes(around) {
        Ok(_) => None,
        Err(Unresolved::Pending) => Some(Missing { reason: "", message: String::new() }),
        Err(Unresolved::Fault(message)) => Some(Missing { reason: "FailedMount", message }),
    }
}

/// The pods that name a ConfigMap or a Secret and have containers to start.
pub(super) fn naming(world: &World, source: &SourceKey) -> Vec<Key> {
    let pods = world.shelf::<Pod>().within(&source.namespace);
    let waits = |pod: &&Arc<Pod>| {
        !pod.spec.node_name.is_empty() && pod_config::sources_of(pod).contains(source)
    };
    pods.iter().filter(waits).map(|it| it.metadata.key()).collect()
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

fn volume(world: &World, pod: &Pod) -> Option<Missing> {
    let claims = world.shelf::<PersistentVolumeClaim>();
    pod.used_claims().find_map(|used| {
        let key = Key::new(&pod.metadata.namespace, &used.claim);
        let why = match claims.get(&key) {
            None => {
                let name = &used.claim;
                format!(
                    "failed to fetch PVC from API server: persistentvolumeclaims \"{name}\" not found"
                )
            }
            Some(claim) if claim.is_bound() => return None,
            Some(_) => "PVC is not bound".to_owned(),
        };
        let volume = used.volume;
        let message = format!(
            "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: error processing PVC {key}: {why}"
        );
        Some(Missing { reason: "FailedMount", message })
    })
}

fn device(world: &World, pod: &Pod) -> Option<Missing> {
    let claims = world.shelf::<ResourceClaim>();
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

fn unprepared(why: &str) -> Missing {
    let message = format!("Failed to prepare dynamic resources: prepare dynamic resources: {why}");
    Missing { reason: "FailedPrepareDynamicResources", message }
}

/// The pods that may go on after a change of a claim.
pub(super) fn waiting_for(world: &World, change: &Change) -> Vec<Key> {
    let pods = world.shelf::<Pod>();
    let (namespace, name) = (change.key.namespace(), change.key.name());
    let waits = |pod: &&Arc<Pod>| !pod.spec.node_name.is_empty() && !has_started(pod);
    let using = match change.is::<PersistentVolumeClaim>() {
        true => pods.tagged(&Pod::using_claim(namespace, name)),
        false => {
            let mut pods = pods.within(namespace);
            pods.retain(|it| !it.spec.resource_claims.is_empty());
            pods
        }
    };
    using.iter().filter(waits).map(|it| it.metadata.key()).collect()
}
