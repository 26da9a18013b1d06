//! What the controllers may do beside what Kubernetes grants to their originals.
//!
//! The originals replace objects; the controllers here patch fields, which is another verb.

use serde_json::{Value, json};

use crate::autoscaling::AutoscalerController;
use crate::storage::VolumeProvisioner;

/// The group of the controllers.
pub const CONTROLLERS_GROUP: &str = "system:gantry:controllers";
/// The group of the one controller that signs certificates.
pub const CERTIFICATE_SIGNER_GROUP: &str = "system:gantry:certificate-signer";

/// Returns the roles, and the bindings to the groups.
#[must_use]
pub fn roles_and_bindings() -> Vec<Value> {
    let workloads = ["deployments", "replicasets", "statefulsets", "daemonsets"];
    let with_status = |names: &[&str]| -> Vec<String> {
        names.iter().flat_map(|it| [(*it).to_owned(), format!("{it}/status")]).collect()
    };
    let workloads = with_status(&workloads);
    let workloads: Vec<&str> = workloads.iter().map(String::as_str).collect();
    let core = [
        "pods",
        "pods/status",
        "nodes",
        "nodes/status",
        "endpoints",
        "configmaps",
        "replicationcontrollers/status",
    ];
    let volumes = with_status(&["persistentvolumes", "persistentvolumeclaims"]);
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let batch = ["jobs", "jobs/status", "cronjobs", "cronjobs/status"];
    let controllers = [
        rule("apps", &workloads, &["patch"]),
        rule("apps", &["controllerrevisions"], &["create", "delete", "patch"]),
        rule("batch", &batch, &["patch"]),
        rule("", &core, &["patch"]),
        rule("", &["events"], &["create", "patch"]),
        rule("discovery.k8s.io", &["endpointslices"], &["patch"]),
        rule("policy", &["poddisruptionbudgets/status"], &["patch"]),
        rule("", &volumes, &["patch"]),
    ];
    // The original of the provisioner is not part of Kubernetes, but the role for such is.
    let provisioner = {
        let name = "system:gantry:volume-provisioner";
        let role = "system:persistent-volume-provisioner";
        let account = json!({
            "kind": "ServiceAccount",
            "namespace": "kube-system",
            "name": VolumeProvisioner::ACCOUNT,
        });
        role_binding(name, role, &account)
    };
    // For which signers it may sign is in the role that Kubernetes grants to its account.
    let requests = ["certificatesigningrequests/status"];
    let certificates = [rule("certificates.k8s.io", &requests, &["patch"])];
    let roles = [
        (CONTROLLERS_GROUP, controllers.as_slice()),
        (CERTIFICATE_SIGNER_GROUP, certificates.as_slice()),
    ];
    let roles = roles.iter().flat_map(|(name, rules)| [role(name, rules), binding_to_group(name)]);
    let rules = [
        rule("autoscaling", &["horizontalpodautoscalers/status"], &["patch"]),
        rule("*", &["*/scale"], &["patch"]),
    ];
    let name = "system:gantry:horizontal-pod-autoscaler";
    let account = json!({
        "kind": "ServiceAccount", "namespace": "kube-system", "name": AutoscalerController::ACCOUNT,
    });
    let autoscalers = [role(name, &rules), role_binding(name, name, &account)];
    roles.chain([provisioner]).chain(autoscalers).chain([metrics_reader()]).collect()
}

/// A rule about resources of one API group.
#[must_use]
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// Lets every user who may read pods read their metrics, as metrics-server does.
fn metrics_reader() -> Value {
    let resources = ["pods", "nodes"];
    let rule = json!({
        "apiGroups": ["metrics.k8s.io"], "resources": resources, "verbs": ["get", "list", "watch"],
    });
    let mut role = role("system:aggregated-metrics-reader", &[rule]);
    for name in ["admin", "edit", "view"] {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
        role["metadata"]["labels"][label] = json!("true");
    }
    role
}

/// A cluster role.
#[must_use]
pub fn role(name: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    })
}

/// Binds the role to the group of the same name.
#[must_use]
pub fn binding_to_group(name: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    role_binding(name, name, &json!({"apiGroup": group, "kind": "Group", "name": name}))
}

/// Binds a role to a subject.
fn role_binding(name: &str, role: &str, subject: &Value) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}
