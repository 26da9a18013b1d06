//! What the members of a cluster may do beside what Kubernetes grants to their originals.
//!
//! The originals replace objects; the members here change fields, which is another verb. Nodes are
//! known to Kubernetes by an authorizer of their own, which the embedded server does not have.

use serde_json::{Value, json};

use crate::autoscaling::Autoscalers;
use crate::storage::Provisioner;

/// The group of the controllers.
pub const CONTROLLERS: &str = "system:gantry:controllers";
/// The group of the pretended nodes.
pub const NODES: &str = "system:gantry:nodes";

/// The group of the one controller that signs certificates.
pub const CERTIFICATES: &str = "system:gantry:certificate-signer";

/// The roles, and the bindings to the groups.
#[must_use]
pub fn rights() -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
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
    let nodes = [
        rule("", &["nodes", "nodes/status", "pods", "pods/status"], &["get", "patch"]),
        rule("", &["pods"], &["delete"]),
        rule("", &["events"], &["create", "patch"]),
        rule("coordination.k8s.io", &["leases"], &["get", "create", "patch"]),
        // What pods name in variables and volumes, one by one, and what their programs act as.
        rule("", &["configmaps", "secrets"], &["get"]),
        rule("", &["serviceaccounts/token"], &["create"]),
    ];
    // The original of the provisioner is no part of Kubernetes, but the role for such is.
    let provisioner = {
        let name = "system:gantry:volume-provisioner";
        let role = "system:persistent-volume-provisioner";
        let account = json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": Provisioner::ACCOUNT});
        bound(name, role, &account)
    };
    // For which signers it may sign is in the role that Kubernetes gives to its account.
    let requests = ["certificatesigningrequests/status"];
    let certificates = [rule("certificates.k8s.io", &requests, &["patch"])];
    let roles = [
        (CONTROLLERS, controllers.as_slice()),
        (NODES, nodes.as_slice()),
        (CERTIFICATES, certificates.as_slice()),
    ];
    let roles = roles.iter().flat_map(|(name, rules)| [role(name, rules), binding(name)]);
    let rules = [
        rule("autoscaling", &["horizontalpodautoscalers/status"], &["patch"]),
        rule("*", &["*/scale"], &["patch"]),
    ];
    let name = "system:gantry:horizontal-pod-autoscaler";
    let account =
        json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": Autoscalers::ACCOUNT});
    let autoscalers = [role(name, &rules), bound(name, name, &account)];
    roles.chain([provisioner]).chain(autoscalers).chain([metrics_reader()]).collect()
}

/// Lets everybody who may look at pods look at what they use, as metrics-server does.
fn metrics_reader() -> Value {
    let resources = ["pods", "nodes"];
    let rule = json!({"apiGroups": ["metrics.k8s.io"], "resources": resources, "verbs": ["get", "list", "watch"]});
    let mut role = role("system:aggregated-metrics-reader", &[rule]);
    for name in ["admin", "edit", "view"] {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
        role["metadata"]["labels"][label] = json!("true");
    }
    role
}

fn role(name: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    })
}

/// The role, given to the group of the same name.
fn binding(name: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    bound(name, name, &json!({"apiGroup": group, "kind": "Group", "name": name}))
}

/// A role, given to somebody.
fn bound(name: &str, role: &str, subject: &Value) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}
