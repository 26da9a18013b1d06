//! Watches.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, DEFINITIONS, PODS, SECRETS, WIDGETS, at, config_map, define_widgets, labelled,
    pod, service_account, widget, with,
};
use crate::case::{Case, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation, PROOF, Patch, Until};

pub(super) const CASES: &[Case] = &[
    case!("watch-from-a-revision", [29], from_revision),
    case!("watch-from-now", [29], from_now),
    case!("watch-from-an-old-revision", [29], from_old),
    case!("watch-from-a-future-revision", [29], from_future),
    case!("watch-selector-transitions", [29], transitions),
    case!("watch-field-selector-transitions", [29, 34], field_transitions),
    case!("watch-one-object", [29], one_object),
    case!("watch-ends-in-time", [29], ends),
    case!("watch-old-path", [29], old_path),
    case!("streamed-list", [30], streamed),
    case!("streamed-list-without-bookmark", [30], streamed_without_bookmark),
    case!("streamed-list-metadata-only", [30], streamed_metadata),
    case!("streamed-list-refusals", [30], streamed_refusals),
    case!("bookmarks-advance", [31], bookmarks),
    case!("watch-over-a-web-socket", [32], web_socket),
    case!("watch-of-a-kind-that-changes", [29], changed_kind),
    case!("watch-of-a-kind-that-goes", [29, 56], deleted_kind),
];

async fn from_revision(talk: &mut Conversation) -> Outcome {
    let first = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = at(CONFIG_MAPS, "a");
    talk.patch(&path, Patch::Merge, &json!({ "data": { "a": "y" } })).await?.expect(200)?;
    talk.delete(&path).await?.expect(200)?;
    let query = format!("watch=1&resourceVersion={}", first.revision());
    let told = talk.watch_until(&with(CONFIG_MAPS, &query), Until::Events(2)).await?.expect(200)?;
    told.tells(&[("MODIFIED", "a"), ("DELETED", "a")])?;
    told.has_header("content-type", "application/json")?;
    let [modified, deleted] = told.events() else { return holds("two events", false) };
    same("last state", &modified["object"]["data"], &deleted["object"]["data"])?;
    let revision = |event: &Value| event["object"]["metadata"]["resourceVersion"].clone();
    holds("a revision of its own", revision(modified) != revision(deleted))
}

async fn from_now(talk: &mut Conversation) -> Outcome {
    for name in ["b", "a"] {
        talk.create(CONFIG_MAPS, &config_map(name, "x")).await?;
    }
    for query in ["watch=1", "watch=abc", "watch="] {
        let watch = talk.watch_until(&with(CONFIG_MAPS, query), Until::Events(2)).await?;
        watch.tells(&[("ADDED", "a"), ("ADDED", "b")])?;
    }
    let list = talk.get(&with(CONFIG_MAPS, "watch=false")).await?.expect(200)?;
    list.is("/kind", &json!("ConfigMapList"))?;
    talk.get(&with(CONFIG_MAPS, "watch=0")).await?.expect(200)?.lists(&["a", "b"])
}

async fn from_old(talk: &mut Conversation) -> Outcome {
    // The window of a kind begins with its definition: the first revision is before it.
    define_widgets(talk, &json!({ "type": "object" })).await?;
    talk.create(WIDGETS, &widget("w", &json!({}))).await?;
    let path = with(WIDGETS, "watch=1&resourceVersion=1");
    let told = talk.watch_until(&path, Until::Ended).await?.expect(200)?;
    let event = told.events().first().cloned().unwrap_or_default();
    same("events", &1, &told.events().len())?;
    same("type", &json!("ERROR"), &event["type"])?;
    same("reason", &json!("Expired"), &event["object"]["reason"])?;
    same("code", &json!(410), &event["object"]["code"])?;
    let message = event["object"]["message"].as_str().unwrap_or_default();
    holds("message", message.starts_with("too old resource version: 1 ("))
}

async fn from_future(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    // Far enough that the writes of cases beside this one do not get there.
    let query = format!("watch=1&timeoutSeconds=1&resourceVersion={}", made.revision() + 900_000);
    let watch = talk.watch(Ask::get(with(CONFIG_MAPS, &query))).await?;
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    let told = talk.read(watch, Until::Ended).await?.expect(200)?;
    told.tells(&[])
}

async fn transitions(talk: &mut Conversation) -> Outcome {
    let list = talk.get(CONFIG_MAPS).await?.expect(200)?;
    let query = format!("watch=1&labelSelector=l%3D1&resourceVersion={}", list.revision());
    let watch = talk.watch(Ask::get(with(CONFIG_MAPS, &query))).await?;
    talk.create(CONFIG_MAPS, &labelled("a", &json!({ "l": "0" }))).await?;
    let path = at(CONFIG_MAPS, "a");
    let mut last = Value::Null;
    for (label, data) in [("1", "x"), ("1", "y"), ("2", "z"), ("1", "z")] {
        let change = json!({ "metadata": { "labels": { "l": label } }, "data": { "a": data } });
        let changed = talk.patch(&path, Patch::Merge, &change).await?.expect(200)?;
        if label == "2" {
            last = changed.json().clone();
        }
    }
    talk.delete(&path).await?.expect(200)?;
    let told = talk.read(watch, Until::Events(5)).await?;
    let expected = ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"].map(|kind| (kind, "a"));
    told.tells(&expected)?;
    let gone = &told.events()[2]["object"];
    same("the content that still matched", &json!({ "a": "y" }), &gone["data"])?;
    let revision = &last["metadata"]["resourceVersion"];
    same("the revision of the change", revision, &gone["metadata"]["resourceVersion"])
}

async fn field_transitions(talk: &mut Conversation) -> Outcome {
    service_account(talk).await?;
    let list = talk.get(PODS).await?.expect(200)?;
    let selector = "fieldSelector=status.phase%3DRunning";
    let query = format!("watch=1&{selector}&resourceVersion={}", list.revision());
    let watch = talk.watch(Ask::get(with(PODS, &query))).await?;
    talk.create(PODS, &pod("p")).await?;
    for phase in ["Running", "Succeeded"] {
        let change = json!({ "status": { "phase": phase } });
        let path = format!("{PODS}/p/status");
        talk.patch(&path, Patch::Merge, &change).await?.expect(200)?;
    }
    talk.read(watch, Until::Events(2)).await?.tells(&[("ADDED", "p"), ("DELETED", "p")])
}

async fn one_object(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    // On an object the parameter means nothing; only the old path watches one.
    let got = talk.get(&with(&at(CONFIG_MAPS, "a"), "watch=1")).await?.expect(200)?;
    same("the object", made.json(), got.json())?;
    let query = format!("resourceVersion={}", made.revision());
    let old = "/api/v1/watch/namespaces/{ns}/configmaps/a";
    let by_path = talk.watch(Ask::get(with(old, &query))).await?;
    let query = format!("watch=1&fieldSelector=metadata.name%3Da&{query}");
    let by_field = talk.watch(Ask::get(with(CONFIG_MAPS, &query))).await?;
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    talk.delete(&at(CONFIG_MAPS, "a")).await?.expect(200)?;
    talk.read(by_path, Until::Events(1)).await?.tells(&[("DELETED", "a")])?;
    talk.read(by_field, Until::Events(1)).await?.tells(&[("DELETED", "a")])
}

async fn ends(talk: &mut Conversation) -> Outcome {
    let path = with(CONFIG_MAPS, "watch=1&timeoutSeconds=1");
    let told = talk.watch_until(&path, Until::Ended).await?.expect(200)?;
    told.tells(&[])
}

async fn old_path(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = "/api/v1/watch/namespaces/{ns}/configmaps";
    talk.watch_until(path, Until::Events(1)).await?.tells(&[("ADDED", "a")])
}

/// A streamed list.
const STREAMED: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

async fn streamed(talk: &mut Conversation) -> Outcome {
    for name in ["b", "a"] {
        talk.create(CONFIG_MAPS, &config_map(name, "x")).await?;
    }
    let path = with(CONFIG_MAPS, &format!("{STREAMED}&allowWatchBookmarks=true"));
    let first = talk.watch_until(&path, Until::Listed).await?;
    first.tells(&[("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")])?;
    let end = &first.events()[2]["object"];
    let mark = json!({ "k8s.io/initial-events-end": "true" });
    same("the mark", &mark, &end["metadata"]["annotations"])?;
    same("its kind", &json!("ConfigMap"), &end["kind"])?;
    let mut watch = talk.watch(Ask::get(path)).await?;
    talk.wait(&mut watch, Until::Listed).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "x")).await?;
    let told = talk.read(watch, Until::Events(4)).await?;
    told.tells(&[("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", ""), ("ADDED", "c")])
}

async fn streamed_without_bookmark(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = with(CONFIG_MAPS, &format!("{STREAMED}&timeoutSeconds=1"));
    talk.watch_until(&path, Until::Ended).await?.tells(&[("ADDED", "a")])?;
    let path = with(
        CONFIG_MAPS,
        "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
    );
    talk.watch_until(&path, Until::Ended).await?.tells(&[])
}

async fn streamed_metadata(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = with(CONFIG_MAPS, &format!("{STREAMED}&allowWatchBookmarks=true"));
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let watch = talk.watch(Ask::get(path).accept(accept)).await?;
    let told = talk.read(watch, Until::Listed).await?;
    told.tells(&[("ADDED", "a"), ("BOOKMARK", "")])?;
    for event in told.events() {
        same("its kind", &json!("PartialObjectMetadata"), &event["object"]["kind"])?;
    }
    Ok(())
}

async fn streamed_refusals(talk: &mut Conversation) -> Outcome {
    let table = [
        (
            "watch=1&sendInitialEvents=true",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting \
             resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=1&resourceVersion=1&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
             sendInitialEvents is provided",
        ),
        (
            "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting \
             resourceVersionMatch to NotOlderThan",
        ),
    ];
    for (query, problem) in table {
        let answer = talk.get(&with(CONFIG_MAPS, query)).await?;
        let answer =
            answer.refused_with(422, "Invalid", "ListOptions.meta.k8s.io \"\" is invalid: ")?;
        holds(problem, answer.string("/message").contains(problem))?;
    }
    Ok(())
}

async fn bookmarks(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let other = talk.create(SECRETS, &json!({ "metadata": { "name": "s" } })).await?;
    // A list of now: whatever the server keeps of this resource is as new as the other one.
    talk.get(CONFIG_MAPS).await?.expect(200)?;
    // It sends a bookmark two seconds before it ends a watch, if not earlier.
    let query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=4";
    let query = format!("{query}&resourceVersion={}", made.revision());
    let told = talk.watch_until(&with(CONFIG_MAPS, &query), Until::Bookmark).await?;
    told.tells(&[("BOOKMARK", "")])?;
    let revision = told.events()[0]["object"]["metadata"]["resourceVersion"].as_str();
    let revision: u64 = revision.unwrap_or_default().parse().unwrap_or_default();
    holds("it knows of the other resource", revision >= other.revision())
}

/// The watch of a kind ends when its definition says something else of it, and not before.
async fn changed_kind(talk: &mut Conversation) -> Outcome {
    let spec = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    define_widgets(talk, &spec).await?;
    let watch = talk.watch(Ask::get(with(WIDGETS, "watch=1&timeoutSeconds=600"))).await?;
    let definition = at(DEFINITIONS, "widgets.{ns}.case.test");
    let label = json!({ "metadata": { "labels": { "a": "x" } } });
    let ask = Ask::patch(&definition, Patch::Merge, &label);
    talk.ask_unrecorded(ask).await?.expect(200)?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": 1 }))).await?;
    let mut watch = watch;
    talk.wait(&mut watch, Until::Events(1)).await?;
    let names = json!({ "spec": { "names": { "shortNames": ["wd"] } } });
    let ask = Ask::patch(&definition, Patch::Merge, &names);
    talk.ask_unrecorded(ask).await?.expect(200)?;
    let answer = talk.read(watch, Until::Ended).await?;
    answer.tells(&[("ADDED", "w")])
}

/// The watch of a kind ends with its definition, and tells of the last objects first.
async fn deleted_kind(talk: &mut Conversation) -> Outcome {
    define_widgets(talk, &json!({ "type": "object" })).await?;
    talk.create(WIDGETS, &widget("w", &json!({}))).await?;
    let watch = talk.watch(Ask::get(with(WIDGETS, "watch=1&timeoutSeconds=600"))).await?;
    let definition = at(DEFINITIONS, "widgets.{ns}.case.test");
    talk.ask_unrecorded(Ask::delete(definition)).await?.expect(200)?;
    let answer = talk.read(watch, Until::Ended).await?;
    answer.tells(&[("ADDED", "w"), ("DELETED", "w")])
}

async fn web_socket(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    talk.create(CONFIG_MAPS, &config_map("b", &"x".repeat(70_000))).await?;
    talk.delete(&at(CONFIG_MAPS, "a")).await?.expect(200)?;
    let query = format!("watch=1&timeoutSeconds=1&resourceVersion={}", made.revision() - 1);
    let path = with(CONFIG_MAPS, &query);
    let told = talk.watch_by_socket(Ask::get(&path)).await?;
    let answer = told.answer.expect(101)?;
    answer.has_header("sec-websocket-accept", PROOF)?;
    answer.tells(&[("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")])?;
    same("how it was closed", &Some(1000), &told.code)?;
    let plain = talk.watch_until(&path, Until::Ended).await?;
    same("the same events", &plain.events(), &answer.events())
}
