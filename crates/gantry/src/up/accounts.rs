//! The accounts that Gantry's own controllers act as on the embedded server, and what each may do.
//!
//! Nobody has credentials for them: requests of theirs are made inside the process. What users wrote and a
//! controller carries out is bounded by its account, or is done in the name of the user who wrote it.

use gantry_apiserver::{Api, Caller};
use gantry_controller::transport;
use gantry_controller::writer::OnBehalfOf;
use gantry_queue::UserAccess;
use gantry_reconcile::User;
use gantry_sim::autoscaling::Autoscalers;
use http::Request;
use serde_json::{Value, json};

use super::Door;
use super::node_groups::NAMESPACE;

/// Fills the caches of all controllers, and writes nothing.
const READER: &str = "system:gantry:reader";
/// Admits AppWrappers and creates what they wrap.
const QUEUE: &str = "system:gantry:queue";
/// Adds simulated nodes for jobs.
const SCALING: &str = "system:gantry:scaling";
/// Publishes the accelerators of simulated nodes as devices.
const SAMPLE_DRIVER: &str = "system:gantry:sample-driver";

const RBAC: &str = "rbac.authorization.k8s.io";

/// The door of whoever only reads.
pub(super) fn reader(api: &Api) -> Door {
    door(api, READER)
}

/// The door of the simulated nodes.
pub(super) fn nodes(api: &Api) -> Door {
    let groups = ["system:nodes", gantry_sim::rights::NODES].map(str::to_owned);
    Door::of(api, Caller::authenticated(gantry_sim::members::NODES_USER, &groups))
}

/// The door of the queue.
pub(super) fn queue(api: &Api) -> Door {
    door(api, QUEUE)
}

/// The door of scaling.
pub(super) fn scaling(api: &Api) -> Door {
    door(api, SCALING)
}

/// The door of the driver of simulated accelerators.
pub(super) fn sample_driver(api: &Api) -> Door {
    door(api, SAMPLE_DRIVER)
}

/// The door of the account that autoscalers have in Kubernetes.
pub(super) fn autoscaler(api: &Api) -> Door {
    let user = format!("system:serviceaccount:kube-system:{}", Autoscalers::ACCOUNT);
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    Door::of(api, Caller::authenticated(&user, &groups.map(str::to_owned)))
}

/// The administrator to whom the kubeconfig of the cluster belongs.
#[must_use]
pub fn administrator(api: &Api) -> Door {
    let groups = [gantry_serve::pki::MASTERS.to_owned()];
    Door::of(api, Caller::authenticated(gantry_serve::pki::ADMIN, &groups))
}

fn door(api: &Api, user: &str) -> Door {
    Door::of(api, Caller::authenticated(user, &[user.to_owned()]))
}

impl Door {
    /// A client that comes through this door, and in the name of a user with requests that carry one. Only
    /// requests of this process can.
    pub(super) fn client_for_users(&self) -> kube::Client {
        let Self { api, caller } = self.clone();
        transport::in_process(move |request: Request<bytes::Bytes>| {
            let user =
                request.extensions().get::<OnBehalfOf>().map(|OnBehalfOf(user)| user.clone());
            let (api, caller) = (api.clone(), user.map_or_else(|| caller.clone(), as_recorded));
            async move { api.handle(request, Some(caller)).await }
        })
    }
}

/// A user as the server knew them when they were recorded.
fn as_recorded(user: User) -> Caller {
    let User { name, uid, groups, extra } = user;
    Caller { name, uid, groups, extra }
}

/// The roles of the accounts, and their bindings.
#[must_use]
pub fn rights(access: UserAccess) -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let reader = vec![rule("*", &["*"], &["get", "list", "watch"])];
    let mut queue = gantry_queue::subsystem::rules();
    queue.extend(gantry_queue::subsystem::quota_rules());
    queue.push(rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]));
    queue.push(json!({
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations"],
        "resourceNames": [gantry_queue::author::CONFIGURATION], "verbs": ["get"],
    }));
    // Any kind may be wrapped. What is wrapped is created by its author, unless that is switched off.
    let wrapped: &[&str] = match access {
        UserAccess::OnBehalf | UserAccess::Reviewed => &["delete"],
        UserAccess::Unchecked => &["create", "delete"],
    };
    queue.push(rule("*", &["*"], wrapped));
    let scaling = vec![
        rule("", &["nodes"], &["create", "delete"]),
        rule("workload.codeflare.dev", &["appwrappers"], &["patch"]),
        rule("", &["events"], &["create", "patch"]),
    ];
    let ledger = rule("", &["configmaps"], &["create", "patch"]);
    // What any driver needs, on every node.
    let devices = "devmgmtproto.k8s.io";
    let own = ["create", "delete", "get", "list", "patch", "watch"];
    let driver = vec![
        rule(devices, &["devicedrivers", "devicepools"], &own),
        rule(devices, &["deviceclaims"], &["get", "list", "watch"]),
        rule(
            devices,
            &["deviceclaims/status", "devicedrivers/status", "devicepools/status"],
            &["patch"],
        ),
        rule("", &["events"], &["create", "patch"]),
    ];
    let accounts = [(READER, reader), (QUEUE, queue), (SCALING, scaling), (SAMPLE_DRIVER, driver)];
    let mut all: Vec<Value> =
        accounts.into_iter().flat_map(|(name, rules)| cluster_wide(name, &rules)).collect();
    let metadata = json!({"name": SCALING, "namespace": NAMESPACE});
    all.push(json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata, "rules": [ledger],
    }));
    all.push(json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": SCALING},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": SCALING}],
    }));
    all
}

/// A role, given to the account of the same name.
fn cluster_wide(name: &str, rules: &[Value]) -> [Value; 2] {
    [
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules,
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": name}],
        }),
    ]
}
