//! Validates DeviceClasses, ResourceClaims, ResourceClaimTemplates and ResourceSlices.

use std::collections::BTreeSet;

use gantry_schema::FieldError;
use serde_json::Value;

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::pod::check_node_selector;
use crate::tree::{
    at, at_mut, each, entries, flag, int, is_empty, is_set, list, same, set_default,
    set_default_if_zero, text,
};

/// The most devices in one slice.
const MAX_DEVICES_PER_SLICE: usize = 128;
/// The most requests in one claim.
const MAX_REQUESTS_PER_CLAIM: usize = 32;

pub(crate) const CLASS_RULES: Rules = Rules {
    validate: |object| check_class(object).into_vec(),
    validate_update: |new, _| check_class(new).into_vec(),
    ..Rules::NONE
};

pub(crate) const CLAIM_RULES: Rules = Rules {
    default: |object| {
        if let Some(spec) = at_mut(object, "spec") {
            default_claim(spec);
        }
    },
    validate: |object| {
        let mut faults = FieldErrors::new();
        check_claim(at(object, "spec"), &Path::new("spec"), &mut faults);
        faults.into_vec()
    },
    validate_update: |new, old| {
        let mut faults = FieldErrors::new();
        check_claim(at(new, "spec"), &Path::new("spec"), &mut faults);
        check_immutable_spec(new, old, &mut faults);
        faults.into_vec()
    },
    validate_status: update_claim_status,
    ..Rules::NONE
};

pub(crate) const TEMPLATE_RULES: Rules = Rules {
    default: |object| {
        if let Some(spec) = at_mut(object, "spec.spec") {
            default_claim(spec);
        }
    },
    validate: |object| check_template(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = check_template(new);
        check_immutable_spec(new, old, &mut faults);
        faults.into_vec()
    },
    ..Rules::NONE
};

pub(crate) const SLICE_RULES: Rules = Rules {
    create: |object, now| set_taint_times(object, now),
    validate: |object| check_slice(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = check_slice(new);
        let (spec, before, path) = (at(new, "spec"), at(old, "spec"), Path::new("spec"));
        faults.immutable(at(spec, "pool"), at(before, "pool"), &path.child("pool"), "name");
        faults.immutable(spec, before, &path, "driver");
        faults.immutable(spec, before, &path, "nodeName");
        faults.into_vec()
    },
    ..Rules::NONE
};

/// Checks that a spec does not change at all.
fn check_immutable_spec(new: &Value, old: &Value, faults: &mut FieldErrors) {
    if !same(new, old, "spec") {
        faults.value(Path::new("spec"), at(new, "spec").clone(), "field is immutable");
    }
}

fn default_claim(spec: &mut Value) {
    for request in each(spec, "devices.requests") {
        if let Some(exactly) = at_mut(request, "exactly") {
            default_request(exactly);
        }
        each(request, "firstAvailable").for_each(default_request);
    }
}

fn default_request(request: &mut Value) {
    set_default(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        set_default_if_zero(request, "count", 1);
    }
}

fn set_taint_times(object: &mut Value, now: &str) {
    for device in each(object, "spec.devices") {
        for taint in each(device, "taints") {
            set_default(taint, "timeAdded", now);
        }
    }
}

fn check_class(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    check_selectors(at(object, "spec"), &Path::new("spec"), &mut faults);
    let path = Path::new("spec").child("config");
    for (place, config) in list(object, "spec.config").iter().enumerate() {
        check_config(config, &path.index(place), &mut faults);
    }
    faults
}

fn check_selectors(holder: &Value, path: &Path, faults: &mut FieldErrors) {
    let selectors = list(holder, "selectors");
    if selectors.len() > MAX_REQUESTS_PER_CLAIM {
        faults.add(FieldError::too_many(
            path.child("selectors"),
            selectors.len(),
            MAX_REQUESTS_PER_CLAIM,
        ));
    }
    for (place, selector) in selectors.iter().enumerate() {
        let path = path.child("selectors").index(place);
        if !is_set(selector, "cel") {
            faults.required(path.child("cel"), "");
        } else if is_empty(selector, "cel.expression") {
            faults.required(path.child("cel").child("expression"), "");
        }
    }
}

fn check_config(config: &Value, path: &Path, faults: &mut FieldErrors) {
    if !is_set(config, "opaque") {
        faults.required(path.child("opaque"), "");
        return;
    }
    let path = path.child("opaque");
    check_driver(text(config, "opaque.driver"), &path.child("driver"), faults);
    if !is_set(config, "opaque.parameters") {
        faults.required(path.child("parameters"), "");
    } else if !at(config, "opaque.parameters").is_object() {
        let value = at(config, "opaque.parameters").clone();
        faults.value(path.child("parameters"), value, "must be a valid JSON object");
    }
}

fn check_driver(name: &str, path: &Path, faults: &mut FieldErrors) {
    if name.is_empty() {
        faults.required(path.clone(), "");
    } else {
        faults.invalid_text(path, name, names::subdomain(&name.to_lowercase()));
    }
}

fn check_template(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let path = Path::new("spec");
    let metadata = at(object, "spec.metadata");
    crate::metadata::check_labels(metadata, &path.child("metadata"), "labels", &mut faults);
    crate::metadata::check_annotations(metadata, &path.child("metadata"), &mut faults);
    check_claim(at(object, "spec.spec"), &path.child("spec"), &mut faults);
    faults
}

fn check_claim(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let path = path.child("devices");
    let requests = list(spec, "devices.requests");
    if requests.len() > MAX_REQUESTS_PER_CLAIM {
        faults.add(FieldError::too_many(
            path.child("requests"),
            requests.len(),
            MAX_REQUESTS_PER_CLAIM,
        ));
    }
    let mut known: BTreeSet<String> = BTreeSet::new();
    for (place, request) in requests.iter().enumerate() {
        let path = path.child("requests").index(place);
        let name = text(request, "name");
        check_name(name, &path.child("name"), faults);
        let (exactly, first) = (at(request, "exactly"), list(request, "firstAvailable"));
        match (exactly.is_null(), first.is_empty()) {
            (true, true) => {
                let detail = "exactly one of `exactly` or `firstAvailable` is required";
                faults.required(path.clone(), detail);
            }
            (false, false) => {
                let detail = "exactly one of `exactly` or `firstAvailable` is required, but \
                              multiple fields are set";
                faults.value(path.clone(), Value::Null, detail);
            }
            (false, true) => check_request(exactly, &path.child("exactly"), faults),
            (true, false) => {
                for (place, option) in first.iter().enumerate() {
                    let path = path.child("firstAvailable").index(place);
                    check_name(text(option, "name"), &path.child("name"), faults);
                    check_request(option, &path, faults);
                    known.insert(format!("{name}/{}", text(option, "name")));
                }
            }
        }
        if !name.is_empty() && !known.insert(name.to_owned()) {
            faults.duplicate(path.child("name"), name);
        }
    }
    check_references(spec, &known, &path, faults);
}

fn check_name(name: &str, path: &Path, faults: &mut FieldErrors) {
    if name.is_empty() {
        faults.required(path.clone(), "");
    } else {
        faults.invalid_text(path, name, names::label(name));
    }
}

fn check_request(request: &Value, path: &Path, faults: &mut FieldErrors) {
    if faults.require(request, path, "deviceClassName") {
        let name = text(request, "deviceClassName");
        faults.invalid_text(&path.child("deviceClassName"), name, names::subdomain(name));
    }
    check_selectors(request, path, faults);
    let count = int(request, "count").unwrap_or_default();
    match text(request, "allocationMode") {
        "All" => {
            if count != 0 {
                let detail = "must not be specified when allocationMode is 'All'";
                faults.value(path.child("count"), count, detail);
            }
        }
        "ExactCount" => {
            if count <= 0 {
                faults.value(path.child("count"), count, "must be greater than zero");
            }
        }
        other => {
            let modes = ["All", "ExactCount"];
            faults.not_supported(path.child("allocationMode"), other, &modes);
        }
    }
}

fn check_references(spec: &Value, known: &BTreeSet<String>, path: &Path, faults: &mut FieldErrors) {
    for field in ["constraints", "config"] {
        for (place, entry) in list(at(spec, "devices"), field).iter().enumerate() {
            let path = path.child(field).index(place);
            for (place, name) in list(entry, "requests").iter().enumerate() {
                let name = name.as_str().unwrap_or_default();
                if !known.contains(name) {
                    let detail = "must be the name of a request in the claim or the name of a \
                                  request and a subrequest separated by '/'";
                    faults.value(path.child("requests").index(place), name, detail);
                }
            }
            if field == "config" {
                check_config(entry, &path, faults);
            } else if is_empty(entry, "matchAttribute") && !is_set(entry, "distinctAttribute") {
                faults.required(path.child("matchAttribute"), "");
            }
        }
    }
}

fn update_claim_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let path = Path::new("status");
    let (status, before) = (at(new, "status"), at(old, "status"));
    let users = list(status, "reservedFor");
    if !users.is_empty() && !is_set(status, "allocation") {
        let detail = "may not be specified when `allocated` is not set";
        faults.forbidden(path.child("reservedFor"), detail);
    }
    let mut seen = BTreeSet::new();
    for (place, user) in users.iter().enumerate() {
        let path = path.child("reservedFor").index(place);
        for field in ["resource", "name", "uid"] {
            faults.require(user, &path, field);
        }
        let uid = text(user, "uid");
        if !uid.is_empty() && !seen.insert(uid) {
            faults.duplicate(path.child("uid"), uid);
        }
    }
    // An allocation is immutable: it can be removed, but not replaced.
    if is_set(before, "allocation") && is_set(status, "allocation") {
        faults.immutable(status, before, &path, "allocation");
    }
    if is_set(new, "metadata.deletionTimestamp") || is_set(old, "metadata.deletionTimestamp") {
        let had = list(before, "reservedFor").len();
        if !is_set(before, "allocation") && is_set(status, "allocation") {
            let detail = "new allocations may not be added when deletion is pending";
            faults.forbidden(path.child("allocation"), detail);
        } else if users.len() > had {
            let detail = "new reservations may not be added when deletion is pending";
            faults.forbidden(path.child("reservedFor"), detail);
        }
    }
    faults.into_vec()
}

fn check_slice(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    check_driver(text(spec, "driver"), &path.child("driver"), &mut faults);
    check_pool(at(spec, "pool"), &path.child("pool"), &mut faults);
    let mut given = Vec::new();
    if let Some(node) = at(spec, "nodeName").as_str() {
        if node.is_empty() {
            let detail = "must be either unset or set to a non-empty string";
            faults.value(path.child("nodeName"), node, detail);
        } else {
            given.push("`nodeName`");
            faults.invalid_text(&path.child("nodeName"), node, names::subdomain(node));
        }
    }
    if is_set(spec, "nodeSelector") {
        given.push("`nodeSelector`");
        check_node_selector(at(spec, "nodeSelector"), &path.child("nodeSelector"), &mut faults);
    }
    for (field, shown) in
        [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        if flag(spec, field) {
            given.push(shown);
        } else if is_set(spec, field) {
            faults.value(path.child(field), false, "must be either unset or set to true");
        }
    }
    let all = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is \
               required";
    if given.is_empty() {
        faults.required(path.clone(), all);
    } else if given.len() > 1 {
        let detail = format!("{all}, but multiple fields are set");
        faults.value(path.clone(), format!("{{{}}}", given.join(", ")), &detail);
    }
    check_devices(spec, &path.child("devices"), &mut faults);
    faults
}

fn check_pool(pool: &Value, path: &Path, faults: &mut FieldErrors) {
    if faults.require(pool, path, "name") {
        let name = text(pool, "name");
        for part in name.split('/') {
            faults.invalid_text(&path.child("name"), part, names::subdomain(part));
        }
    }
    let count = int(pool, "resourceSliceCount").unwrap_or_default();
    if count <= 0 {
        faults.value(path.child("resourceSliceCount"), count, "must be greater than zero");
    }
    faults.not_negative(pool, path, "generation");
}

fn check_devices(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let devices = list(spec, "devices");
    if devices.len() > MAX_DEVICES_PER_SLICE {
        faults.add(FieldError::too_many(path.clone(), devices.len(), MAX_DEVICES_PER_SLICE));
    }
    let mut seen = BTreeSet::new();
    for (place, device) in devices.iter().enumerate() {
        let path = path.index(place);
        let name = text(device, "name");
        check_name(name, &path.child("name"), faults);
        if !name.is_empty() && !seen.insert(name) {
            faults.duplicate(path.child("name"), name);
        }
        for (key, value) in entries(device, "attributes") {
            let path = path.child("attributes").key(key);
            let kinds = ["bool", "int", "string", "version"];
            match kinds.iter().filter(|kind| is_set(value, kind)).count() {
                0 => faults.required(path, "exactly one value must be specified"),
                1 => {}
                _ => faults.value(path, value.clone(), "exactly one value must be specified"),
            }
        }
        for (place, taint) in list(device, "taints").iter().enumerate() {
            let path = path.child("taints").index(place);
            let key = text(taint, "key");
            faults.invalid_text(&path.child("key"), key, names::qualified(key));
            faults.require_one_of(taint, &path, "effect", &["NoExecute", "NoSchedule"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn devices_are_allocated_and_released() {
        let claim = |status: Value| json!({ "status": status });
        let given = json!({ "allocation": { "devices": { "results": [1] } } });
        let other = json!({ "allocation": { "devices": { "results": [2] } } });
        let table = [
            ("given", json!({}), given.clone(), None),
            ("kept", given.clone(), given.clone(), None),
            ("given back", given.clone(), json!({}), None),
            ("exchanged", given, other, Some("status.allocation")),
        ];
        for (why, old, new, expected) in table {
            let faults = update_claim_status(&claim(new), &claim(old));
            let fields: Vec<&str> = faults.iter().map(|it| it.field.as_str()).collect();
            assert_eq!(fields, expected.into_iter().collect::<Vec<_>>(), "{why}");
        }
    }

    #[test]
    fn new_taints_get_a_time() {
        let mut slice = json!({ "spec": { "devices": [{ "taints": [{ "key": "k" }] }] } });
        set_taint_times(&mut slice, "now");
        set_taint_times(&mut slice, "later");
        assert_eq!(slice["spec"]["devices"][0]["taints"][0]["timeAdded"], "now");
    }
}
