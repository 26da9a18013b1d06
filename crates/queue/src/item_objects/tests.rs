#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use jiff::Timestamp;

use super::*;

const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");
const ROLES: Resource =
    Resource::namespaced("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
        .cluster_scoped();

fn made(template: &Value) -> Result<ItemObject, ItemError> {
    let wrapper: AppWrapper = serde_json::from_value(json!({
        "metadata": {"name": "job", "namespace": "home", "uid": "u1"},
        "spec": {"resources": {"GenericItems": [{"generictemplate": template}]}},
    }))
    .unwrap();
    let world = World::default();
    let named = TypeName::of_object(template);
    world.facts::<ServedKind>().record(named, ServedKind::NotServed, Timestamp::MIN);
    let clusters = Resource::namespaced("ray.io", "v1", "rayclusters", "RayCluster");
    kind_discovery::record_served(&world, [DEPLOYMENTS, ROLES, clusters], Timestamp::MIN);
    build_item(&world, &wrapper, 0, &wrapper.items()[0])
}

fn deployment(metadata: Value, template: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
           "spec": {"template": template}})
}

#[test]
fn ds_1_and_ds_2_items_that_cannot_be_created_are_reported() {
    let pod = |metadata: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    let table = [
        (Value::Null, "item 0 has no generictemplate"),
        (pod(json!({})), "item 0 has no metadata.name"),
        (
            json!({"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "a"}}),
            "no matches for kind \"Pod\" in version \"v2\"",
        ),
        (
            pod(json!({"name": "a", "namespace": "away"})),
            "Pod \"a\" is in namespace \"away\": items must be in the namespace of their AppWrapper",
        ),
        (
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"}}),
            "ClusterRole \"a\" is cluster-scoped: items must be in the namespace of their AppWrapper",
        ),
        (
            json!({"apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": "a"}}),
            "AppWrapper \"a\" cannot be an item of another one",
        ),
    ];
    for (template, expected) in table {
        assert_eq!(made(&template).unwrap_err().to_string(), expected);
    }
    assert_eq!(
        made(&pod(json!({"name": "a", "namespace": "home"}))).unwrap().key,
        Key::new("home", "a")
    );
}

#[test]
fn ds_3_long_names_are_cut() {
    let name = "x".repeat(80);
    let made = made(&deployment(json!({"name": name}), json!({}))).unwrap();
    assert_eq!(made.key.name(), &name[..63]);
    assert_eq!(made.body["metadata"]["labels"][ITEM_LABEL], name[..63]);
}

/// Scenario B10: items and their pods carry both labels.
#[test]
fn ds_4_objects_and_pod_templates_are_labelled() {
    let with = |labels: Value| {
        deployment(
            json!({"name": "d", "labels": {"app": "a"}}),
            json!({"metadata": {"labels": labels}}),
        )
    };
    let ours = json!({"app": "a", APP_WRAPPER_LABEL: "job", ITEM_LABEL: "d"});
    let table = [
        (
            "a map is added to",
            with(json!({"tier": "x", "app": "b"})),
            json!({"tier": "x", "app": "a", APP_WRAPPER_LABEL: "job", ITEM_LABEL: "d"}),
        ),
        (
            "a map is made",
            deployment(json!({"name": "d", "labels": {"app": "a"}}), json!({})),
            ours.clone(),
        ),
    ];
    for (why, template, expected) in table {
        let made = made(&template).unwrap();
        assert_eq!(made.body["metadata"]["labels"], ours, "{why}");
        assert_eq!(made.body["spec"]["template"]["metadata"]["labels"], expected, "{why}");
    }
    let pod = made(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}})).unwrap();
    assert_eq!(pod.body["metadata"]["labels"], json!({APP_WRAPPER_LABEL: "job", ITEM_LABEL: "p"}));
    assert!(pod.body["spec"]["template"].is_null());
    let ray =
        made(&json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"},
        "spec": {"headGroupSpec": {"template": {}}}}))
        .unwrap();
    assert_eq!(
        ray.body["spec"]["headGroupSpec"]["template"]["metadata"]["labels"],
        json!({APP_WRAPPER_LABEL: "job", ITEM_LABEL: "r"}),
        "nested templates too"
    );
    let bare =
        made(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}))
            .unwrap();
    assert!(bare.body["spec"].is_null(), "no template is made where there is none");
}

#[test]
fn ds_5_the_app_wrapper_owns_what_is_made() {
    let made =
        made(&deployment(json!({"name": "d", "ownerReferences": [{"name": "other"}]}), json!({})))
            .unwrap();
    assert_eq!(
        made.body["metadata"]["ownerReferences"],
        json!([{"name": "other"}, {
            "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "name": "job",
            "uid": "u1", "controller": true, "blockOwnerDeletion": true,
        }])
    );
}
