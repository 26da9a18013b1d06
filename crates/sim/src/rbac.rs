//! What simulated nodes may do.
//!
//! Kubernetes knows nodes by an authorizer of their own, which the embedded server does not have.

use gantry_kube_controllers::rbac::{binding_to_group, role, rule};
use serde_json::Value;

/// The group of the simulated nodes.
pub const NODES_GROUP: &str = "system:gantry:nodes";

/// The role of the simulated nodes, and the binding to their group.
#[must_use]
pub fn roles_and_bindings() -> Vec<Value> {
    let nodes = [
        rule("", &["nodes", "nodes/status", "pods", "pods/status"], &["get", "patch"]),
        rule("", &["pods"], &["delete"]),
        rule("", &["events"], &["create", "patch"]),
        rule("coordination.k8s.io", &["leases"], &["get", "create", "patch"]),
        // The objects that pods reference in variables and volumes, one by one, and the accounts of
        // their programs.
        rule("", &["configmaps", "secrets"], &["get"]),
        rule("", &["serviceaccounts/token"], &["create"]),
        // The devices of device plugins.
        rule(
            "devmgmtproto.k8s.io",
            &["devicedrivers", "devicepools"],
            &["create", "delete", "get", "patch"],
        ),
        rule("devmgmtproto.k8s.io", &["devicepools/status"], &["patch"]),
    ];
    vec![role(NODES_GROUP, &nodes), binding_to_group(NODES_GROUP)]
}
