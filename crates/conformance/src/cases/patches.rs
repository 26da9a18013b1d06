//! JSON patch and merge patch.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, WIDGETS, at, config_map, define_widgets, deployment, widget,
};
use crate::case::{Case, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation, Patch};

pub(super) const CASES: &[Case] = &[
    case!("json-patch-operations", [40], operations),
    case!("json-patch-refusals", [40], refusals),
    case!("json-patch-that-is-none", [40], no_json_patch),
    case!("json-patch-too-long", [40], too_long),
    case!("merge-patch", [41], merge),
    case!("merge-patch-that-is-none", [41], no_merge_patch),
    case!("patch-of-custom-objects", [41, 42], custom),
    case!("patch-of-identity", [40, 41], identity),
    case!("patch-of-nothing", [40, 41], nothing),
];

async fn operations(talk: &mut Conversation) -> Outcome {
    let mut object = config_map("a", "x");
    object["metadata"]["finalizers"] = json!(["case.test/a", "case.test/b"]);
    talk.create(CONFIG_MAPS, &object).await?;
    let path = at(CONFIG_MAPS, "a");
    let table = [
        (json!([{ "op": "add", "path": "/data/b", "value": "y" }]), json!({ "a": "x", "b": "y" })),
        (
            json!([{ "op": "replace", "path": "/data/a", "value": "z" }]),
            json!({ "a": "z", "b": "y" }),
        ),
        // RFC 6902 refuses it; the real server does not.
        (
            json!([{ "op": "replace", "path": "/data/c", "value": "new" }]),
            json!({ "a": "z", "b": "y", "c": "new" }),
        ),
        (
            json!([{ "op": "test", "path": "/data/a", "value": "z" }, { "op": "remove", "path": "/data/c" }]),
            json!({ "a": "z", "b": "y" }),
        ),
        (
            json!([{ "op": "move", "from": "/data/b", "path": "/data/m~1n" }]),
            json!({ "a": "z", "m/n": "y" }),
        ),
    ];
    for (patch, data) in table {
        let refused = patch.to_string().contains("m~1n");
        let answer = talk.patch(&path, Patch::Json, &patch).await?;
        if refused {
            // A key of a ConfigMap has no slash; the error shows that the pointer was unescaped.
            answer.refused_with(422, "Invalid", "data[m/n]")?;
        } else {
            answer.expect(200)?.is("/data", &data)?;
        }
    }
    let copy = json!([{ "op": "copy", "from": "/data/a", "path": "/data/d" }]);
    talk.patch(&path, Patch::Json, &copy).await?.expect(200)?.is("/data/d", &json!("z"))?;
    let append = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "case.test/c" }]);
    let answer = talk.patch(&path, Patch::Json, &append).await?.expect(200)?;
    answer.is("/metadata/finalizers", &json!(["case.test/a", "case.test/b", "case.test/c"]))?;
    let insert = json!([{ "op": "add", "path": "/metadata/finalizers/1", "value": "case.test/d" }]);
    let answer = talk.patch(&path, Patch::Json, &insert).await?.expect(200)?;
    let expected = json!(["case.test/a", "case.test/d", "case.test/b", "case.test/c"]);
    answer.is("/metadata/finalizers", &expected)?;
    let free = json!([{ "op": "remove", "path": "/metadata/finalizers" }]);
    talk.patch(&path, Patch::Json, &free).await?.expect(200)?.lacks("/metadata/finalizers")
}

async fn refusals(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let message = "the server rejected our request due to an error in our request";
    let table = [
        json!([{ "op": "test", "path": "/data/a", "value": "other" }]),
        json!([{ "op": "remove", "path": "/data/none" }]),
        json!([{ "op": "add", "path": "/none/a/b", "value": 1 }]),
        json!([{ "op": "zap", "path": "/data/a" }]),
    ];
    for patch in table {
        let answer = talk.patch(&at(CONFIG_MAPS, "a"), Patch::Json, &patch).await?;
        answer.refused(422, "Invalid", message)?.is("/details", &json!({}))?;
    }
    // RFC 6902 refuses it; the real server copies an absent member as an empty one.
    let copy = json!([{ "op": "copy", "from": "/data/none", "path": "/data/b" }]);
    let answer = talk.patch(&at(CONFIG_MAPS, "a"), Patch::Json, &copy).await?.expect(200)?;
    answer.is("/data", &json!({ "a": "x", "b": "" }))
}

async fn no_json_patch(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = at(CONFIG_MAPS, "a");
    let answer = talk.patch(&path, Patch::Json, &json!({ "op": "add" })).await?;
    answer.refused(
        400,
        "BadRequest",
        "error decoding patch: json: cannot unmarshal object into Go value of type \
         []handlers.jsonPatchOp",
    )?;
    let ask = Ask::new("PATCH", path).text(Patch::Json.media_type(), "[{");
    talk.ask(ask).await?.refused_with(400, "BadRequest", "error decoding patch: ")?;
    Ok(())
}

async fn too_long(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let operation = json!({ "op": "test", "path": "/data/a", "value": "x" });
    let patch = Value::Array(vec![operation; 10_001]);
    // The patch is not worth keeping.
    let ask = Ask::patch(at(CONFIG_MAPS, "a"), Patch::Json, &patch);
    let answer = talk.ask_unrecorded(ask).await?;
    answer.refused(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got \
         10001",
    )?;
    Ok(())
}

async fn merge(talk: &mut Conversation) -> Outcome {
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let path = at(DEPLOYMENTS, "d");
    let labels = json!({ "metadata": { "labels": { "a": "1", "b": "2" } } });
    talk.patch(&path, Patch::Merge, &labels).await?.expect(200)?;
    let change = json!({ "metadata": { "labels": { "a": null, "c": "3" } } });
    let answer = talk.patch(&path, Patch::Merge, &change).await?.expect(200)?;
    answer.is("/metadata/labels", &json!({ "b": "2", "c": "3" }))?;
    let list = json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "other", "image": "registry.test/other:1" },
    ] } } } });
    let answer = talk.patch(&path, Patch::Merge, &list).await?.expect(200)?;
    let containers = answer.at("/spec/template/spec/containers");
    same("a list is replaced", &1, &containers.as_array().map_or(0, Vec::len))?;
    answer.is("/spec/template/spec/containers/0/name", &json!("other"))
}

async fn no_merge_patch(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    for text in ["[]", "{", "\"text\"", "null"] {
        let ask = Ask::new("PATCH", at(CONFIG_MAPS, "a")).text(Patch::Merge.media_type(), text);
        let answer = talk.ask(ask).await?;
        if text != "null" {
            answer.refused_with(400, "BadRequest", "error decoding patch: ")?;
        }
    }
    Ok(())
}

async fn custom(talk: &mut Conversation) -> Outcome {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    define_widgets(talk, &schema).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": [1, 2], "b": { "c": 1 } }))).await?;
    let path = at(WIDGETS, "w");
    let change = json!({ "spec": { "a": [3], "b": { "c": null, "d": 2 } } });
    let answer = talk.patch(&path, Patch::Merge, &change).await?.expect(200)?;
    answer.is("/spec", &json!({ "a": [3], "b": { "d": 2 } }))?;
    let add = json!([{ "op": "add", "path": "/spec/a/0", "value": 0 }]);
    let answer = talk.patch(&path, Patch::Json, &add).await?.expect(200)?;
    answer.is("/spec/a", &json!([0, 3]))?;
    let message = "the body of the request was in an unknown format - accepted media types \
                   include: application/json-patch+json, application/merge-patch+json, \
                   application/apply-patch+yaml";
    let answer = talk.patch(&path, Patch::Strategic, &change).await?;
    answer.refused(415, "UnsupportedMediaType", message)?;
    Ok(())
}

async fn identity(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = at(CONFIG_MAPS, "a");
    let table = [
        (
            json!({ "metadata": { "name": "b" } }),
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            json!({ "metadata": { "namespace": "elsewhere" } }),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ];
    for (change, message) in table {
        let answer = talk.patch(&path, Patch::Merge, &change).await?;
        answer.refused(400, "BadRequest", message)?;
    }
    for change in [json!({ "kind": "Secret" }), json!({ "apiVersion": "v2" })] {
        let answer = talk.patch(&path, Patch::Merge, &change).await?;
        holds("a refusal", matches!(answer.status, 400 | 422))?;
    }
    Ok(())
}

async fn nothing(talk: &mut Conversation) -> Outcome {
    for form in [Patch::Merge, Patch::Strategic] {
        let answer = talk.patch(&at(CONFIG_MAPS, "none"), form, &json!({})).await?;
        answer.refused(404, "NotFound", "configmaps \"none\" not found")?;
    }
    talk.patch(&at(CONFIG_MAPS, "none"), Patch::Json, &json!([])).await?.expect(404)?;
    Ok(())
}
