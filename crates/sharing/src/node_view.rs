//! The permission to read nodes, the only one beyond its namespace that an installation needs.

use serde_json::{Value, json};

use crate::definition::{list, text};

const RBAC: &str = "rbac.authorization.k8s.io";
const VERBS: [&str; 3] = ["get", "list", "watch"];
/// The suffix of the service accounts of controllers, in any release and any namespace.
pub const CONTROLLER_ACCOUNT_SUFFIX: &str = "-fma-controllers";

/// What to do about a role or a binding.
#[derive(Clone, Debug, PartialEq)]
pub enum RoleDecision {
    /// It already grants what it should.
    Leave,
    /// It does not exist: this one is created.
    Create(Value),
    /// It grants too little: this replaces it, and contains everything that it had.
    Extend(Value),
    /// It must not be changed.
    Refuse(RoleRefusal),
}

/// Why a role or a binding must not be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleRefusal {
    /// The server aggregates its rules from other roles, and would remove ours again.
    Aggregated,
    /// It grants another role, and a `roleRef` is immutable.
    OtherRole(String),
    /// It is bound to the account of another installation.
    OtherAccount(String),
}

impl std::fmt::Display for RoleRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Aggregated => f.write_str(
                "it does not allow reading nodes, and its rules are aggregated from other roles: \
                 choose another name",
            ),
            Self::OtherRole(role) => {
                write!(
                    f,
                    "it is bound to {role}, and a roleRef is immutable: delete it, or choose \
                     another release name"
                )
            }
            Self::OtherAccount(account) => write!(
                f,
                "it is bound to account {account} of another installation: choose another \
                 release name"
            ),
        }
    }
}

/// Decides about the role with this name.
#[must_use]
pub fn decide(name: &str, found: Option<&Value>) -> RoleDecision {
    let rule = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": VERBS});
    let Some(found) = found else {
        return RoleDecision::Create(role(name, &[rule]));
    };
    let rules = list(found, "/rules");
    if VERBS.into_iter().all(|verb| rules.iter().any(|rule| allows(rule, verb))) {
        return RoleDecision::Leave;
    }
    if !found["aggregationRule"].is_null() {
        return RoleDecision::Refuse(RoleRefusal::Aggregated);
    }
    let rules: Vec<Value> = rules.iter().cloned().chain([rule]).collect();
    let mut object = role(name, &rules);
    object["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
    RoleDecision::Extend(object)
}

fn role(name: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    })
}

/// Whether a rule allows this verb on all nodes.
fn allows(rule: &Value, verb: &str) -> bool {
    let has = |field: &str, wanted: &str| {
        rule[field].as_array().into_iter().flatten().any(|it| it == wanted || it == "*")
    };
    let named = rule["resourceNames"].as_array().is_some_and(|it| !it.is_empty());
    has("apiGroups", "") && has("resources", "nodes") && has("verbs", verb) && !named
}

/// The binding of the role to the controllers of one installation.
#[must_use]
pub fn binding(release: &str, namespace: &str, role: &str) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": binding_name(release)},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{
            "kind": "ServiceAccount",
            "name": format!("{release}{CONTROLLER_ACCOUNT_SUFFIX}"), "namespace": namespace,
        }],
    })
}

/// The name of the binding of a release.
#[must_use]
pub fn binding_name(release: &str) -> String {
    format!("{release}-node-view")
}

/// Decides about the binding of an installation.
#[must_use]
pub fn decide_binding(wanted: &Value, found: Option<&Value>) -> RoleDecision {
    let Some(found) = found else { return RoleDecision::Create(wanted.clone()) };
    let role = |it: &Value| format!("{} {}", text(it, "/roleRef/kind"), text(it, "/roleRef/name"));
    if role(found) != role(wanted) {
        return RoleDecision::Refuse(RoleRefusal::OtherRole(role(found)));
    }
    match accounts(found).iter().find(|account| !accounts(wanted).contains(account)) {
        Some(other) => RoleDecision::Refuse(RoleRefusal::OtherAccount(other.clone())),
        None if accounts(found).is_empty() => {
            let mut object = wanted.clone();
            object["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
            RoleDecision::Extend(object)
        }
        None => RoleDecision::Leave,
    }
}

fn accounts(binding: &Value) -> Vec<String> {
    let account = |it: &Value| format!("{}/{}", text(it, "/namespace"), text(it, "/name"));
    list(binding, "/subjects").iter().map(account).collect()
}

/// Bindings by which older charts let controllers view everything: name, and account.
#[must_use]
pub fn view_bindings(bindings: &[Value]) -> Vec<(String, String)> {
    let views = bindings.iter().filter(|it| {
        text(it, "/roleRef/kind") == "ClusterRole" && text(it, "/roleRef/name") == "view"
    });
    let mut found = Vec::new();
    for binding in views {
        let subjects = list(binding, "/subjects").iter();
        let ours = subjects.filter(|it| {
            it["kind"] == "ServiceAccount" && text(it, "/name").ends_with(CONTROLLER_ACCOUNT_SUFFIX)
        });
        for subject in ours {
            let account = format!("{}/{}", text(subject, "/namespace"), text(subject, "/name"));
            found.push((text(binding, "/metadata/name").to_owned(), account));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
        json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
    }

    #[test]
    fn cs_7_the_role_is_made_or_extended() {
        let all = rule("", "nodes", &VERBS);
        assert!(
            matches!(decide("r", None), RoleDecision::Create(it) if it["rules"] == json!([all]))
        );
        let some_nodes = json!({
            "apiGroups": [""], "resources": ["nodes"], "verbs": VERBS, "resourceNames": ["a"],
        });
        let table = [
            // why                                   rules   enough
            ("the rule", vec![all.clone()], true),
            ("everything", vec![rule("*", "*", &["*"])], true),
            (
                "in parts",
                vec![rule("", "nodes", &["get"]), rule("", "nodes", &["list", "watch"])],
                true,
            ),
            ("nothing", vec![], false),
            ("a verb is missing", vec![rule("", "nodes", &["get", "list"])], false),
            ("other things", vec![rule("", "pods", &VERBS)], false),
            ("another group", vec![rule("metrics.k8s.io", "nodes", &VERBS)], false),
            ("some nodes", vec![some_nodes], false),
        ];
        for (why, rules, enough) in table {
            let found = json!({"metadata": {"name": "r", "resourceVersion": "7"}, "rules": rules});
            match decide("r", Some(&found)) {
                RoleDecision::Leave => assert!(enough, "{why}"),
                RoleDecision::Extend(object) => {
                    assert!(!enough, "{why}");
                    let mut expected = rules.clone();
                    expected.push(all.clone());
                    assert_eq!(object["rules"], json!(expected), "{why}");
                    assert_eq!(object["metadata"]["resourceVersion"], "7", "{why}");
                }
                other => panic!("{why}: {other:?}"),
            }
        }
        let made_of_others = json!({"aggregationRule": {"clusterRoleSelectors": []}, "rules": []});
        assert_eq!(
            decide("r", Some(&made_of_others)),
            RoleDecision::Refuse(RoleRefusal::Aggregated)
        );
    }

    #[test]
    fn cs_8_the_binding_belongs_to_one_installation() {
        let ours = binding("one", "ns-1", "nodes");
        assert_eq!(ours["metadata"]["name"], "one-node-view");
        assert_eq!(ours["subjects"][0]["name"], "one-fma-controllers");
        assert_eq!(decide_binding(&ours, None), RoleDecision::Create(ours.clone()));
        assert_eq!(decide_binding(&ours, Some(&ours)), RoleDecision::Leave);
        let other_namespace = binding("one", "ns-2", "nodes");
        let refused = decide_binding(&ours, Some(&other_namespace));
        let account = "ns-2/one-fma-controllers".to_owned();
        assert_eq!(refused, RoleDecision::Refuse(RoleRefusal::OtherAccount(account)));
        let other_role = binding("one", "ns-1", "cluster-admin");
        let refused = decide_binding(&ours, Some(&other_role));
        let role = "ClusterRole cluster-admin".to_owned();
        assert_eq!(refused, RoleDecision::Refuse(RoleRefusal::OtherRole(role)));
        let mut nobody = ours.clone();
        nobody["subjects"] = json!([]);
        assert!(matches!(decide_binding(&ours, Some(&nobody)), RoleDecision::Extend(_)));
    }

    #[test]
    fn cs_9_old_bindings_of_view_are_found() {
        let view = |name: &str, role: &str, account: &str| {
            let mut it = binding("x", "ns", role);
            it["metadata"]["name"] = json!(name);
            it["subjects"][0]["name"] = json!(account);
            it
        };
        let all = [
            view("old", "view", "x-fma-controllers"),
            view("nodes", "node-view", "x-fma-controllers"),
            view("people", "view", "alice"),
        ];
        let found = [("old".to_owned(), "ns/x-fma-controllers".to_owned())];
        assert_eq!(view_bindings(&all), found);
    }
}
