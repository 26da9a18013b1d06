//! The ClusterRoles that an administrator binds once, so that users can install shared objects
//! without asking again.
//!
//! They name the objects, so that binding them gives no permission on any other object. A plain
//! create cannot be limited by name, because a server authorises it before it knows the name;
//! server-side apply names the object in its path, and is authorised as `patch` and, where it
//! creates, as `create` with that name. So these roles suffice for users who apply, and only for
//! them.

use gantry_api::object::KINDS;
use serde_json::{Value, json};

use crate::inventory::{FMA_GROUP, ObjectKind, POLICIES, POLICY_BINDINGS};

/// Allows changing the definitions of `fma.llm-d.ai`.
pub const FMA_CRD_ADMIN: &str = "fma-crd-admin";
/// Allows changing the admission policies of `fma.llm-d.ai`.
pub const FMA_POLICY_ADMIN: &str = "fma-policy-admin";
/// Allows changing the definitions of Gantry's other groups.
pub const GANTRY_CRD_ADMIN: &str = "gantry-crd-admin";

/// Reading one object at a time is enough, and lists cannot be limited by name.
const VERBS: [&str; 6] = ["get", "watch", "create", "update", "patch", "delete"];

/// A published role and the file it is published in.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminRole {
    /// The name of the ClusterRole.
    pub name: &'static str,
    /// The file, relative to the root of the project.
    pub file: &'static str,
    /// The ClusterRole.
    pub object: Value,
}

/// The published roles.
#[must_use]
pub fn admin_roles() -> Vec<AdminRole> {
    let definitions = |wanted: &dyn Fn(&str) -> bool| -> Vec<String> {
        let kinds = KINDS.iter().filter(|kind| wanted(kind.group));
        let mut names: Vec<String> = kinds.map(gantry_api::kind::Kind::crd_name).collect();
        names.sort_unstable();
        names
    };
    let named = |kind: ObjectKind, names: &[String]| {
        json!({
            "apiGroups": [kind.group()], "resources": [kind.plural()],
            "resourceNames": names, "verbs": VERBS,
        })
    };
    let owned =
        |names: &[&str]| -> Vec<String> { names.iter().map(|it| (*it).to_owned()).collect() };
    let definition = ObjectKind::CustomResourceDefinition;
    vec![
        role(
            FMA_CRD_ADMIN,
            "config/fma-cluster-admin/fma-crd-admin-clusterrole.yaml",
            "Installs, changes and removes the CustomResourceDefinitions of fma.llm-d.ai, and \
             nothing else. Bind it once to everyone who installs in this cluster.",
            &[named(definition, &definitions(&|group| group == FMA_GROUP))],
        ),
        role(
            FMA_POLICY_ADMIN,
            "config/fma-cluster-admin/fma-policy-admin-clusterrole.yaml",
            "Installs, changes and removes the admission policies of fma.llm-d.ai and their \
             bindings, and nothing else. Bind it once to everyone who installs in this cluster.",
            &[
                named(ObjectKind::ValidatingAdmissionPolicy, &owned(&POLICIES)),
                named(ObjectKind::ValidatingAdmissionPolicyBinding, &owned(&POLICY_BINDINGS)),
            ],
        ),
        role(
            GANTRY_CRD_ADMIN,
            "config/gantry-cluster-admin/gantry-crd-admin-clusterrole.yaml",
            "Installs, changes and removes the CustomResourceDefinitions of Gantry's groups other \
             than fma.llm-d.ai, and nothing else.",
            &[named(definition, &definitions(&|group| group != FMA_GROUP))],
        ),
    ]
}

fn role(name: &'static str, file: &'static str, about: &str, rules: &[Value]) -> AdminRole {
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": name,
            "annotations": {"description": about},
            "labels": {"app.kubernetes.io/part-of": "gantry"},
        },
        "rules": rules,
    });
    AdminRole { name, file, object }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rule: &Value) -> Vec<&str> {
        rule["resourceNames"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
    }

    fn rules(role: &str) -> Vec<Value> {
        let role = admin_roles().into_iter().find(|it| it.name == role).unwrap();
        assert!(!role.object["metadata"]["annotations"]["description"].is_null());
        role.object["rules"].as_array().unwrap().clone()
    }

    #[test]
    fn cs_24_one_role_is_for_the_three_definitions() {
        let rules = rules(FMA_CRD_ADMIN);
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0]["apiGroups"], json!(["apiextensions.k8s.io"]));
        assert_eq!(rules[0]["resources"], json!(["customresourcedefinitions"]));
        assert_eq!(
            names(&rules[0]),
            [
                "inferenceserverconfigs.fma.llm-d.ai",
                "launcherconfigs.fma.llm-d.ai",
                "launcherpopulationpolicies.fma.llm-d.ai",
            ]
        );
        let verbs = json!(["get", "watch", "create", "update", "patch", "delete"]);
        assert_eq!(rules[0]["verbs"], verbs);
    }

    #[test]
    fn cs_43_one_role_is_for_the_four_policy_objects() {
        let rules = rules(FMA_POLICY_ADMIN);
        let seen: Vec<_> =
            rules.iter().map(|it| (it["resources"][0].as_str().unwrap(), names(it))).collect();
        assert_eq!(
            seen,
            [
                (
                    "validatingadmissionpolicies",
                    vec!["fma-bound-serverreqpod", "fma-immutable-fields"]
                ),
                (
                    "validatingadmissionpolicybindings",
                    vec!["bind-fma-bound-serverreqpod", "bind-fma-immutable-fields"]
                ),
            ]
        );
        for rule in &rules {
            assert_eq!(rule["apiGroups"], json!(["admissionregistration.k8s.io"]));
            assert_eq!(rule["verbs"].as_array().unwrap().len(), VERBS.len());
        }
    }

    /// A role that does not name its objects would allow changing those of all users.
    #[test]
    fn cs_3_no_published_role_reaches_beyond_what_it_names() {
        for role in admin_roles() {
            for rule in role.object["rules"].as_array().unwrap() {
                assert!(!names(rule).is_empty(), "{}", role.name);
                assert!(!rule.to_string().contains('*'), "{}", role.name);
            }
        }
    }

    #[test]
    fn every_definition_is_in_one_role() {
        for kind in KINDS {
            let holding = |role: &AdminRole| {
                let rules = role.object["rules"].as_array().unwrap();
                rules.iter().any(|rule| names(rule).contains(&kind.crd_name().as_str()))
            };
            assert_eq!(admin_roles().iter().filter(|role| holding(role)).count(), 1, "{kind:?}");
        }
    }
}
