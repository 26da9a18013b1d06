//! Protects the fields that only the allocator may write, because drivers trust them.
//!
//! A driver prepares the devices that a pod's annotations name, or that a claim's status lists. A
//! user that could write those by hand would get devices of others. So only the allocator writes
//! them, whatever rights other users have on pods. The server evaluates by itself whether a request
//! touches them ([`pod_match_condition`], [`status_match_condition`],
//! [`finalizer_match_condition`]) and calls the webhook for no other.

use gantry_api::devices::DEVICE_ANNOTATIONS;
use gantry_pods::devices::FINALIZER;
use serde_json::Value;

use super::configuration::claims_devices_expression;
use super::{AdmissionResponse, claims_devices};
use crate::pod_annotations::{ALLOCATIONS_ANNOTATION, CLAIM_STATUSES_ANNOTATION};
use crate::scheduling_gate::GATE_OPENED_ANNOTATION;

/// The annotations of pods that only the allocator writes.
pub const PROTECTED_ANNOTATIONS: [&str; 3] =
    [ALLOCATIONS_ANNOTATION, CLAIM_STATUSES_ANNOTATION, GATE_OPENED_ANNOTATION];

/// The fields in the status of a claim that only the allocator writes. Drivers write the others.
pub(super) const PROTECTED_CLAIM_FIELDS: [&str; 8] = [
    "allocations",
    "nodeName",
    "nodeSelector",
    "selected",
    "classConfigs",
    "claimConfigs",
    "reservedFor",
    "podNames",
];
/// The fields in the status of a pool that only the allocator writes.
pub(super) const PROTECTED_POOL_FIELDS: [&str; 2] = ["allocations", "refusals"];

/// Denies what only the allocator may write. The server calls this only for requests of other
/// users.
pub(super) fn deny(object: &Value, request: &Value) -> AdmissionResponse {
    let old = &request["oldObject"];
    let refused = match object["kind"].as_str() {
        Some("Pod" | "Binding") => check_pod(object, old),
        Some("DeviceClaim" | "DevicePrivilegedClaim") => {
            check_status(object, old, &PROTECTED_CLAIM_FIELDS)
                .or_else(|| check_finalizer(object, old))
        }
        Some("DevicePool") => check_status(object, old, &PROTECTED_POOL_FIELDS),
        _ => None,
    };
    AdmissionResponse { denied: refused, forbidden: true, ..AdmissionResponse::default() }
}

fn check_pod(object: &Value, old: &Value) -> Option<String> {
    let differs = |name: &&&str| annotation(object, name) != annotation(old, name);
    if let Some(name) = PROTECTED_ANNOTATIONS.iter().find(differs) {
        let given = annotation(object, name).map_or_else(|| "(removed)".to_owned(), shorten);
        return Some(format!(
            "metadata.annotations[{name}]: Forbidden: {given:?}: only the allocator of devices \
             writes this annotation; leave it as it is, and name the pod's claims in {}",
            DEVICE_ANNOTATIONS[0]
        ));
    }
    let node = |pod: &Value| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    if old.is_null() && claims_devices(object) && !node(object).is_empty() {
        return Some(format!(
            "spec.nodeName: Forbidden: {:?}: the allocator of devices binds a pod that claims \
             devices to a node that has them; remove spec.nodeName and use a node selector, or \
             remove the claims",
            node(object)
        ));
    }
    let changed = DEVICE_ANNOTATIONS.iter().find(differs)?;
    (!old.is_null() && !node(old).is_empty()).then(|| {
        format!(
            "metadata.annotations[{changed}]: Forbidden: the claims of a pod cannot change once it \
             has a node; delete the pod and create it again"
        )
    })
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

/// Returns the first characters of a text: annotations may be long.
fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 64;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn check_status(object: &Value, old: &Value, fields: &[&str]) -> Option<String> {
    let field = fields.iter().find(|field| {
        let (new, old) = (&object["status"][**field], &old["status"][**field]);
        new != old && !(is_empty(new) && is_empty(old))
    })?;
    Some(format!(
        "status.{field}: Forbidden: only the allocator of devices writes this field; drivers write \
         deviceStatuses of claims, and availableDevices and conditions of pools"
    ))
}

/// Whether a field is absent or empty, which mean the same.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Denies the removal of the finalizer from a claim with devices: it would be gone while they are
/// in use, and they would be allocated to another pod.
fn check_finalizer(object: &Value, old: &Value) -> Option<String> {
    let keeps = |object: &Value| {
        let all = object["metadata"]["finalizers"].as_array();
        all.into_iter().flatten().any(|it| it == FINALIZER)
    };
    let has_devices = !is_empty(&old["status"]["allocations"]);
    (has_devices && keeps(old) && !keeps(object)).then(|| {
        format!(
            "metadata.finalizers: Forbidden: {FINALIZER} is removed by the allocator when the \
             claim has released its devices; delete the pods in status.podNames first"
        )
    })
}

/// Returns the CEL condition for writes to a pod: a user other than the allocator changes what is
/// protected, sets a node beside claims, or changes the claims of a pod that has a node.
pub(super) fn pod_match_condition(allocator: &str) -> String {
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
        user_is_not(allocator),
        cel_list(&PROTECTED_ANNOTATIONS),
        node("object"),
        claims_devices_expression(),
        node("oldObject"),
        cel_list(&DEVICE_ANNOTATIONS),
    )
}

/// Returns the CEL condition for writes to the status of a claim or a pool: a user other than the
/// allocator changes one of these fields.
pub(super) fn status_match_condition(allocator: &str, fields: &[&str]) -> String {
    let has = |object: &str| {
        format!("({object} != null && has({object}.status) && k in {object}.status)")
    };
    let (new, old) = (has("object"), has("oldObject"));
    format!(
        "{} && {}.exists(k, {new} != {old} || ({new} && object.status[k] != oldObject.status[k]))",
        user_is_not(allocator),
        cel_list(fields),
    )
}

/// Returns the CEL condition for writes to a claim: a user other than the allocator removes the
/// finalizer.
pub(super) fn finalizer_match_condition(allocator: &str) -> String {
    let keeps = |object: &str| {
        let all = format!("{object}.metadata.finalizers");
        format!("(has({all}) && '{FINALIZER}' in {all})")
    };
    let (new, old) = (keeps("object"), keeps("oldObject"));
    format!("{} && {old} && !{new}", user_is_not(allocator))
}

fn user_is_not(allocator: &str) -> String {
    // A JSON string is a CEL string too.
    format!("request.userInfo.username != {}", Value::from(allocator))
}

fn cel_list(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|it| format!("'{it}'")).collect();
    format!("[{}]", names.join(", "))
}
