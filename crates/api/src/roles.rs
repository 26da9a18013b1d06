//! ClusterRoles for the people who use Gantry's kinds, derived from the registry.
//!
//! Reading joins the cluster's own `view`, writing of what is safe for a tenant joins its `edit`
//! and `admin`. Permissions beyond a namespace are in roles of their own that an administrator has
//! to bind.

use serde_json::{Value, json};

use crate::kind::{Kind, Trust};
use crate::object::KINDS;

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
/// A role that is bound by itself must allow reading what it writes: `kubectl apply` reads first.
const ALL: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Roles that only an administrator binds: name, API groups, and what binding it means.
const ADMINISTRATION: [(&str, &[&str], &str); 3] = [
    (
        "gantry-modules-editor",
        &["ooto.sigs.k8s.io", "hub.ooto.sigs.k8s.io"],
        "A user that may create Modules runs code in the kernel of the nodes they select: this \
         role is root on those nodes. It joins neither edit nor admin on purpose.",
    ),
    (
        "gantry-devices-administrator",
        &["devmgmtproto.k8s.io"],
        "Publishes devices and classes for the whole cluster, and may claim devices that others \
         use.",
    ),
    (
        "gantry-quota-administrator",
        &["quota.codeflare.dev"],
        "Decides how the whole cluster is divided among teams.",
    ),
];

/// The ClusterRoles, each a complete object.
#[must_use]
pub fn roles() -> Vec<Value> {
    let mut roles = vec![
        role(
            "gantry-viewer",
            &[("rbac.authorization.k8s.io/aggregate-to-view", "true")],
            "Reads objects of every Gantry kind.",
            &rules(KINDS.iter(), &READ),
        ),
        role(
            "gantry-editor",
            &[
                ("rbac.authorization.k8s.io/aggregate-to-admin", "true"),
                ("rbac.authorization.k8s.io/aggregate-to-edit", "true"),
            ],
            "Writes objects of the kinds that stay within a namespace.",
            &rules(KINDS.iter().filter(|kind| kind.trust == Trust::Tenant), &WRITE),
        ),
    ];
    for (name, groups, text) in ADMINISTRATION {
        let kinds = KINDS
            .iter()
            .filter(|kind| kind.trust == Trust::Administrator && groups.contains(&kind.group));
        roles.push(role(name, &[], text, &rules(kinds, &ALL)));
    }
    roles
}

fn role(name: &str, labels: &[(&str, &str)], text: &str, rules: &[Value]) -> Value {
    let mut metadata = json!({
        "name": name,
        "annotations": {"kubernetes.io/description": text},
        "labels": {"app.kubernetes.io/part-of": "gantry"},
    });
    for (key, value) in labels {
        metadata["labels"][*key] = json!(value);
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": rules,
    })
}

/// One rule per API group, its resources in order.
fn rules<'a>(kinds: impl Iterator<Item = &'a Kind>, verbs: &[&str]) -> Vec<Value> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for kind in kinds {
        match groups.iter_mut().find(|(group, _)| *group == kind.group) {
            Some((_, plurals)) => plurals.push(kind.plural),
            None => groups.push((kind.group, vec![kind.plural])),
        }
    }
    groups
        .into_iter()
        .map(|(group, mut plurals)| {
            plurals.sort_unstable();
            json!({"apiGroups": [group], "resources": plurals, "verbs": verbs})
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_write(role: &Value, kind: &Kind) -> bool {
        role["rules"].as_array().unwrap().iter().any(|rule| {
            rule["apiGroups"].as_array().unwrap().contains(&json!(kind.group))
                && rule["resources"].as_array().unwrap().contains(&json!(kind.plural))
                && rule["verbs"].as_array().unwrap().contains(&json!("create"))
        })
    }

    fn is_aggregated(role: &Value) -> bool {
        role["metadata"]["labels"]
            .as_object()
            .unwrap()
            .keys()
            .any(|key| key.contains("aggregate-to"))
    }

    /// A kind that needs an administrator's trust never reaches tenants through a default role.
    #[test]
    fn every_kind_is_written_by_one_role_of_its_trust() {
        for kind in KINDS {
            let writers: Vec<_> =
                roles().into_iter().filter(|role| may_write(role, kind)).collect();
            assert_eq!(writers.len(), 1, "{kind:?}");
            assert_eq!(is_aggregated(&writers[0]), kind.trust == Trust::Tenant, "{kind:?}");
        }
    }

    #[test]
    fn every_kind_can_be_viewed() {
        let viewer = roles().remove(0);
        let listed: usize = viewer["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["resources"].as_array().unwrap().len())
            .sum();
        assert_eq!(listed, KINDS.len());
    }
}
