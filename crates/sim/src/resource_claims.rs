//! ResourceClaims that are made for pods, and for which pods claims are reserved.
//!
//! Nothing is allocated here: that is for drivers and for schedulers that know them.

use std::sync::Arc;

use gantry_reconcile::names::{join, suffix};
use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{
    Change, Controller, Fence, Held, Key, Kind, Note, Part, Plan, Reference, Step, View, World,
    Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::scheduler::claim_consumer;
use crate::view::{ClaimConsumer, Pod, PodResourceClaim, ResourceClaim, ResourceClaimTemplate};

/// Says for which claim of its pod a claim was made.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Says that what was allocated must be given back before a claim goes.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Makes claims for pods that have them made from templates, takes back reservations of pods that are
/// over, and deletes the claims of those.
///
/// A key is that of a pod, or that of a claim after `claim/`: no pod has a slash in its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceClaims;

/// How a key about a claim begins.
const ABOUT_CLAIM: &str = "claim/";

impl ResourceClaims {
    /// The account it acts as.
    pub const ACCOUNT: &str = "resource-claim-controller";
}

impl Controller for ResourceClaims {
    fn name(&self) -> &'static str {
        "resource-claim"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<ResourceClaim>(), Kind::of::<ResourceClaimTemplate>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let namespace = change.key.namespace();
        let about = |name: &str| Key::new(namespace, &format!("{ABOUT_CLAIM}{name}"));
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
            let pods = world.shelf::<Pod>().within(namespace);
            let pods = pods.iter().filter(|it| it.spec.resource_claims.iter().any(uses));
            return pods.map(|it| it.metadata.key()).collect();
        }
        // The pod a claim was made for has it made again when it is gone.
        let owners = change.both::<ResourceClaim>().filter_map(|it| it.metadata.controller());
        let owners = owners.filter(|it| it.kind == Pod::RESOURCE.kind);
        let mut keys: Vec<Key> = owners.map(|it| Key::new(namespace, &it.name)).collect();
        // Pods that were given to their node by hand have their claims reserved here.
        let name = change.key.name();
        let pods = world.shelf::<Pod>().within(namespace);
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
        match key.name().strip_prefix(ABOUT_CLAIM) {
            Some(name) => {
                let claim = Key::new(key.namespace(), name);
                if let Some(claim) = world.shelf::<ResourceClaim>().get(&claim) {
                    tidy(world, &claim, &mut plan);
                }
            }
            None => {
                if let Some(pod) = world.shelf::<Pod>().get(key) {
                    make(world, &pod, &mut plan);
                }
            }
        }
        plan
    }
}

/// The claims a pod uses, as far as they are known.
fn claim_names(pod: &Pod) -> Vec<String> {
    let made = pod.status.resource_claim_statuses.iter();
    let made = made.filter_map(|it| it.resource_claim_name.clone());
    let named = pod.spec.resource_claims.iter().filter_map(|it| it.resource_claim_name.clone());
    named.chain(made).collect()
}

/// Makes the claims of a pod, and tells it their names.
fn make(world: &World, pod: &Pod, plan: &mut Plan) {
    if pod.metadata.is_going() || pod.is_over() {
        return;
    }
    let owned = world.shelf::<ResourceClaim>().owned_by(&pod.metadata.uid);
    let mut statuses: Vec<(String, Option<String>)> = Vec::new();
    let known = &pod.status.resource_claim_statuses;
    for entry in &pod.spec.resource_claims {
        let Some(template) = &entry.resource_claim_template_name else { continue };
        let told = known.iter().find(|it| it.name == entry.name);
        let is_its = |it: &&Arc<ResourceClaim>| {
            it.metadata.annotations.get(POD_CLAIM) == Some(&entry.name) && !it.metadata.is_going()
        };
        if let Some(claim) = owned.iter().filter(is_its).min_by_key(|it| it.metadata.name.clone()) {
            statuses.push((entry.name.clone(), Some(claim.metadata.name.clone())));
        } else {
            // What was told stays until there is something else to tell.
            if let Some(told) = told {
                statuses.push((told.name.clone(), told.resource_claim_name.clone()));
            }
            make_one(world, pod, entry, template, plan);
        }
    }
    let told: Vec<(String, Option<String>)> =
        known.iter().map(|it| (it.name.clone(), it.resource_claim_name.clone())).collect();
    if !pod.spec.node_name.is_empty() {
        reserve(world, pod, plan);
    }
    let mut sorted = statuses.clone();
    sorted.sort();
    let mut before = told;
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
            part: Part::Status,
            fence: pod.metadata.fence(),
            body: json!({"status": {"resourceClaimStatuses": entries}}),
        });
    }
}

/// Reserves the claims of a pod that no scheduler gave to its node.
fn reserve(world: &World, pod: &Pod, plan: &mut Plan) {
    let meta = &pod.metadata;
    for name in claim_names(pod) {
        let key = Key::new(&meta.namespace, &name);
        let Some(claim) = world.shelf::<ResourceClaim>().get(&key) else { continue };
        let status = &claim.status;
        if status.allocation.is_some()
            && !claim.metadata.is_going()
            && !claim.is_reserved_for(&meta.uid)
            && status.reserved_for.len() < ResourceClaim::MOST_CONSUMERS
        {
            let mut consumers: Vec<Value> =
                status.reserved_for.iter().map(claim_consumer).collect();
            let uid = meta.uid.as_str();
            consumers.push(json!({"resource": "pods", "name": meta.name, "uid": uid}));
            let body = json!({"status": {"reservedFor": consumers}});
            let about = Reference::to(&Pod::RESOURCE, meta);
            plan.steps.push(Step::new(change(&claim, Part::Status, body)).provided(about));
        }
    }
}

/// Makes one claim from its template.
fn make_one(world: &World, pod: &Pod, entry: &PodResourceClaim, template: &str, plan: &mut Plan) {
    let meta = &pod.metadata;
    let about = Reference::to(&Pod::RESOURCE, meta);
    let failed = format!("PodResourceClaim {}: failed to create ResourceClaim", entry.name);
    let key = Key::new(&meta.namespace, template);
    let Some(template) = world.shelf::<ResourceClaimTemplate>().get(&key) else {
        let name = key.name();
        let why = format!("resourceclaimtemplate.resource.k8s.io \"{name}\" not found");
        let message =
            format!("PodResourceClaim {}: resource claim template \"{name}\": {why}", entry.name);
        let reason = "FailedResourceClaimCreation";
        plan.notes.push(Note::warning(about.clone(), reason, message.clone()));
        plan.held.push(Held { about, reason: reason.into(), message, until: None });
        return;
    };
    // The original draws a name; one that follows from the pod makes a second try harmless.
    let base = format!("{}-{}", meta.name, entry.name);
    let name = join(&base, &suffix(&[meta.uid.as_str(), &entry.name]));
    let mut body = json!({
        "apiVersion": ResourceClaim::RESOURCE.api_version(),
        "kind": ResourceClaim::RESOURCE.kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "ownerReferences": [controlled_by(&Pod::RESOURCE, meta)],
        },
        "spec": template.spec["spec"],
    });
    for field in ["labels", "annotations"] {
        if let Some(values) = template.spec["metadata"].get(field) {
            body["metadata"][field] = values.clone();
        }
    }
    body["metadata"]["annotations"][POD_CLAIM] = json!(entry.name);
    let create = Write::Create { resource: ResourceClaim::RESOURCE, body };
    let step = Step::new(create)
        .refused(Note::warning(about.clone(), "FailedResourceClaimCreation", failed))
        .provided(about);
    plan.steps.push(step);
}

/// Takes back reservations of pods that are over, gives back what nobody uses, and deletes the claim of
/// a pod that is over.
fn tidy(world: &World, claim: &ResourceClaim, plan: &mut Plan) {
    let meta = &claim.metadata;
    let pods = world.shelf::<Pod>();
    let status = &claim.status;
    let is_valid = |it: &&ClaimConsumer| {
        if !it.api_group.is_empty() || it.resource != Pod::RESOURCE.plural {
            return true;
        }
        let key = Key::new(&meta.namespace, &it.name);
        let pod = pods.get(&key).filter(|pod| pod.metadata.uid == it.uid);
        pods.is_unreadable(&key) || pod.is_some_and(|pod| !is_done(&pod))
    };
    let valid: Vec<&ClaimConsumer> = status.reserved_for.iter().filter(is_valid).collect();
    let built_in = meta.finalizers.iter().any(|it| it == FINALIZER);
    if valid.len() < status.reserved_for.len() {
        let consumers: Vec<Value> = valid.iter().map(|it| claim_consumer(it)).collect();
        let consumers = if consumers.is_empty() { Value::Null } else { json!(consumers) };
        let mut body = json!({"status": {"reservedFor": consumers}});
        // What nobody uses is given back if schedulers allocated it, which the finalizer says.
        if valid.is_empty() && built_in {
            body["status"]["allocation"] = Value::Null;
        }
        let gone = status.reserved_for.iter().filter(|it| !is_valid(it)).filter(|it| {
            pods.get(&Key::new(&meta.namespace, &it.name))
                .is_none_or(|pod| pod.metadata.uid != it.uid)
        });
        let gone = gone.map(|it| Reference {
            resource: Pod::RESOURCE,
            key: Key::new(&meta.namespace, &it.name),
            uid: it.uid.clone(),
            field: String::new(),
        });
        // A pod that is not seen yet is not gone: the server is asked first.
        let step = Step::new(change(claim, Part::Status, body));
        plan.steps.push(gone.fold(step, Step::gone));
        return;
    }
    if meta.is_going() {
        if built_in && status.allocation.is_none() {
            let others: Vec<&String> =
                meta.finalizers.iter().filter(|it| *it != FINALIZER).collect();
            let others = if others.is_empty() { Value::Null } else { json!(others) };
            plan.write(change(claim, Part::Main, json!({"metadata": {"finalizers": others}})));
        } else if built_in && status.reserved_for.is_empty() {
            plan.write(change(claim, Part::Status, json!({"status": {"allocation": Value::Null}})));
        }
        return;
    }
    let owner = meta.controller().filter(|it| it.kind == Pod::RESOURCE.kind);
    let Some(owner) = owner.filter(|_| meta.annotations.contains_key(POD_CLAIM)) else { return };
    let pod = pods.get(&Key::new(&meta.namespace, &owner.name));
    // One whose pod is gone is left to the garbage collector.
    if pod.is_some_and(|pod| pod.metadata.uid == owner.uid && is_done(&pod)) {
        plan.write(Write::Delete {
            resource: ResourceClaim::RESOURCE,
            key: meta.key(),
            fence: Fence { uid: meta.uid.clone(), revision: None },
            grace: None,
            propagation: None,
        });
    }
}

/// Whether a pod uses no claims any more: it has ended, or goes and was never given to a node.
fn is_done(pod: &Pod) -> bool {
    pod.is_over() || (pod.metadata.is_going() && pod.spec.node_name.is_empty())
}

fn change(claim: &ResourceClaim, part: Part, body: Value) -> Write {
    Write::Merge {
        resource: ResourceClaim::RESOURCE,
        key: claim.metadata.key(),
        part,
        fence: claim.metadata.fence(),
        body,
    }
}

#[cfg(test)]
mod tests;
