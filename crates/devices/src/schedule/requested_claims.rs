//! The claims of a decision, and where their devices must be.

use std::collections::BTreeMap;

use gantry_api::devices::{
    ClaimSpec, DeviceClaim, PodClaims, PodDeviceClaims, PodDevices, PrivilegedClaimSpec,
};
use gantry_api::finding::Findings;
use gantry_api::meta::ObjectMeta;
use k8s_openapi::api::core::v1::NodeSelector;

use super::decide::ScheduleError;
use super::objects::{Objects, namespace_of};
use crate::lower::{
    ClaimObjects, ClaimSpecRef, NodeLabels, PodClaimEntry, matches_selector, resolve,
};

/// What is requested, and where it must be.
#[derive(Default)]
pub(super) struct RequestedClaims {
    claims: Vec<(String, RequestedSpec)>,
    locations: Vec<ClaimLocation>,
    /// Further notes.
    pub(super) notes: Vec<String>,
}

enum RequestedSpec {
    Claim(ClaimSpec),
    Privileged(PrivilegedClaimSpec),
}

/// Where the devices are that a pod has already.
enum ClaimLocation {
    Node(String),
    Selector(Box<NodeSelector>),
}

impl RequestedClaims {
    pub(super) fn specs(&self) -> Vec<(&str, ClaimSpecRef<'_>)> {
        let wanted = self.claims.iter().map(|(name, wish)| {
            let wanted = match wish {
                RequestedSpec::Claim(spec) => ClaimSpecRef::Claim(spec),
                RequestedSpec::Privileged(spec) => ClaimSpecRef::Privileged(spec),
            };
            (name.as_str(), wanted)
        });
        wanted.collect()
    }

    /// Whether a node reaches the devices that the pod has already.
    pub(super) fn allows_node(&self, node: &NodeLabels) -> bool {
        self.locations.iter().all(|pin| match pin {
            ClaimLocation::Node(name) => *name == node.name,
            ClaimLocation::Selector(selector) => matches_selector(selector, node),
        })
    }

    /// Adds a claim, unless it is allocated: then the pod must be where its devices are.
    fn add(&mut self, claim: &DeviceClaim, pins: bool) {
        let name = claim.metadata.name.clone().unwrap_or_default();
        let Some(status) = claim.status.as_ref().filter(|it| !it.allocations.is_empty()) else {
            self.claims.push((name, RequestedSpec::Claim(claim.spec.clone())));
            return;
        };
        let place = status.node_name.as_ref().map(|node| format!(", on node {node}"));
        let place = place.unwrap_or_default();
        self.notes.push(format!("claim {name} has its devices already{place}"));
        let node = status.node_name.clone().map(ClaimLocation::Node);
        let selector = status.node_selector.clone().map(|it| ClaimLocation::Selector(Box::new(it)));
        self.locations.extend(node.or(selector).filter(|_| pins));
    }
}

/// Returns every claim. They belong to no pod, so allocated ones pin nothing.
pub(super) fn of_every_claim(objects: &Objects) -> RequestedClaims {
    let mut requested = RequestedClaims::default();
    for claim in &objects.claims {
        requested.add(claim, false);
    }
    for claim in &objects.privileged {
        let name = claim.metadata.name.clone().unwrap_or_default();
        requested.claims.push((name, RequestedSpec::Privileged(claim.spec.clone())));
    }
    requested
}

/// Returns the claims of a pod.
pub(super) fn of_pod(
    objects: &Objects,
    namespace: &str,
    name: &str,
) -> Result<RequestedClaims, ScheduleError> {
    let pod = format!("{namespace}/{name}");
    let Some(found) = objects.pod(namespace, name) else { return Err(ScheduleError::NoPod(pod)) };
    let carried = PodDeviceClaims::of(found).map_err(|findings| ScheduleError::Carrier {
        pod: pod.clone(),
        problems: problems(&findings),
    })?;
    let mut requested = RequestedClaims::default();
    let pod_claims = match carried {
        None => {
            requested.notes.push(format!("pod {pod} claims no devices"));
            PodClaims::default()
        }
        Some(PodDeviceClaims::Claims(claims)) => claims,
        Some(PodDeviceClaims::Named(object)) => {
            let meant = |it: &&PodDevices| {
                namespace_of(&it.metadata) == namespace
                    && it.metadata.name.as_ref() == Some(&object)
            };
            let found = objects.pod_devices.iter().find(meant);
            let missing = || ScheduleError::NoPodDevices { pod: pod.clone(), name: object.clone() };
            found.ok_or_else(missing)?.spec.clone()
        }
    };
    if let Some(node) = found["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        requested.notes.push(format!("pod {pod} is on node {node} already"));
    }
    let claims = by_name(&objects.claims, namespace, |it| &it.metadata);
    let privileged = by_name(&objects.privileged, namespace, |it| &it.metadata);
    let templates = by_name(&objects.templates, namespace, |it| &it.metadata);
    let resolved = ClaimObjects { claims: &claims, privileged: &privileged, templates: &templates };
    let entries = resolve(&pod_claims, &resolved);
    let entries = entries.map_err(|error| ScheduleError::Resolve { pod: pod.clone(), error })?;
    for entry in entries {
        match entry {
            PodClaimEntry::Claim { name, .. } => {
                if let Some(claim) = claims.get(name) {
                    requested.add(claim, true);
                }
            }
            PodClaimEntry::Privileged { name, spec } => {
                requested.claims.push((name.to_owned(), RequestedSpec::Privileged(spec.clone())));
            }
            PodClaimEntry::Generate { entry, spec, copied, .. } => {
                if copied {
                    requested.notes.push(format!("entry {entry}: claim used as template"));
                }
                requested.claims.push((entry, RequestedSpec::Claim(spec.clone())));
            }
            PodClaimEntry::GeneratePrivileged { entry, spec, .. } => {
                requested.claims.push((entry, RequestedSpec::Privileged(spec.clone())));
            }
        }
    }
    Ok(requested)
}

fn by_name<T: Clone>(
    list: &[T],
    namespace: &str,
    metadata: impl Fn(&T) -> &ObjectMeta,
) -> BTreeMap<String, T> {
    let within = list.iter().filter(|it| namespace_of(metadata(it)) == namespace);
    within.map(|it| (metadata(it).name.clone().unwrap_or_default(), it.clone())).collect()
}

fn problems(findings: &Findings) -> String {
    let told = findings.errors.iter().map(|error| format!("{}: {}", error.path, error.text));
    told.collect::<Vec<_>>().join("; ")
}
