//! JSON patch and merge patch.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, WIDGETS, config_map, define_widgets, deployment, object_path, widget,
};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::session::{PatchType, RequestSpec, Session};

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

async fn operations(talk: &mut Session) -> Outcome {
    let mut object = config_map("a", "x");
    object["metadata"]["finalizers"] = json!(["case.test/a", "case.test/b"]);
    talk.create(CONFIG_MAPS, &object).await?;
    let path = object_path(CONFIG_MAPS, "a");
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
            json!([
                { "op": "test", "path": "/data/a", "value": "z" },
                { "op": "remove", "path": "/data/c" },
            ]),
            json!({ "a": "z", "b": "y" }),
        ),
        (
            json!([{ "op": "move", "from": "/data/b", "path": "/data/m~1n" }]),
            json!({ "a": "z", "m/n": "y" }),
        ),
    ];
    for (patch, data) in table {
        let refused = patch.to_string().contains("m~1n");
        let answer = talk.patch(&path, PatchType::Json, &patch).await?;
        if refused {
            // A key of a ConfigMap has no slash; the error shows that the pointer was unescaped.
            answer.expect_error_containing(422, "Invalid", "data[m/n]")?;
        } else {
            answer.expect(200)?.has_value("/data", &data)?;
        }
    }
    let copy = json!([{ "op": "copy", "from": "/data/a", "path": "/data/d" }]);
    talk.patch(&path, PatchType::Json, &copy)
        .await?
        .expect(200)?
        .has_value("/data/d", &json!("z"))?;
    let append = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "case.test/c" }]);
    let answer = talk.patch(&path, PatchType::Json, &append).await?.expect(200)?;
    answer
        .has_value("/metadata/finalizers", &json!(["case.test/a", "case.test/b", "case.test/c"]))?;
    let insert = json!([{ "op": "add", "path": "/metadata/finalizers/1", "value": "case.test/d" }]);
    let answer = talk.patch(&path, PatchType::Json, &insert).await?.expect(200)?;
    let expected = json!(["case.test/a", "case.test/d", "case.test/b", "case.test/c"]);
    answer.has_value("/metadata/finalizers", &expected)?;
    let free = json!([{ "op": "remove", "path": "/metadata/finalizers" }]);
    talk.patch(&path, PatchType::Json, &free)
        .await?
        .expect(200)?
        .has_no_value("/metadata/finalizers")
}

async fn refusals(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let message = "the server rejected our request due to an error in our request";
    let table = [
        json!([{ "op": "test", "path": "/data/a", "value": "other" }]),
        json!([{ "op": "remove", "path": "/data/none" }]),
        json!([{ "op": "add", "path": "/none/a/b", "value": 1 }]),
        json!([{ "op": "zap", "path": "/data/a" }]),
    ];
    for patch in table {
        let answer = talk.patch(&object_path(CONFIG_MAPS, "a"), PatchType::Json, &patch).await?;
        answer.expect_error(422, "Invalid", message)?.has_value("/details", &json!({}))?;
    }
    // RFC 6902 refuses it; the real server copies an absent member as an empty one.
    let copy = json!([{ "op": "copy", "from": "/data/none", "path": "/data/b" }]);
    let answer =
        talk.patch(&object_path(CONFIG_MAPS, "a"), PatchType::Json, &copy).await?.expect(200)?;
    answer.has_value("/data", &json!({ "a": "x", "b": "" }))
}

async fn no_json_patch(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let answer = talk.patch(&path, PatchType::Json, &json!({ "op": "add" })).await?;
    answer.expect_error(
        400,
        "BadRequest",
        "error decoding patch: json: cannot unmarshal object into Go value of type \
         []handlers.jsonPatchOp",
    )?;
    let ask = RequestSpec::new("PATCH", path).text(PatchType::Json.media_type(), "[{");
    talk.send(ask).await?.expect_error_containing(400, "BadRequest", "error decoding patch: ")?;
    Ok(())
}

async fn too_long(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let operation = json!({ "op": "test", "path": "/data/a", "value": "x" });
    let patch = Value::Array(vec![operation; 10_001]);
    // The patch is not worth keeping.
    let ask = RequestSpec::patch(object_path(CONFIG_MAPS, "a"), PatchType::Json, &patch);
    let answer = talk.send_unrecorded(ask).await?;
    answer.expect_error(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got \
         10001",
    )?;
    Ok(())
}

async fn merge(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let path = object_path(DEPLOYMENTS, "d");
    let labels = json!({ "metadata": { "labels": { "a": "1", "b": "2" } } });
    talk.patch(&path, PatchType::Merge, &labels).await?.expect(200)?;
    let change = json!({ "metadata": { "labels": { "a": null, "c": "3" } } });
    let answer = talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    answer.has_value("/metadata/labels", &json!({ "b": "2", "c": "3" }))?;
    let list = json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "other", "image": "registry.test/other:1" },
    ] } } } });
    let answer = talk.patch(&path, PatchType::Merge, &list).await?.expect(200)?;
    let containers = answer.at("/spec/template/spec/containers");
    expect_equal("a list is replaced", &1, &containers.as_array().map_or(0, Vec::len))?;
    answer.has_value("/spec/template/spec/containers/0/name", &json!("other"))
}

async fn no_merge_patch(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    for text in ["[]", "{", "\"text\"", "null"] {
        let ask = RequestSpec::new("PATCH", object_path(CONFIG_MAPS, "a"))
            .text(PatchType::Merge.media_type(), text);
        let answer = talk.send(ask).await?;
        if text != "null" {
            answer.expect_error_containing(400, "BadRequest", "error decoding patch: ")?;
        }
    }
    Ok(())
}

async fn custom(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    define_widgets(talk, &schema).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": [1, 2], "b": { "c": 1 } }))).await?;
    let path = object_path(WIDGETS, "w");
    let change = json!({ "spec": { "a": [3], "b": { "c": null, "d": 2 } } });
    let answer = talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "a": [3], "b": { "d": 2 } }))?;
    let add = json!([{ "op": "add", "path": "/spec/a/0", "value": 0 }]);
    let answer = talk.patch(&path, PatchType::Json, &add).await?.expect(200)?;
    answer.has_value("/spec/a", &json!([0, 3]))?;
    let message = "the body of the request was in an unknown format - accepted media types \
                   include: application/json-patch+json, application/merge-patch+json, \
                   application/apply-patch+yaml";
    let answer = talk.patch(&path, PatchType::Strategic, &change).await?;
    answer.expect_error(415, "UnsupportedMediaType", message)?;
    Ok(())
}

async fn identity(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
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
        let answer = talk.patch(&path, PatchType::Merge, &change).await?;
        answer.expect_error(400, "BadRequest", message)?;
    }
    for change in [json!({ "kind": "Secret" }), json!({ "apiVersion": "v2" })] {
        let answer = talk.patch(&path, PatchType::Merge, &change).await?;
        expect_true("a refusal", matches!(answer.status, 400 | 422))?;
    }
    Ok(())
}

async fn nothing(talk: &mut Session) -> Outcome {
    for form in [PatchType::Merge, PatchType::Strategic] {
        let answer = talk.patch(&object_path(CONFIG_MAPS, "none"), form, &json!({})).await?;
        answer.expect_error(404, "NotFound", "configmaps \"none\" not found")?;
    }
    talk.patch(&object_path(CONFIG_MAPS, "none"), PatchType::Json, &json!([]))
        .await?
        .expect(404)?;
    Ok(())
}
