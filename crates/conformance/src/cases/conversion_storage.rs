//! Custom objects in several versions: what is stored, and what the schemas of versions do to it.

use gantry_testkit::hook::Reply;
use serde_json::json;

use super::conversion::{NAME, OTHER, begin, convert, convert_with, definition, other};
use super::objects::{DEFINITIONS, WIDGETS, at, define, wait_until, widget};
use crate::answer::Answer;
use crate::case::{Case, CaseError, Outcome, case};
use crate::conversation::{Ask, Conversation, Patch};

pub(super) const CASES: &[Case] = &[
    case!("conversion-moved-storage", [54], moved_storage),
    case!("conversion-by-name-moved-storage", [54], moved_without_webhook),
    case!("conversion-prunes-and-defaults", [51, 54], prunes),
    case!("conversion-not-validated-twice", [52, 54], validation),
];

/// Makes v2 the stored version.
async fn move_storage(talk: &mut Conversation) -> Outcome {
    let path = at(DEFINITIONS, NAME);
    let moved = json!([
        { "op": "replace", "path": "/spec/versions/0/storage", "value": false },
        { "op": "replace", "path": "/spec/versions/1/storage", "value": true },
    ]);
    let probe = widget("probe", &json!({}));
    talk.ask_unrecorded(Ask::post(WIDGETS, &probe)).await?.expect(201)?;
    talk.ask_unrecorded(Ask::patch(path.clone(), Patch::Json, &moved)).await?.expect(200)?;
    wait_until(talk, &path, |it| *it.at("/status/storedVersions") == json!(["v1", "v2"])).await?;
    // A server may tell what it stores before it does so: wait until a field of v2 stays.
    let path = at(OTHER, "probe");
    let change = json!({ "spec": { "b": "stays" } });
    let ask = Ask::patch(path.clone(), Patch::Merge, &change);
    let stays = |answer: &Answer| *answer.at("/spec/b") == json!("stays");
    talk.ask_until_unrecorded(ask, stays).await?;
    talk.ask_unrecorded(Ask::delete(path)).await?.expect(200)?;
    Ok(())
}

async fn moved_storage(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    talk.create(WIDGETS, &widget("old", &json!({ "a": "1" }))).await?;
    move_storage(talk).await?;
    talk.create(OTHER, &other("new", &json!({ "b": "2" }))).await?;
    for (collection, field) in [(WIDGETS, "a"), (OTHER, "b")] {
        let list = talk.get(collection).await?.expect(200)?;
        list.lists(&["new", "old"])?;
        list.is("/items/0/spec", &json!({ field: "2" }))?;
        list.is("/items/1/spec", &json!({ field: "1" }))?;
        talk.get(&at(collection, "old")).await?.expect(200)?.is("/spec", &json!({ field: "1" }))?;
    }
    let change = json!({ "spec": { "a": "3" } });
    talk.patch(&at(WIDGETS, "old"), Patch::Merge, &change).await?.expect(200)?;
    talk.get(&at(OTHER, "old")).await?.expect(200)?.is("/spec", &json!({ "b": "3" }))
}

async fn moved_without_webhook(talk: &mut Conversation) -> Outcome {
    let mut definition = definition(&json!({}));
    definition["spec"]["conversion"] = json!({ "strategy": "None" });
    define(talk, &definition).await?;
    talk.create(WIDGETS, &widget("old", &json!({ "a": "1", "same": "x" }))).await?;
    let answer = talk.get(&at(OTHER, "old")).await?.expect(200)?;
    answer.is("/spec", &json!({ "same": "x" }))?;
    move_storage(talk).await?;
    talk.create(OTHER, &other("new", &json!({ "b": "2", "same": "y" }))).await?;
    let list = talk.get(WIDGETS).await?.expect(200)?;
    list.is("/items/0/spec", &json!({ "same": "y" }))?;
    list.is("/items/1/spec", &json!({ "a": "1", "same": "x" }))?;
    let answer = talk.get(&at(OTHER, "old")).await?.expect(200)?;
    answer.is("/spec", &json!({ "same": "x" }))
}

async fn prunes(talk: &mut Conversation) -> Outcome {
    let config = talk.hook("convert", |review| {
        Reply::Json(convert_with(review, |object| object["spec"]["unknown"] = json!(true)))
    })?;
    let mut definition = definition(&config);
    for (place, value) in [(0, "of v1"), (1, "of v2")] {
        let version = &mut definition["spec"]["versions"][place];
        let same = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        same["same"]["default"] = json!(value);
    }
    define(talk, &definition).await?;
    wait_until(talk, OTHER, |answer| answer.status == 200).await?;
    let answer = talk.create(OTHER, &other("w", &json!({ "b": "1", "odd": 1 }))).await?;
    answer.is("/spec", &json!({ "b": "1", "same": "of v2" }))?;
    let answer = talk.get(&at(WIDGETS, "w")).await?.expect(200)?;
    answer.is("/spec", &json!({ "a": "1", "same": "of v2" }))?;
    talk.create(WIDGETS, &widget("v", &json!({ "a": "1" }))).await?;
    let answer = talk.get(&at(OTHER, "v")).await?.expect(200)?;
    answer.is("/spec", &json!({ "b": "1", "same": "of v1" }))
}

async fn validation(talk: &mut Conversation) -> Outcome {
    let config = talk.hook("convert", |review| Reply::Json(convert(review)))?;
    let mut definition = definition(&config);
    let version = &mut definition["spec"]["versions"][0];
    let fields = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    fields["a"]["maxLength"] = json!(3);
    define(talk, &definition).await?;
    wait_until(talk, OTHER, |answer| answer.status == 200).await?;
    talk.post(WIDGETS, &widget("w", &json!({ "a": "too long" }))).await?.expect(422)?;
    // The other version has no such limit, and only the version of the request is looked at.
    talk.create(OTHER, &other("w", &json!({ "b": "too long" }))).await?;
    talk.get(&at(WIDGETS, "w")).await?.expect(200)?.is("/spec/a", &json!("too long"))?;
    let change = json!({ "spec": { "same": "x" } });
    talk.patch(&at(WIDGETS, "w"), Patch::Merge, &change).await?;
    talk.post(OTHER, &other("v", &json!({ "b": 1 }))).await?.expect(422)?;
    Ok::<(), CaseError>(())
}
