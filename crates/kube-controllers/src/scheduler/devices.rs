//! The ResourceClaims of a pod. They are allocated by drivers and schedulers besides this one; a
//! pod whose claims are allocated is bound, and its claims are reserved for it first.

use std::sync::Arc;

use gantry_pods::{RejectionReason, fit};
use gantry_reconcile::{Key, Step, Subresource, View, World, Write};
use serde_json::{Value, json};

use super::messages::{NO_NEW_CLAIMS, STILL_NOT_SCHEDULABLE};
use crate::view::{DeviceClass, Node, Pod, ResourceClaim};

/// The ResourceClaims of one pod.
#[derive(Debug, Default)]
pub(super) struct DeviceClaims(Vec<Arc<ResourceClaim>>);

impl DeviceClaims {
    /// Returns the claims of a pod, or what is missing.
    pub(super) fn find(world: &World, pod: &Pod) -> Result<Self, String> {
        let mut claims = Vec::new();
        for entry in &pod.spec.resource_claims {
            let key = pod.metadata.key();
            let made = entry.resource_claim_template_name.is_some();
            let name = match (&entry.resource_claim_name, made) {
                (Some(name), _) => Some(name),
                (None, true) => {
                    let made = &pod.status.resource_claim_statuses;
                    let made = made.iter().find(|it| it.name == entry.name);
                    let made = made
                        .ok_or_else(|| format!("pod \"{key}\": ResourceClaim not created yet"))?;
                    made.resource_claim_name.as_ref()
                }
                (None, false) => {
                    let name = &entry.name;
                    let why = "none of the supported fields are set";
                    return Err(format!("pod \"{key}\", spec.resourceClaim \"{name}\": {why}"));
                }
            };
            // No claim is needed.
            let Some(name) = name else { continue };
            let at = Key::new(&pod.metadata.namespace, name);
            let claim = world.store::<ResourceClaim>().get(&at);
            let claim = claim.ok_or_else(|| format!("could not find ResourceClaim \"{at}\""))?;
            if claim.metadata.is_terminating() {
                return Err(format!("resourceclaim \"{name}\" is being deleted"));
            }
            if made && !claim.metadata.is_controlled_by(&pod.metadata.uid) {
                let why = "(pod is not owner)";
                return Err(format!("ResourceClaim {at} was not created for pod {key} {why}"));
            }
            claims.push(claim);
        }
        Ok(Self(claims))
    }

    /// Returns why the claims do not fit, if that is so on all nodes.
    pub(super) fn check(&self, world: &World, pod: &Pod) -> Result<(), String> {
        for claim in &self.0 {
            let full = claim.status.reserved_for.len() >= ResourceClaim::MAX_CONSUMERS;
            if claim.status.allocation.is_some() {
                if full && !claim.is_reserved_for(&pod.metadata.uid) {
                    return Err("resourceclaim in use".to_owned());
                }
                continue;
            }
            for (request, class) in device_classes(claim) {
                if world.store::<DeviceClass>().get(&Key::cluster(class)).is_none() {
                    return Err(format!("request {request}: device class {class} does not exist"));
                }
            }
        }
        Ok(())
    }

    /// Returns why a node does not fit.
    pub(super) fn reasons(&self, node: &Node) -> Vec<RejectionReason> {
        if self.0.iter().any(|it| it.status.allocation.is_none()) {
            return vec![RejectionReason::ClaimNotAllocated];
        }
        let reached = |claim: &Arc<ResourceClaim>| {
            let selector =
                claim.status.allocation.as_ref().and_then(|it| it.node_selector.as_ref());
            selector.is_none_or(|it| fit::matches_node(it, node))
        };
        if self.0.iter().all(reached) { Vec::new() } else { vec![RejectionReason::ClaimNotOnNode] }
    }

    /// Returns the message about claims when no node fits.
    pub(super) fn postfilter_message(&self) -> &'static str {
        if self.0.is_empty() { NO_NEW_CLAIMS } else { STILL_NOT_SCHEDULABLE }
    }

    /// Reserves the claims for a pod before it is bound.
    pub(super) fn reserve(&self, pod: &Pod, bind: Step) -> Step {
        let uid = &pod.metadata.uid;
        let missing = self.0.iter().filter(|it| !it.is_reserved_for(uid));
        missing.fold(bind, |step, claim| {
            let mut consumers: Vec<Value> =
                claim.status.reserved_for.iter().map(consumer_reference).collect();
            let name = &pod.metadata.name;
            consumers.push(json!({"resource": "pods", "name": name, "uid": uid.as_str()}));
            let reserve = Write::Merge {
                resource: ResourceClaim::RESOURCE,
                key: claim.metadata.key(),
                subresource: Subresource::Status,
                fence: claim.metadata.fence(),
                body: json!({"status": {"reservedFor": consumers}}),
            };
            Step::new(reserve).then(step)
        })
    }
}

/// Returns the requests of a claim by name, and the DeviceClass of each.
fn device_classes(claim: &ResourceClaim) -> Vec<(String, &str)> {
    let mut classes = Vec::new();
    for request in &claim.spec.devices.requests {
        if let Some(exactly) = &request.exactly {
            classes.push((request.name.clone(), exactly.device_class_name.as_str()));
        }
        for part in &request.first_available {
            let name = format!("{}/{}", request.name, part.name);
            classes.push((name, part.device_class_name.as_str()));
        }
    }
    classes
}

/// Returns the reference to an object that uses a claim, as claims spell it.
pub(crate) fn consumer_reference(it: &crate::view::ClaimConsumer) -> Value {
    let mut body = json!({"resource": it.resource, "name": it.name, "uid": it.uid.as_str()});
    if !it.api_group.is_empty() {
        body["apiGroup"] = json!(it.api_group);
    }
    body
}
