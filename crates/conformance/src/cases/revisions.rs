//! resourceVersion: order, conflicts, and writes that change nothing.

use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, LEASES, SECRETS, WIDGETS, at, config_map, define_widgets, widget, with,
};
use crate::answer::Answer;
use crate::case::{Case, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation, Patch, Until};

pub(super) const CASES: &[Case] = &[
    case!("revisions-grow-across-resources", [14], grow),
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

async fn grow(talk: &mut Conversation) -> Outcome {
    let first = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let secret = json!({ "metadata": { "name": "s" } });
    let second = talk.create(SECRETS, &secret).await?;
    holds("a later object is newer", first.revision() < second.revision())?;
    let third = talk
        .patch(&at(CONFIG_MAPS, "a"), Patch::Merge, &json!({ "data": { "a": "y" } }))
        .await?
        .expect(200)?;
    holds("a change is newer", second.revision() < third.revision())?;
    let query = format!("watch=1&resourceVersion={}", third.revision());
    let watch = talk.watch(Ask::get(with(CONFIG_MAPS, &query))).await?;
    talk.delete(&at(CONFIG_MAPS, "a")).await?.expect(200)?;
    let told = talk.read(watch, Until::Events(1)).await?;
    told.tells(&[("DELETED", "a")])?;
    let deleted = told.events()[0]["object"]["metadata"]["resourceVersion"].clone();
    let deleted: u64 = deleted.as_str().unwrap_or_default().parse().unwrap_or_default();
    holds("a deletion is newer", third.revision() < deleted)?;
    let again = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    holds("nothing is used twice", deleted < again.revision())?;
    let list = talk.get(CONFIG_MAPS).await?.expect(200)?;
    holds("a list is as new as its items", list.revision() >= again.revision())
}

async fn stale_update(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let mut object = made.json().clone();
    object["data"]["a"] = json!("y");
    talk.put(&at(CONFIG_MAPS, "a"), &object).await?.expect(200)?;
    object["data"]["a"] = json!("z");
    let message = format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}");
    let answer = talk.put(&at(CONFIG_MAPS, "a"), &object).await?;
    let answer = answer.refused(409, "Conflict", &message)?;
    answer.is("/details", &json!({ "name": "a", "kind": "configmaps" }))?;
    object["metadata"]["resourceVersion"] = json!("what");
    let answer = talk.put(&at(CONFIG_MAPS, "a"), &object).await?.expect(500)?;
    answer.is("/message", &json!("strconv.ParseUint: parsing \"what\": invalid syntax"))
}

async fn unconditional_update(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let answer = talk.put(&at(CONFIG_MAPS, "a"), &config_map("a", "y")).await?.expect(200)?;
    answer.is("/data/a", &json!("y"))
}

async fn custom_unconditional(talk: &mut Conversation) -> Outcome {
    define_widgets(talk, &json!({ "type": "object" })).await?;
    talk.create(WIDGETS, &widget("a", &json!({}))).await?;
    let message = talk.fill(
        "widgets.{ns}.case.test \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must \
         be specified for an update",
    );
    let mut object = widget("a", &json!({}));
    object["metadata"]["labels"] = json!({ "l": "1" });
    talk.put(&at(WIDGETS, "a"), &object).await?.refused(422, "Invalid", &message)?.caused_by(&[
        (
            "metadata.resourceVersion",
            "FieldValueInvalid",
            "Invalid value: 0: must be specified for an update",
        ),
    ])?;
    talk.put(&at(WIDGETS, "b"), &widget("b", &json!({}))).await?.expect(404)?;
    Ok(())
}

async fn creates_on_update(talk: &mut Conversation) -> Outcome {
    let lease = json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "me" } });
    let made = talk.put(&at(LEASES, "l"), &lease).await?.expect(201)?;
    made.is("/spec/holderIdentity", &json!("me"))?;
    talk.put(&at(LEASES, "l"), &lease).await?.refused(
        422,
        "Invalid",
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: \
         must be specified for an update",
    )?;
    let answer = talk.put(&at(CONFIG_MAPS, "none"), &config_map("none", "x")).await?;
    answer.refused(404, "NotFound", "configmaps \"none\" not found")?;
    Ok(())
}

async fn another_uid(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let mut object = made.json().clone();
    object["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    let answer = talk.put(&at(CONFIG_MAPS, "a"), &object).await?;
    answer.refused_with(409, "Conflict", "Precondition failed: UID in precondition")?;
    Ok(())
}

async fn create_with_revision(talk: &mut Conversation) -> Outcome {
    let mut object = config_map("a", "x");
    object["metadata"]["resourceVersion"] = json!("1");
    let answer = talk.post(CONFIG_MAPS, &object).await?.expect(500)?;
    answer.is("/message", &json!("resourceVersion should not be set on objects to be created"))
}

async fn stale_patch(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let stale = made.string("/metadata/resourceVersion");
    let change = |a: &str, revision: Option<&str>| -> Value {
        json!({ "metadata": { "resourceVersion": revision }, "data": { "a": a } })
    };
    let path = at(CONFIG_MAPS, "a");
    talk.patch(&path, Patch::Merge, &change("y", Some(&stale))).await?.expect(200)?;
    let message = format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}");
    let answer = talk.patch(&path, Patch::Merge, &change("z", Some(&stale))).await?;
    answer.refused(409, "Conflict", &message)?;
    talk.patch(&path, Patch::Merge, &change("z", None)).await?.expect(200)?;
    Ok(())
}

async fn no_change(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = at(CONFIG_MAPS, "a");
    let is_same = |answer: Answer| -> Outcome {
        let answer = answer.expect(200)?;
        same(&answer.asked, made.json(), answer.json())
    };
    is_same(talk.put(&path, made.json()).await?)?;
    is_same(talk.put(&path, &config_map("a", "x")).await?)?;
    is_same(talk.patch(&path, Patch::Merge, &json!({ "data": { "a": "x" } })).await?)?;
    is_same(talk.patch(&path, Patch::Merge, &json!({})).await?)?;
    is_same(talk.patch(&path, Patch::Strategic, &json!({ "data": { "a": "x" } })).await?)?;
    is_same(talk.patch(&path, Patch::Json, &json!([])).await?)?;
    let applied = with(&path, "fieldManager=m");
    let first = talk.patch(&applied, Patch::Apply, &config_map("a", "x")).await?.expect(200)?;
    let again = talk.patch(&applied, Patch::Apply, &config_map("a", "x")).await?.expect(200)?;
    same("applied twice", first.json(), again.json())
}

async fn no_change_no_event(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let query = format!("watch=1&resourceVersion={}", made.revision());
    let watch = talk.watch(Ask::get(with(CONFIG_MAPS, &query))).await?;
    let path = at(CONFIG_MAPS, "a");
    talk.put(&path, &config_map("a", "x")).await?.expect(200)?;
    talk.patch(&path, Patch::Merge, &json!({})).await?.expect(200)?;
    // What comes first is the first event there was: nothing was told about the writes above.
    talk.create(CONFIG_MAPS, &config_map("b", "x")).await?;
    talk.read(watch, Until::Events(1)).await?.tells(&[("ADDED", "b")])
}

async fn preconditions(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = at(CONFIG_MAPS, "a");
    let uid = made.string("/metadata/uid");
    let other = "00000000-0000-4000-8000-000000000000";
    let delete = |preconditions: Value| {
        Ask::delete(at(CONFIG_MAPS, "a")).json(&json!({ "preconditions": preconditions }))
    };
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition ({other}) \
         does not match the UID in record ({uid}). The object might have been deleted and then \
         recreated"
    );
    let answer = talk.ask(delete(json!({ "uid": other }))).await?;
    answer.refused(409, "Conflict", &message)?;
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition \
         (1) does not match the ResourceVersion in record ({}). The object might have been modified",
        made.revision()
    );
    let answer = talk.ask(delete(json!({ "resourceVersion": "1" }))).await?;
    answer.refused(409, "Conflict", &message)?;
    let revision = made.string("/metadata/resourceVersion");
    let both = json!({ "uid": uid, "resourceVersion": revision });
    let answer = talk.ask(delete(both)).await?.expect(200)?;
    answer.has(&[
        ("/status", json!("Success")),
        ("/details", json!({ "name": "a", "kind": "configmaps", "uid": uid })),
    ])?;
    talk.get(&path).await?.expect(404)?;
    Ok(())
}
