//! Validates volumes and their mounts.

use std::collections::BTreeSet;

use serde_json::Value;

use super::containers::{check_field, check_resource};
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::tree::{at, flag, int, is_empty, is_set, list, text};

/// Fields of a pod that a volume may expose.
const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Validates the volumes of a pod; returns the names that mounts may use.
pub(super) fn check<'a>(
    spec: &'a Value,
    path: &Path,
    faults: &mut FieldErrors,
) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (place, volume) in list(spec, "volumes").iter().enumerate() {
        let path = path.child("volumes").index(place);
        check_source(volume, &path, faults);
        let name = text(volume, "name");
        let complaints = names::label(name);
        if name.is_empty() {
            faults.required(path.child("name"), "");
        } else if !complaints.is_empty() {
            faults.invalid_text(&path.child("name"), name, complaints);
        } else if !seen.insert(name) {
            faults.duplicate(path.child("name"), name);
        }
    }
    seen
}

fn check_source(volume: &Value, path: &Path, faults: &mut FieldErrors) {
    let order = ["emptyDir", "hostPath", "gitRepo"];
    let rank = |name: &str| order.iter().position(|it| *it == name).unwrap_or(order.len());
    let fields = volume.as_object().into_iter().flatten();
    let mut kinds: Vec<&str> = fields
        .filter(|(key, value)| *key != "name" && !value.is_null())
        .map(|(key, _)| key.as_str())
        .collect();
    kinds.sort_by_key(|name| rank(name));
    for (place, kind) in kinds.into_iter().enumerate() {
        let source = at(volume, kind);
        let path = path.child(kind);
        if place > 0 {
            faults.forbidden(path, "may not specify more than 1 volume type");
            continue;
        }
        match kind {
            "hostPath" => check_host_path(source, &path, faults),
            "secret" => {
                faults.require(source, &path, "secretName");
                check_mode(source, &path, faults);
                check_items(source, &path, faults);
            }
            "configMap" => {
                faults.require(source, &path, "name");
                check_mode(source, &path, faults);
                check_items(source, &path, faults);
            }
            "persistentVolumeClaim" => drop(faults.require(source, &path, "claimName")),
            "nfs" => {
                faults.require(source, &path, "server");
                faults.require(source, &path, "path");
                let given = text(source, "path");
                if !given.starts_with('/') {
                    faults.value(path.child("path"), given, "must be an absolute path");
                }
            }
            "downwardAPI" => {
                check_mode(source, &path, faults);
                check_files(list(source, "items"), &path, faults);
            }
            "projected" => {
                check_mode(source, &path, faults);
                check_projection(source, &path, faults);
            }
            "csi" => drop(faults.require(source, &path, "driver")),
            "ephemeral" => {
                if is_set(source, "volumeClaimTemplate") {
                    let path = path.child("volumeClaimTemplate").child("spec");
                    let claim = at(source, "volumeClaimTemplate.spec");
                    crate::storage::check_claim_spec(claim, &path, faults);
                } else {
                    faults.required(path.child("volumeClaimTemplate"), "");
                }
            }
            _ => {}
        }
    }
}

/// Validates a path on the node.
pub(crate) fn check_host_path(source: &Value, path: &Path, faults: &mut FieldErrors) {
    if !faults.require(source, path, "path") {
        return;
    }
    check_no_backsteps(text(source, "path"), &path.child("path"), faults);
    let kinds = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    faults.one_of(source, path, "type", &kinds);
}

fn check_mode(source: &Value, path: &Path, faults: &mut FieldErrors) {
    let field = if is_set(source, "mode") { "mode" } else { "defaultMode" };
    if let Some(mode) = int(source, field)
        && !(0..=0o777).contains(&mode)
    {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        faults.value(path.child(field), mode, detail);
    }
}

fn check_items(source: &Value, path: &Path, faults: &mut FieldErrors) {
    for (place, item) in list(source, "items").iter().enumerate() {
        let path = path.child("items").index(place);
        faults.require(item, &path, "key");
        if faults.require(item, &path, "path") {
            check_local_path(text(item, "path"), &path.child("path"), faults);
        }
        check_mode(item, &path, faults);
    }
}

fn check_files(items: &[Value], path: &Path, faults: &mut FieldErrors) {
    // kube-apiserver does not report which item it is.
    for item in items {
        if faults.require(item, path, "path") {
            check_local_path(text(item, "path"), &path.child("path"), faults);
        }
        if is_set(item, "fieldRef") {
            let field = path.child("fieldRef");
            check_field(at(item, "fieldRef"), &field, &FILE_FIELDS, faults);
            if is_set(item, "resourceFieldRef") {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                faults.value(path.clone(), "resource", detail);
            }
        } else if is_set(item, "resourceFieldRef") {
            let reference = at(item, "resourceFieldRef");
            let field = path.child("resourceFieldRef");
            if is_empty(reference, "containerName") {
                faults.required(field.child("containerName"), "");
            } else {
                check_resource(reference, &field, faults);
            }
        } else {
            let detail = "one of fieldRef and resourceFieldRef is required";
            faults.required(path.child("fieldRef"), detail);
        }
        check_mode(item, path, faults);
    }
}

fn check_projection(source: &Value, path: &Path, faults: &mut FieldErrors) {
    for (place, part) in list(source, "sources").iter().enumerate() {
        let path = path.child("sources").index(place);
        for kind in ["secret", "configMap"] {
            if is_set(part, kind) {
                faults.require(at(part, kind), &path.child(kind), "name");
                check_items(at(part, kind), &path.child(kind), faults);
            }
        }
        if is_set(part, "downwardAPI") {
            check_files(list(part, "downwardAPI.items"), &path.child("downwardAPI"), faults);
        }
        let token = at(part, "serviceAccountToken");
        if !token.is_null() {
            let path = path.child("serviceAccountToken");
            let seconds = int(token, "expirationSeconds").unwrap_or_default();
            let place = path.child("expirationSeconds");
            if seconds < 600 {
                faults.value(place, seconds, "may not specify a duration less than 10 minutes");
            } else if seconds > 1 << 32 {
                faults.value(place, seconds, "may not specify a duration larger than 2^32 seconds");
            }
            faults.require(token, &path, "path");
        }
    }
}

/// Validates mounts and block devices of a container.
pub(super) fn check_mounts(
    container: &Value,
    volumes: &BTreeSet<&str>,
    path: &Path,
    faults: &mut FieldErrors,
) {
    let mut places = BTreeSet::new();
    let all = path.child("volumeMounts");
    for (place, mount) in list(container, "volumeMounts").iter().enumerate() {
        let path = all.index(place);
        let name = text(mount, "name");
        faults.require(mount, &path, "name");
        if !volumes.contains(name) {
            faults.not_found(path.child("name"), name);
        }
        faults.require(mount, &path, "mountPath");
        let at_path = text(mount, "mountPath");
        if !places.insert(at_path) {
            faults.value(path.child("mountPath"), at_path, "must be unique");
        }
        for field in ["subPath", "subPathExpr"] {
            let sub_path = text(mount, field);
            if !sub_path.is_empty() {
                // kube-apiserver omits the index here.
                check_local_path(sub_path, &all.child(field), faults);
            }
        }
        let modes = ["Bidirectional", "HostToContainer", "None"];
        if text(mount, "mountPropagation") == "Bidirectional"
            && !flag(container, "securityContext.privileged")
        {
            let detail =
                "Bidirectional mount propagation is available only to privileged containers";
            faults.forbidden(all.child("mountPropagation"), detail);
        } else {
            faults.one_of(mount, &all, "mountPropagation", &modes);
        }
    }
    let all = path.child("volumeDevices");
    for (place, device) in list(container, "volumeDevices").iter().enumerate() {
        let path = all.index(place);
        let name = text(device, "name");
        if faults.require(device, &path, "name") && !volumes.contains(name) {
            faults.not_found(path.child("name"), name);
        }
        faults.require(device, &path, "devicePath");
    }
}

/// Validates a relative path that must stay inside its directory.
fn check_local_path(text: &str, path: &Path, faults: &mut FieldErrors) {
    if text.starts_with('/') {
        faults.value(path.clone(), text, "must be a relative path");
    }
    check_no_backsteps(text, path, faults);
}

fn check_no_backsteps(text: &str, path: &Path, faults: &mut FieldErrors) {
    if text.split('/').any(|part| part == "..") {
        faults.value(path.clone(), text, "must not contain '..'");
    }
}
