//! Watches.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, DEFINITIONS, PODS, SECRETS, WIDGETS, config_map, define_widgets, labelled,
    object_path, pod, service_account, widget, with_query,
};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::session::{PatchType, RequestSpec, Session, Until, WEBSOCKET_ACCEPT};

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

async fn from_revision(talk: &mut Session) -> Outcome {
    let first = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    talk.patch(&path, PatchType::Merge, &json!({ "data": { "a": "y" } })).await?.expect(200)?;
    talk.delete(&path).await?.expect(200)?;
    let query = format!("watch=1&resourceVersion={}", first.revision());
    let told =
        talk.watch_until(&with_query(CONFIG_MAPS, &query), Until::Events(2)).await?.expect(200)?;
    told.has_events(&[("MODIFIED", "a"), ("DELETED", "a")])?;
    told.has_header("content-type", "application/json")?;
    let [modified, deleted] = told.events() else { return expect_true("two events", false) };
    expect_equal("last state", &modified["object"]["data"], &deleted["object"]["data"])?;
    let revision = |event: &Value| event["object"]["metadata"]["resourceVersion"].clone();
    expect_true("a revision of its own", revision(modified) != revision(deleted))
}

async fn from_now(talk: &mut Session) -> Outcome {
    for name in ["b", "a"] {
        talk.create(CONFIG_MAPS, &config_map(name, "x")).await?;
    }
    for query in ["watch=1", "watch=abc", "watch="] {
        let watch = talk.watch_until(&with_query(CONFIG_MAPS, query), Until::Events(2)).await?;
        watch.has_events(&[("ADDED", "a"), ("ADDED", "b")])?;
    }
    let list = talk.get(&with_query(CONFIG_MAPS, "watch=false")).await?.expect(200)?;
    list.has_value("/kind", &json!("ConfigMapList"))?;
    talk.get(&with_query(CONFIG_MAPS, "watch=0")).await?.expect(200)?.has_names(&["a", "b"])
}

async fn from_old(talk: &mut Session) -> Outcome {
    // The window of a kind begins with its definition: the first revision is before it.
    define_widgets(talk, &json!({ "type": "object" })).await?;
    talk.create(WIDGETS, &widget("w", &json!({}))).await?;
    let path = with_query(WIDGETS, "watch=1&resourceVersion=1");
    let told = talk.watch_until(&path, Until::Ended).await?.expect(200)?;
    let event = told.events().first().cloned().unwrap_or_default();
    expect_equal("events", &1, &told.events().len())?;
    expect_equal("type", &json!("ERROR"), &event["type"])?;
    expect_equal("reason", &json!("Expired"), &event["object"]["reason"])?;
    expect_equal("code", &json!(410), &event["object"]["code"])?;
    let message = event["object"]["message"].as_str().unwrap_or_default();
    expect_true("message", message.starts_with("too old resource version: 1 ("))
}

async fn from_future(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    // Far enough that the writes of cases beside this one do not get there.
    let query = format!("watch=1&timeoutSeconds=1&resourceVersion={}", made.revision() + 900_000);
    let watch = talk.watch(RequestSpec::get(with_query(CONFIG_MAPS, &query))).await?;
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    let told = talk.finish_watch(watch, Until::Ended).await?.expect(200)?;
    told.has_events(&[])
}

async fn transitions(talk: &mut Session) -> Outcome {
    let list = talk.get(CONFIG_MAPS).await?.expect(200)?;
    let query = format!("watch=1&labelSelector=l%3D1&resourceVersion={}", list.revision());
    let watch = talk.watch(RequestSpec::get(with_query(CONFIG_MAPS, &query))).await?;
    talk.create(CONFIG_MAPS, &labelled("a", &json!({ "l": "0" }))).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let mut last = Value::Null;
    for (label, data) in [("1", "x"), ("1", "y"), ("2", "z"), ("1", "z")] {
        let change = json!({ "metadata": { "labels": { "l": label } }, "data": { "a": data } });
        let changed = talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
        if label == "2" {
            last = changed.json().clone();
        }
    }
    talk.delete(&path).await?.expect(200)?;
    let told = talk.finish_watch(watch, Until::Events(5)).await?;
    let expected = ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"].map(|kind| (kind, "a"));
    told.has_events(&expected)?;
    let gone = &told.events()[2]["object"];
    expect_equal("the content that still matched", &json!({ "a": "y" }), &gone["data"])?;
    let revision = &last["metadata"]["resourceVersion"];
    expect_equal("the revision of the change", revision, &gone["metadata"]["resourceVersion"])
}

async fn field_transitions(talk: &mut Session) -> Outcome {
    service_account(talk).await?;
    let list = talk.get(PODS).await?.expect(200)?;
    let selector = "fieldSelector=status.phase%3DRunning";
    let query = format!("watch=1&{selector}&resourceVersion={}", list.revision());
    let watch = talk.watch(RequestSpec::get(with_query(PODS, &query))).await?;
    talk.create(PODS, &pod("p")).await?;
    for phase in ["Running", "Succeeded"] {
        let change = json!({ "status": { "phase": phase } });
        let path = format!("{PODS}/p/status");
        talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    }
    talk.finish_watch(watch, Until::Events(2))
        .await?
        .has_events(&[("ADDED", "p"), ("DELETED", "p")])
}

async fn one_object(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    // On an object the parameter means nothing; only the old path watches one.
    let got =
        talk.get(&with_query(&object_path(CONFIG_MAPS, "a"), "watch=1")).await?.expect(200)?;
    expect_equal("the object", made.json(), got.json())?;
    let query = format!("resourceVersion={}", made.revision());
    let old = "/api/v1/watch/namespaces/{ns}/configmaps/a";
    let by_path = talk.watch(RequestSpec::get(with_query(old, &query))).await?;
    let query = format!("watch=1&fieldSelector=metadata.name%3Da&{query}");
    let by_field = talk.watch(RequestSpec::get(with_query(CONFIG_MAPS, &query))).await?;
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    talk.delete(&object_path(CONFIG_MAPS, "a")).await?.expect(200)?;
    talk.finish_watch(by_path, Until::Events(1)).await?.has_events(&[("DELETED", "a")])?;
    talk.finish_watch(by_field, Until::Events(1)).await?.has_events(&[("DELETED", "a")])
}

async fn ends(talk: &mut Session) -> Outcome {
    let path = with_query(CONFIG_MAPS, "watch=1&timeoutSeconds=1");
    let told = talk.watch_until(&path, Until::Ended).await?.expect(200)?;
    told.has_events(&[])
}

async fn old_path(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = "/api/v1/watch/namespaces/{ns}/configmaps";
    talk.watch_until(path, Until::Events(1)).await?.has_events(&[("ADDED", "a")])
}

/// A streamed list.
const STREAMED: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

async fn streamed(talk: &mut Session) -> Outcome {
    for name in ["b", "a"] {
        talk.create(CONFIG_MAPS, &config_map(name, "x")).await?;
    }
    let path = with_query(CONFIG_MAPS, &format!("{STREAMED}&allowWatchBookmarks=true"));
    let first = talk.watch_until(&path, Until::InitialEventsEnd).await?;
    first.has_events(&[("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")])?;
    let end = &first.events()[2]["object"];
    let mark = json!({ "k8s.io/initial-events-end": "true" });
    expect_equal("the mark", &mark, &end["metadata"]["annotations"])?;
    expect_equal("its kind", &json!("ConfigMap"), &end["kind"])?;
    let mut watch = talk.watch(RequestSpec::get(path)).await?;
    talk.wait(&mut watch, Until::InitialEventsEnd).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "x")).await?;
    let told = talk.finish_watch(watch, Until::Events(4)).await?;
    told.has_events(&[("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", ""), ("ADDED", "c")])
}

async fn streamed_without_bookmark(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = with_query(CONFIG_MAPS, &format!("{STREAMED}&timeoutSeconds=1"));
    talk.watch_until(&path, Until::Ended).await?.has_events(&[("ADDED", "a")])?;
    let path = with_query(
        CONFIG_MAPS,
        "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
    );
    talk.watch_until(&path, Until::Ended).await?.has_events(&[])
}

async fn streamed_metadata(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = with_query(CONFIG_MAPS, &format!("{STREAMED}&allowWatchBookmarks=true"));
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let watch = talk.watch(RequestSpec::get(path).accept(accept)).await?;
    let told = talk.finish_watch(watch, Until::InitialEventsEnd).await?;
    told.has_events(&[("ADDED", "a"), ("BOOKMARK", "")])?;
    for event in told.events() {
        expect_equal("its kind", &json!("PartialObjectMetadata"), &event["object"]["kind"])?;
    }
    Ok(())
}

async fn streamed_refusals(talk: &mut Session) -> Outcome {
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
        let answer = talk.get(&with_query(CONFIG_MAPS, query)).await?;
        let answer = answer.expect_error_containing(
            422,
            "Invalid",
            "ListOptions.meta.k8s.io \"\" is invalid: ",
        )?;
        expect_true(problem, answer.string("/message").contains(problem))?;
    }
    Ok(())
}

async fn bookmarks(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let other = talk.create(SECRETS, &json!({ "metadata": { "name": "s" } })).await?;
    // A list of now: whatever the server keeps of this resource is as new as the other one.
    talk.get(CONFIG_MAPS).await?.expect(200)?;
    // It sends a bookmark two seconds before it ends a watch, if not earlier.
    let query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=4";
    let query = format!("{query}&resourceVersion={}", made.revision());
    let told = talk.watch_until(&with_query(CONFIG_MAPS, &query), Until::Bookmark).await?;
    told.has_events(&[("BOOKMARK", "")])?;
    let revision = told.events()[0]["object"]["metadata"]["resourceVersion"].as_str();
    let revision: u64 = revision.unwrap_or_default().parse().unwrap_or_default();
    expect_true("it knows of the other resource", revision >= other.revision())
}

/// The watch of a kind ends when its definition says something else of it, and not before.
async fn changed_kind(talk: &mut Session) -> Outcome {
    let spec = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    define_widgets(talk, &spec).await?;
    let watch =
        talk.watch(RequestSpec::get(with_query(WIDGETS, "watch=1&timeoutSeconds=600"))).await?;
    let definition = object_path(DEFINITIONS, "widgets.{ns}.case.test");
    let label = json!({ "metadata": { "labels": { "a": "x" } } });
    let ask = RequestSpec::patch(&definition, PatchType::Merge, &label);
    talk.send_unrecorded(ask).await?.expect(200)?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": 1 }))).await?;
    let mut watch = watch;
    talk.wait(&mut watch, Until::Events(1)).await?;
    let names = json!({ "spec": { "names": { "shortNames": ["wd"] } } });
    let ask = RequestSpec::patch(&definition, PatchType::Merge, &names);
    talk.send_unrecorded(ask).await?.expect(200)?;
    let answer = talk.finish_watch(watch, Until::Ended).await?;
    answer.has_events(&[("ADDED", "w")])
}

/// The watch of a kind ends with its definition, and tells of the last objects first.
async fn deleted_kind(talk: &mut Session) -> Outcome {
    define_widgets(talk, &json!({ "type": "object" })).await?;
    talk.create(WIDGETS, &widget("w", &json!({}))).await?;
    let watch =
        talk.watch(RequestSpec::get(with_query(WIDGETS, "watch=1&timeoutSeconds=600"))).await?;
    let definition = object_path(DEFINITIONS, "widgets.{ns}.case.test");
    talk.send_unrecorded(RequestSpec::delete(definition)).await?.expect(200)?;
    let answer = talk.finish_watch(watch, Until::Ended).await?;
    answer.has_events(&[("ADDED", "w"), ("DELETED", "w")])
}

async fn web_socket(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    talk.create(CONFIG_MAPS, &config_map("b", &"x".repeat(70_000))).await?;
    talk.delete(&object_path(CONFIG_MAPS, "a")).await?.expect(200)?;
    let query = format!("watch=1&timeoutSeconds=1&resourceVersion={}", made.revision() - 1);
    let path = with_query(CONFIG_MAPS, &query);
    let told = talk.watch_over_websocket(RequestSpec::get(&path)).await?;
    let answer = told.response.expect(101)?;
    answer.has_header("sec-websocket-accept", WEBSOCKET_ACCEPT)?;
    answer.has_events(&[("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")])?;
    expect_equal("how it was closed", &Some(1000), &told.close_code)?;
    let plain = talk.watch_until(&path, Until::Ended).await?;
    expect_equal("the same events", &plain.events(), &answer.events())
}
