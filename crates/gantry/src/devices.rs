//! Who gives devices to pods, in whose name, and what they may do.

use std::sync::Arc;

use gantry_apiserver::{Api, Caller};
use gantry_placement::{
    AdminQuota, Books, ClassStanding, DriverStanding, Gate, NAME, Release, Results, Scheduler,
};
use gantry_reconcile::Controller;
use gantry_sim::members::Member;
use serde_json::{Value, json};

use crate::up::Door;

/// Who owns the fields that are written.
pub const MANAGER: &str = "gantry-devices";
/// Who events come from.
pub const COMPONENT: &str = NAME;
/// Whom the controllers act as on the embedded server, and the group of that user. What drivers trust is
/// written by this user alone.
pub const USER: &str = "system:gantry:devices";

/// The controllers, which ask for quotas in this way.
#[must_use]
pub fn members(quota: AdminQuota) -> Vec<Member> {
    let member = |controller: Arc<dyn Controller>, workers| Member {
        controller,
        user: USER.to_owned(),
        groups: vec![USER],
        manager: MANAGER,
        component: COMPONENT,
        workers,
    };
    vec![
        member(Arc::new(Scheduler::new(quota)), 1),
        member(Arc::new(Release), 4),
        member(Arc::new(Books), 4),
        member(Arc::new(Results), 4),
        member(Arc::new(Gate), 1),
        member(Arc::new(ClassStanding::default()), 1),
        member(Arc::new(DriverStanding), 1),
    ]
}

/// The door of the embedded server through which they come.
#[must_use]
pub fn door(api: &Api) -> Door {
    Door::of(api, Caller::authenticated(USER, &[USER.to_owned()]))
}

/// What they need, and no more.
#[must_use]
pub fn rules() -> Vec<Value> {
    const READ: &[&str] = &["get", "list", "watch"];
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let group = "devmgmtproto.k8s.io";
    vec![
        rule(
            group,
            &["deviceclaims", "deviceprivilegedclaims"],
            &["create", "get", "list", "patch", "watch"],
        ),
        rule(
            group,
            &[
                "deviceclaimtemplates",
                "deviceclasses",
                "devicedrivers",
                "devicepools",
                "poddevices",
            ],
            READ,
        ),
        rule(
            group,
            &[
                "deviceclaims/status",
                "deviceclasses/status",
                "devicedrivers/status",
                "devicepools/status",
                "deviceprivilegedclaims/status",
            ],
            &["patch"],
        ),
        rule("", &["pods"], &["delete", "get", "list", "patch", "watch"]),
        rule("", &["pods/status"], &["patch"]),
        rule("", &["pods/binding"], &["create"]),
        // Claims that are made for a pod keep it until they are gone.
        rule("", &["pods/finalizers"], &["update"]),
        rule("", &["namespaces", "nodes", "resourcequotas"], READ),
        rule("", &["configmaps"], &["get"]),
        // Whether objects of a kind may be copied into claims is said by its definition.
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get"]),
        rule("", &["events"], &["create", "patch"]),
        rule("policy", &["poddisruptionbudgets"], READ),
    ]
}

/// The role on the embedded server, and its binding.
#[must_use]
pub fn rights() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    vec![
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole",
            "metadata": {"name": USER}, "rules": rules(),
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": USER},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": USER},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": USER}],
        }),
    ]
}
