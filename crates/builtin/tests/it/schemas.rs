//! Compares schemas with the tables of the specification.

use std::collections::BTreeMap;

use gantry_builtin::{kind_type, named_type, schema};
use gantry_schema::{ListType, MergeStrategy, NodeId, Scalar, Schema, Shape};
use serde_json::json;

/// The node at a dotted path; `[]` steps into a list, `{}` into a map.
fn at(schema: &Schema, path: &str) -> NodeId {
    path.split('.').fold(schema.root(), |node, step| match &schema.node(node).shape {
        Shape::List { items, .. } if step == "[]" => *items,
        Shape::Map { values, .. } if step == "{}" => *values,
        _ => schema.entry(node, step).unwrap_or_else(|| panic!("{path}: no {step}")),
    })
}

fn keyed(schema: &Schema, path: &str) -> ListType {
    match &schema.node(at(schema, path)).shape {
        Shape::List { list_type, .. } => list_type.clone(),
        other => panic!("{path} is {other:?}"),
    }
}

fn map(keys: &[&str]) -> ListType {
    ListType::Map(keys.iter().map(|key| (*key).into()).collect())
}

#[test]
fn lists_of_a_pod_are_keyed() {
    let pod = schema(kind_type("", "v1", "Pod").unwrap());
    let table = [
        ("metadata.finalizers", ListType::Set),
        ("metadata.ownerReferences", map(&["uid"])),
        ("metadata.managedFields", ListType::Atomic),
        ("spec.containers", map(&["name"])),
        ("spec.containers.[].ports", map(&["containerPort", "protocol"])),
        ("spec.containers.[].env", map(&["name"])),
        ("spec.containers.[].args", ListType::Atomic),
        ("spec.containers.[].resources.claims", map(&["name"])),
        ("spec.topologySpreadConstraints", map(&["topologyKey", "whenUnsatisfiable"])),
        ("spec.tolerations", ListType::Atomic),
        ("spec.imagePullSecrets", map(&["name"])),
        ("status.podIPs", map(&["ip"])),
        ("status.hostIPs", ListType::Atomic),
        ("status.conditions", map(&["type"])),
    ];
    for (path, expected) in table {
        assert_eq!(keyed(&pod, path), expected, "{path}");
    }
    let protocol = at(&pod, "spec.containers.[].ports.[].protocol");
    assert_eq!(pod.node(protocol).default, Some(json!("TCP")));
}

#[test]
fn structs_and_maps_are_granular_or_atomic() {
    let pod = schema(kind_type("", "v1", "Pod").unwrap());
    let service = schema(kind_type("", "v1", "Service").unwrap());
    let deployment = schema(kind_type("apps", "v1", "Deployment").unwrap());
    let table = [
        (&pod, "metadata.labels", false),
        (&pod, "metadata.annotations", false),
        (&pod, "metadata.ownerReferences.[]", true),
        (&pod, "spec.nodeSelector", true),
        (&pod, "spec.containers.[]", false),
        (&pod, "spec.containers.[].resources.limits", false),
        (&pod, "spec.containers.[].env.[].valueFrom.secretKeyRef", true),
        (&pod, "spec.imagePullSecrets.[]", true),
        (&service, "spec.selector", true),
        (&deployment, "spec.selector", true),
        (&deployment, "spec.template.spec", false),
    ];
    for (schema, path, expected) in table {
        let atomic = match &schema.node(at(schema, path)).shape {
            Shape::Struct { atomic, .. } | Shape::Map { atomic, .. } => *atomic,
            other => panic!("{path} is {other:?}"),
        };
        assert_eq!(atomic, expected, "{path}");
    }
    let scalars = [
        ("spec.containers.[].resources.limits.{}", Scalar::IntOrString),
        ("spec.containers.[].livenessProbe.httpGet.port", Scalar::IntOrString),
        ("spec.priority", Scalar::Integer),
        ("metadata.creationTimestamp", Scalar::String),
        ("spec.hostNetwork", Scalar::Boolean),
    ];
    for (path, expected) in scalars {
        let shape = &pod.node(at(&pod, path)).shape;
        assert!(matches!(shape, Shape::Scalar(scalar) if *scalar == expected), "{path}");
    }
}

#[test]
fn a_schema_may_hold_itself() {
    let definition =
        schema(kind_type("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap());
    let top = "spec.versions.[].schema.openAPIV3Schema";
    let deep = format!("{top}.properties.{{}}.not.properties.{{}}.not");
    assert_eq!(at(&definition, &format!("{top}.not")), at(&definition, &deep));
}

/// Every field that a strategic merge patch does not simply replace
/// (a list) or merge (anything else), and nothing but those.
#[test]
fn merge_strategies_are_those_of_the_specification() {
    let (merge, merge_and_retain) = ("merge", "merge,retainKeys");
    let mut expected = BTreeMap::new();
    let mut expect = |types: &[&str], fields: &[&str], key: &str, strategy: &str| {
        for ty in types {
            for field in fields {
                let said = (key.to_owned(), strategy.to_owned());
                expected.insert(format!("{ty}.{field}"), said);
            }
        }
    };
    expect(&["meta.v1.ObjectMeta"], &["ownerReferences"], "uid", merge);
    expect(&["meta.v1.ObjectMeta"], &["finalizers"], "", merge);
    expect(
        &["core.v1.PodSpec"],
        &["containers", "initContainers", "ephemeralContainers"],
        "name",
        merge,
    );
    expect(&["core.v1.PodSpec"], &["volumes", "resourceClaims"], "name", merge_and_retain);
    expect(&["core.v1.PodSpec"], &["imagePullSecrets", "schedulingGates"], "name", merge);
    expect(&["core.v1.PodSpec"], &["hostAliases"], "ip", merge);
    expect(&["core.v1.PodSpec"], &["topologySpreadConstraints"], "topologyKey", merge);
    let containers = ["core.v1.Container", "core.v1.EphemeralContainer"];
    expect(&containers, &["env"], "name", merge);
    expect(&containers, &["ports"], "containerPort", merge);
    expect(&containers, &["volumeMounts"], "mountPath", merge);
    expect(&containers, &["volumeDevices"], "devicePath", merge);
    expect(&["core.v1.PodStatus"], &["podIPs", "hostIPs"], "ip", merge);
    expect(&["core.v1.PodStatus"], &["resourceClaimStatuses"], "name", merge_and_retain);
    expect(&["core.v1.ContainerStatus"], &["volumeMounts"], "mountPath", merge);
    expect(&["core.v1.ContainerStatus"], &["allocatedResourcesStatus"], "name", merge);
    expect(&["core.v1.ServiceSpec"], &["ports"], "port", merge);
    expect(&["core.v1.ServiceAccount"], &["secrets"], "name", merge);
    expect(&["core.v1.NodeSpec"], &["podCIDRs"], "", merge);
    expect(&["core.v1.NodeStatus"], &["addresses"], "type", merge);
    let conditions = [
        "core.v1.NodeStatus",
        "core.v1.PodStatus",
        "core.v1.NamespaceStatus",
        "core.v1.PersistentVolumeClaimStatus",
        "core.v1.ReplicationControllerStatus",
        "core.v1.ServiceStatus",
        "core.v1.ComponentStatus",
        "apps.v1.DeploymentStatus",
        "apps.v1.ReplicaSetStatus",
        "apps.v1.StatefulSetStatus",
        "apps.v1.DaemonSetStatus",
        "batch.v1.JobStatus",
        "autoscaling.v2.HorizontalPodAutoscalerStatus",
        "policy.v1.PodDisruptionBudgetStatus",
        "networking.v1.ServiceCIDRStatus",
        "apiregistration.v1.APIServiceStatus",
        "flowcontrol.v1.FlowSchemaStatus",
        "flowcontrol.v1.PriorityLevelConfigurationStatus",
    ];
    expect(&conditions, &["conditions"], "type", merge);
    expect(&["apps.v1.DeploymentSpec"], &["strategy"], "", "retainKeys");
    expect(&["policy.v1.PodDisruptionBudgetSpec"], &["selector"], "", "replace");
    let hooks = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];
    let hooks = hooks.map(|name| format!("admissionregistration.v1.{name}"));
    expect(&hooks.each_ref().map(String::as_str), &["webhooks"], "name", merge);
    let matching = ["ValidatingWebhook", "MutatingWebhook", "ValidatingAdmissionPolicySpec"];
    let matching = matching.map(|name| format!("admissionregistration.v1.{name}"));
    expect(&matching.each_ref().map(String::as_str), &["matchConditions"], "name", merge);
    expect(
        &["admissionregistration.v1.ValidatingAdmissionPolicySpec"],
        &["variables"],
        "name",
        merge,
    );
    expect(&["resource.v1.ResourceClaimStatus"], &["reservedFor"], "uid", merge);
    expect(&["storage.v1.CSINodeSpec"], &["drivers"], "name", merge);
    expect(&["apiextensions.v1.JSONSchemaProps"], &["x-kubernetes-validations"], "rule", merge);

    let mut found = BTreeMap::new();
    for name in every_type() {
        let id = named_type(&name).unwrap();
        let schema = schema(id);
        let Shape::Struct { fields, .. } = &schema.node(schema.root()).shape else {
            panic!("{name} is no struct");
        };
        for (field, known) in fields {
            if known.merge == MergeStrategy::default() {
                continue;
            }
            let MergeStrategy { merge, merge_key, replace, retain_keys } = &known.merge;
            let words = [(*merge, "merge"), (*replace, "replace"), (*retain_keys, "retainKeys")];
            let words: Vec<&str> = words.iter().filter(|word| word.0).map(|word| word.1).collect();
            let short: Vec<&str> = name.rsplitn(4, '.').take(3).collect();
            let place = format!("{}.{}.{}.{field}", short[2], short[1], short[0]);
            let key = merge_key.as_deref().unwrap_or_default().to_owned();
            found.insert(place, (key, words.join(",")));
        }
    }
    assert_eq!(found, expected);
}

/// Every type that a document describes and the table has.
fn every_type() -> Vec<String> {
    let mut names = Vec::new();
    for path in gantry_builtin::openapi::paths() {
        let text = gantry_builtin::openapi::document(path).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let schemas = document["components"]["schemas"].as_object().cloned().unwrap_or_default();
        names.extend(schemas.keys().filter(|name| named_type(name).is_some()).cloned());
    }
    names.sort();
    names.dedup();
    names
}
