//! The roles and bindings every cluster starts with.

use serde::Deserialize;
use serde_json::Value;

/// The policy of the pinned release of Kubernetes, see `data/README.md`.
const POLICY: &str = include_str!("../data/policy.json");

/// The roles and bindings every cluster starts with, in the order in which they are created.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// ClusterRoles.
    pub cluster_roles: Vec<Value>,
    /// ClusterRoleBindings.
    pub cluster_role_bindings: Vec<Value>,
    /// Roles.
    pub roles: Vec<Value>,
    /// RoleBindings.
    pub role_bindings: Vec<Value>,
}

/// Reads the roles and bindings every cluster starts with.
///
/// # Panics
/// If the embedded file is damaged, which a test of this crate would have found.
#[must_use]
pub fn bootstrap() -> Bootstrap {
    serde_json::from_str(POLICY).expect("the embedded file is well formed, a test reads it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aggregation, Attributes, Policy, User};

    fn name(object: &Value) -> &str {
        object["metadata"]["name"].as_str().unwrap()
    }

    fn policy() -> Policy {
        let all = bootstrap();
        let mut policy = Policy::default();
        let mut aggregation = Aggregation::default();
        for role in &all.cluster_roles {
            policy.set_cluster_role(name(role), role);
            aggregation.add(role);
        }
        for (role, rules) in aggregation.outdated_rules() {
            policy.set_cluster_role(&role, &serde_json::json!({ "rules": rules }));
        }
        for binding in &all.cluster_role_bindings {
            policy.set_cluster_binding(name(binding), binding);
        }
        for role in &all.roles {
            policy.set_role(role["metadata"]["namespace"].as_str().unwrap(), name(role), role);
        }
        for binding in &all.role_bindings {
            let namespace = binding["metadata"]["namespace"].as_str().unwrap();
            policy.set_binding(namespace, name(binding), binding);
        }
        policy
    }

    #[test]
    fn every_object_is_marked_and_every_binding_leads_to_a_role() {
        let all = bootstrap();
        let lists =
            [&all.cluster_roles, &all.cluster_role_bindings, &all.roles, &all.role_bindings];
        for object in lists.into_iter().flatten() {
            let metadata = &object["metadata"];
            let label = &metadata["labels"]["kubernetes.io/bootstrapping"];
            assert_eq!(label, "rbac-defaults", "{metadata}");
            let annotation =
                &metadata["annotations"]["rbac.authorization.kubernetes.io/autoupdate"];
            assert_eq!(annotation, "true", "{metadata}");
        }
        let policy = policy();
        for binding in all.cluster_role_bindings.iter().chain(&all.role_bindings) {
            let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
            let role = crate::Binding::read(binding).role_ref;
            assert!(policy.rules_of(&role, namespace).is_some(), "{role:?}");
        }
    }

    #[test]
    fn the_roles_match_the_specification() {
        let policy = policy();
        let on = Attributes::resource;
        let path = |path: &str| Attributes::path("get", path);
        let (anyone, known) = ("system:unauthenticated", "system:authenticated");
        let table = [
            (anyone, path("/healthz"), true),
            (anyone, path("/version/"), true),
            (anyone, path("/api"), false),
            (anyone, path("/metrics"), false),
            (anyone, on("list", "", "pods"), false),
            (known, path("/apis/apps/v1"), true),
            (known, path("/openapi/v3"), true),
            (known, path("/metrics"), false),
            (known, on("create", "authorization.k8s.io", "selfsubjectaccessreviews"), true),
            (known, on("create", "authorization.k8s.io", "subjectaccessreviews"), false),
            (known, on("get", "", "secrets").in_namespace("default"), false),
            ("system:monitoring", path("/metrics"), true),
            ("system:nodes", on("get", "", "nodes"), false),
        ];
        for (group, asked, expected) in table {
            let user = User { name: "somebody", groups: &[group.to_owned()] };
            assert_eq!(policy.decide(user, &asked).allowed, expected, "{group} {asked:?}");
        }
        let scheduler = User { name: "system:kube-scheduler", groups: &[] };
        let lease = on("update", "coordination.k8s.io", "leases");
        let lease = lease.in_namespace("kube-system").with_name("kube-scheduler");
        assert!(policy.decide(scheduler, &lease).allowed);
        let view = crate::RoleRef {
            kind: "ClusterRole".to_owned(),
            name: "view".to_owned(),
            ..crate::RoleRef::default()
        };
        let view = policy.rules_of(&view, "").unwrap();
        let allows = |resource: &str| {
            view.iter().any(|rule| rule.allows(&on("get", "", resource).in_namespace("x")))
        };
        assert!(allows("pods") && allows("configmaps") && !allows("secrets"));
    }
}
