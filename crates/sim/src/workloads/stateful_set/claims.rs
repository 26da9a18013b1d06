//! The volumes that the pods of a stateful set claim.

use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{Note, Owner, Plan, Step, View};
use serde_json::{Value, json};

use super::{Seen, pods};
use crate::view::{PersistentVolumeClaim, Pod, Retention, StatefulSet};
use crate::workloads::claim::reference;
use crate::workloads::writes;

/// The volume a claim's template is for.
pub(super) fn volume(template: &Value) -> &str {
    template["metadata"]["name"].as_str().unwrap_or_default()
}

/// The names of the claims of the pod with this number.
pub(super) fn names(set: &StatefulSet, ordinal: i64) -> Vec<String> {
    let name = |template| format!("{}-{}-{ordinal}", volume(template), set.metadata.name);
    set.spec.volume_claim_templates.iter().map(name).collect()
}

/// Whether the claims of the pod with this number are all there to stay; makes those that are not
/// there at all.
pub(super) fn ensure(seen: &Seen, ordinal: i64, plan: &mut Plan) -> bool {
    let set = &seen.set;
    let mut ready = true;
    for (template, name) in set.spec.volume_claim_templates.iter().zip(names(set, ordinal)) {
        match seen.claims.get(&name) {
            Some(claim) => ready &= !claim.metadata.is_going(),
            None => {
                ready = false;
                plan.steps.push(make(seen, template, &name, ordinal));
            }
        }
    }
    ready
}

fn make(seen: &Seen, template: &Value, name: &str, ordinal: i64) -> Step {
    let set = &seen.set;
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
        .done(Note::normal(seen.about(), "SuccessfulCreate", done))
        .refused(Note::warning(seen.about(), "FailedCreate", error))
}

/// Whether a claim of the pod with this number still goes with a former pod of the same name.
pub(super) fn are_stale(seen: &Seen, ordinal: i64) -> bool {
    if seen.set.spec.persistent_volume_claim_retention_policy.when_scaled == Retention::Retain {
        return false;
    }
    let pod = format!("{}-{ordinal}", seen.set.metadata.name);
    let claims = names(&seen.set, ordinal);
    claims.iter().filter_map(|name| seen.claims.get(name)).any(|claim| {
        let owners = &claim.metadata.owner_references;
        owners.iter().any(|it| it.kind == Pod::RESOURCE.kind && it.name == pod)
    })
}

/// Makes the claims of a pod go with whom the policy says. Returns whether they did already.
pub(super) fn retain(seen: &Seen, pod: &Pod, ordinal: i64, plan: &mut Plan) -> bool {
    let before = plan.steps.len();
    for claim in names(&seen.set, ordinal).iter().filter_map(|name| seen.claims.get(name)) {
        if let Some(owners) = owners(&seen.set, pod, ordinal, &claim.metadata.owner_references) {
            let owners = if owners.is_empty() { Value::Null } else { Value::Array(owners) };
            let body = json!({"metadata": {"ownerReferences": owners}});
            plan.write(writes::change::<PersistentVolumeClaim>(&claim.metadata, body));
        }
    }
    plan.steps.len() == before
}

/// The owners a claim should have; nothing when it has them, or when it is not ours to say.
fn owners(set: &StatefulSet, pod: &Pod, ordinal: i64, has: &[Owner]) -> Option<Vec<Value>> {
    let is = |owner: &Owner, kind: &str, name: &str| owner.kind == kind && owner.name == name;
    let is_set = |it: &Owner| is(it, &StatefulSet::RESOURCE.kind, &set.metadata.name);
    let is_pod = |it: &Owner| is(it, &Pod::RESOURCE.kind, &pod.metadata.name);
    let stale = |it: &Owner| {
        (is_set(it) && it.uid != set.metadata.uid) || (is_pod(it) && it.uid != pod.metadata.uid)
    };
    if has.iter().any(stale) {
        // Left to the garbage collector.
        return None;
    }
    let policy = set.spec.persistent_volume_claim_retention_policy;
    let surplus = !pods::range(set).contains(&ordinal);
    let with_pod = policy.when_scaled == Retention::Delete && surplus;
    let with_set = policy.when_deleted == Retention::Delete && !with_pod;
    let retains =
        policy.when_scaled == Retention::Retain && policy.when_deleted == Retention::Retain;
    let mine = |it: &&Owner| is_set(it) || is_pod(it);
    let other = has.iter().any(|it| it.controller && !mine(&it)) && !retains;
    let (with_set, with_pod) = (with_set && !other, with_pod && !other);
    let right = has.iter().filter(mine).all(|it| it.controller)
        && has.iter().any(is_set) == with_set
        && has.iter().any(is_pod) == with_pod;
    if right {
        return None;
    }
    let mut owners: Vec<Value> = has.iter().filter(|it| !mine(it)).map(reference).collect();
    if with_set {
        owners.push(controlled_by(&StatefulSet::RESOURCE, &set.metadata));
    }
    if with_pod {
        owners.push(controlled_by(&Pod::RESOURCE, &pod.metadata));
    }
    Some(owners)
}
