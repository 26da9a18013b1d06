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

/// The role on the embedded server, and its binding.
#[must_use]
pub fn rights() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    vec![
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole",
            "metadata": {"name": USER}, "rules": gantry_placement::subsystem::rules(),
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": USER},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": USER},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": USER}],
        }),
    ]
}
