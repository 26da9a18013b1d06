//! resourceVersion: order, conflicts, and writes that change nothing.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, LEASES, SECRETS, WIDGETS, config_map, define_widgets, object_path, widget,
    with_query,
};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::response::Response;
use crate::session::{PatchType, RequestSpec, Session, Until};

pub(super) const CASES: &[Case] = &[
    case!("revisions-grow-across-resources", [14], revisions_increase),
    case!("stale-update", [15], stale_update),
    case!("update-without-revision", [15], unconditional_update),
    case!("update-of-custom-without-revision", [15], custom_unconditional),
    case!("update-that-creates", [15], creates_on_update),
    case!("update-with-another-uid", [15], another_uid),
    case!("create-with-revision", [15], create_with_revision),
    case!("stale-patch", [15], stale_patch),
    case!("writes-that-change-nothing", [16], no_change),
    case!("no-change-no-event", [16], no_change_no_event),
    case!("deletion-preconditions", [22], preconditions),
];

/// The text of a lost race.
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest \
                        version and try again";

async fn revisions_increase(talk: &mut Session) -> Outcome {
    let first = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let secret = json!({ "metadata": { "name": "s" } });
    let second = talk.create(SECRETS, &secret).await?;
    expect_true("a later object is newer", first.revision() < second.revision())?;
    let third = talk
        .patch(&object_path(CONFIG_MAPS, "a"), PatchType::Merge, &json!({ "data": { "a": "y" } }))
        .await?
        .expect(200)?;
    expect_true("a change is newer", second.revision() < third.revision())?;
    let query = format!("watch=1&resourceVersion={}", third.revision());
    let watch = talk.watch(RequestSpec::get(with_query(CONFIG_MAPS, &query))).await?;
    talk.delete(&object_path(CONFIG_MAPS, "a")).await?.expect(200)?;
    let told = talk.finish_watch(watch, Until::Events(1)).await?;
    told.has_events(&[("DELETED", "a")])?;
    let deleted = told.events()[0]["object"]["metadata"]["resourceVersion"].clone();
    let deleted: u64 = deleted.as_str().unwrap_or_default().parse().unwrap_or_default();
    expect_true("a deletion is newer", third.revision() < deleted)?;
    let again = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    expect_true("nothing is used twice", deleted < again.revision())?;
    let list = talk.get(CONFIG_MAPS).await?.expect(200)?;
    expect_true("a list is as new as its items", list.revision() >= again.revision())
}

async fn stale_update(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let mut object = made.json().clone();
    object["data"]["a"] = json!("y");
    talk.put(&object_path(CONFIG_MAPS, "a"), &object).await?.expect(200)?;
    object["data"]["a"] = json!("z");
    let message = format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}");
    let answer = talk.put(&object_path(CONFIG_MAPS, "a"), &object).await?;
    let answer = answer.expect_error(409, "Conflict", &message)?;
    answer.has_value("/details", &json!({ "name": "a", "kind": "configmaps" }))?;
    object["metadata"]["resourceVersion"] = json!("what");
    let answer = talk.put(&object_path(CONFIG_MAPS, "a"), &object).await?.expect(500)?;
    answer.has_value("/message", &json!("strconv.ParseUint: parsing \"what\": invalid syntax"))
}

async fn unconditional_update(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let answer =
        talk.put(&object_path(CONFIG_MAPS, "a"), &config_map("a", "y")).await?.expect(200)?;
    answer.has_value("/data/a", &json!("y"))
}

async fn custom_unconditional(talk: &mut Session) -> Outcome {
    define_widgets(talk, &json!({ "type": "object" })).await?;
    talk.create(WIDGETS, &widget("a", &json!({}))).await?;
    let message = talk.with_namespace(
        "widgets.{ns}.case.test \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must \
         be specified for an update",
    );
    let mut object = widget("a", &json!({}));
    object["metadata"]["labels"] = json!({ "l": "1" });
    talk.put(&object_path(WIDGETS, "a"), &object)
        .await?
        .expect_error(422, "Invalid", &message)?
        .has_causes(&[(
            "metadata.resourceVersion",
            "FieldValueInvalid",
            "Invalid value: 0: must be specified for an update",
        )])?;
    talk.put(&object_path(WIDGETS, "b"), &widget("b", &json!({}))).await?.expect(404)?;
    Ok(())
}

async fn creates_on_update(talk: &mut Session) -> Outcome {
    let lease = json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "me" } });
    let made = talk.put(&object_path(LEASES, "l"), &lease).await?.expect(201)?;
    made.has_value("/spec/holderIdentity", &json!("me"))?;
    talk.put(&object_path(LEASES, "l"), &lease).await?.expect_error(
        422,
        "Invalid",
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: \
         must be specified for an update",
    )?;
    let answer = talk.put(&object_path(CONFIG_MAPS, "none"), &config_map("none", "x")).await?;
    answer.expect_error(404, "NotFound", "configmaps \"none\" not found")?;
    Ok(())
}

async fn another_uid(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let mut object = made.json().clone();
    object["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    let answer = talk.put(&object_path(CONFIG_MAPS, "a"), &object).await?;
    answer.expect_error_containing(409, "Conflict", "Precondition failed: UID in precondition")?;
    Ok(())
}

async fn create_with_revision(talk: &mut Session) -> Outcome {
    let mut object = config_map("a", "x");
    object["metadata"]["resourceVersion"] = json!("1");
    let answer = talk.post(CONFIG_MAPS, &object).await?.expect(500)?;
    answer
        .has_value("/message", &json!("resourceVersion should not be set on objects to be created"))
}

async fn stale_patch(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let stale = made.string("/metadata/resourceVersion");
    let change = |a: &str, revision: Option<&str>| -> Value {
        json!({ "metadata": { "resourceVersion": revision }, "data": { "a": a } })
    };
    let path = object_path(CONFIG_MAPS, "a");
    talk.patch(&path, PatchType::Merge, &change("y", Some(&stale))).await?.expect(200)?;
    let message = format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}");
    let answer = talk.patch(&path, PatchType::Merge, &change("z", Some(&stale))).await?;
    answer.expect_error(409, "Conflict", &message)?;
    talk.patch(&path, PatchType::Merge, &change("z", None)).await?.expect(200)?;
    Ok(())
}

async fn no_change(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let is_same = |answer: Response| -> Outcome {
        let answer = answer.expect(200)?;
        expect_equal(&answer.request_line, made.json(), answer.json())
    };
    is_same(talk.put(&path, made.json()).await?)?;
    is_same(talk.put(&path, &config_map("a", "x")).await?)?;
    is_same(talk.patch(&path, PatchType::Merge, &json!({ "data": { "a": "x" } })).await?)?;
    is_same(talk.patch(&path, PatchType::Merge, &json!({})).await?)?;
    is_same(talk.patch(&path, PatchType::Strategic, &json!({ "data": { "a": "x" } })).await?)?;
    is_same(talk.patch(&path, PatchType::Json, &json!([])).await?)?;
    let applied = with_query(&path, "fieldManager=m");
    let first = talk.patch(&applied, PatchType::Apply, &config_map("a", "x")).await?.expect(200)?;
    let again = talk.patch(&applied, PatchType::Apply, &config_map("a", "x")).await?.expect(200)?;
    expect_equal("applied twice", first.json(), again.json())
}

async fn no_change_no_event(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let query = format!("watch=1&resourceVersion={}", made.revision());
    let watch = talk.watch(RequestSpec::get(with_query(CONFIG_MAPS, &query))).await?;
    let path = object_path(CONFIG_MAPS, "a");
    talk.put(&path, &config_map("a", "x")).await?.expect(200)?;
    talk.patch(&path, PatchType::Merge, &json!({})).await?.expect(200)?;
    // The first event is the first one there was: none was sent about the writes above.
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    talk.finish_watch(watch, Until::Events(1)).await?.has_events(&[("ADDED", "b")])
}

async fn preconditions(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let uid = made.string("/metadata/uid");
    let other = "00000000-0000-4000-8000-000000000000";
    let delete = |preconditions: Value| {
        RequestSpec::delete(object_path(CONFIG_MAPS, "a"))
            .json(&json!({ "preconditions": preconditions }))
    };
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition ({other}) \
         does not match the UID in record ({uid}). The object might have been deleted and then \
         recreated"
    );
    let answer = talk.send(delete(json!({ "uid": other }))).await?;
    answer.expect_error(409, "Conflict", &message)?;
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition \
         (1) does not match the ResourceVersion in record ({}). The object might have been \
         modified",
        made.revision()
    );
    let answer = talk.send(delete(json!({ "resourceVersion": "1" }))).await?;
    answer.expect_error(409, "Conflict", &message)?;
    let revision = made.string("/metadata/resourceVersion");
    let both = json!({ "uid": uid, "resourceVersion": revision });
    let answer = talk.send(delete(both)).await?.expect(200)?;
    answer.has_values(&[
        ("/status", json!("Success")),
        ("/details", json!({ "name": "a", "kind": "configmaps", "uid": uid })),
    ])?;
    talk.get(&path).await?.expect(404)?;
    Ok(())
}
