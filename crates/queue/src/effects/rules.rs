//! The RBAC rules that the queue needs.

use serde_json::{Value, json};

/// What the queue does with its own objects and with pods, in every namespace.
#[must_use]
pub fn rules() -> Vec<Value> {
    let own = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let wrappers = ["appwrappers", "appwrappers/finalizers", "appwrappers/status"];
    vec![
        rule("workload.codeflare.dev", &wrappers, &own),
        rule("", &["pods"], &["delete", "get", "list", "watch"]),
        rule("", &["nodes"], &["get", "list", "watch"]),
        rule("", &["events"], &["create", "patch"]),
    ]
}

/// What it does with quota trees.
#[must_use]
pub fn quota_rules() -> Vec<Value> {
    let verbs = ["get", "list", "patch", "update", "watch"];
    vec![rule("quota.codeflare.dev", &["quotasubtrees", "quotasubtrees/status"], &verbs)]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}
