//! Rights beyond `create` that an API server checks before it creates certain objects.
//!
//! A server checks the rights of the user that creates the object. Where that is a controller with
//! many rights, the controller must check the rights of the author itself, or authors get through
//! it what they are denied directly.

use serde_json::Value;

const RBAC: &str = "rbac.authorization.k8s.io";
/// The type of a Secret that is filled with a token of a service account.
const TOKEN_SECRET: &str = "kubernetes.io/service-account-token";
/// The annotation of such a Secret that names the account.
const SERVICE_ACCOUNT_ANNOTATION: &str = "kubernetes.io/service-account.name";

/// A right that the author of an object needs beside the right to create it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Privilege {
    /// To bind a role: a RoleBinding gives its subjects what the role says.
    Bind {
        /// `roles` or `clusterroles`.
        resource: Box<str>,
        /// The role.
        name: Box<str>,
    },
    /// To write any rules into a role: a Role may grant more than its author holds.
    Escalate {
        /// The role.
        name: Box<str>,
    },
    /// To create tokens of a service account: such a Secret is filled with one.
    Token {
        /// The account.
        account: Box<str>,
    },
}

impl Privilege {
    /// Returns the right that creating an object needs, if any.
    ///
    /// Whether its author holds everything that a role grants is not checked: `bind` and `escalate`
    /// are what access reviews can answer.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: &Value| Box::from(value.as_str().unwrap_or_default());
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        match (group, object["kind"].as_str()?) {
            (RBAC, "RoleBinding" | "ClusterRoleBinding") => {
                let role = &object["roleRef"];
                let resource = match role["kind"].as_str() {
                    Some("Role") => "roles",
                    // The server rejects any other kind; until then the wider right is checked.
                    Some(_) | None => "clusterroles",
                };
                Some(Self::Bind { resource: resource.into(), name: text(&role["name"]) })
            }
            (RBAC, "Role" | "ClusterRole") => {
                Some(Self::Escalate { name: text(&object["metadata"]["name"]) })
            }
            ("", "Secret") if object["type"] == TOKEN_SECRET => Some(Self::Token {
                account: text(&object["metadata"]["annotations"][SERVICE_ACCOUNT_ANNOTATION]),
            }),
            (_, _) => None,
        }
    }

    /// Returns the verb, group, resource, subresource and name that an access review asks about.
    #[must_use]
    pub fn attributes(&self) -> [&str; 5] {
        match self {
            Self::Bind { resource, name } => ["bind", RBAC, resource, "", name],
            Self::Escalate { name } => ["escalate", RBAC, "roles", "", name],
            Self::Token { account } => ["create", "", "serviceaccounts", "token", account],
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ds_9_objects_that_give_rights_need_more_than_the_right_to_create_them() {
        let rbac = |kind: &str, role: Value| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                "metadata": {"name": "n"}, "roleRef": role,
            })
        };
        let secret = |kind: &str| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": kind,
                "metadata": {"name": "n", "annotations": {SERVICE_ACCOUNT_ANNOTATION: "default"}},
            })
        };
        let table = [
            (
                "a binding of a cluster role",
                rbac("RoleBinding", json!({"kind": "ClusterRole", "name": "cluster-admin"})),
                Some(["bind", RBAC, "clusterroles", "", "cluster-admin"]),
            ),
            (
                "a binding of a role",
                rbac("RoleBinding", json!({"kind": "Role", "name": "r"})),
                Some(["bind", RBAC, "roles", "", "r"]),
            ),
            (
                "a binding without a role",
                rbac("RoleBinding", Value::Null),
                Some(["bind", RBAC, "clusterroles", "", ""]),
            ),
            ("a role", rbac("Role", Value::Null), Some(["escalate", RBAC, "roles", "", "n"])),
            (
                "a secret for a token",
                secret(TOKEN_SECRET),
                Some(["create", "", "serviceaccounts", "token", "default"]),
            ),
            ("another secret", secret("Opaque"), None),
            ("a job", json!({"apiVersion": "batch/v1", "kind": "Job"}), None),
            ("nothing", json!({}), None),
        ];
        for (why, object, expected) in table {
            let found = Privilege::of(&object);
            assert_eq!(found.as_ref().map(Privilege::attributes), expected, "{why}");
        }
    }
}
