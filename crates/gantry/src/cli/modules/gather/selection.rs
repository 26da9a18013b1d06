//! Which objects are gathered.

use gantry_reconcile::{Resource, Scope};
use serde_json::Value;

/// A kind that is gathered.
#[derive(Debug)]
pub(super) struct GatheredKind {
    pub(super) api_version: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    scope: Scope,
    /// Which of its objects are wanted, whatever Modules there are.
    pub(super) wanted: fn(&Value) -> bool,
}

const fn namespaced(
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    wanted: fn(&Value) -> bool,
) -> GatheredKind {
    GatheredKind { api_version, plural, kind, scope: Scope::Namespaced, wanted }
}

const fn cluster(
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    wanted: fn(&Value) -> bool,
) -> GatheredKind {
    GatheredKind { api_version, plural, kind, scope: Scope::Cluster, wanted }
}

const OWN: &str = "ooto.sigs.k8s.io/v1alpha1";
const HUB: &str = "hub.ooto.sigs.k8s.io/v1alpha1";
const CLAIMS: &str = "cluster.open-cluster-management.io/v1alpha1";
const CLUSTERS: &str = "cluster.open-cluster-management.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The operator's objects have this label.
pub(super) const OPERATOR_SELECTOR: &str = "app.kubernetes.io/name=gantry-operator";

pub(super) const MODULES: GatheredKind = namespaced(OWN, "modules", "Module", any);
pub(super) const EVENTS: GatheredKind = namespaced("v1", "events", "Event", any);
pub(super) const DEPLOYMENTS: GatheredKind =
    namespaced("apps/v1", "deployments", "Deployment", is_of_operator);

/// Kinds without a namespace.
pub(super) const CLUSTER_KINDS: &[GatheredKind] = &[
    cluster(
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        |it| {
            let group = it["spec"]["group"].as_str().unwrap_or_default();
            group == "ooto.sigs.k8s.io" || group.ends_with(".ooto.sigs.k8s.io")
        },
    ),
    cluster("v1", "nodes", "Node", any),
    cluster(OWN, "preflights", "Preflight", any),
    cluster(OWN, "nodemodulesconfigs", "NodeModulesConfig", any),
    cluster(HUB, "managedclustermodules", "ManagedClusterModule", any),
    cluster(CLAIMS, "clusterclaims", "ClusterClaim", |it| {
        it["metadata"]["name"].as_str().is_some_and(|it| it.starts_with("kernel-versions"))
    }),
    cluster(CLUSTERS, "managedclusters", "ManagedCluster", any),
];

/// Kinds in namespaces with Modules; what belongs to a Module is wanted as well.
pub(super) const NAMESPACED_KINDS: &[GatheredKind] = &[
    namespaced("apps/v1", "daemonsets", "DaemonSet", none),
    namespaced("batch/v1", "jobs", "Job", none),
    namespaced("v1", "pods", "Pod", none),
    namespaced("v1", "serviceaccounts", "ServiceAccount", none),
    namespaced("v1", "configmaps", "ConfigMap", none),
    namespaced(RBAC, "rolebindings", "RoleBinding", any),
    namespaced("policy.open-cluster-management.io/v1", "policies", "Policy", carries_modules),
    namespaced(
        "work.open-cluster-management.io/v1",
        "manifestworks",
        "ManifestWork",
        carries_modules,
    ),
];

/// Kinds in the namespace of the operator.
pub(super) const OPERATOR_KINDS: &[GatheredKind] = &[
    DEPLOYMENTS,
    namespaced("v1", "pods", "Pod", is_of_operator),
    namespaced("v1", "serviceaccounts", "ServiceAccount", is_of_operator),
    namespaced("v1", "configmaps", "ConfigMap", |it| {
        is_of_operator(it)
            || it["metadata"]["name"].as_str().is_some_and(|it| it.starts_with("gantry-config"))
    }),
    namespaced("coordination.k8s.io/v1", "leases", "Lease", any),
];

impl GatheredKind {
    pub(super) fn resource(&self) -> Resource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        let resource = Resource::namespaced(group, version, self.plural, self.kind);
        match self.scope {
            Scope::Namespaced => resource,
            Scope::Cluster => resource.cluster_scoped(),
        }
    }

    /// The folder of its objects.
    pub(super) fn folder(&self) -> String {
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{}.{group}", self.plural),
            None => self.plural.to_owned(),
        }
    }

    /// Whether its objects are pods.
    pub(super) fn has_logs(&self) -> bool {
        self.kind == "Pod"
    }
}

fn any(_: &Value) -> bool {
    true
}

fn none(_: &Value) -> bool {
    false
}

fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["labels"][name].as_str()
}

fn is_of_operator(object: &Value) -> bool {
    label(object, "app.kubernetes.io/name") == Some("gantry-operator")
}

/// Whether a policy or work brings Modules to another cluster.
fn carries_modules(object: &Value) -> bool {
    object.to_string().contains("ooto.sigs.k8s.io")
}

/// Whether an object belongs to one of these Modules: by its label, its owner, or because the
/// Module names it as its service account, Dockerfile or build context.
pub(super) fn is_of_modules(object: &Value, modules: &[Value]) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let owners = object["metadata"]["ownerReferences"].as_array();
    let is_owned = owners.is_some_and(|it| it.iter().any(|it| it["kind"] == "Module"));
    let module = label(object, gantry_kernel_modules::labels::MODULE_LABEL);
    let is_labelled =
        module.is_some_and(|it| modules.iter().any(|module| module["metadata"]["name"] == it));
    let named = |module: &Value| match object["kind"].as_str() {
        Some("ServiceAccount") => names(&module["spec"], "serviceAccountName", name),
        Some("ConfigMap") => {
            let fields = ["dockerfileConfigMap", "contextConfigMap"];
            fields.iter().any(|it| names(&module["spec"], it, name))
        }
        _ => false,
    };
    is_owned || is_labelled || modules.iter().any(named)
}

/// Whether a field, at any depth, is a name or an object with that name.
fn names(value: &Value, field: &str, name: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|it| names(it, field, name)),
        Value::Object(fields) => {
            let own = fields.get(field);
            own.is_some_and(|it| it == name || it["name"] == name)
                || fields.values().any(|it| names(it, field, name))
        }
        _ => false,
    }
}

/// The containers of a pod that have started, and whether they have a previous run.
pub(super) fn containers(pod: &Value) -> Vec<(String, bool)> {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().flat_map(|it| pod["status"][it].as_array().into_iter().flatten());
    let started = statuses.filter_map(|status| {
        let has_previous = status["lastState"]["terminated"].is_object();
        let state = &status["state"];
        let has_run = state["running"].is_object() || state["terminated"].is_object();
        let name = status["name"].as_str().filter(|_| has_run || has_previous)?;
        Some((name.to_owned(), has_previous))
    });
    started.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kms_91_no_secret_and_no_foreign_config_map_is_gathered() {
        let all = CLUSTER_KINDS.iter().chain(NAMESPACED_KINDS).chain(OPERATOR_KINDS);
        assert!(all.clone().count() > 15);
        for kind in all {
            assert_ne!((kind.api_version, kind.plural), ("v1", "secrets"));
        }
        let module = json!({"metadata": {"name": "hello"}, "spec": {"driverContainer": {
            "serviceAccountName": "mine",
            "container": {"kernelMappings": [{"build": {"dockerfileConfigMap": {"name": "files"}}}]},
        }}});
        let modules = [module];
        let object = |kind: &str, name: &str, labels: Value| json!({"kind": kind, "metadata": {"name": name, "labels": labels}});
        let own = json!({"oot.node.kubernetes.io/module.name": "hello"});
        let other = json!({"oot.node.kubernetes.io/module.name": "other"});
        let table = [
            (object("ConfigMap", "files", json!({})), true),
            (object("ConfigMap", "mine", json!({})), false),
            (object("ConfigMap", "of-somebody", json!({})), false),
            (object("ServiceAccount", "mine", json!({})), true),
            (object("ServiceAccount", "default", json!({})), false),
            (object("Pod", "p", own.clone()), true),
            (object("Pod", "p", other), false),
            (object("Pod", "p", json!({})), false),
            (object("ConfigMap", "dockerfile", own), true),
        ];
        for (object, expected) in table {
            assert_eq!(is_of_modules(&object, &modules), expected, "{object}");
        }
    }

    #[test]
    fn logs_are_asked_of_containers_that_have_run() {
        let pod = json!({"status": {
        "initContainerStatuses": [{"name": "init", "state": {"terminated": {}}}],
        "containerStatuses": [
            {"name": "a", "state": {"running": {}}},
            {"name": "b", "state": {"waiting": {}}, "lastState": {"terminated": {}}},
            {"name": "c", "state": {"waiting": {}}},
        ]}});
        let expected = [("init", false), ("a", false), ("b", true)];
        let expected = expected.map(|(name, previous)| (name.to_owned(), previous));
        assert_eq!(containers(&pod), expected);
    }
}
