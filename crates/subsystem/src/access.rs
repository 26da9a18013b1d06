//! What a subsystem may do: roles of the operator, and accounts on the embedded server.

use serde_json::{Value, json};

/// The verbs of those who only read.
pub const READ: &[&str] = &["get", "list", "watch"];

/// One rule of a role.
#[must_use]
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// One rule of a role about objects of these names only.
#[must_use]
pub fn named_rule(group: &str, resource: &str, names: &[&str], verbs: &[&str]) -> Value {
    json!({
        "apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": verbs,
    })
}

/// The rules without which webhook configurations of these kinds and of this name cannot be kept.
#[must_use]
pub fn webhook_rules(kinds: &[&str], name: &str) -> [Value; 2] {
    let group = "admissionregistration.k8s.io";
    let mut own = rule(group, kinds, &["get", "patch"]);
    own["resourceNames"] = json!([name]);
    [rule(group, kinds, &["create"]), own]
}

/// The file of the role that every operator has. Grants in it are joined into one role.
pub const BASE_FILE: &str = "20-cluster-role.yaml";

/// A role by which the operator on a cluster does what a subsystem needs.
///
/// A subsystem that is off by default puts its grants into files below `optional/`, so that nobody gives rights
/// that nothing uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The file below `config/operator`. Grants of one file are in it in the order of the list.
    pub file: &'static str,
    /// The name of the role, and of its binding. Unused in [`BASE_FILE`].
    pub name: &'static str,
    /// What it is for, and what its holder could do with it. Unused in [`BASE_FILE`].
    pub about: &'static str,
    /// Where it holds.
    pub reach: Reach,
    /// How it reaches the operator.
    pub membership: Membership,
    /// Whether the API server calls the operator by it: a Service and the right to keep its certificate
    /// come with it.
    pub webhook: bool,
    /// What is allowed.
    pub rules: Vec<Value>,
}

/// Where a grant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// In the whole cluster.
    Cluster,
    /// In the namespace of the operator.
    OwnNamespace,
    /// In this namespace.
    Namespace(&'static str),
}

/// How a grant reaches the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It is bound to the operator's account.
    Bound,
    /// It has this label, and a role that collects all with the label is bound to the operator's account.
    Labelled(&'static str),
    /// It is that role: what those with this label allow, it allows.
    Collects(&'static str),
}

impl Grant {
    /// A role for the whole cluster, bound to the operator's account.
    #[must_use]
    pub fn new(
        file: &'static str,
        name: &'static str,
        about: &'static str,
        rules: Vec<Value>,
    ) -> Self {
        let (reach, membership) = (Reach::Cluster, Membership::Bound);
        Self { file, name, about, reach, membership, webhook: false, rules }
    }

    /// Rules of the role that every operator has.
    #[must_use]
    pub fn base(rules: Vec<Value>) -> Self {
        Self::new(BASE_FILE, "", "", rules)
    }

    /// The same in one place.
    #[must_use]
    pub fn within(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// The same by another way to the operator.
    #[must_use]
    pub fn by(self, membership: Membership) -> Self {
        Self { membership, ..self }
    }

    /// The same, and the API server may call the operator.
    #[must_use]
    pub fn with_webhook(self) -> Self {
        Self { webhook: true, ..self }
    }
}

/// An account that controllers act as on the embedded server. Nobody has credentials for it: requests in its
/// name are made inside the process.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The user, which is also the group of that user.
    pub name: &'static str,
    /// What it may do in the whole cluster.
    pub rules: Vec<Value>,
    /// What it may do in one namespace, and in which.
    pub within: Option<(&'static str, Vec<Value>)>,
}

const RBAC: &str = "rbac.authorization.k8s.io";

impl Account {
    /// An account with these rights in the whole cluster.
    #[must_use]
    pub fn new(name: &'static str, rules: Vec<Value>) -> Self {
        Self { name, rules, within: None }
    }

    /// Its roles and their bindings.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let Self { name, rules, within } = self;
        let subject = json!([{"apiGroup": RBAC, "kind": "Group", "name": name}]);
        let object = |kind: &str, metadata: &Value| json!({"apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata});
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
        account.within = Some(("here", vec![named_rule("", "configmaps", &["m"], &["patch"])]));
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
