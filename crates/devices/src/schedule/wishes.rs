//! What a question is about: claims, and where their devices have to be.

use std::collections::BTreeMap;

use gantry_api::devices::{
    Carried, ClaimSpec, DeviceClaim, PodClaims, PodDevices, PrivilegedClaimSpec,
};
use gantry_api::finding::Findings;
use gantry_api::meta::ObjectMeta;
use k8s_openapi::api::core::v1::NodeSelector;

use super::decide::AskedError;
use super::objects::{Objects, namespace_of};
use crate::lower::{NodeLabels, PodEntry, Resolved, Wanted, resolve, selects};

/// What is asked for, and where it has to be.
#[derive(Default)]
pub(super) struct Wishes {
    claims: Vec<(String, Wish)>,
    pins: Vec<Pin>,
    /// What should be known besides.
    pub(super) notes: Vec<String>,
}

enum Wish {
    Claim(ClaimSpec),
    Privileged(PrivilegedClaimSpec),
}

/// Where devices are that a pod has already.
enum Pin {
    Node(String),
    Selector(Box<NodeSelector>),
}

impl Wishes {
    pub(super) fn wanted(&self) -> Vec<(&str, Wanted<'_>)> {
        let wanted = self.claims.iter().map(|(name, wish)| {
            let wanted = match wish {
                Wish::Claim(spec) => Wanted::Claim(spec),
                Wish::Privileged(spec) => Wanted::Privileged(spec),
            };
            (name.as_str(), wanted)
        });
        wanted.collect()
    }

    /// Whether a node is where the devices are that the pod has already.
    pub(super) fn admit(&self, node: &NodeLabels) -> bool {
        self.pins.iter().all(|pin| match pin {
            Pin::Node(name) => *name == node.name,
            Pin::Selector(selector) => selects(selector, node),
        })
    }

    /// A claim, unless it is allocated: then the pod has to go where its devices are.
    fn add(&mut self, claim: &DeviceClaim, pins: bool) {
        let name = claim.metadata.name.clone().unwrap_or_default();
        let Some(status) = claim.status.as_ref().filter(|it| !it.allocations.is_empty()) else {
            self.claims.push((name, Wish::Claim(claim.spec.clone())));
            return;
        };
        let place = status.node_name.as_ref().map(|node| format!(", on node {node}"));
        let place = place.unwrap_or_default();
        self.notes.push(format!("claim {name} has its devices already{place}"));
        let node = status.node_name.clone().map(Pin::Node);
        let selector = status.node_selector.clone().map(|it| Pin::Selector(Box::new(it)));
        self.pins.extend(node.or(selector).filter(|_| pins));
    }
}

/// Every claim. They are no pod's, so those that are allocated pin nobody.
pub(super) fn of_every_claim(objects: &Objects) -> Wishes {
    let mut wishes = Wishes::default();
    for claim in &objects.claims {
        wishes.add(claim, false);
    }
    for claim in &objects.privileged {
        let name = claim.metadata.name.clone().unwrap_or_default();
        wishes.claims.push((name, Wish::Privileged(claim.spec.clone())));
    }
    wishes
}

/// The claims of a pod.
pub(super) fn of_pod(objects: &Objects, namespace: &str, name: &str) -> Result<Wishes, AskedError> {
    let pod = format!("{namespace}/{name}");
    let Some(found) = objects.pod(namespace, name) else { return Err(AskedError::NoPod(pod)) };
    let carried = Carried::of(found).map_err(|findings| AskedError::Carrier {
        pod: pod.clone(),
        problems: problems(&findings),
    })?;
    let mut wishes = Wishes::default();
    let pod_claims = match carried {
        None => {
            wishes.notes.push(format!("pod {pod} asks for no devices"));
            PodClaims::default()
        }
        Some(Carried::Claims(claims)) => claims,
        Some(Carried::Named(object)) => {
            let meant = |it: &&PodDevices| {
                namespace_of(&it.metadata) == namespace
                    && it.metadata.name.as_ref() == Some(&object)
            };
            let found = objects.pod_devices.iter().find(meant);
            let missing = || AskedError::NoPodDevices { pod: pod.clone(), name: object.clone() };
            found.ok_or_else(missing)?.spec.clone()
        }
    };
    if let Some(node) = found["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        wishes.notes.push(format!("pod {pod} is on node {node} already"));
    }
    let claims = by_name(&objects.claims, namespace, |it| &it.metadata);
    let privileged = by_name(&objects.privileged, namespace, |it| &it.metadata);
    let templates = by_name(&objects.templates, namespace, |it| &it.metadata);
    let resolved = Resolved { claims: &claims, privileged: &privileged, templates: &templates };
    let entries = resolve(&pod_claims, &resolved);
    let entries = entries.map_err(|error| AskedError::Resolve { pod: pod.clone(), error })?;
    for entry in entries {
        match entry {
            PodEntry::Claim { name, .. } => {
                if let Some(claim) = claims.get(name) {
                    wishes.add(claim, true);
                }
            }
            PodEntry::Privileged { name, spec } => {
                wishes.claims.push((name.to_owned(), Wish::Privileged(spec.clone())));
            }
            PodEntry::Make { entry, spec, copied, .. } => {
                if copied {
                    wishes.notes.push(format!("entry {entry}: claim used as template"));
                }
                wishes.claims.push((entry, Wish::Claim(spec.clone())));
            }
            PodEntry::MakePrivileged { entry, spec, .. } => {
                wishes.claims.push((entry, Wish::Privileged(spec.clone())));
            }
        }
    }
    Ok(wishes)
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
