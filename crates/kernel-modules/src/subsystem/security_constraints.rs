//! Roles for clusters that decide by security context constraints which pods may run.
//!
//! The operator binds the accounts that it creates to these roles, and to no others; each may use
//! one set of constraints.

use gantry_subsystem::access::named_rule;
use gantry_subsystem::{Grant, GrantBinding, rule};
use serde_json::{Value, json};

use crate::settings::{DEVICE_PLUGIN_ROLE, DRIVER_ROLE, IMAGE_JOBS_ROLE};

/// The file with these roles.
const FILE: &str = "optional/modules-scc.yaml";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The roles that accounts are bound to, and the permission to bind them.
pub(super) fn grants() -> [Grant; 4] {
    [
        Grant::new(
            FILE,
            "gantry-modules-scc",
            "Lets the operator bind the accounts of Modules to the roles in this file, and to no \
             others; for clusters with security context constraints.",
            vec![
                rule(RBAC, &["rolebindings"], &["create", "get", "patch"]),
                named_rule(
                    RBAC,
                    "clusterroles",
                    &[DRIVER_ROLE, DEVICE_PLUGIN_ROLE, IMAGE_JOBS_ROLE],
                    &["bind"],
                ),
            ],
        ),
        user(
            DRIVER_ROLE,
            DRIVER_ROLE,
            "Lets driver containers load kernel modules. Its holder is root on nodes.",
        )
        .with_objects(vec![constraints(
            DRIVER_ROLE,
            "Pods that load kernel modules: SYS_MODULE, any SELinux type, directories of the host.",
            &["SYS_MODULE"],
            &json!({"type": "RunAsAny"}),
        )]),
        user(
            DEVICE_PLUGIN_ROLE,
            "privileged",
            "Lets device plugins run privileged. Its holder is root on nodes.",
        ),
        user(IMAGE_JOBS_ROLE, IMAGE_JOBS_ROLE, "Lets Jobs of Modules build and sign images.")
            .with_objects(vec![constraints(
                IMAGE_JOBS_ROLE,
                "Jobs that build images: the capabilities of buildah, the host's /lib/modules.",
                &[
                    "CHOWN",
                    "DAC_OVERRIDE",
                    "FOWNER",
                    "SETFCAP",
                    "SETGID",
                    "SETUID",
                    "SYS_ADMIN",
                    "SYS_CHROOT",
                ],
                &json!({"type": "MustRunAs"}),
            )]),
    ]
}

/// A role that may use constraints.
fn user(name: &'static str, constraints: &str, about: &'static str) -> Grant {
    let group = "security.openshift.io";
    let rule = named_rule(group, "securitycontextconstraints", &[constraints], &["use"]);
    Grant::new(FILE, name, about, vec![rule]).with_binding(GrantBinding::Unbound)
}

fn constraints(name: &str, about: &str, capabilities: &[&str], se_linux: &Value) -> Value {
    json!({
        "apiVersion": "security.openshift.io/v1",
        "kind": "SecurityContextConstraints",
        "metadata": {"name": name, "annotations": {"kubernetes.io/description": about}},
        "allowHostDirVolumePlugin": true,
        "allowHostIPC": false,
        "allowHostNetwork": false,
        "allowHostPID": false,
        "allowHostPorts": false,
        "allowPrivilegeEscalation": true,
        "allowPrivilegedContainer": false,
        "allowedCapabilities": capabilities,
        "defaultAddCapabilities": [],
        "fsGroup": {"type": "RunAsAny"},
        "groups": [],
        "priority": null,
        "readOnlyRootFilesystem": false,
        "requiredDropCapabilities": [],
        "runAsUser": {"type": "RunAsAny"},
        "seLinuxContext": se_linux,
        "seccompProfiles": ["*"],
        "supplementalGroups": {"type": "RunAsAny"},
        "users": [],
        "volumes": ["*"],
    })
}
