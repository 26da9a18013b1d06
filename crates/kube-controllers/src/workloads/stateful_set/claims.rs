//! The claims of the pods of a stateful set.

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{Event, OwnerReference, Plan, Step, View};
use serde_json::{Value, json};

use super::{ObservedStatefulSet, pods};
use crate::view::{ClaimRetention, PersistentVolumeClaim, Pod, StatefulSet};
use crate::workloads::claim::owner_reference;
use crate::workloads::writes;

/// Returns the volume a claim template is for.
pub(super) fn volume_name(template: &Value) -> &str {
    template["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the names of the claims of the pod with this ordinal.
pub(super) fn claim_names(set: &StatefulSet, ordinal: i64) -> Vec<String> {
    let name = |template| format!("{}-{}-{ordinal}", volume_name(template), set.metadata.name);
    set.spec.volume_claim_templates.iter().map(name).collect()
}

/// Returns whether the claims of the pod with this ordinal all exist and are not being deleted;
/// creates those that do not exist.
pub(super) fn ensure(observed: &ObservedStatefulSet, ordinal: i64, plan: &mut Plan) -> bool {
    let set = &observed.set;
    let mut ready = true;
    for (template, name) in set.spec.volume_claim_templates.iter().zip(claim_names(set, ordinal)) {
        match observed.claims.get(&name) {
            Some(claim) => ready &= !claim.metadata.is_terminating(),
            None => {
                ready = false;
                plan.steps.push(create_claim(observed, template, &name, ordinal));
            }
        }
    }
    ready
}

fn create_claim(
    observed: &ObservedStatefulSet,
    template: &Value,
    name: &str,
    ordinal: i64,
) -> Step {
    let set = &observed.set;
    let mut body = template.clone();
    body["apiVersion"] = json!("v1");
    body["kind"] = json!(PersistentVolumeClaim::RESOURCE.kind);
    body["metadata"]["name"] = json!(name);
    body["metadata"]["namespace"] = json!(set.metadata.namespace);
    for (label, value) in &set.spec.selector.selector.match_labels {
        body["metadata"]["labels"][label] = json!(value);
    }
    if let Some(fields) = body.as_object_mut() {
        fields.remove("status");
    }
    let (set, pod) = (&set.metadata.name, format!("{}-{ordinal}", set.metadata.name));
    let done = format!("create Claim {name} Pod {pod} in StatefulSet {set} success");
    let error = format!("create Claim {name} for Pod {pod} in StatefulSet {set} failed error");
    Step::new(writes::create::<PersistentVolumeClaim>(body))
        .on_success(Event::normal(observed.about(), "SuccessfulCreate", done))
        .on_refusal(Event::warning(observed.about(), "FailedCreate", error))
}

/// Returns whether a former pod of the same name still owns a claim of the pod with this ordinal.
pub(super) fn are_stale(observed: &ObservedStatefulSet, ordinal: i64) -> bool {
    if observed.set.spec.persistent_volume_claim_retention_policy.when_scaled
        == ClaimRetention::Retain
    {
        return false;
    }
    let pod = format!("{}-{ordinal}", observed.set.metadata.name);
    let claims = claim_names(&observed.set, ordinal);
    claims.iter().filter_map(|name| observed.claims.get(name)).any(|claim| {
        let owners = &claim.metadata.owner_references;
        owners.iter().any(|it| it.kind == Pod::RESOURCE.kind && it.name == pod)
    })
}

/// Sets the owners of a pod's claims by the retention policy. Returns whether they were right
/// already.
pub(super) fn apply_retention(
    observed: &ObservedStatefulSet,
    pod: &Pod,
    ordinal: i64,
    plan: &mut Plan,
) -> bool {
    let before = plan.steps.len();
    for claim in
        claim_names(&observed.set, ordinal).iter().filter_map(|name| observed.claims.get(name))
    {
        if let Some(owners) =
            desired_owners(&observed.set, pod, ordinal, &claim.metadata.owner_references)
        {
            let owners = if owners.is_empty() { Value::Null } else { Value::Array(owners) };
            let body = json!({"metadata": {"ownerReferences": owners}});
            plan.write(writes::patch::<PersistentVolumeClaim>(&claim.metadata, body));
        }
    }
    plan.steps.len() == before
}

/// Returns the owners a claim should have; `None` when it has them, when it has a stale owner, or
/// when another controller owns it.
fn desired_owners(
    set: &StatefulSet,
    pod: &Pod,
    ordinal: i64,
    has: &[OwnerReference],
) -> Option<Vec<Value>> {
    let is =
        |owner: &OwnerReference, kind: &str, name: &str| owner.kind == kind && owner.name == name;
    let is_set = |it: &OwnerReference| is(it, &StatefulSet::RESOURCE.kind, &set.metadata.name);
    let is_pod = |it: &OwnerReference| is(it, &Pod::RESOURCE.kind, &pod.metadata.name);
    let stale = |it: &OwnerReference| {
        (is_set(it) && it.uid != set.metadata.uid) || (is_pod(it) && it.uid != pod.metadata.uid)
    };
    if has.iter().any(stale) {
        // Left to the garbage collector.
        return None;
    }
    let policy = set.spec.persistent_volume_claim_retention_policy;
    let surplus = !pods::ordinal_range(set).contains(&ordinal);
    let with_pod = policy.when_scaled == ClaimRetention::Delete && surplus;
    let with_set = policy.when_deleted == ClaimRetention::Delete && !with_pod;
    let retains = policy.when_scaled == ClaimRetention::Retain
        && policy.when_deleted == ClaimRetention::Retain;
    let mine = |it: &&OwnerReference| is_set(it) || is_pod(it);
    let other = has.iter().any(|it| it.controller && !mine(&it)) && !retains;
    let (with_set, with_pod) = (with_set && !other, with_pod && !other);
    let right = has.iter().filter(mine).all(|it| it.controller)
        && has.iter().any(is_set) == with_set
        && has.iter().any(is_pod) == with_pod;
    if right {
        return None;
    }
    let mut owners: Vec<Value> = has.iter().filter(|it| !mine(it)).map(owner_reference).collect();
    if with_set {
        owners.push(controller_reference(&StatefulSet::RESOURCE, &set.metadata));
    }
    if with_pod {
        owners.push(controller_reference(&Pod::RESOURCE, &pod.metadata));
    }
    Some(owners)
}
