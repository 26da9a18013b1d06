//! Custom objects in several versions: what is stored, and what the schemas of versions do to it.

use gantry_testkit::webhook_server::Reply;
use serde_json::json;

use super::conversion::{
    DEFINITION_NAME, WIDGETS_V2, convert, convert_with, define_converted_widgets, definition,
    widget_v2,
};
use super::objects::{DEFINITIONS, WIDGETS, define, object_path, wait_until, widget};
use crate::case::{Case, CaseError, Outcome, case};
use crate::response::Response;
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("conversion-moved-storage", [54], moved_storage),
    case!("conversion-by-name-moved-storage", [54], moved_without_webhook),
    case!("conversion-prunes-and-defaults", [51, 54], prunes),
    case!("conversion-not-validated-twice", [52, 54], validation),
];

/// Makes v2 the stored version.
async fn move_storage(talk: &mut Session) -> Outcome {
    let path = object_path(DEFINITIONS, DEFINITION_NAME);
    let moved = json!([
        { "op": "replace", "path": "/spec/versions/0/storage", "value": false },
        { "op": "replace", "path": "/spec/versions/1/storage", "value": true },
    ]);
    let probe = widget("probe", &json!({}));
    talk.send_unrecorded(RequestSpec::post(WIDGETS, &probe)).await?.expect(201)?;
    talk.send_unrecorded(RequestSpec::patch(path.clone(), PatchType::Json, &moved))
        .await?
        .expect(200)?;
    wait_until(talk, &path, |it| *it.at("/status/storedVersions") == json!(["v1", "v2"])).await?;
    // A server may tell what it stores before it does so: wait until a field of v2 stays.
    let path = object_path(WIDGETS_V2, "probe");
    let change = json!({ "spec": { "b": "stays" } });
    let ask = RequestSpec::patch(path.clone(), PatchType::Merge, &change);
    let stays = |answer: &Response| *answer.at("/spec/b") == json!("stays");
    talk.send_until_unrecorded(ask, stays).await?;
    talk.send_unrecorded(RequestSpec::delete(path)).await?.expect(200)?;
    Ok(())
}

async fn moved_storage(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    talk.create(WIDGETS, &widget("old", &json!({ "a": "1" }))).await?;
    move_storage(talk).await?;
    talk.create(WIDGETS_V2, &widget_v2("new", &json!({ "b": "2" }))).await?;
    for (collection, field) in [(WIDGETS, "a"), (WIDGETS_V2, "b")] {
        let list = talk.get(collection).await?.expect(200)?;
        list.has_names(&["new", "old"])?;
        list.has_value("/items/0/spec", &json!({ field: "2" }))?;
        list.has_value("/items/1/spec", &json!({ field: "1" }))?;
        talk.get(&object_path(collection, "old"))
            .await?
            .expect(200)?
            .has_value("/spec", &json!({ field: "1" }))?;
    }
    let change = json!({ "spec": { "a": "3" } });
    talk.patch(&object_path(WIDGETS, "old"), PatchType::Merge, &change).await?.expect(200)?;
    talk.get(&object_path(WIDGETS_V2, "old"))
        .await?
        .expect(200)?
        .has_value("/spec", &json!({ "b": "3" }))
}

async fn moved_without_webhook(talk: &mut Session) -> Outcome {
    let mut definition = definition(&json!({}));
    definition["spec"]["conversion"] = json!({ "strategy": "None" });
    define(talk, &definition).await?;
    talk.create(WIDGETS, &widget("old", &json!({ "a": "1", "same": "x" }))).await?;
    let answer = talk.get(&object_path(WIDGETS_V2, "old")).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "same": "x" }))?;
    move_storage(talk).await?;
    talk.create(WIDGETS_V2, &widget_v2("new", &json!({ "b": "2", "same": "y" }))).await?;
    let list = talk.get(WIDGETS).await?.expect(200)?;
    list.has_value("/items/0/spec", &json!({ "same": "y" }))?;
    list.has_value("/items/1/spec", &json!({ "a": "1", "same": "x" }))?;
    let answer = talk.get(&object_path(WIDGETS_V2, "old")).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "same": "x" }))
}

async fn prunes(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("convert", |review| {
        Reply::Json(convert_with(review, |object| object["spec"]["unknown"] = json!(true)))
    })?;
    let mut definition = definition(&config);
    for (place, value) in [(0, "of v1"), (1, "of v2")] {
        let version = &mut definition["spec"]["versions"][place];
        let same = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        same["same"]["default"] = json!(value);
    }
    define(talk, &definition).await?;
    wait_until(talk, WIDGETS_V2, |answer| answer.status == 200).await?;
    let answer = talk.create(WIDGETS_V2, &widget_v2("w", &json!({ "b": "1", "odd": 1 }))).await?;
    answer.has_value("/spec", &json!({ "b": "1", "same": "of v2" }))?;
    let answer = talk.get(&object_path(WIDGETS, "w")).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "a": "1", "same": "of v2" }))?;
    talk.create(WIDGETS, &widget("v", &json!({ "a": "1" }))).await?;
    let answer = talk.get(&object_path(WIDGETS_V2, "v")).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "b": "1", "same": "of v1" }))
}

async fn validation(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("convert", |review| Reply::Json(convert(review)))?;
    let mut definition = definition(&config);
    let version = &mut definition["spec"]["versions"][0];
    let fields = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    fields["a"]["maxLength"] = json!(3);
    define(talk, &definition).await?;
    wait_until(talk, WIDGETS_V2, |answer| answer.status == 200).await?;
    talk.post(WIDGETS, &widget("w", &json!({ "a": "too long" }))).await?.expect(422)?;
    // The other version has no such limit, and only the version of the request is looked at.
    talk.create(WIDGETS_V2, &widget_v2("w", &json!({ "b": "too long" }))).await?;
    talk.get(&object_path(WIDGETS, "w"))
        .await?
        .expect(200)?
        .has_value("/spec/a", &json!("too long"))?;
    let change = json!({ "spec": { "same": "x" } });
    talk.patch(&object_path(WIDGETS, "w"), PatchType::Merge, &change).await?;
    talk.post(WIDGETS_V2, &widget_v2("v", &json!({ "b": 1 }))).await?.expect(422)?;
    Ok::<(), CaseError>(())
}
