//! Objects the cases are made of.

use serde_json::{Value, json};

use crate::case::Outcome;
use crate::response::Response;
use crate::session::{RequestSpec, Session};

pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
pub(super) const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";
pub(super) const PODS: &str = "/api/v1/namespaces/{ns}/pods";
pub(super) const SERVICES: &str = "/api/v1/namespaces/{ns}/services";
pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/{ns}/deployments";
pub(super) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";
pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const WIDGETS: &str = "/apis/{ns}.case.test/v1/namespaces/{ns}/widgets";

/// A path below a collection.
pub(super) fn object_path(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

/// A path with a query.
pub(super) fn with_query(path: &str, query: &str) -> String {
    format!("{path}?{query}")
}

/// A ConfigMap with one entry, `a`.
pub(super) fn config_map(name: &str, a: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name },
        "data": { "a": a },
    })
}

/// A ConfigMap with labels.
pub(super) fn labelled(name: &str, labels: &Value) -> Value {
    let mut object = config_map(name, "x");
    object["metadata"]["labels"] = labels.clone();
    object
}

/// A Deployment of one container `c`.
pub(super) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "registry.test/c:1" }] },
            },
        },
    })
}

/// A Pod of one container, bound to a node that need not exist.
pub(super) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeName": "node-of-{ns}",
            "containers": [{ "name": "c", "image": "registry.test/c:1" }],
        },
    })
}

/// Makes pods possible: a server without controllers has no default ServiceAccount.
pub(super) async fn service_account(talk: &mut Session) -> Outcome {
    let account = json!({ "metadata": { "name": "default" } });
    let ask = RequestSpec::post("/api/v1/namespaces/{ns}/serviceaccounts", &account);
    // 409: the server has controllers and they were here first.
    talk.send_unrecorded(ask).await.map(drop)
}

/// The definition of kind Widget in the case's own group, with this schema for `spec`.
pub(super) fn widget_definition(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.{ns}.case.test" },
        "spec": {
            "group": "{ns}.case.test",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": spec },
                } },
            }],
        },
    })
}

/// A Widget with this `spec`.
pub(super) fn widget(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "{ns}.case.test/v1",
        "kind": "Widget",
        "metadata": { "name": name },
        "spec": spec,
    })
}

/// Creates a definition and waits until its objects are served. Not part of the transcript: how
/// long a server takes from one to the other is its own affair.
pub(super) async fn define(talk: &mut Session, definition: &Value) -> Outcome {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    let path = object_path(DEFINITIONS, text("/metadata/name"));
    talk.delete_at_end(&path);
    talk.send_unrecorded(RequestSpec::post(DEFINITIONS, definition)).await?.expect(201)?;
    let version = text("/spec/versions/0/name");
    let plural = text("/spec/names/plural");
    let collection = format!("/apis/{}/{version}/{plural}", text("/spec/group"));
    wait_until(talk, &path, is_established).await?;
    wait_until(talk, &collection, |answer| answer.status == 200).await
}

/// Whether a definition is Established.
pub(super) fn is_established(answer: &Response) -> bool {
    condition(answer, "Established").is_some_and(|it| it["status"] == "True")
}

/// A condition of an object.
pub(super) fn condition<'a>(answer: &'a Response, kind: &str) -> Option<&'a Value> {
    answer.at("/status/conditions").as_array()?.iter().find(|it| it["type"] == kind)
}

/// Waits for an answer that is no part of the transcript.
pub(super) async fn wait_until(
    talk: &mut Session,
    path: &str,
    wanted: impl Fn(&Response) -> bool,
) -> Outcome {
    talk.send_until_unrecorded(RequestSpec::get(path), wanted).await.map(drop)
}

/// Creates Widgets of a definition with this schema for `spec`.
pub(super) async fn define_widgets(talk: &mut Session, spec: &Value) -> Outcome {
    define(talk, &widget_definition(spec)).await
}

/// A definition's first version with something more in it.
pub(super) fn with_version_field(mut definition: Value, key: &str, field: Value) -> Value {
    definition["spec"]["versions"][0][key] = field;
    definition
}
