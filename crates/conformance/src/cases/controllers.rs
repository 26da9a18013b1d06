//! What a server does by itself, or has its controllers do. These cases want a server with
//! controllers that forgets old revisions within seconds.

use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, condition, config_map, object_path, wait_until, with_query};
use crate::case::{Case, CaseError, Outcome, case, expect_equal, expect_true};
use crate::response::Response;
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("collect-in-the-background", [23], background),
    case!("collect-in-the-foreground", [23], foreground),
    case!("leave-orphans", [23], orphans),
    case!("collect-what-has-no-owner", [24], absent_owner),
    case!("namespace-with-held-content", [25], namespace),
    case!("expired-continue", [27], expired),
];

/// Creates an object without a word in the transcript.
async fn create_unrecorded(talk: &mut Session, object: &Value) -> Result<Response, CaseError> {
    talk.send_unrecorded(RequestSpec::post(CONFIG_MAPS, object)).await?.expect(201)
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
fn delete(name: &str, policy: &str) -> RequestSpec {
    RequestSpec::delete(object_path(CONFIG_MAPS, name))
        .json(&json!({ "propagationPolicy": policy }))
}

/// Waits until an object is gone.
async fn wait_until_deleted(talk: &mut Session, name: &str) -> Outcome {
    wait_until(talk, &object_path(CONFIG_MAPS, name), |answer| answer.status == 404).await
}

async fn background(talk: &mut Session) -> Outcome {
    let owner = create_unrecorded(talk, &config_map("owner", "x")).await?.string("/metadata/uid");
    create_unrecorded(talk, &owned_by("part", &[("owner", &owner)])).await?;
    let answer = talk.send(delete("owner", "Background")).await?.expect(200)?;
    answer.has_value("/status", &json!("Success"))?;
    talk.get(&object_path(CONFIG_MAPS, "owner")).await?.expect(404)?;
    wait_until_deleted(talk, "part").await
}

async fn foreground(talk: &mut Session) -> Outcome {
    let owner = create_unrecorded(talk, &config_map("owner", "x")).await?.string("/metadata/uid");
    let mut part = owned_by("part", &[("owner", &owner)]);
    part["metadata"]["finalizers"] = json!(["case.test/hold"]);
    create_unrecorded(talk, &part).await?;
    let answer = talk.send(delete("owner", "Foreground")).await?.expect(200)?;
    answer.has_value("/metadata/finalizers", &json!(["foregroundDeletion"]))?;
    let is_marked = |answer: &Response| answer.at("/metadata/deletionTimestamp").is_string();
    wait_until(talk, &object_path(CONFIG_MAPS, "part"), is_marked).await?;
    // The part is held, and holds the whole.
    let owner = talk.get(&object_path(CONFIG_MAPS, "owner")).await?.expect(200)?;
    owner.has_value("/metadata/finalizers", &json!(["foregroundDeletion"]))?;
    let free = json!({ "metadata": { "finalizers": null } });
    let ask = RequestSpec::patch(object_path(CONFIG_MAPS, "part"), PatchType::Merge, &free);
    talk.send_unrecorded(ask).await?.expect(200)?;
    wait_until_deleted(talk, "part").await?;
    wait_until_deleted(talk, "owner").await
}

async fn orphans(talk: &mut Session) -> Outcome {
    let owner = create_unrecorded(talk, &config_map("owner", "x")).await?.string("/metadata/uid");
    create_unrecorded(talk, &owned_by("part", &[("owner", &owner)])).await?;
    let answer = talk.send(delete("owner", "Orphan")).await?.expect(200)?;
    answer.has_value("/metadata/finalizers", &json!(["orphan"]))?;
    wait_until_deleted(talk, "owner").await?;
    let part = talk
        .send_unrecorded(RequestSpec::get(object_path(CONFIG_MAPS, "part")))
        .await?
        .expect(200)?;
    part.has_no_value("/metadata/ownerReferences")
}

async fn absent_owner(talk: &mut Session) -> Outcome {
    let nobody = "00000000-0000-4000-8000-000000000000";
    let owner = create_unrecorded(talk, &config_map("owner", "x")).await?.string("/metadata/uid");
    create_unrecorded(talk, &owned_by("stray", &[("nobody", nobody)])).await?;
    create_unrecorded(talk, &owned_by("shared", &[("owner", &owner), ("nobody", nobody)])).await?;
    wait_until_deleted(talk, "stray").await?;
    let path = object_path(CONFIG_MAPS, "shared");
    wait_until(talk, &path, |answer| answer.at("/metadata/ownerReferences/1").is_null()).await?;
    let shared = talk.send_unrecorded(RequestSpec::get(path)).await?.expect(200)?;
    shared.has_value("/metadata/ownerReferences/0/name", &json!("owner"))
}

/// Type, status, reason and message of what a namespace says while content remains.
const REMAINING_CONDITIONS: [(&str, &str, &str, &str); 5] = [
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

async fn namespace(talk: &mut Session) -> Outcome {
    let mut held = config_map("held", "x");
    held["metadata"]["finalizers"] = json!(["case.test/hold"]);
    create_unrecorded(talk, &held).await?;
    create_unrecorded(talk, &config_map("free", "x")).await?;
    let path = "/api/v1/namespaces/{ns}";
    talk.send_unrecorded(RequestSpec::delete(path)).await?.expect(200)?;
    wait_until_deleted(talk, "free").await?;
    let says = |answer: &Response, (kind, status, reason, message): (&str, &str, &str, &str)| {
        condition(answer, kind).is_some_and(|it| {
            it["status"] == status && it["reason"] == reason && it["message"] == message
        })
    };
    for expected in REMAINING_CONDITIONS {
        wait_until(talk, path, |answer| says(answer, expected)).await?;
    }
    let free = json!({ "metadata": { "finalizers": null } });
    let ask = RequestSpec::patch(object_path(CONFIG_MAPS, "held"), PatchType::Merge, &free);
    talk.send_unrecorded(ask).await?.expect(200)?;
    wait_until(talk, path, |answer| answer.status == 404).await?;
    let message = talk.with_namespace("namespaces \"{ns}\" not found");
    talk.get(path).await?.expect_error(404, "NotFound", &message)?;
    Ok(())
}

async fn expired(talk: &mut Session) -> Outcome {
    for name in ["a", "b", "c"] {
        create_unrecorded(talk, &config_map(name, "x")).await?;
    }
    // Something else is in every namespace of a cluster with controllers: ask by name.
    let query = "fieldSelector=metadata.name%21%3Dkube-root-ca.crt";
    let list = format!("limit=1&{query}");
    let first = talk.get(&with_query(CONFIG_MAPS, &list)).await?.expect(200)?;
    first.has_names(&["a"])?;
    create_unrecorded(talk, &config_map("bb", "x")).await?;
    let token = first.string("/metadata/continue");
    let next = RequestSpec::get(with_query(CONFIG_MAPS, &format!("{list}&continue={token}")));
    let answer = talk.send_until(next, |answer| answer.status != 200).await?;
    let message = "The provided continue parameter is too old to display a consistent list result. \
                   You can start a new list without the continue parameter, or use the continue \
                   token in this response to retrieve the remainder of the results. Continuing \
                   with the provided token results in an inconsistent list - objects that were \
                   created, modified, or deleted between the time the first chunk was returned and \
                   now may show up in the list.";
    let answer = answer.expect_error(410, "Expired", message)?;
    let fresh = answer.string("/metadata/continue");
    expect_true("a token to go on with", !fresh.is_empty() && fresh != token)?;
    let rest = format!("{query}&continue={fresh}");
    let rest = talk.get(&with_query(CONFIG_MAPS, &rest)).await?.expect(200)?;
    rest.has_names(&["b", "bb", "c"])?;
    let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", first.revision());
    let old = talk.get(&with_query(CONFIG_MAPS, &exact)).await?.expect(410)?;
    expect_equal("reason", &json!("Expired"), old.at("/reason"))
}
