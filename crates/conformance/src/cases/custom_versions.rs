//! Custom objects in several versions.

use serde_json::{Value, json};

use super::objects::{
    DEFINITIONS, WIDGETS, define, object_path, wait_until, widget, widget_definition, with_query,
};
use crate::case::{Case, Outcome, case, expect_equal};
use crate::session::{PatchType, RequestSpec, Session, Until};

pub(super) const CASES: &[Case] = &[
    case!("versions-without-conversion", [54], without_conversion),
    case!("versions-deprecated", [54], deprecated),
    case!("versions-not-served", [54], not_served),
    case!("versions-stored", [54], stored),
    case!("versions-in-discovery", [54], discovery),
    case!("versions-watched", [54], watched),
    case!("versions-defaults-of-storage", [51, 54], storage_defaults),
];

const WIDGETS_V2: &str = "/apis/{ns}.case.test/v2/namespaces/{ns}/widgets";
const DEFINITION_NAME: &str = "widgets.{ns}.case.test";

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

async fn without_conversion(talk: &mut Session) -> Outcome {
    define(talk, &two_versions(|_| {})).await?;
    let made = talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let other = talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(200)?;
    other.has_values(&[
        ("/apiVersion", json!(talk.with_namespace("{ns}.case.test/v2"))),
        ("/spec", json!({ "a": "1" })),
        ("/metadata/uid", made.at("/metadata/uid").clone()),
        ("/metadata/resourceVersion", made.at("/metadata/resourceVersion").clone()),
    ])?;
    let change = json!({ "spec": { "b": "2" } });
    talk.patch(&object_path(WIDGETS_V2, "w"), PatchType::Merge, &change).await?.expect(200)?;
    let first = talk.get(&object_path(WIDGETS, "w")).await?.expect(200)?;
    first.has_value("/spec", &json!({ "a": "1", "b": "2" }))
}

async fn deprecated(talk: &mut Session) -> Outcome {
    define(talk, &two_versions(|version| version["deprecated"] = json!(true))).await?;
    talk.create(WIDGETS, &widget("w", &json!({}))).await?.has_warnings(&[])?;
    let text = talk.with_namespace("{ns}.case.test/v2 Widget is deprecated");
    talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(200)?.has_warnings(&[&text])?;
    talk.get(WIDGETS_V2).await?.expect(200)?.has_warnings(&[&text])?;
    let own = json!([{
        "op": "add", "path": "/spec/versions/1/deprecationWarning", "value": "use v1 instead",
    }]);
    let ask = RequestSpec::patch(object_path(DEFINITIONS, DEFINITION_NAME), PatchType::Json, &own);
    talk.send_unrecorded(ask).await?.expect(200)?;
    let own = "299 - \"use v1 instead\"";
    wait_until(talk, WIDGETS_V2, |answer| answer.header("warning").iter().any(|it| it == own))
        .await?;
    talk.get(WIDGETS_V2).await?.expect(200)?.has_warnings(&["use v1 instead"])
}

async fn not_served(talk: &mut Session) -> Outcome {
    define(talk, &two_versions(|version| version["served"] = json!(false))).await?;
    talk.create(WIDGETS, &widget("w", &json!({}))).await?;
    talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(404)?;
    talk.get(WIDGETS_V2).await?.expect(404)?;
    Ok(())
}

async fn stored(talk: &mut Session) -> Outcome {
    define(talk, &two_versions(|_| {})).await?;
    let path = object_path(DEFINITIONS, DEFINITION_NAME);
    let moved = json!([
        { "op": "replace", "path": "/spec/versions/0/storage", "value": false },
        { "op": "replace", "path": "/spec/versions/1/storage", "value": true },
    ]);
    talk.send_unrecorded(RequestSpec::patch(path.clone(), PatchType::Json, &moved))
        .await?
        .expect(200)?;
    wait_until(talk, &path, |it| *it.at("/status/storedVersions") == json!(["v1", "v2"])).await?;
    let removed = json!([{ "op": "remove", "path": "/spec/versions/0" }]);
    let answer = talk.patch(&path, PatchType::Json, &removed).await?.expect(422)?;
    answer.has_value("/details/causes/0/field", &json!("status.storedVersions[0]"))?;
    let trimmed = json!({ "status": { "storedVersions": ["v2"] } });
    let answer =
        talk.patch(&object_path(&path, "status"), PatchType::Merge, &trimmed).await?.expect(200)?;
    answer.has_value("/status/storedVersions", &json!(["v2"]))?;
    talk.patch(&path, PatchType::Json, &removed).await?.expect(200)?;
    Ok(())
}

async fn discovery(talk: &mut Session) -> Outcome {
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
    expect_equal("by maturity, then by number", &vec!["v10", "v1", "v11beta2"], &names)?;
    group.has_value("/preferredVersion/version", &json!("v10"))
}

async fn watched(talk: &mut Session) -> Outcome {
    define(talk, &two_versions(|_| {})).await?;
    let list = talk.get(WIDGETS_V2).await?.expect(200)?;
    let query = format!("watch=1&resourceVersion={}", list.revision());
    let watch = talk.watch(RequestSpec::get(with_query(WIDGETS_V2, &query))).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    talk.delete(&object_path(WIDGETS, "w")).await?.expect(200)?;
    let told = talk.finish_watch(watch, Until::Events(2)).await?;
    told.has_events(&[("ADDED", "w"), ("DELETED", "w")])?;
    let version = json!(talk.with_namespace("{ns}.case.test/v2"));
    for event in told.events() {
        expect_equal("the version watched", &version, &event["object"]["apiVersion"])?;
    }
    Ok(())
}

async fn storage_defaults(talk: &mut Session) -> Outcome {
    let with_default = |version: &mut Value| {
        let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["properties"]["b"]["default"] = json!("of v2");
    };
    define(talk, &two_versions(with_default)).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    // What is read has the defaults of the version it is stored in.
    let read = talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(200)?;
    read.has_value("/spec", &json!({ "a": "1" }))?;
    let mut object = widget("v", &json!({ "a": "1" }));
    object["apiVersion"] = json!("{ns}.case.test/v2");
    let made = talk.create(WIDGETS_V2, &object).await?;
    made.has_value("/spec", &json!({ "a": "1", "b": "of v2" }))
}
