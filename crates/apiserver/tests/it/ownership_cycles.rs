//! Owners that own each other.

use http::StatusCode;
use serde_json::{Value, json};

use crate::Server;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates ConfigMaps that own each other: each pair is an owner and its dependent.
async fn create_config_maps(
    server: &Server,
    names: &[&str],
    owned: &[(&str, &str)],
    held: &[&str],
) {
    let mut uids = std::collections::BTreeMap::new();
    for name in names {
        let finalizers = if held.contains(name) { json!(["case.test/hold"]) } else { json!([]) };
        let map = json!({ "metadata": { "name": name, "finalizers": finalizers } });
        uids.insert(*name, server.create(MAPS, map).await["metadata"]["uid"].clone());
    }
    for name in names {
        let owners = owned.iter().filter(|(_, part)| part == name).map(|(owner, _)| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uids[owner],
                "blockOwnerDeletion": true,
            })
        });
        let owners: Vec<Value> = owners.collect();
        let patch = json!({ "metadata": { "ownerReferences": owners } });
        let kind = "application/merge-patch+json";
        let (status, answer) =
            server.send_request("PATCH", &format!("{MAPS}/{name}"), kind, patch).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
}

async fn delete(server: &Server, name: &str) {
    let options = json!({ "propagationPolicy": "Foreground" });
    let path = format!("{MAPS}/{name}");
    let (status, answer) = server.send_request("DELETE", &path, "application/json", options).await;
    assert!(matches!(status, StatusCode::OK | StatusCode::NOT_FOUND), "{answer}");
}

async fn wait_until_deleted(server: &Server, case: &str, name: &str) {
    let path = format!("{MAPS}/{name}");
    let what = format!("went ({case})");
    server.wait_until(&path, &what, |status, _| status == StatusCode::NOT_FOUND).await;
}

/// The case, the ConfigMaps, the owner references, and which are deleted.
type CycleCase<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);

#[tokio::test(flavor = "multi_thread")]
async fn cycles_of_blocking_owners_are_deleted() {
    let server = Server::start().await;
    let table: [CycleCase<'_>; 6] = [
        ("two", &["a", "b"], &[("a", "b"), ("b", "a")], &["a"]),
        ("three", &["a", "b", "c"], &[("a", "b"), ("b", "c"), ("c", "a")], &["a"]),
        ("one that owns itself", &["a"], &[("a", "a")], &["a"]),
        ("two, both deleted", &["a", "b"], &[("a", "b"), ("b", "a")], &["a", "b"]),
        (
            "two circles that share one",
            &["a", "b", "c"],
            &[("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")],
            &["a"],
        ),
        (
            "a circle below the one that is deleted",
            &["a", "b", "c"],
            &[("a", "b"), ("b", "c"), ("c", "b")],
            // The other owner must not exist either, or its dependent stays.
            &["a", "c"],
        ),
    ];
    for (case, names, owned, deleted) in table {
        create_config_maps(&server, names, owned, &[]).await;
        for name in deleted {
            delete(&server, name).await;
        }
        for name in names {
            wait_until_deleted(&server, case, name).await;
        }
    }
}

/// Owners without a cycle wait for their dependents as before.
#[tokio::test(flavor = "multi_thread")]
async fn owners_in_a_chain_wait_for_their_dependents() {
    let server = Server::start().await;
    let owned = [("top", "a"), ("a", "b"), ("b", "c")];
    create_config_maps(&server, &["top", "a", "b", "c"], &owned, &["c"]).await;
    delete(&server, "a").await;
    let marked = |_: StatusCode, it: &Value| it["metadata"]["deletionTimestamp"].is_string();
    server.wait_until(&format!("{MAPS}/c"), "was deleted", marked).await;
    // One collector processes all of them, in name order: it is past these now.
    create_config_maps(&server, &["x", "y"], &[("x", "y"), ("y", "x")], &[]).await;
    delete(&server, "x").await;
    for name in ["x", "y"] {
        wait_until_deleted(&server, "a circle", name).await;
    }
    for name in ["a", "b"] {
        let path = format!("{MAPS}/{name}");
        let (status, waiting) = server.send_request("GET", &path, "application/json", "").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        let owner = &waiting["metadata"]["ownerReferences"][0];
        assert_eq!(owner["blockOwnerDeletion"], json!(true), "{name}");
    }
    let free = json!({ "metadata": { "finalizers": null } });
    server.send_request("PATCH", &format!("{MAPS}/c"), "application/merge-patch+json", free).await;
    for name in ["a", "b", "c"] {
        wait_until_deleted(&server, "a chain", name).await;
    }
}
