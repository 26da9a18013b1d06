//! Server-side apply.

use super::*;
use crate::fixtures;

fn replicas(count: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
        "spec": { "replicas": count },
    })
}

fn fixture() -> OwnershipFixture {
    OwnershipFixture::new(fixtures::config_map(), "v1")
}

fn deployment_fixture() -> OwnershipFixture {
    OwnershipFixture::new(fixtures::deployment(), "apps/v1")
}

fn apply_error(answer: Result<Value, ApplyError>) -> String {
    answer.unwrap_err().to_string()
}

#[test]
fn applying_twice_changes_nothing() {
    let mut story = fixture();
    let made = story.apply("m", &config_map(&json!({ "a": "x" }))).unwrap();
    assert_eq!(owned(&made, "m"), json!({ "f:data": { "f:a": {} } }));
    assert_eq!(
        made["metadata"]["managedFields"],
        json!([{
            "manager": "m", "operation": "Apply", "apiVersion": "v1", "time": NOW,
            "fieldsType": "FieldsV1", "fieldsV1": { "f:data": { "f:a": {} } },
        }])
    );
    story.now = "2027-01-01T00:00:00Z".to_owned();
    assert_eq!(story.apply("m", &config_map(&json!({ "a": "x" }))).unwrap(), made);
}

#[test]
fn conflicts_name_the_owner() {
    let mut story = deployment_fixture();
    story.apply("m1", &deployment()).unwrap();
    let error = story.apply("m2", &replicas(5)).unwrap_err();
    let message = "Apply failed with 1 conflict: conflict with \"m1\": .spec.replicas";
    assert_eq!(error.to_string(), message);
    let ApplyError::Conflict(conflicts) = error else { panic!("{error}") };
    let causes: Vec<_> = conflicts.iter().map(|it| (it.message(), it.field())).collect();
    assert_eq!(causes, [("conflict with \"m1\"".to_owned(), ".spec.replicas".to_owned())]);

    let mut story = deployment_fixture();
    story.update("u", &deployment());
    let message = "Apply failed with 1 conflict: conflict with \"u\" using apps/v1: .spec.replicas";
    assert_eq!(apply_error(story.apply("m", &replicas(5))), message);

    story.subresource = "status";
    story.patch("controller", &json!({ "status": { "observedGeneration": 1 } }));
    let mut mine = replicas(1);
    mine["spec"] = json!(null);
    mine["status"] = json!({ "observedGeneration": 7 });
    let message = "Apply failed with 1 conflict: conflict with \"controller\" with subresource \
                   \"status\" using apps/v1: .status.observedGeneration";
    assert_eq!(apply_error(story.apply("m", &mine)), message);
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let mut story = deployment_fixture();
    story.apply("m1", &deployment()).unwrap();
    story.patch("u", &json!({ "metadata": { "labels": { "l": "1" } } }));
    let mut mine = deployment();
    mine["metadata"]["labels"] = json!({ "l": "2" });
    mine["spec"]["replicas"] = json!(5);
    mine["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.test/c:2");
    let message = "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .spec.replicas\n- \
                   .spec.template.spec.containers[name=\"c\"].image\nconflicts with \"u\" using \
                   apps/v1:\n- .metadata.labels.l";
    assert_eq!(apply_error(story.apply("m2", &mine)), message);
}

#[test]
fn force_transfers_ownership() {
    let mut story = deployment_fixture();
    story.apply("m1", &deployment()).unwrap();
    let answer = story.apply_with("m2", &replicas(5), true).unwrap();
    assert_eq!(answer["spec"]["replicas"], 5);
    assert_eq!(owned(&answer, "m2"), json!({ "f:spec": { "f:replicas": {} } }));
    assert_eq!(owned(&answer, "m1")["f:spec"]["f:replicas"], Value::Null);
    assert_eq!(owned(&answer, "m1")["f:spec"]["f:selector"], json!({}));
}

#[test]
fn equal_values_are_co_owned() {
    let mut story = fixture();
    story.apply("m1", &config_map(&json!({ "a": "x" }))).unwrap();
    let both = story.apply("m2", &config_map(&json!({ "a": "x" }))).unwrap();
    let field = json!({ "f:data": { "f:a": {} } });
    assert_eq!((owned(&both, "m1"), owned(&both, "m2")), (field.clone(), field));
    // Who changed nothing has no time: so does the original server.
    assert_eq!(entry(&both, "m2")["time"], Value::Null);
    let message = "Apply failed with 1 conflict: conflict with \"m2\": .data.a";
    assert_eq!(apply_error(story.apply("m1", &config_map(&json!({ "a": "y" })))), message);
}

#[test]
fn released_fields_are_pruned() {
    let mut story = fixture();
    story.apply("m1", &config_map(&json!({ "mine": "1", "ours": "2" }))).unwrap();
    story.apply("m2", &config_map(&json!({ "ours": "2" }))).unwrap();
    let answer = story.apply("m1", &config_map(&json!({}))).unwrap();
    assert_eq!(answer["data"], json!({ "ours": "2" }));
    let answer = story.apply("m2", &config_map(&Value::Null)).unwrap();
    assert_eq!(answer.get("data"), None);
}

/// What the server itself filled in was never applied, so releasing its neighbour leaves it alone.
#[test]
fn unowned_fields_survive_release() {
    let widget = |parts: Value| {
        json!({
            "apiVersion": "case.test/v1", "kind": "Widget", "metadata": { "name": "w" },
            "spec": { "parts": parts },
        })
    };
    let mut story = OwnershipFixture::new(fixtures::widget(), "case.test/v1");
    story.apply("m1", &widget(json!({ "mine": "1" }))).unwrap();
    story.apply("m2", &widget(json!({ "theirs": "2" }))).unwrap();
    story.live.as_mut().unwrap()["spec"]["parts"]["filled-in"] = json!("3");
    let answer = story.apply("m1", &widget(json!({}))).unwrap();
    assert_eq!(answer["spec"]["parts"], json!({ "theirs": "2", "filled-in": "3" }));
}

#[test]
fn before_first_apply_manager() {
    let mut story = fixture();
    story.update("u", &config_map(&json!({ "a": "x" })));
    let cleared = story.patch("u", &json!({ "metadata": { "managedFields": [] } }));
    assert_eq!(cleared["metadata"].get("managedFields"), None);
    let untracked = story.patch("u", &json!({ "data": { "b": "y" } }));
    assert_eq!(untracked["metadata"].get("managedFields"), None);
    let answer = story.apply("m", &config_map(&json!({ "a": "x" }))).unwrap();
    let before = json!({ "f:data": { ".": {}, "f:a": {}, "f:b": {} } });
    assert_eq!(owned(&answer, "before-first-apply"), before);
    let message = "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: \
                   .data.a";
    assert_eq!(apply_error(story.apply("m", &config_map(&json!({ "a": "z" })))), message);
}

#[test]
fn errors_match_upstream() {
    let start = "failed to create typed patch object (/d; apps/v1, Kind=Deployment): ";
    let mut unknown = deployment();
    unknown["spec"]["nothing"] = json!(1);
    let mut wrong = deployment();
    wrong["spec"]["replicas"] = json!("three");
    let mut twice = deployment();
    let container = json!({ "name": "c", "image": "registry.test/c:1" });
    twice["spec"]["template"]["spec"]["containers"] = json!([container, container]);
    let table = [
        (unknown, ".spec.nothing: field not declared in schema"),
        (wrong, ".spec.replicas: expected numeric (int or float), got string"),
        (twice, ".spec.template.spec.containers: duplicate entries for key [name=\"c\"]"),
    ];
    for (object, problem) in table {
        assert_eq!(
            apply_error(deployment_fixture().apply("m", &object)),
            format!("{start}{problem}")
        );
    }
    let mut managed = config_map(&json!({}));
    managed["metadata"]["managedFields"] = json!([{}]);
    assert_eq!(fixture().apply("m", &managed).unwrap_err(), ApplyError::ManagedFields);
}

#[test]
fn defaulted_keys_are_not_owned() {
    let mut object = deployment();
    object["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 80 }]);
    let made = deployment_fixture().apply("m", &object).unwrap();
    let own = owned(&made, "m");
    let container = &own["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"];
    let key = "k:{\"containerPort\":80,\"protocol\":\"TCP\"}";
    assert_eq!(container["f:ports"], json!({ key: { ".": {}, "f:containerPort": {} } }));
}

#[test]
fn composite_keys_tell_elements_apart() {
    let service = |ports: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" },
            "spec": { "ports": ports },
        })
    };
    let mut story = OwnershipFixture::new(fixtures::service(), "v1");
    let tcp = json!({ "name": "tcp", "port": 53, "protocol": "TCP" });
    let udp = json!({ "name": "udp", "port": 53, "protocol": "UDP" });
    story.apply("m1", &service(json!([tcp]))).unwrap();
    let both = story.apply("m2", &service(json!([udp]))).unwrap();
    assert_eq!(both["spec"]["ports"], json!([tcp, udp]));
    let key = "k:{\"port\":53,\"protocol\":\"UDP\"}";
    let expected = json!({ ".": {}, "f:name": {}, "f:port": {}, "f:protocol": {} });
    assert_eq!(owned(&both, "m2")["f:spec"]["f:ports"][key], expected);
}

#[test]
fn sets_are_shared_element_by_element() {
    let with_finalizers = |names: Value| {
        let mut object = config_map(&json!({ "a": "x" }));
        object["metadata"]["finalizers"] = names;
        object
    };
    let mut story = fixture();
    story.apply("m1", &with_finalizers(json!(["a", "b"]))).unwrap();
    let answer = story.apply("m2", &with_finalizers(json!(["b", "c"]))).unwrap();
    assert_eq!(answer["metadata"]["finalizers"], json!(["a", "b", "c"]));
    let expected = json!({ "v:\"b\"": {}, "v:\"c\"": {} });
    assert_eq!(owned(&answer, "m2")["f:metadata"]["f:finalizers"], expected);
    let answer = story.apply("m1", &with_finalizers(Value::Null)).unwrap();
    assert_eq!(answer["metadata"]["finalizers"], json!(["b", "c"]));
}

#[test]
fn two_managers_share_a_list() {
    let side = |containers: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
            "spec": { "template": { "spec": { "containers": containers } } },
        })
    };
    let mut story = deployment_fixture();
    story.apply("m1", &deployment()).unwrap();
    let added = side(json!([{ "name": "side", "image": "registry.test/side:1" }]));
    let answer = story.apply("m2", &added).unwrap();
    let containers = &answer["spec"]["template"]["spec"]["containers"];
    assert_eq!((&containers[0]["name"], &containers[1]["name"]), (&json!("c"), &json!("side")));
    let answer = story.apply("m2", &side(json!([]))).unwrap();
    let containers = &answer["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers.as_array().map(Vec::len), Some(1));
}

#[test]
fn custom_lists_and_maps_are_owned_by_their_type() {
    let widget = |spec: Value| {
        json!({
            "apiVersion": "case.test/v1", "kind": "Widget", "metadata": { "name": "w" },
            "spec": spec,
        })
    };
    let mut story = OwnershipFixture::new(fixtures::widget(), "case.test/v1");
    let first = json!({
        "plain": ["a"], "set": ["a"], "map": [{ "k": "a", "v": "1" }],
        "free": { "list": [1], "map": { "a": 1 } }, "whole": { "a": "1" }, "parts": { "a": "1" },
    });
    let made = story.apply("m1", &widget(first)).unwrap();
    let expected = json!({
        "f:plain": {},
        "f:set": { "v:\"a\"": {} },
        "f:map": { "k:{\"k\":\"a\"}": { ".": {}, "f:k": {}, "f:v": {} } },
        "f:free": { "f:list": {}, "f:map": { ".": {}, "f:a": {} } },
        "f:whole": {},
        "f:parts": { "f:a": {} },
    });
    assert_eq!(owned(&made, "m1")["f:spec"], expected);
    let second = json!({ "set": ["b"], "map": [{ "k": "b", "v": "2" }] });
    let answer = story.apply("m2", &widget(second)).unwrap();
    assert_eq!(answer["spec"]["set"], json!(["a", "b"]));
    assert_eq!(answer["spec"]["map"], json!([{ "k": "a", "v": "1" }, { "k": "b", "v": "2" }]));
    let third = json!({ "plain": ["b"], "map": [{ "k": "a", "v": "3" }] });
    let message = "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .spec.plain\n- \
                   .spec.map[k=\"a\"].v";
    assert_eq!(apply_error(story.apply("m2", &widget(third))), message);
}

#[test]
fn a_status_apply_owns_status_only() {
    let widget = |status: Value| {
        json!({
            "apiVersion": "case.test/v1", "kind": "Widget", "metadata": { "name": "w" },
            "spec": { "replicas": 9 }, "status": status,
        })
    };
    let mut story = OwnershipFixture::new(fixtures::widget(), "case.test/v1");
    let mut made = widget(Value::Null);
    made.as_object_mut().unwrap().remove("status");
    story.update("u", &made);
    story.subresource = "status";
    story.reset.insert(&Path::fields(&["spec"]).0);
    let answer = story.apply("m", &widget(json!({ "replicas": 3 }))).unwrap();
    assert_eq!(owned(&answer, "m"), json!({ "f:status": { "f:replicas": {} } }));
    assert_eq!(entry(&answer, "m")["subresource"], "status");
}

#[test]
fn moving_from_client_side_apply_needs_no_force() {
    let mut story = fixture();
    let applied = config_map(&json!({ "a": "x" }));
    let mut made = applied.clone();
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    made["metadata"]["annotations"] = json!({ annotation: applied.to_string() });
    story.update("kubectl-client-side-apply", &made);
    let change = config_map(&json!({ "a": "y" }));
    assert!(story.apply("other", &change).is_err());
    let answer = story.apply("kubectl", &change).unwrap();
    assert_eq!(answer["data"], json!({ "a": "y" }));
    let renewed = answer["metadata"]["annotations"][annotation].as_str().unwrap();
    assert!(renewed.ends_with("}\n"), "{renewed:?}");
    assert_eq!(serde_json::from_str::<Value>(renewed).unwrap(), change);
}
