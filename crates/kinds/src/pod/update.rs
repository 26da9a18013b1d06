//! Validates updates of a pod.

use gantry_schema::FieldError;
use serde_json::Value;

use super::{spec, with_old_fields};
use crate::field_errors::{FieldErrors, Path};
use crate::tree::{at, entries, equal, int, list, put, remove, same, text};

/// The fields that a rejection names, in the order of kube-apiserver.
const MUTABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,\
    `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let path = Path::new("spec");
    spec::check(at(new, "spec"), &path, &mut faults);
    for name in ["containers", "initContainers"] {
        let (wanted, had) = (list(at(new, "spec"), name), list(at(old, "spec"), name));
        if wanted.len() != had.len() {
            let detail = "pod updates may not add or remove containers";
            faults.forbidden(path.child(name), detail);
            return faults.into_vec();
        }
        for (place, container) in wanted.iter().enumerate() {
            if text(container, "image").is_empty() {
                faults.required(path.child(name).index(place).child("image"), "");
            }
        }
    }
    if !check_deadline(new, old, &path, &mut faults) {
        return faults.into_vec();
    }
    check_tolerations(new, old, &path, &mut faults);
    check_gates(new, old, &path, &mut faults);
    let mut rest = with_old_fields(
        at(new, "spec"),
        at(old, "spec"),
        &["activeDeadlineSeconds", "tolerations", "schedulingGates"],
    );
    for name in ["containers", "initContainers"] {
        for (place, before) in list(at(old, "spec"), name).iter().enumerate() {
            if let Some(container) = rest.get_mut(name).and_then(|it| it.get_mut(place)) {
                put(container, "image", at(before, "image").clone());
            }
        }
    }
    let grace = "terminationGracePeriodSeconds";
    let before = int(at(old, "spec"), grace);
    if before.is_some_and(|seconds| seconds < 0) && int(&rest, grace) == Some(1) {
        put(&mut rest, grace, before);
    }
    if !list(old, "spec.schedulingGates").is_empty() {
        allow_narrower_node_selection(&mut rest, at(old, "spec"), &path, &mut faults);
    }
    if !equal(&rest, at(old, "spec")) {
        let changed = changed_fields(&rest, at(old, "spec"));
        let detail = format!("pod updates may not change fields other than {MUTABLE}\n{changed}");
        faults.forbidden(path, &detail);
    }
    faults.into_vec()
}

/// Returns the names of the fields that differ, where kube-apiserver prints a diff line by line.
pub(crate) fn changed_fields(new: &Value, old: &Value) -> String {
    let keys = [new, old].into_iter().filter_map(Value::as_object).flat_map(|it| it.keys());
    let mut keys: Vec<&String> = keys.filter(|key| !same(new, old, key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let names: Vec<&str> = keys.into_iter().map(String::as_str).collect();
    format!("changed: {}", names.join(", "))
}

/// Checks that a deadline is only added or made earlier. Returns whether to check further.
fn check_deadline(new: &Value, old: &Value, path: &Path, faults: &mut FieldErrors) -> bool {
    let path = path.child("activeDeadlineSeconds");
    let field = "spec.activeDeadlineSeconds";
    match (int(new, field), int(old, field)) {
        (Some(wanted), _) if !(0..=i64::from(i32::MAX)).contains(&wanted) => {
            faults.value(path, wanted, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(wanted), Some(had)) if wanted > had => {
            faults.value(path, wanted, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            faults.value(path, Value::Null, detail);
            true
        }
        (Some(_) | None, _) => true,
    }
}

/// Checks that tolerations are only added; existing ones may only change their duration.
fn check_tolerations(new: &Value, old: &Value, path: &Path, faults: &mut FieldErrors) {
    let bare = |toleration: &Value| {
        let mut toleration = toleration.clone();
        remove(&mut toleration, "tolerationSeconds");
        toleration
    };
    let field = "spec.tolerations";
    let kept = |had: &Value| list(new, field).iter().any(|it| equal(&bare(it), &bare(had)));
    if !list(old, field).iter().all(kept) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        faults.forbidden(path.child("tolerations"), detail);
    }
}

fn check_gates(new: &Value, old: &Value, path: &Path, faults: &mut FieldErrors) {
    let field = "spec.schedulingGates";
    for (place, gate) in list(new, field).iter().enumerate() {
        let name = text(gate, "name");
        if !list(old, field).iter().any(|it| text(it, "name") == name) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            faults.forbidden(path.child("schedulingGates").index(place).child("name"), &detail);
        }
    }
}

/// Allows a gated pod's node selection to become narrower. Allowed changes are reverted in `rest`,
/// so that only forbidden ones remain as differences.
fn allow_narrower_node_selection(
    rest: &mut Value,
    old: &Value,
    path: &Path,
    faults: &mut FieldErrors,
) {
    if !same(rest, old, "nodeSelector") {
        let kept = entries(old, "nodeSelector")
            .into_iter()
            .all(|(key, value)| at(rest, "nodeSelector").get(key) == Some(value));
        if !kept {
            let detail =
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            faults.value(path.child("nodeSelector"), at(rest, "nodeSelector").clone(), detail);
        }
        *rest = with_old_fields(rest, old, &["nodeSelector"]);
    }
    if !same(rest, old, "affinity.nodeAffinity") {
        check_node_affinity(rest, old, path, faults);
        *rest = with_old_fields(rest, old, &["affinity.nodeAffinity"]);
    }
}

fn check_node_affinity(new: &Value, old: &Value, path: &Path, faults: &mut FieldErrors) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = format!("affinity.nodeAffinity.{required}.nodeSelectorTerms");
    let path = path.child("affinity").child("nodeAffinity").child(required);
    let (wanted, had) = (list(new, &terms), list(old, &terms));
    if had.is_empty() {
        return;
    }
    if wanted.len() != had.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        faults.value(path.child("nodeSelectorTerms"), at(new, &terms).clone(), detail);
        return;
    }
    for (place, (wanted, had)) in wanted.iter().zip(had).enumerate() {
        let kept = ["matchExpressions", "matchFields"].into_iter().all(|field| {
            list(had, field).iter().all(|it| list(wanted, field).iter().any(|new| equal(new, it)))
        });
        if !kept {
            let detail = "only additions are allowed (no mutations or deletions)";
            faults.value(path.child("nodeSelectorTerms").index(place), wanted.clone(), detail);
        }
    }
}

/// Checks that a status keeps the node and the fields that the server set.
pub(super) fn validate_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let path = Path::new("status");
    if !same(new, old, "spec.nodeName") {
        let path = path.child("nodeName");
        faults.forbidden(path, "may not be changed directly");
    }
    let nominated = text(new, "status.nominatedNodeName");
    if !nominated.is_empty() {
        let place = path.child("nominatedNodeName");
        faults.invalid_text(&place, nominated, crate::names::subdomain(nominated));
    }
    faults.immutable(at(new, "status"), at(old, "status"), &path, "qosClass");
    for (place, entry) in list(new, "status.podIPs").iter().enumerate() {
        let ip = text(entry, "ip");
        faults.invalid_text(&path.child("podIPs").index(place), ip, crate::names::ip(ip));
    }
    faults.into_vec()
}
