//! Server-side apply to lists, by their type.

use serde_json::{Value, json};

use super::apply::{apply, owned};
use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, SERVICES, WIDGETS, config_map, define_widgets, deployment,
    object_path, widget,
};
use crate::case::{Case, Outcome, case, expect_equal};
use crate::session::{PatchType, Session};

pub(super) const CASES: &[Case] = &[
    case!("apply-defaulted-key", [45], defaulted_key),
    case!("apply-composite-key", [45], composite_key),
    case!("apply-set", [45], set),
    case!("apply-atomic-list", [45], atomic),
    case!("apply-elements-of-two", [45], two_managers),
    case!("apply-custom-lists", [45], custom_lists),
    case!("apply-custom-nested", [45], custom_maps),
    case!("apply-null", [45], null),
];

/// A Deployment with these ports on its container.
fn with_ports(ports: Value) -> Value {
    let mut object = deployment("d");
    object["spec"]["template"]["spec"]["containers"][0]["ports"] = ports;
    object
}

async fn defaulted_key(talk: &mut Session) -> Outcome {
    let object = with_ports(json!([{ "containerPort": 80 }]));
    let made = apply(talk, &object_path(DEPLOYMENTS, "d"), "m", &object).await?.expect(201)?;
    made.has_value("/spec/template/spec/containers/0/ports/0/protocol", &json!("TCP"))?;
    let own = owned(&made, "m");
    let container = &own["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"];
    let key = "k:{\"containerPort\":80,\"protocol\":\"TCP\"}";
    let expected = json!({ key: { ".": {}, "f:containerPort": {} } });
    expect_equal("the key has the default, the owner does not", &expected, &container["f:ports"])
}

async fn composite_key(talk: &mut Session) -> Outcome {
    let service = |ports: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" },
            "spec": { "clusterIP": "None", "ports": ports },
        })
    };
    let tcp = json!({ "name": "tcp", "port": 53, "protocol": "TCP" });
    let udp = json!({ "name": "udp", "port": 53, "protocol": "UDP" });
    let path = object_path(SERVICES, "s");
    apply(talk, &path, "m1", &service(json!([tcp]))).await?.expect(201)?;
    let both = apply(talk, &path, "m2", &service(json!([udp]))).await?.expect(200)?;
    expect_equal("two elements", &2, &both.at("/spec/ports").as_array().map_or(0, Vec::len))?;
    let key = "k:{\"port\":53,\"protocol\":\"UDP\"}";
    let own = owned(&both, "m2");
    let expected = json!({ ".": {}, "f:name": {}, "f:port": {}, "f:protocol": {} });
    expect_equal("the element", &expected, &own["f:spec"]["f:ports"][key])
}

async fn set(talk: &mut Session) -> Outcome {
    let path = object_path(CONFIG_MAPS, "a");
    let with_finalizers = |names: Value| {
        let mut object = config_map("a", "x");
        object["metadata"]["finalizers"] = names;
        object
    };
    let first = with_finalizers(json!(["case.test/a", "case.test/b"]));
    apply(talk, &path, "m1", &first).await?.expect(201)?;
    let second = with_finalizers(json!(["case.test/b", "case.test/c"]));
    let answer = apply(talk, &path, "m2", &second).await?.expect(200)?;
    let both = json!(["case.test/a", "case.test/b", "case.test/c"]);
    answer.has_value("/metadata/finalizers", &both)?;
    let expected = json!({ "v:\"case.test/b\"": {}, "v:\"case.test/c\"": {} });
    expect_equal("owned", &expected, &owned(&answer, "m2")["f:metadata"]["f:finalizers"])?;
    let answer = apply(talk, &path, "m1", &with_finalizers(Value::Null)).await?.expect(200)?;
    answer.has_value("/metadata/finalizers", &json!(["case.test/b", "case.test/c"]))?;
    let free = json!({ "metadata": { "finalizers": null } });
    talk.patch(&path, PatchType::Merge, &free).await?.expect(200)?;
    Ok(())
}

async fn atomic(talk: &mut Session) -> Outcome {
    let with_args = |args: Value| {
        let mut object = deployment("d");
        object["spec"]["template"]["spec"]["containers"][0]["args"] = args;
        object
    };
    let path = object_path(DEPLOYMENTS, "d");
    let made = apply(talk, &path, "m1", &with_args(json!(["a", "b"]))).await?.expect(201)?;
    let own = owned(&made, "m1");
    let container = &own["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"];
    expect_equal("owned whole", &json!({}), &container["f:args"])?;
    let answer = apply(talk, &path, "m2", &with_args(json!(["a", "b", "c"]))).await?;
    let message = "Apply failed with 1 conflict: conflict with \"m1\": \
                   .spec.template.spec.containers[name=\"c\"].args";
    answer.expect_error(409, "Conflict", message)?;
    Ok(())
}

async fn two_managers(talk: &mut Session) -> Outcome {
    let path = object_path(DEPLOYMENTS, "d");
    apply(talk, &path, "m1", &deployment("d")).await?.expect(201)?;
    let side = |containers: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
            "spec": { "template": { "spec": { "containers": containers } } },
        })
    };
    let added = side(json!([{ "name": "side", "image": "registry.test/side:1" }]));
    let answer = apply(talk, &path, "m2", &added).await?.expect(200)?;
    answer.has_value("/spec/template/spec/containers/0/name", &json!("c"))?;
    answer.has_value("/spec/template/spec/containers/1/name", &json!("side"))?;
    let answer = apply(talk, &path, "m2", &side(json!([]))).await?.expect(200)?;
    answer.has_no_value("/spec/template/spec/containers/1")
}

async fn custom_lists(talk: &mut Session) -> Outcome {
    let text = json!({ "type": "string" });
    let schema = json!({ "type": "object", "properties": {
        "plain": { "type": "array", "items": text },
        "set": { "type": "array", "items": text, "x-kubernetes-list-type": "set" },
        "map": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object", "required": ["k"],
                "properties": { "k": text, "v": text },
            },
        },
    } });
    define_widgets(talk, &schema).await?;
    let path = object_path(WIDGETS, "w");
    let first = json!({ "plain": ["a"], "set": ["a"], "map": [{ "k": "a", "v": "1" }] });
    let made = apply(talk, &path, "m1", &widget("w", &first)).await?.expect(201)?;
    let expected = json!({
        "f:plain": {},
        "f:set": { "v:\"a\"": {} },
        "f:map": { "k:{\"k\":\"a\"}": { ".": {}, "f:k": {}, "f:v": {} } },
    });
    expect_equal("owned", &expected, &owned(&made, "m1")["f:spec"])?;
    let second = json!({ "set": ["b"], "map": [{ "k": "b", "v": "2" }] });
    let answer = apply(talk, &path, "m2", &widget("w", &second)).await?.expect(200)?;
    answer.has_value("/spec/set", &json!(["a", "b"]))?;
    answer.has_value("/spec/map", &json!([{ "k": "a", "v": "1" }, { "k": "b", "v": "2" }]))?;
    let third = json!({ "plain": ["b"], "map": [{ "k": "a", "v": "3" }] });
    let answer = apply(talk, &path, "m2", &widget("w", &third)).await?;
    let message = "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .spec.plain\n- \
                   .spec.map[k=\"a\"].v";
    answer.expect_error(409, "Conflict", message)?;
    Ok(())
}

async fn custom_maps(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "whole": {
            "type": "object", "additionalProperties": { "type": "string" },
            "x-kubernetes-map-type": "atomic",
        },
        "parts": { "type": "object", "additionalProperties": { "type": "string" } },
    } });
    define_widgets(talk, &schema).await?;
    let spec = json!({
        "free": { "list": [1], "map": { "a": 1 } },
        "whole": { "a": "1" },
        "parts": { "a": "1" },
    });
    let made =
        apply(talk, &object_path(WIDGETS, "w"), "m", &widget("w", &spec)).await?.expect(201)?;
    let expected = json!({
        "f:free": { "f:list": {}, "f:map": { ".": {}, "f:a": {} } },
        "f:whole": {},
        "f:parts": { "f:a": {} },
    });
    expect_equal("owned", &expected, &owned(&made, "m")["f:spec"])?;
    let unknown = widget("w", &json!({ "nothing": 1 }));
    let answer = apply(talk, &object_path(WIDGETS, "w"), "m", &unknown).await?.expect(500)?;
    let message = talk.with_namespace(
        "failed to create typed patch object (/w; {ns}.case.test/v1, Kind=Widget): \
         .spec.nothing: field not declared in schema",
    );
    answer.has_value("/message", &json!(message))
}

async fn null(talk: &mut Session) -> Outcome {
    let path = object_path(CONFIG_MAPS, "a");
    let mut object = config_map("a", "x");
    object["metadata"]["labels"] = json!({ "l": "1" });
    talk.create(&format!("{CONFIG_MAPS}?fieldManager=m"), &object).await?;
    object["metadata"]["labels"] = json!({ "l": null });
    let answer =
        talk.patch(&format!("{path}?fieldManager=m&force=true"), PatchType::Apply, &object).await?;
    answer.expect(200)?.has_value("/metadata/labels/l", &json!(""))
}
