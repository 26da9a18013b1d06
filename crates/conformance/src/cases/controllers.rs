//! What a server does by itself, or has its controllers do. These cases want a server with
//! controllers that forgets old revisions within seconds.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, at, condition, config_map, wait_until, with};
use crate::answer::Answer;
use crate::case::{Case, CaseError, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation, Patch};

pub(super) const CASES: &[Case] = &[
    case!("collect-in-the-background", [23], background),
    case!("collect-in-the-foreground", [23], foreground),
    case!("leave-orphans", [23], orphans),
    case!("collect-what-has-no-owner", [24], absent_owner),
    case!("namespace-with-held-content", [25], namespace),
    case!("expired-continue", [27], expired),
];

/// Creates an object without a word in the transcript.
async fn make(talk: &mut Conversation, object: &Value) -> Result<Answer, CaseError> {
    talk.ask_unrecorded(Ask::post(CONFIG_MAPS, object)).await?.expect(201)
}

/// A ConfigMap owned by others, given by name and uid.
fn owned_by(name: &str, owners: &[(&str, &str)]) -> Value {
    let owner = |(name, uid): &(&str, &str)| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
            "blockOwnerDeletion": true,
        })
    };
    let mut object = config_map(name, "x");
    object["metadata"]["ownerReferences"] = owners.iter().map(owner).collect();
    object
}

/// Deletes an object with a policy.
fn delete(name: &str, policy: &str) -> Ask {
    Ask::delete(at(CONFIG_MAPS, name)).json(&json!({ "propagationPolicy": policy }))
}

/// Waits until an object is gone.
async fn gone(talk: &mut Conversation, name: &str) -> Outcome {
    wait_until(talk, &at(CONFIG_MAPS, name), |answer| answer.status == 404).await
}

async fn background(talk: &mut Conversation) -> Outcome {
    let owner = make(talk, &config_map("owner", "x")).await?.string("/metadata/uid");
    make(talk, &owned_by("part", &[("owner", &owner)])).await?;
    let answer = talk.ask(delete("owner", "Background")).await?.expect(200)?;
    answer.is("/status", &json!("Success"))?;
    talk.get(&at(CONFIG_MAPS, "owner")).await?.expect(404)?;
    gone(talk, "part").await
}

async fn foreground(talk: &mut Conversation) -> Outcome {
    let owner = make(talk, &config_map("owner", "x")).await?.string("/metadata/uid");
    let mut part = owned_by("part", &[("owner", &owner)]);
    part["metadata"]["finalizers"] = json!(["case.test/hold"]);
    make(talk, &part).await?;
    let answer = talk.ask(delete("owner", "Foreground")).await?.expect(200)?;
    answer.is("/metadata/finalizers", &json!(["foregroundDeletion"]))?;
    let is_marked = |answer: &Answer| answer.at("/metadata/deletionTimestamp").is_string();
    wait_until(talk, &at(CONFIG_MAPS, "part"), is_marked).await?;
    // The part is held, and holds the whole.
    let owner = talk.get(&at(CONFIG_MAPS, "owner")).await?.expect(200)?;
    owner.is("/metadata/finalizers", &json!(["foregroundDeletion"]))?;
    let free = json!({ "metadata": { "finalizers": null } });
    let ask = Ask::patch(at(CONFIG_MAPS, "part"), Patch::Merge, &free);
    talk.ask_unrecorded(ask).await?.expect(200)?;
    gone(talk, "part").await?;
    gone(talk, "owner").await
}

async fn orphans(talk: &mut Conversation) -> Outcome {
    let owner = make(talk, &config_map("owner", "x")).await?.string("/metadata/uid");
    make(talk, &owned_by("part", &[("owner", &owner)])).await?;
    let answer = talk.ask(delete("owner", "Orphan")).await?.expect(200)?;
    answer.is("/metadata/finalizers", &json!(["orphan"]))?;
    gone(talk, "owner").await?;
    let part = talk.ask_unrecorded(Ask::get(at(CONFIG_MAPS, "part"))).await?.expect(200)?;
    part.lacks("/metadata/ownerReferences")
}

async fn absent_owner(talk: &mut Conversation) -> Outcome {
    let nobody = "00000000-0000-4000-8000-000000000000";
    let owner = make(talk, &config_map("owner", "x")).await?.string("/metadata/uid");
    make(talk, &owned_by("stray", &[("nobody", nobody)])).await?;
    make(talk, &owned_by("shared", &[("owner", &owner), ("nobody", nobody)])).await?;
    gone(talk, "stray").await?;
    let path = at(CONFIG_MAPS, "shared");
    wait_until(talk, &path, |answer| answer.at("/metadata/ownerReferences/1").is_null()).await?;
    let shared = talk.ask_unrecorded(Ask::get(path)).await?.expect(200)?;
    shared.is("/metadata/ownerReferences/0/name", &json!("owner"))
}

/// Type, status, reason and message of what a namespace says while content remains.
const REMAINING: [(&str, &str, &str, &str); 5] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "False",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (
        "NamespaceContentRemaining",
        "True",
        "SomeResourcesRemain",
        "Some resources are remaining: configmaps. has 1 resource instances",
    ),
    (
        "NamespaceFinalizersRemaining",
        "True",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: case.test/hold in 1 resource \
         instances",
    ),
];

async fn namespace(talk: &mut Conversation) -> Outcome {
    let mut held = config_map("held", "x");
    held["metadata"]["finalizers"] = json!(["case.test/hold"]);
    make(talk, &held).await?;
    make(talk, &config_map("free", "x")).await?;
    let path = "/api/v1/namespaces/{ns}";
    talk.ask_unrecorded(Ask::delete(path)).await?.expect(200)?;
    gone(talk, "free").await?;
    let says = |answer: &Answer, (kind, status, reason, message): (&str, &str, &str, &str)| {
        condition(answer, kind).is_some_and(|it| {
            it["status"] == status && it["reason"] == reason && it["message"] == message
        })
    };
    for expected in REMAINING {
        wait_until(talk, path, |answer| says(answer, expected)).await?;
    }
    let free = json!({ "metadata": { "finalizers": null } });
    let ask = Ask::patch(at(CONFIG_MAPS, "held"), Patch::Merge, &free);
    talk.ask_unrecorded(ask).await?.expect(200)?;
    wait_until(talk, path, |answer| answer.status == 404).await?;
    let message = talk.fill("namespaces \"{ns}\" not found");
    talk.get(path).await?.refused(404, "NotFound", &message)?;
    Ok(())
}

async fn expired(talk: &mut Conversation) -> Outcome {
    for name in ["a", "b", "c"] {
        make(talk, &config_map(name, "x")).await?;
    }
    // Something else is in every namespace of a cluster with controllers: ask by name.
    let query = "fieldSelector=metadata.name%21%3Dkube-root-ca.crt";
    let list = format!("limit=1&{query}");
    let first = talk.get(&with(CONFIG_MAPS, &list)).await?.expect(200)?;
    first.lists(&["a"])?;
    make(talk, &config_map("bb", "x")).await?;
    let token = first.string("/metadata/continue");
    let next = Ask::get(with(CONFIG_MAPS, &format!("{list}&continue={token}")));
    let answer = talk.ask_until(next, |answer| answer.status != 200).await?;
    let message = "The provided continue parameter is too old to display a consistent list result. \
                   You can start a new list without the continue parameter, or use the continue \
                   token in this response to retrieve the remainder of the results. Continuing with \
                   the provided token results in an inconsistent list - objects that were created, \
                   modified, or deleted between the time the first chunk was returned and now may \
                   show up in the list.";
    let answer = answer.refused(410, "Expired", message)?;
    let fresh = answer.string("/metadata/continue");
    holds("a token to go on with", !fresh.is_empty() && fresh != token)?;
    let rest = format!("{query}&continue={fresh}");
    let rest = talk.get(&with(CONFIG_MAPS, &rest)).await?.expect(200)?;
    rest.lists(&["b", "bb", "c"])?;
    let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", first.revision());
    let old = talk.get(&with(CONFIG_MAPS, &exact)).await?.expect(410)?;
    same("reason", &json!("Expired"), old.at("/reason"))
}
