//! What is written to: two built-in kinds and a custom one, all with the same content.

use std::collections::BTreeMap;

use gantry_process::error_chain;
use serde_json::{Value, json};

use super::Life;
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

/// The object that is written last, so that a watch can tell that it has seen everything.
const MARK: &str = "mark";
/// The object everybody writes.
pub(super) const SHARED: &str = "shared";
/// What the server itself puts in every namespace.
const SERVERS_OWN: &str = "kube-root-ca.crt";

/// Objects by name.
pub(super) type Objects = BTreeMap<String, Value>;

/// A list.
pub(super) struct Listed {
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

    pub(super) fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// Makes the custom kind and the marks.
pub(super) async fn prepare(client: &Client, life: &Life) -> Result<(), String> {
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
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } },
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    succeed(client, Request::post(path, &definition)).await?;
    for collection in &COLLECTIONS {
        let mark = collection.object(MARK, &json!({ "step": "AAAA" }));
        let made = succeed(client, Request::post(collection.path, &mark)).await?;
        life.saw(revision(&made)?);
    }
    Ok(())
}

/// Writes the mark of a collection and returns its revision.
pub(super) async fn mark(
    collection: &Collection,
    client: &Client,
    life: &Life,
) -> Result<u64, String> {
    let letters: String = std::iter::repeat_with(fastrand::alphabetic).take(16).collect();
    let patch = json!({ collection.field: { "step": letters } });
    let request = Request::patch(collection.place(MARK), "application/merge-patch+json", &patch);
    let marked = revision(&succeed(client, request).await?)?;
    life.saw(marked);
    Ok(marked)
}

pub(super) async fn list(collection: &Collection, client: &Client) -> Result<Listed, String> {
    let list = succeed(client, Request::get(collection.path)).await?;
    let items = list["items"].as_array().ok_or("a list without items")?;
    let named = items.iter().map(|item| {
        let name = item["metadata"]["name"].as_str().ok_or("an object without a name")?;
        Ok((name.to_owned(), bare(item.clone())))
    });
    Ok(Listed { revision: revision(&list)?, objects: named.collect::<Result<_, String>>()? })
}

/// Nothing is left that nobody wrote.
pub(super) fn nothing_else(collection: &Collection, objects: &Objects) -> Result<(), String> {
    let stranger =
        objects.iter().find(|(name, _)| !matches!(name.as_str(), MARK | SHARED | SERVERS_OWN));
    match stranger {
        None => Ok(()),
        Some((name, object)) => {
            Err(format!("nobody wrote {}, yet it is {object}", collection.place(name)))
        }
    }
}

/// Sends a request that must succeed.
pub(super) async fn succeed(client: &Client, request: Request) -> Result<Value, String> {
    let line = format!("{} {}", request.method, request.path_and_query);
    let answer = client.send(request).await.map_err(|error| error_chain(&error))?;
    let status = answer.status;
    if !status.is_success() {
        return Err(format!("{line}: {status} {}", answer.text()));
    }
    answer.json().map_err(|error| format!("{line}: half an answer: {error}"))
}

/// An object as lists have it: there the kind is not said with every one.
pub(super) fn bare(mut object: Value) -> Value {
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
