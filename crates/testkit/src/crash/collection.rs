//! The collections that are written to: two built-in kinds and a custom one, all with the same
//! content.

use std::collections::BTreeMap;

use gantry_process::error_chain;
use serde_json::{Value, json};

use super::ServerLifetime;
use crate::http::{Client, Request};

/// A collection of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Collection {
    pub(super) path: &'static str,
    version: &'static str,
    kind: &'static str,
    /// The field that holds the content.
    pub(super) field: &'static str,
}

pub(super) const COLLECTIONS: [Collection; 3] = [
    Collection {
        path: "/api/v1/namespaces/default/configmaps",
        version: "v1",
        kind: "ConfigMap",
        field: "data",
    },
    Collection {
        path: "/api/v1/namespaces/default/secrets",
        version: "v1",
        kind: "Secret",
        field: "data",
    },
    Collection {
        path: "/apis/crash.gantry.dev/v1/namespaces/default/widgets",
        version: "crash.gantry.dev/v1",
        kind: "Widget",
        field: "spec",
    },
];

/// The object that is written last, so that a watch can tell that it has received everything.
const MARKER_OBJECT: &str = "mark";
/// The object that all writers update.
pub(super) const SHARED_OBJECT: &str = "shared";
/// The objects that the server itself creates in every namespace.
const SERVER_CREATED_OBJECT: &str = "kube-root-ca.crt";

/// Objects by name.
pub(super) type Objects = BTreeMap<String, Value>;

/// A list.
pub(super) struct ListedObjects {
    pub(super) revision: u64,
    pub(super) objects: Objects,
}

impl Collection {
    pub(super) fn object(&self, name: &str, content: &Value) -> Value {
        let (version, kind) = (self.version, self.kind);
        let mut object =
            json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
        object[self.field] = content.clone();
        object
    }

    pub(super) fn object_path(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// Creates the custom kind and the marker objects.
pub(super) async fn prepare(client: &Client, life: &ServerLifetime) -> Result<(), String> {
    let text = json!({ "type": "string" });
    let spec = json!({ "type": "object", "properties": { "step": text, "fill": text } });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.crash.gantry.dev" },
        "spec": {
            "group": "crash.gantry.dev",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {
                    "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } },
                },
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send_expecting_success(client, Request::post(path, &definition)).await?;
    for collection in &COLLECTIONS {
        let mark = collection.object(MARKER_OBJECT, &json!({ "step": "AAAA" }));
        let made = send_expecting_success(client, Request::post(collection.path, &mark)).await?;
        life.observe_revision(revision(&made)?);
    }
    Ok(())
}

/// Writes the marker of a collection and returns its revision.
pub(super) async fn write_marker(
    collection: &Collection,
    client: &Client,
    life: &ServerLifetime,
) -> Result<u64, String> {
    let letters: String = std::iter::repeat_with(fastrand::alphabetic).take(16).collect();
    let patch = json!({ collection.field: { "step": letters } });
    let request = Request::patch(
        collection.object_path(MARKER_OBJECT),
        "application/merge-patch+json",
        &patch,
    );
    let marked = revision(&send_expecting_success(client, request).await?)?;
    life.observe_revision(marked);
    Ok(marked)
}

pub(super) async fn list(
    collection: &Collection,
    client: &Client,
) -> Result<ListedObjects, String> {
    let list = send_expecting_success(client, Request::get(collection.path)).await?;
    let items = list["items"].as_array().ok_or("a list without items")?;
    let named = items.iter().map(|item| {
        let name = item["metadata"]["name"].as_str().ok_or("an object without a name")?;
        Ok((name.to_owned(), without_type_meta(item.clone())))
    });
    Ok(ListedObjects { revision: revision(&list)?, objects: named.collect::<Result<_, String>>()? })
}

/// Fails if an object is left that no writer wrote.
pub(super) fn check_no_unknown_objects(
    collection: &Collection,
    objects: &Objects,
) -> Result<(), String> {
    let stranger = objects.iter().find(|(name, _)| {
        !matches!(name.as_str(), MARKER_OBJECT | SHARED_OBJECT | SERVER_CREATED_OBJECT)
    });
    match stranger {
        None => Ok(()),
        Some((name, object)) => {
            Err(format!("no writer wrote {}, but it is {object}", collection.object_path(name)))
        }
    }
}

/// Sends a request that must succeed.
pub(super) async fn send_expecting_success(
    client: &Client,
    request: Request,
) -> Result<Value, String> {
    let line = format!("{} {}", request.method, request.path_and_query);
    let answer = client.send(request).await.map_err(|error| error_chain(&error))?;
    let status = answer.status;
    if !status.is_success() {
        return Err(format!("{line}: {status} {}", answer.text()));
    }
    answer.json().map_err(|error| format!("{line}: half an answer: {error}"))
}

/// Returns an object as lists have it: without its kind.
pub(super) fn without_type_meta(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove("kind");
        fields.shift_remove("apiVersion");
    }
    object
}

pub(super) fn revision(object: &Value) -> Result<u64, String> {
    let text = object["metadata"]["resourceVersion"].as_str();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("no revision in {object}"))
}
