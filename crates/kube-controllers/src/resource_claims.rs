//! Creates ResourceClaims for pods, and keeps track of the pods for which claims are reserved.
//!
//! Nothing is allocated here: that is for drivers and for schedulers that know them.

use std::sync::Arc;

use gantry_reconcile::names::{join, suffix};
use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Change, Controller, Event, Fence, Held, Key, Kind, ObjectReference, Plan, Step, Subresource,
    View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::scheduler::claim_consumer;
use crate::view::{ClaimConsumer, Pod, PodResourceClaim, ResourceClaim, ResourceClaimTemplate};

/// The annotation with the name in the pod for which a claim was created.
const POD_CLAIM_ANNOTATION: &str = "resource.kubernetes.io/pod-claim-name";
/// The finalizer of an allocated claim: it must be deallocated before it is deleted.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Creates claims for pods from templates, removes the reservations of finished pods, and deletes
/// their claims.
///
/// A key is that of a pod, or that of a claim after `claim/`: no pod has a slash in its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceClaimController;

/// The prefix of a key about a claim.
const CLAIM_KEY_PREFIX: &str = "claim/";

impl ResourceClaimController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "resource-claim-controller";
}

impl Controller for ResourceClaimController {
    fn name(&self) -> &'static str {
        "resource-claim"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<ResourceClaim>(), Kind::of::<ResourceClaimTemplate>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let namespace = change.key.namespace();
        let about = |name: &str| Key::new(namespace, &format!("{CLAIM_KEY_PREFIX}{name}"));
        if change.is::<Pod>() {
            let pods = || change.both::<Pod>();
            if pods().all(|it| it.spec.resource_claims.is_empty()) {
                return Vec::new();
            }
            let names = pods().flat_map(claim_names);
            return [change.key.clone()].into_iter().chain(names.map(|it| about(&it))).collect();
        }
        if change.is::<ResourceClaimTemplate>() {
            let name = change.key.name();
            let uses =
                |it: &PodResourceClaim| it.resource_claim_template_name.as_deref() == Some(name);
            let pods = world.store::<Pod>().in_namespace(namespace);
            let pods = pods.iter().filter(|it| it.spec.resource_claims.iter().any(uses));
            return pods.map(|it| it.metadata.key()).collect();
        }
        // A deleted claim is recreated for its pod.
        let owners = change.both::<ResourceClaim>().filter_map(|it| it.metadata.controller());
        let owners = owners.filter(|it| it.kind == Pod::RESOURCE.kind);
        let mut keys: Vec<Key> = owners.map(|it| Key::new(namespace, &it.name)).collect();
        // The claims of pods that were bound without a scheduler are reserved here.
        let name = change.key.name();
        let pods = world.store::<Pod>().in_namespace(namespace);
        let uses = |pod: &&Arc<Pod>| {
            let claims = &pod.spec.resource_claims;
            !pod.spec.node_name.is_empty()
                && claims.iter().any(|it| it.resource_claim_name.as_deref() == Some(name))
        };
        keys.extend(pods.iter().filter(uses).map(|it| it.metadata.key()));
        keys.push(about(name));
        keys
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        match key.name().strip_prefix(CLAIM_KEY_PREFIX) {
            Some(name) => {
                let claim = Key::new(key.namespace(), name);
                if let Some(claim) = world.store::<ResourceClaim>().get(&claim) {
                    release_claim(world, &claim, &mut plan);
                }
            }
            None => {
                if let Some(pod) = world.store::<Pod>().get(key) {
                    create_claims(world, &pod, &mut plan);
                }
            }
        }
        plan
    }
}

/// Returns the claims a pod uses, as far as they are known.
fn claim_names(pod: &Pod) -> Vec<String> {
    let made = pod.status.resource_claim_statuses.iter();
    let made = made.filter_map(|it| it.resource_claim_name.clone());
    let named = pod.spec.resource_claims.iter().filter_map(|it| it.resource_claim_name.clone());
    named.chain(made).collect()
}

/// Creates the claims of a pod, and writes their names to its status.
fn create_claims(world: &World, pod: &Pod, plan: &mut Plan) {
    if pod.metadata.is_terminating() || pod.is_terminal() {
        return;
    }
    let owned = world.store::<ResourceClaim>().owned_by(&pod.metadata.uid);
    let mut statuses: Vec<(String, Option<String>)> = Vec::new();
    let known = &pod.status.resource_claim_statuses;
    for entry in &pod.spec.resource_claims {
        let Some(template) = &entry.resource_claim_template_name else { continue };
        let recorded = known.iter().find(|it| it.name == entry.name);
        let is_its = |it: &&Arc<ResourceClaim>| {
            it.metadata.annotations.get(POD_CLAIM_ANNOTATION) == Some(&entry.name)
                && !it.metadata.is_terminating()
        };
        if let Some(claim) = owned.iter().filter(is_its).min_by_key(|it| it.metadata.name.clone()) {
            statuses.push((entry.name.clone(), Some(claim.metadata.name.clone())));
        } else {
            // The names in the status stay until there are others to write.
            if let Some(recorded) = recorded {
                statuses.push((recorded.name.clone(), recorded.resource_claim_name.clone()));
            }
            create_claim(world, pod, entry, template, plan);
        }
    }
    let recorded: Vec<(String, Option<String>)> =
        known.iter().map(|it| (it.name.clone(), it.resource_claim_name.clone())).collect();
    if !pod.spec.node_name.is_empty() {
        reserve_claims(world, pod, plan);
    }
    let mut sorted = statuses.clone();
    sorted.sort();
    let mut before = recorded;
    before.sort();
    if sorted != before {
        let entry = |(name, claim): &(String, Option<String>)| {
            let mut entry = json!({"name": name});
            if let Some(claim) = claim {
                entry["resourceClaimName"] = json!(claim);
            }
            entry
        };
        let entries: Vec<Value> = statuses.iter().map(entry).collect();
        plan.write(Write::Merge {
            resource: Pod::RESOURCE,
            key: pod.metadata.key(),
            subresource: Subresource::Status,
            fence: pod.metadata.fence(),
            body: json!({"status": {"resourceClaimStatuses": entries}}),
        });
    }
}

/// Reserves the claims of a pod that was bound without a scheduler.
fn reserve_claims(world: &World, pod: &Pod, plan: &mut Plan) {
    let meta = &pod.metadata;
    for name in claim_names(pod) {
        let key = Key::new(&meta.namespace, &name);
        let Some(claim) = world.store::<ResourceClaim>().get(&key) else { continue };
        let status = &claim.status;
        if status.allocation.is_some()
            && !claim.metadata.is_terminating()
            && !claim.is_reserved_for(&meta.uid)
            && status.reserved_for.len() < ResourceClaim::MAX_CONSUMERS
        {
            let mut consumers: Vec<Value> =
                status.reserved_for.iter().map(claim_consumer).collect();
            let uid = meta.uid.as_str();
            consumers.push(json!({"resource": "pods", "name": meta.name, "uid": uid}));
            let body = json!({"status": {"reservedFor": consumers}});
            let about = ObjectReference::to(&Pod::RESOURCE, meta);
            plan.steps.push(
                Step::new(claim_patch(&claim, Subresource::Status, body)).require_present(about),
            );
        }
    }
}

/// Creates one claim from its template.
fn create_claim(
    world: &World,
    pod: &Pod,
    entry: &PodResourceClaim,
    template: &str,
    plan: &mut Plan,
) {
    let meta = &pod.metadata;
    let about = ObjectReference::to(&Pod::RESOURCE, meta);
    let failed = format!("PodResourceClaim {}: failed to create ResourceClaim", entry.name);
    let key = Key::new(&meta.namespace, template);
    let Some(template) = world.store::<ResourceClaimTemplate>().get(&key) else {
        let name = key.name();
        let why = format!("resourceclaimtemplate.resource.k8s.io \"{name}\" not found");
        let message =
            format!("PodResourceClaim {}: resource claim template \"{name}\": {why}", entry.name);
        let reason = "FailedResourceClaimCreation";
        plan.events.push(Event::warning(about.clone(), reason, message.clone()));
        plan.held.push(Held { about, reason: reason.into(), message, until: None });
        return;
    };
    // The original draws a random name; one that follows from the pod makes a retry harmless.
    let base = format!("{}-{}", meta.name, entry.name);
    let name = join(&base, &suffix(&[meta.uid.as_str(), &entry.name]));
    let mut body = json!({
        "apiVersion": ResourceClaim::RESOURCE.api_version(),
        "kind": ResourceClaim::RESOURCE.kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "ownerReferences": [controller_reference(&Pod::RESOURCE, meta)],
        },
        "spec": template.spec["spec"],
    });
    for field in ["labels", "annotations"] {
        if let Some(values) = template.spec["metadata"].get(field) {
            body["metadata"][field] = values.clone();
        }
    }
    body["metadata"]["annotations"][POD_CLAIM_ANNOTATION] = json!(entry.name);
    let create = Write::Create { resource: ResourceClaim::RESOURCE, body };
    let step = Step::new(create)
        .on_refusal(Event::warning(about.clone(), "FailedResourceClaimCreation", failed))
        .require_present(about);
    plan.steps.push(step);
}

/// Removes the reservations of finished pods, deallocates an unused claim, and deletes the claim of
/// a finished pod.
fn release_claim(world: &World, claim: &ResourceClaim, plan: &mut Plan) {
    let meta = &claim.metadata;
    let pods = world.store::<Pod>();
    let status = &claim.status;
    let is_valid = |it: &&ClaimConsumer| {
        if !it.api_group.is_empty() || it.resource != Pod::RESOURCE.plural {
            return true;
        }
        let key = Key::new(&meta.namespace, &it.name);
        let pod = pods.get(&key).filter(|pod| pod.metadata.uid == it.uid);
        pods.is_unreadable(&key) || pod.is_some_and(|pod| !is_done_with_claims(&pod))
    };
    let valid: Vec<&ClaimConsumer> = status.reserved_for.iter().filter(is_valid).collect();
    let built_in = meta.finalizers.iter().any(|it| it == FINALIZER);
    if valid.len() < status.reserved_for.len() {
        let consumers: Vec<Value> = valid.iter().map(|it| claim_consumer(it)).collect();
        let consumers = if consumers.is_empty() { Value::Null } else { json!(consumers) };
        let mut body = json!({"status": {"reservedFor": consumers}});
        // An unused claim is deallocated if a scheduler allocated it, which the finalizer shows.
        if valid.is_empty() && built_in {
            body["status"]["allocation"] = Value::Null;
        }
        let gone = status.reserved_for.iter().filter(|it| !is_valid(it)).filter(|it| {
            pods.get(&Key::new(&meta.namespace, &it.name))
                .is_none_or(|pod| pod.metadata.uid != it.uid)
        });
        let gone = gone.map(|it| ObjectReference {
            resource: Pod::RESOURCE,
            key: Key::new(&meta.namespace, &it.name),
            uid: it.uid.clone(),
            field: String::new(),
        });
        // A pod that is not observed yet is not gone: the server is asked first.
        let step = Step::new(claim_patch(claim, Subresource::Status, body));
        plan.steps.push(gone.fold(step, Step::require_absent));
        return;
    }
    if meta.is_terminating() {
        if built_in && status.allocation.is_none() {
            let others: Vec<&String> =
                meta.finalizers.iter().filter(|it| *it != FINALIZER).collect();
            let others = if others.is_empty() { Value::Null } else { json!(others) };
            plan.write(claim_patch(
                claim,
                Subresource::Main,
                json!({"metadata": {"finalizers": others}}),
            ));
        } else if built_in && status.reserved_for.is_empty() {
            plan.write(claim_patch(
                claim,
                Subresource::Status,
                json!({"status": {"allocation": Value::Null}}),
            ));
        }
        return;
    }
    let owner = meta.controller().filter(|it| it.kind == Pod::RESOURCE.kind);
    let Some(owner) = owner.filter(|_| meta.annotations.contains_key(POD_CLAIM_ANNOTATION)) else {
        return;
    };
    let pod = pods.get(&Key::new(&meta.namespace, &owner.name));
    // A claim whose pod is gone is left to the garbage collector.
    if pod.is_some_and(|pod| pod.metadata.uid == owner.uid && is_done_with_claims(&pod)) {
        plan.write(Write::Delete {
            resource: ResourceClaim::RESOURCE,
            key: meta.key(),
            fence: Fence { uid: meta.uid.clone(), revision: None },
            grace: None,
            propagation: None,
        });
    }
}

/// Returns whether a pod uses no claims any more: it has finished, or is deleted and was never
/// bound.
fn is_done_with_claims(pod: &Pod) -> bool {
    pod.is_terminal() || (pod.metadata.is_terminating() && pod.spec.node_name.is_empty())
}

fn claim_patch(claim: &ResourceClaim, part: Subresource, body: Value) -> Write {
    Write::Merge {
        resource: ResourceClaim::RESOURCE,
        key: claim.metadata.key(),
        subresource: part,
        fence: claim.metadata.fence(),
        body,
    }
}

#[cfg(test)]
mod tests;
