//! Generates the objects in `config/operator` that deploy the operator, from the same values that
//! the program uses, so that names, ports, paths and permissions cannot drift apart.
//!
//! The permissions are the least that work. Whatever is only needed by something that is off by
//! default is a file of its own in `config/operator/optional`.

mod metrics;

use std::collections::BTreeMap;

pub use gantry_queue::subsystem::CHECK_USER_ACCESS_FILE;
use gantry_subsystem::access::{BASE_FILE, named_rule};
use gantry_subsystem::{Grant, GrantBinding, GrantScope, Subsystem, rule};
use serde_json::{Value, json};

pub use self::metrics::{METRICS_AUTH, METRICS_LABEL, METRICS_READER, METRICS_SERVICE};
use crate::admission_hooks::SERVICE;
use crate::config::source::{LEGACY, OWN, WRITTEN_KEY, effective_config_map};
use crate::operator::webhook::SECRET;
use crate::subsystems::SUBSYSTEMS;
use crate::version::VERSION;

/// The namespace of the operator.
pub const NAMESPACE: &str = "gantry-system";
/// The service account of the operator.
pub const SERVICE_ACCOUNT: &str = "controller-manager";
const RBAC: &str = "rbac.authorization.k8s.io";

/// One file: its name below `config/operator`, and the objects in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The file.
    pub file: &'static str,
    /// Its objects.
    pub objects: Vec<Value>,
}

/// Returns every file. Those at the top are in the order in which `kubectl apply -f
/// config/operator` applies them.
#[must_use]
pub fn manifests() -> Vec<Manifest> {
    let mut files: BTreeMap<&'static str, Vec<Value>> = BTreeMap::from([
        ("00-namespace.yaml", vec![namespace()]),
        ("10-service-account.yaml", vec![service_account()]),
        (BASE_FILE, vec![cluster_role(), cluster_binding("gantry-operator")]),
        ("40-role.yaml", vec![role(), binding("gantry-operator"), settings_reader()]),
        ("45-metrics.yaml", metrics::access()),
        ("50-service.yaml", vec![service()]),
        ("55-network-policy.yaml", vec![metrics::network_policy()]),
        ("60-deployment.yaml", vec![deployment()]),
    ]);
    for grant in grants().filter(|it| it.file != BASE_FILE) {
        files.entry(grant.file).or_default().extend(grant_objects(&grant));
    }
    files.into_iter().map(|(file, objects)| Manifest { file, objects }).collect()
}

/// Returns the permissions of the operator for all subsystems.
fn grants() -> impl Iterator<Item = Grant> {
    SUBSYSTEMS.iter().flat_map(|it| (it.grants)())
}

/// Returns the objects that grant the operator the permissions of a subsystem.
fn grant_objects(grant: &Grant) -> Vec<Value> {
    let Grant { name, about, scope: reach, binding: membership, webhook, rules, objects, .. } =
        grant;
    let mut all = match (reach, membership) {
        (GrantScope::Cluster, GrantBinding::Direct) => {
            vec![cluster_wide(name, about, rules), cluster_binding(name)]
        }
        (GrantScope::Cluster, GrantBinding::AggregatedByLabel(label)) => {
            let mut role = cluster_wide(name, about, rules);
            role["metadata"]["labels"][label] = json!("true");
            vec![role]
        }
        (GrantScope::Cluster, GrantBinding::Unbound) => vec![cluster_wide(name, about, rules)],
        (GrantScope::Cluster, GrantBinding::AggregatesLabel(label)) => {
            let mut role = cluster_wide(name, about, &[]);
            // The rules are filled in by the aggregating controller; a second writer would conflict
            // with it.
            if let Some(role) = role.as_object_mut() {
                role.remove("rules");
            }
            role["aggregationRule"] =
                json!({ "clusterRoleSelectors": [{ "matchLabels": { *label: "true" } }] });
            vec![role, cluster_binding(name)]
        }
        (GrantScope::OwnNamespace, _) => namespaced_role(NAMESPACE, name, rules).to_vec(),
        (GrantScope::Namespace(namespace), _) => namespaced_role(namespace, name, rules).to_vec(),
    };
    if *webhook {
        all.extend(webhook_objects(name));
    }
    all.extend(objects.iter().cloned().map(|mut object| {
        object["metadata"]["labels"] = labels();
        object
    }));
    all
}

/// Returns a role in one namespace, and its binding to the operator's account.
fn namespaced_role(namespace: &str, name: &str, rules: &[Value]) -> [Value; 2] {
    let mut binding = binding(name);
    binding["metadata"]["namespace"] = json!(namespace);
    let metadata = binding["metadata"].clone();
    let role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata, "rules": rules,
    });
    [role, binding]
}

fn labels() -> Value {
    json!({ "app.kubernetes.io/name": "gantry-operator", "app.kubernetes.io/part-of": "gantry" })
}

fn namespace() -> Value {
    let mut labels = labels();
    labels["pod-security.kubernetes.io/enforce"] = json!("restricted");
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": NAMESPACE, "labels": labels },
    })
}

fn service_account() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": in_namespace(SERVICE_ACCOUNT),
    })
}

fn in_namespace(name: &str) -> Value {
    json!({ "name": name, "namespace": NAMESPACE, "labels": labels() })
}

fn cluster_wide(name: &str, about: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
        "metadata": {
            "name": name,
            "annotations": { "kubernetes.io/description": about },
            "labels": labels(),
        },
        "rules": rules,
    })
}

/// Returns the permissions of the operator in every namespace.
fn cluster_role() -> Value {
    let mut definitions: Vec<&str> = SUBSYSTEMS.iter().flat_map(Subsystem::definitions).collect();
    definitions.sort_unstable();
    definitions.dedup();
    let definitions =
        named_rule("apiextensions.k8s.io", "customresourcedefinitions", &definitions, &["get"]);
    let base = grants().filter(|it| it.file == BASE_FILE).flat_map(|it| it.rules);
    let rules: Vec<Value> = base.chain([definitions]).collect();
    cluster_wide(
        "gantry-operator",
        "What the operator does in every namespace, apart from the objects that are wrapped.",
        &rules,
    )
}

/// Returns the permissions of the operator in its own namespace.
fn role() -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "Role",
        "metadata": in_namespace("gantry-operator"),
        "rules": [
            named_rule("", "configmaps", &[OWN, LEGACY], &["get"]),
            rule("", &["configmaps"], &["create"]),
            named_rule("", "configmaps", &[&effective_config_map(OWN)], &["patch"]),
            rule("coordination.k8s.io", &["leases"], &[
                "create", "delete", "get", "list", "patch", "update", "watch",
            ]),
        ],
    })
}

/// Returns the role for reading the effective settings, as `gantry queue` and `gantry explain` do.
/// It is not bound to any user: the settings name Secrets and files.
fn settings_reader() -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "Role",
        "metadata": in_namespace("gantry-settings-reader"),
        "rules": [named_rule("", "configmaps", &[&effective_config_map(OWN)], &["get"])],
    })
}

fn subject() -> Value {
    json!({ "kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE })
}

fn cluster_binding(role: &str) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
        "metadata": { "name": role, "labels": labels() },
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
        "subjects": [subject()],
    })
}

fn binding(role: &str) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
        "metadata": in_namespace(role),
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": role },
        "subjects": [subject()],
    })
}

/// Returns the Service for the webhooks, and the permission to store their certificate.
fn webhook_objects(name: &str) -> [Value; 3] {
    let secret = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "Role",
        "metadata": in_namespace(name),
        "rules": [
            rule("", &["secrets"], &["create"]),
            named_rule("", "secrets", &[SECRET], &["get", "update"]),
        ],
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": in_namespace(SERVICE),
        "spec": {
            "selector": { "app.kubernetes.io/name": "gantry-operator" },
            "ports": [{ "name": "webhook", "port": 443, "targetPort": 9443 }],
        },
    });
    [secret, binding(name), service]
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": in_namespace(METRICS_SERVICE),
        "spec": {
            "selector": { "app.kubernetes.io/name": "gantry-operator" },
            "ports": [{ "name": "metrics", "port": METRICS_PORT, "targetPort": "metrics" }],
        },
    })
}

/// The port of the metrics, which are served with TLS.
pub const METRICS_PORT: u16 = 8080;

/// Where the ConfigMap is mounted.
const MOUNT: &str = "/etc/gantry";

fn deployment() -> Value {
    let probe = |path: &str, delay: u32, period: u32| {
        json!({
            "httpGet": { "path": path, "port": "probes" },
            "initialDelaySeconds": delay, "periodSeconds": period,
        })
    };
    let resources = json!({ "cpu": "1", "memory": "1Gi" });
    let container = json!({
        "name": "operator",
        "image": format!("gantry:{}", VERSION.version),
        "command": ["/gantry", "operator"],
        "args": [
            format!("--config={OWN}"),
            format!("--config-file={MOUNT}/{WRITTEN_KEY}"),
            "--leader-elect",
            "--check-user-access",
            // With TLS, for authenticated readers with the permission.
            format!("--metrics-bind-address=:{METRICS_PORT}"),
        ],
        "env": [{
            "name": "NAMESPACE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } },
        }],
        "ports": [
            { "name": "metrics", "containerPort": METRICS_PORT },
            { "name": "probes", "containerPort": 8081 },
        ],
        "livenessProbe": probe("/healthz", 15, 20),
        "readinessProbe": probe("/readyz", 5, 10),
        "resources": { "requests": resources, "limits": resources },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{ "name": "config", "mountPath": MOUNT, "readOnly": true }],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": in_namespace("gantry-operator"),
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app.kubernetes.io/name": "gantry-operator" } },
            "template": {
                "metadata": { "labels": labels() },
                "spec": {
                    "serviceAccountName": SERVICE_ACCOUNT,
                    "terminationGracePeriodSeconds": 10,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [container],
                    // It does not exist until the first start has created it.
                    "volumes": [{
                        "name": "config", "configMap": { "name": OWN, "optional": true },
                    }],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rules of every role in the files that are applied together, or in one file.
    fn rules(wanted: impl Fn(&str) -> bool) -> Vec<Value> {
        let files = manifests().into_iter().filter(|manifest| wanted(manifest.file));
        let objects = files.flat_map(|manifest| manifest.objects);
        let rules = objects.filter_map(|object| object["rules"].as_array().cloned());
        rules.flatten().collect()
    }

    fn names(rule: &Value, list: &str) -> Vec<String> {
        let items = rule[list].as_array().into_iter().flatten();
        items.map(|item| item.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn op_13_no_rule_allows_escalation() {
        // Accounts of Modules are bound to roles that the same file has, and to no others.
        let binds = rules(|file| file == "optional/modules-scc.yaml");
        let bound = binds.iter().filter(|rule| names(rule, "verbs") == ["bind"]);
        let bound: Vec<&Value> = bound.collect();
        assert_eq!(bound.len(), 1, "{bound:?}");
        let roles = manifests().into_iter().find(|it| it.file == "optional/modules-scc.yaml");
        let roles = roles.unwrap().objects;
        for name in names(bound[0], "resourceNames") {
            let role = roles.iter().find(|it| it["metadata"]["name"] == name.as_str()).unwrap();
            let [rule] = role["rules"].as_array().unwrap().as_slice() else { panic!("{role}") };
            assert_eq!(
                (&rule["verbs"], &rule["apiGroups"]),
                (&json!(["use"]), &json!(["security.openshift.io"]))
            );
            assert!(!names(rule, "resourceNames").is_empty(), "{rule}");
        }
        for rule in rules(|_| true) {
            for list in ["apiGroups", "resources", "verbs"] {
                assert!(!names(&rule, list).contains(&"*".to_owned()), "{rule}");
            }
            let is_binding = names(&rule, "resources") == ["rolebindings"];
            if binds.contains(&rule) && (is_binding || rule == *bound[0]) {
                continue;
            }
            assert!(!names(&rule, "apiGroups").contains(&RBAC.to_owned()), "{rule}");
            for verb in ["bind", "escalate", "impersonate", "approve", "sign"] {
                assert!(!names(&rule, "verbs").contains(&verb.to_owned()), "{rule}");
            }
        }
        // The certificate of the webhook is stored in the operator's own namespace, under one name.
        let keeps = |rule: &Value| {
            let creates = *rule == gantry_subsystem::rule("", &["secrets"], &["create"]);
            creates || rule["resourceNames"] == json!([SECRET])
        };
        let everywhere = |rule: &Value| {
            let roles = manifests().into_iter().flat_map(|it| it.objects);
            let mut roles = roles.filter(|it| it["kind"] == "ClusterRole");
            roles.any(|it| it["rules"].as_array().is_some_and(|all| all.contains(rule)))
        };
        for rule in rules(|file| !file.starts_with("optional/")) {
            if keeps(&rule) && !everywhere(&rule) {
                continue;
            }
            for resource in ["secrets", "serviceaccounts", "serviceaccounts/token"] {
                assert!(!names(&rule, "resources").contains(&resource.to_owned()), "{rule}");
            }
        }
    }

    #[test]
    fn op_4_there_is_one_deployment_with_one_container() {
        let objects: Vec<_> = manifests().into_iter().flat_map(|it| it.objects).collect();
        let runs = |kind: &str| matches!(kind, "Deployment" | "DaemonSet" | "StatefulSet" | "Pod");
        let running: Vec<_> =
            objects.iter().filter(|it| runs(it["kind"].as_str().unwrap())).collect();
        assert_eq!(running.len(), 1);
        let pod = &running[0]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
        assert_eq!(pod["volumes"][0]["configMap"]["optional"], true, "op_9: absent at first");
    }

    /// Returns the pod that is deployed.
    fn pod() -> Value {
        let mut objects = manifests().into_iter().flat_map(|it| it.objects);
        let deployed = objects.find(|it| it["kind"] == "Deployment").unwrap();
        deployed["spec"]["template"]["spec"].clone()
    }

    /// The requirements of the Pod Security Standard `restricted`, and a read-only file system.
    #[test]
    fn rb_3_the_pod_gives_up_every_privilege() {
        let pod = pod();
        assert_eq!(
            pod["securityContext"],
            json!({
                "runAsNonRoot": true, "runAsUser": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            })
        );
        for container in pod["containers"].as_array().unwrap() {
            let expected = json!({
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
                "readOnlyRootFilesystem": true,
            });
            assert_eq!(container["securityContext"], expected);
        }
        for field in ["hostNetwork", "hostPID", "hostIPC", "initContainers", "ephemeralContainers"]
        {
            assert!(pod[field].is_null(), "{field}");
        }
    }

    /// The ports of the pod, of its Service, of its policy and of its probes are the same.
    #[test]
    fn metrics_are_for_scrapers_and_probes_for_the_kubelet() {
        let objects: Vec<_> = manifests().into_iter().flat_map(|it| it.objects).collect();
        let named = |kind: &str, name: &str| {
            let is = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
            objects.iter().find(is).unwrap()
        };
        let policy = named("NetworkPolicy", "gantry-operator");
        let ports: Vec<_> = policy["spec"]["ingress"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| (rule["from"].is_array(), rule["ports"][0]["port"].clone()))
            .collect();
        assert_eq!(ports, [(true, json!("metrics")), (false, json!(9443))]);
        let selector = &policy["spec"]["podSelector"]["matchLabels"];
        let labels =
            &named("Deployment", "gantry-operator")["spec"]["template"]["metadata"]["labels"];
        for (name, value) in selector.as_object().unwrap() {
            assert_eq!(labels[name], *value);
        }
        assert_eq!(named("Service", METRICS_SERVICE)["spec"]["ports"][0]["targetPort"], "metrics");
        let args = pod()["containers"][0]["args"].clone();
        assert!(
            args.as_array().unwrap().contains(&json!("--metrics-bind-address=:8080")),
            "{args}"
        );
        let reader = &named("ClusterRole", METRICS_READER)["rules"];
        assert_eq!(*reader, json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]));
    }

    #[test]
    fn op_1_nothing_but_kubernetes_own_kinds_is_deployed() {
        for object in manifests().into_iter().flat_map(|it| it.objects) {
            let version = object["apiVersion"].as_str().unwrap();
            let own = gantry_api::object::KINDS.iter().any(|it| it.api_version() == version);
            assert!(!own, "the operator is no operand: {object}");
        }
        for kind in gantry_api::object::KINDS {
            let name = kind.kind.to_lowercase();
            for word in ["mcad", "instascale", "operator"] {
                assert!(!name.contains(word), "{name} would configure the operator");
            }
        }
    }

    #[test]
    fn op_2_and_op_3_no_right_manages_other_operators() {
        let verbs = &["create", "delete", "get", "list", "patch", "watch"];
        let daemon_sets = rule("apps", &["daemonsets"], verbs);
        for rule in rules(|_| true) {
            for group in names(&rule, "apiGroups") {
                assert!(!group.ends_with("operators.coreos.com"), "{rule}");
            }
            let changes = |verb: &&String| matches!(verb.as_str(), "update" | "patch");
            let verbs = names(&rule, "verbs");
            let resources = names(&rule, "resources");
            // Drivers and device plugins of Modules are DaemonSets; only where Modules are enabled.
            if rule == daemon_sets && rules(|file| file == "optional/modules.yaml").contains(&rule)
            {
                continue;
            }
            for resource in ["deployments", "daemonsets", "statefulsets"] {
                let may = resources.contains(&resource.to_owned());
                assert!(!may || !verbs.iter().any(|it| changes(&it)), "{rule}");
            }
            if names(&rule, "apiGroups").contains(&"apiextensions.k8s.io".to_owned()) {
                assert_eq!(verbs, ["get"], "{rule}");
            }
        }
    }

    #[test]
    fn op_8_the_configuration_is_a_map_that_is_mounted() {
        let pod = pod();
        let volume = &pod["volumes"][0];
        assert_eq!(volume["configMap"]["name"], OWN);
        let mount = &pod["containers"][0]["volumeMounts"][0];
        assert_eq!(mount["name"], volume["name"]);
        let read = format!("--config-file={}/{WRITTEN_KEY}", mount["mountPath"].as_str().unwrap());
        let args = pod["containers"][0]["args"].as_array().unwrap().clone();
        assert!(args.contains(&json!(read)), "{args:?}");
    }

    #[test]
    fn op_15_and_op_17_there_is_one_image_and_it_asks_for_little() {
        let text = json!(manifests().into_iter().flat_map(|it| it.objects).collect::<Vec<_>>());
        assert_eq!(text.to_string().matches("\"image\":").count(), 1);
        let requests = &pod()["containers"][0]["resources"]["requests"];
        // Each of the three deployments of the original requests more than that.
        assert_eq!((&requests["cpu"], &requests["memory"]), (&json!("1"), &json!("1Gi")));
    }

    #[test]
    fn rb_1_every_definition_that_is_looked_at_may_be_read() {
        let rule = rules(|file| file == BASE_FILE)
            .into_iter()
            .find(|rule| names(rule, "apiGroups") == ["apiextensions.k8s.io"])
            .unwrap();
        for name in SUBSYSTEMS.iter().flat_map(Subsystem::definitions) {
            assert!(names(&rule, "resourceNames").contains(&name.to_owned()), "{name}");
        }
    }

    #[test]
    fn files_are_applied_in_an_order_that_works() {
        let files: Vec<_> = manifests().iter().map(|manifest| manifest.file).collect();
        assert!(files.is_sorted(), "{files:?}");
        assert_eq!(manifests()[0].objects[0]["kind"], "Namespace");
    }
}
