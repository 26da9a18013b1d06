//! Custom objects in several versions.

use serde_json::{Value, json};

use super::objects::{
    DEFINITIONS, WIDGETS, at, define, wait_until, widget, widget_definition, with,
};
use crate::case::{Case, Outcome, case, same};
use crate::conversation::{Ask, Conversation, Patch, Until};

pub(super) const CASES: &[Case] = &[
    case!("versions-without-conversion", [54], without_conversion),
    case!("versions-deprecated", [54], deprecated),
    case!("versions-not-served", [54], not_served),
    case!("versions-stored", [54], stored),
    case!("versions-in-discovery", [54], discovery),
    case!("versions-watched", [54], watched),
    case!("versions-defaults-of-storage", [51, 54], storage_defaults),
];

const OTHER: &str = "/apis/{ns}.case.test/v2/namespaces/{ns}/widgets";
const NAME: &str = "widgets.{ns}.case.test";

/// Widgets in v1, which is stored, and v2, which has a change made to it.
fn two_versions(change: fn(&mut Value)) -> Value {
    let field = json!({ "type": "string" });
    let spec = json!({ "type": "object", "properties": { "a": field, "b": field } });
    let mut definition = widget_definition(&spec);
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    change(&mut second);
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.push(second);
    }
    definition
}

async fn without_conversion(talk: &mut Conversation) -> Outcome {
    define(talk, &two_versions(|_| {})).await?;
    let made = talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let other = talk.get(&at(OTHER, "w")).await?.expect(200)?;
    other.has(&[
        ("/apiVersion", json!(talk.fill("{ns}.case.test/v2"))),
        ("/spec", json!({ "a": "1" })),
        ("/metadata/uid", made.at("/metadata/uid").clone()),
        ("/metadata/resourceVersion", made.at("/metadata/resourceVersion").clone()),
    ])?;
    let change = json!({ "spec": { "b": "2" } });
    talk.patch(&at(OTHER, "w"), Patch::Merge, &change).await?.expect(200)?;
    let first = talk.get(&at(WIDGETS, "w")).await?.expect(200)?;
    first.is("/spec", &json!({ "a": "1", "b": "2" }))
}

async fn deprecated(talk: &mut Conversation) -> Outcome {
    define(talk, &two_versions(|version| version["deprecated"] = json!(true))).await?;
    talk.create(WIDGETS, &widget("w", &json!({}))).await?.warns(&[])?;
    let text = talk.fill("{ns}.case.test/v2 Widget is deprecated");
    talk.get(&at(OTHER, "w")).await?.expect(200)?.warns(&[&text])?;
    talk.get(OTHER).await?.expect(200)?.warns(&[&text])?;
    let own = json!([{
        "op": "add", "path": "/spec/versions/1/deprecationWarning", "value": "use v1 instead",
    }]);
    let ask = Ask::patch(at(DEFINITIONS, NAME), Patch::Json, &own);
    talk.ask_unrecorded(ask).await?.expect(200)?;
    let own = "299 - \"use v1 instead\"";
    wait_until(talk, OTHER, |answer| answer.header("warning").iter().any(|it| it == own)).await?;
    talk.get(OTHER).await?.expect(200)?.warns(&["use v1 instead"])
}

async fn not_served(talk: &mut Conversation) -> Outcome {
    define(talk, &two_versions(|version| version["served"] = json!(false))).await?;
    talk.create(WIDGETS, &widget("w", &json!({}))).await?;
    talk.get(&at(OTHER, "w")).await?.expect(404)?;
    talk.get(OTHER).await?.expect(404)?;
    Ok(())
}

async fn stored(talk: &mut Conversation) -> Outcome {
    define(talk, &two_versions(|_| {})).await?;
    let path = at(DEFINITIONS, NAME);
    let moved = json!([
        { "op": "replace", "path": "/spec/versions/0/storage", "value": false },
        { "op": "replace", "path": "/spec/versions/1/storage", "value": true },
    ]);
    talk.ask_unrecorded(Ask::patch(path.clone(), Patch::Json, &moved)).await?.expect(200)?;
    wait_until(talk, &path, |it| *it.at("/status/storedVersions") == json!(["v1", "v2"])).await?;
    let removed = json!([{ "op": "remove", "path": "/spec/versions/0" }]);
    let answer = talk.patch(&path, Patch::Json, &removed).await?.expect(422)?;
    answer.is("/details/causes/0/field", &json!("status.storedVersions[0]"))?;
    let trimmed = json!({ "status": { "storedVersions": ["v2"] } });
    let answer = talk.patch(&at(&path, "status"), Patch::Merge, &trimmed).await?.expect(200)?;
    answer.is("/status/storedVersions", &json!(["v2"]))?;
    talk.patch(&path, Patch::Json, &removed).await?.expect(200)?;
    Ok(())
}

async fn discovery(talk: &mut Conversation) -> Outcome {
    let mut definition = two_versions(|version| version["name"] = json!("v10"));
    let mut beta = definition["spec"]["versions"][1].clone();
    beta["name"] = json!("v11beta2");
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.push(beta);
    }
    define(talk, &definition).await?;
    let path = "/apis/{ns}.case.test";
    wait_until(talk, path, |answer| answer.at("/versions/2").is_object()).await?;
    let group = talk.get(path).await?.expect(200)?;
    let versions = group.at("/versions").as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = versions.iter().filter_map(|it| it["version"].as_str()).collect();
    same("by maturity, then by number", &vec!["v10", "v1", "v11beta2"], &names)?;
    group.is("/preferredVersion/version", &json!("v10"))
}

async fn watched(talk: &mut Conversation) -> Outcome {
    define(talk, &two_versions(|_| {})).await?;
    let list = talk.get(OTHER).await?.expect(200)?;
    let query = format!("watch=1&resourceVersion={}", list.revision());
    let watch = talk.watch(Ask::get(with(OTHER, &query))).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    talk.delete(&at(WIDGETS, "w")).await?.expect(200)?;
    let told = talk.read(watch, Until::Events(2)).await?;
    told.tells(&[("ADDED", "w"), ("DELETED", "w")])?;
    let version = json!(talk.fill("{ns}.case.test/v2"));
    for event in told.events() {
        same("the version watched", &version, &event["object"]["apiVersion"])?;
    }
    Ok(())
}

async fn storage_defaults(talk: &mut Conversation) -> Outcome {
    let with_default = |version: &mut Value| {
        let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["properties"]["b"]["default"] = json!("of v2");
    };
    define(talk, &two_versions(with_default)).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    // What is read has the defaults of the version it is stored in.
    let read = talk.get(&at(OTHER, "w")).await?.expect(200)?;
    read.is("/spec", &json!({ "a": "1" }))?;
    let mut object = widget("v", &json!({ "a": "1" }));
    object["apiVersion"] = json!("{ns}.case.test/v2");
    let made = talk.create(OTHER, &object).await?;
    made.is("/spec", &json!({ "a": "1", "b": "of v2" }))
}
