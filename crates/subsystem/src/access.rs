//! The permissions of a subsystem: roles of the operator, and accounts on the embedded server.

use serde_json::{Value, json};

/// The verbs of read-only access.
pub const READ: &[&str] = &["get", "list", "watch"];

/// Returns one rule of a role.
#[must_use]
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// Returns one rule of a role for objects of these names only.
#[must_use]
pub fn named_rule(group: &str, resource: &str, names: &[&str], verbs: &[&str]) -> Value {
    json!({
        "apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": verbs,
    })
}

/// Returns the rules that are needed to manage webhook configurations of these kinds and of this
/// name.
#[must_use]
pub fn webhook_rules(kinds: &[&str], name: &str) -> [Value; 2] {
    let group = "admissionregistration.k8s.io";
    let mut own = rule(group, kinds, &["get", "patch"]);
    own["resourceNames"] = json!([name]);
    [rule(group, kinds, &["create"]), own]
}

/// The file of the role that every operator has. Its grants are joined into one role.
pub const BASE_FILE: &str = "20-cluster-role.yaml";

/// A role that grants the operator on a cluster what a subsystem needs.
///
/// A subsystem that is off by default puts its grants into files below `optional/`, so that no
/// unused permissions are granted.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The file below `config/operator`. Grants of one file are in the order of the list.
    pub file: &'static str,
    /// The name of the role, and of its binding. Unused in [`BASE_FILE`].
    pub name: &'static str,
    /// What it is for, and what its holder could do with it. Unused in [`BASE_FILE`].
    pub about: &'static str,
    /// Its scope.
    pub scope: GrantScope,
    /// How it is bound to the operator.
    pub binding: GrantBinding,
    /// Whether the API server calls the operator for it: this adds a Service, and the permission to
    /// store its certificate.
    pub webhook: bool,
    /// The rules.
    pub rules: Vec<Value>,
    /// Other objects that the rules are about.
    pub objects: Vec<Value>,
}

/// The scope of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantScope {
    /// The whole cluster.
    Cluster,
    /// The namespace of the operator.
    OwnNamespace,
    /// This namespace.
    Namespace(&'static str),
}

/// How a grant is bound to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantBinding {
    /// It is bound to the operator's account.
    Direct,
    /// It has this label, and is aggregated into a role that is bound to the operator's account.
    AggregatedByLabel(&'static str),
    /// It is the role that aggregates all roles with this label.
    AggregatesLabel(&'static str),
    /// It is bound to nobody here: the operator, or an administrator, binds accounts to it.
    Unbound,
}

impl Grant {
    /// Creates a role for the whole cluster, bound to the operator's account.
    #[must_use]
    pub fn new(
        file: &'static str,
        name: &'static str,
        about: &'static str,
        rules: Vec<Value>,
    ) -> Self {
        let (reach, membership) = (GrantScope::Cluster, GrantBinding::Direct);
        Self {
            file,
            name,
            about,
            scope: reach,
            binding: membership,
            webhook: false,
            rules,
            objects: Vec::new(),
        }
    }

    /// Creates rules of the role that every operator has.
    #[must_use]
    pub fn base(rules: Vec<Value>) -> Self {
        Self::new(BASE_FILE, "", "", rules)
    }

    /// Changes the scope of the grant.
    #[must_use]
    pub fn in_scope(self, reach: GrantScope) -> Self {
        Self { scope: reach, ..self }
    }

    /// Changes how the grant is bound.
    #[must_use]
    pub fn with_binding(self, membership: GrantBinding) -> Self {
        Self { binding: membership, ..self }
    }

    /// Adds other objects that the rules are about.
    #[must_use]
    pub fn with_objects(self, objects: Vec<Value>) -> Self {
        Self { objects, ..self }
    }

    /// Adds what the API server needs to call the operator.
    #[must_use]
    pub fn with_webhook(self) -> Self {
        Self { webhook: true, ..self }
    }
}

/// An account of controllers on the embedded server. There are no credentials for it: its requests
/// are made inside the process.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The user name, which is also the group of that user.
    pub name: &'static str,
    /// Its rules in the whole cluster.
    pub rules: Vec<Value>,
    /// Its rules in one namespace, and the namespace.
    pub namespaced_rules: Option<(&'static str, Vec<Value>)>,
}

const RBAC: &str = "rbac.authorization.k8s.io";

impl Account {
    /// Creates an account with these rules in the whole cluster.
    #[must_use]
    pub fn new(name: &'static str, rules: Vec<Value>) -> Self {
        Self { name, rules, namespaced_rules: None }
    }

    /// Returns its roles and their bindings.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let Self { name, rules, namespaced_rules: within } = self;
        let subject = json!([{"apiGroup": RBAC, "kind": "Group", "name": name}]);
        let object = |kind: &str, metadata: &Value| {
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata,
            })
        };
        let pair = |prefix: &str, metadata: &Value, rules: &[Value]| {
            let role = format!("{prefix}Role");
            let mut bound = object(&format!("{role}Binding"), metadata);
            bound["roleRef"] = json!({"apiGroup": RBAC, "kind": role, "name": name});
            bound["subjects"] = subject.clone();
            let mut role = object(&role, metadata);
            role["rules"] = json!(rules);
            [role, bound]
        };
        let mut all = pair("Cluster", &json!({"name": name}), rules).to_vec();
        if let Some((namespace, rules)) = within {
            all.extend(pair("", &json!({"name": name, "namespace": namespace}), rules));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_bound_to_what_it_may_do_and_to_nothing_else() {
        let rules = vec![rule("", &["pods"], READ)];
        let mut account = Account::new("system:gantry:x", rules.clone());
        let kinds = |account: &Account| -> Vec<String> {
            let text = |it: &Value| it["kind"].as_str().unwrap().to_owned();
            account.objects().iter().map(text).collect()
        };
        assert_eq!(kinds(&account), ["ClusterRole", "ClusterRoleBinding"]);
        account.namespaced_rules =
            Some(("here", vec![named_rule("", "configmaps", &["m"], &["patch"])]));
        assert_eq!(kinds(&account), ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
        let objects = account.objects();
        assert_eq!(objects[0]["rules"], json!(rules));
        assert_eq!(
            objects[3]["roleRef"],
            json!({"apiGroup": RBAC, "kind": "Role", "name": "system:gantry:x"})
        );
        for object in &objects[2..] {
            assert_eq!(object["metadata"]["namespace"], "here");
        }
        for binding in [&objects[1], &objects[3]] {
            assert_eq!(binding["subjects"].as_array().unwrap().len(), 1);
            assert_eq!(binding["subjects"][0]["name"], "system:gantry:x");
        }
    }
}
