//! Validates security contexts.

use serde_json::{Value, json};

use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::tree::{at, flag, int, is_set, list, text};

/// Validates the security context of a pod.
pub(super) fn check_pod(context: &Value, path: &Path, faults: &mut FieldErrors) {
    check_ids(context, path, &["fsGroup", "runAsUser", "runAsGroup"], faults);
    for (place, group) in list(context, "supplementalGroups").iter().enumerate() {
        let group = group.as_i64().unwrap_or_default();
        for complaint in names::in_range(group, 0, i64::from(i32::MAX)) {
            faults.value(path.child("supplementalGroups").index(place), group, &complaint);
        }
    }
    faults.one_of(context, path, "fsGroupChangePolicy", &["Always", "OnRootMismatch"]);
    for (place, sysctl) in list(context, "sysctls").iter().enumerate() {
        faults.require(sysctl, &path.child("sysctls").index(place), "name");
    }
    check_profile(context, path, faults);
}

/// Validates the security context of a container.
pub(super) fn check_container(context: &Value, path: &Path, faults: &mut FieldErrors) {
    if context.is_null() {
        return;
    }
    check_ids(context, path, &["runAsUser", "runAsGroup"], faults);
    faults.one_of(context, path, "procMount", &["Default", "Unmasked"]);
    check_profile(context, path, faults);
    if context.get("allowPrivilegeEscalation") != Some(&Value::Bool(false)) {
        return;
    }
    let shown = json!({
        "Capabilities": at(context, "capabilities"),
        "Privileged": at(context, "privileged"),
        "SELinuxOptions": at(context, "seLinuxOptions"),
        "WindowsOptions": at(context, "windowsOptions"),
        "RunAsUser": at(context, "runAsUser"),
        "RunAsGroup": at(context, "runAsGroup"),
        "RunAsNonRoot": at(context, "runAsNonRoot"),
        "ReadOnlyRootFilesystem": at(context, "readOnlyRootFilesystem"),
        "AllowPrivilegeEscalation": at(context, "allowPrivilegeEscalation"),
        "ProcMount": at(context, "procMount"),
        "SeccompProfile": at(context, "seccompProfile"),
        "AppArmorProfile": at(context, "appArmorProfile"),
    });
    if flag(context, "privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        faults.value(path.clone(), shown.clone(), detail);
    }
    if list(context, "capabilities.add").iter().any(|it| it == "CAP_SYS_ADMIN") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` \
                      CAP_SYS_ADMIN";
        faults.value(path.clone(), shown, detail);
    }
}

fn check_ids(context: &Value, path: &Path, fields: &[&str], faults: &mut FieldErrors) {
    for field in fields {
        if let Some(id) = int(context, field) {
            for complaint in names::in_range(id, 0, i64::from(i32::MAX)) {
                faults.value(path.child(field), id, &complaint);
            }
        }
    }
}

fn check_profile(context: &Value, path: &Path, faults: &mut FieldErrors) {
    let profile = at(context, "seccompProfile");
    if profile.is_null() {
        return;
    }
    let path = path.child("seccompProfile");
    let local = path.child("localhostProfile");
    if text(profile, "type") == "Localhost" {
        if !is_set(profile, "localhostProfile") {
            faults.required(local, "must be set when seccomp type is Localhost");
        }
        return;
    }
    if is_set(profile, "localhostProfile") {
        let detail = "can only be set when seccomp type is Localhost";
        faults.value(local, at(profile, "localhostProfile").clone(), detail);
    }
    if !faults.require(profile, &path, "type") {
        return;
    }
    faults.one_of(profile, &path, "type", &["Localhost", "RuntimeDefault", "Unconfined"]);
}
