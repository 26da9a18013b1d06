//! What the allocator alone may write, because drivers trust it.
//!
//! A driver prepares the devices that a pod's annotations name, or that a claim's status lists. Whoever
//! could write those by hand would be given devices of others. So nobody but the allocator writes them,
//! whatever rights they have on pods. The server finds out by itself whether a request touches them
//! ([`pod_condition`], [`status_condition`], [`finalizer_condition`]) and asks about no other.

use gantry_api::devices::CARRIER_ANNOTATIONS;
use gantry_pods::devices::FINALIZER;
use serde_json::Value;

use super::configuration::carries;
use super::{Answer, has_carrier};
use crate::gate::OPENED_ANNOTATION;
use crate::results::{ALLOCATIONS_ANNOTATION, STATUSES_ANNOTATION};

/// The annotations of pods that the allocator alone writes.
pub const PROTECTED_ANNOTATIONS: [&str; 3] =
    [ALLOCATIONS_ANNOTATION, STATUSES_ANNOTATION, OPENED_ANNOTATION];

/// What the allocator alone writes in the status of a claim. The rest is the drivers'.
pub(super) const CLAIM_STATUS: [&str; 8] = [
    "allocations",
    "nodeName",
    "nodeSelector",
    "selected",
    "classConfigs",
    "claimConfigs",
    "reservedFor",
    "podNames",
];
/// What the allocator alone writes in the status of a pool.
pub(super) const POOL_STATUS: [&str; 2] = ["allocations", "refusals"];

/// Refuses what nobody but the allocator may write. The server asks only about requests of others.
pub(super) fn refuse(object: &Value, request: &Value) -> Answer {
    let old = &request["oldObject"];
    let refused = match object["kind"].as_str() {
        Some("Pod" | "Binding") => of_pod(object, old),
        Some("DeviceClaim" | "DevicePrivilegedClaim") => {
            of_status(object, old, &CLAIM_STATUS).or_else(|| of_finalizer(object, old))
        }
        Some("DevicePool") => of_status(object, old, &POOL_STATUS),
        _ => None,
    };
    Answer { refused, forbidden: true, ..Answer::default() }
}

fn of_pod(object: &Value, old: &Value) -> Option<String> {
    let differs = |name: &&&str| annotation(object, name) != annotation(old, name);
    if let Some(name) = PROTECTED_ANNOTATIONS.iter().find(differs) {
        let given = annotation(object, name).map_or_else(|| "(removed)".to_owned(), shorten);
        return Some(format!(
            "metadata.annotations[{name}]: Forbidden: {given:?}: only the allocator of devices writes \
             this annotation; leave it as it is, and name the pod's claims in {}",
            CARRIER_ANNOTATIONS[0]
        ));
    }
    let node = |pod: &Value| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    if old.is_null() && has_carrier(object) && !node(object).is_empty() {
        return Some(format!(
            "spec.nodeName: Forbidden: {:?}: the allocator of devices gives a pod that claims devices to a \
             node that has them; remove spec.nodeName and use a node selector, or remove the claims",
            node(object)
        ));
    }
    let changed = CARRIER_ANNOTATIONS.iter().find(differs)?;
    (!old.is_null() && !node(old).is_empty()).then(|| {
        format!(
            "metadata.annotations[{changed}]: Forbidden: the claims of a pod cannot change once it has a \
             node; delete the pod and create it again"
        )
    })
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

/// The first characters of a text: annotations may be long.
fn shorten(text: &str) -> String {
    const SHOWN: usize = 64;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn of_status(object: &Value, old: &Value, fields: &[&str]) -> Option<String> {
    let field = fields.iter().find(|field| {
        let (new, old) = (&object["status"][**field], &old["status"][**field]);
        new != old && !(is_empty(new) && is_empty(old))
    })?;
    Some(format!(
        "status.{field}: Forbidden: only the allocator of devices writes this field; drivers write \
         deviceStatuses of claims, and availableDevices and conditions of pools"
    ))
}

/// A field that is not there and an empty one say the same.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A claim that has devices would be gone while they are in use, and they would be given to another pod.
fn of_finalizer(object: &Value, old: &Value) -> Option<String> {
    let keeps = |object: &Value| {
        let all = object["metadata"]["finalizers"].as_array();
        all.into_iter().flatten().any(|it| it == FINALIZER)
    };
    let has_devices = !is_empty(&old["status"]["allocations"]);
    (has_devices && keeps(old) && !keeps(object)).then(|| {
        format!(
            "metadata.finalizers: Forbidden: {FINALIZER} is removed by the allocator when the claim has \
             given its devices back; delete the pods in status.podNames first"
        )
    })
}

/// When the server asks about a write to a pod, in its own language: another user than the allocator
/// changes what is protected, sets a node beside claims, or changes the claims of a pod that has a node.
pub(super) fn pod_condition(allocator: &str) -> String {
    let value = |object: &str| {
        let all = format!("{object}.metadata.annotations");
        format!("({object} != null && has({all}) && k in {all} ? {all}[k] : '')")
    };
    let differs = format!("exists(k, {} != {})", value("object"), value("oldObject"));
    let node = |object: &str| {
        format!("has({object}.spec) && has({object}.spec.nodeName) && {object}.spec.nodeName != ''")
    };
    format!(
        "{} && ({}.{differs} || (oldObject == null && {} && {}) || (oldObject != null && {} && \
         {}.{differs}))",
        by_others(allocator),
        list(&PROTECTED_ANNOTATIONS),
        node("object"),
        carries(),
        node("oldObject"),
        list(&CARRIER_ANNOTATIONS),
    )
}

/// When the server asks about a write to the status of a claim or a pool: another user than the allocator
/// changes one of these fields.
pub(super) fn status_condition(allocator: &str, fields: &[&str]) -> String {
    let has = |object: &str| {
        format!("({object} != null && has({object}.status) && k in {object}.status)")
    };
    let (new, old) = (has("object"), has("oldObject"));
    format!(
        "{} && {}.exists(k, {new} != {old} || ({new} && object.status[k] != oldObject.status[k]))",
        by_others(allocator),
        list(fields),
    )
}

/// When the server asks about a write to a claim: another user than the allocator removes the finalizer.
pub(super) fn finalizer_condition(allocator: &str) -> String {
    let keeps = |object: &str| {
        let all = format!("{object}.metadata.finalizers");
        format!("(has({all}) && '{FINALIZER}' in {all})")
    };
    let (new, old) = (keeps("object"), keeps("oldObject"));
    format!("{} && {old} && !{new}", by_others(allocator))
}

fn by_others(allocator: &str) -> String {
    // A text of JSON is one of CEL.
    format!("request.userInfo.username != {}", Value::from(allocator))
}

fn list(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|it| format!("'{it}'")).collect();
    format!("[{}]", names.join(", "))
}
