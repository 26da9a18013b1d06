//! API groups that another part of the process serves.

use std::sync::Arc;

use bytes::Bytes;
use gantry_apiserver::Caller;
use gantry_apiserver::discovery::aggregation::{AggregatedApi, AggregatedResource, TableRows};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::Server;

/// An aggregated API with two pods and a node, and their sizes.
struct SizesApi;

impl AggregatedApi for SizesApi {
    fn group(&self) -> &'static str {
        "sizes.example.com"
    }

    fn version(&self) -> &'static str {
        "v1beta1"
    }

    fn resources(&self) -> &'static [AggregatedResource] {
        &[
            AggregatedResource {
                plural: "nodes",
                kind: "NodeSize",
                namespaced: false,
                not_found_kind: "nodesizes",
            },
            AggregatedResource {
                plural: "pods",
                kind: "PodSize",
                namespaced: true,
                not_found_kind: "podsizes",
            },
        ]
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let object = |kind: &str, metadata: Value| {
            json!({
                "kind": kind, "apiVersion": "sizes.example.com/v1beta1",
                "metadata": metadata, "size": 3,
            })
        };
        if resource == "nodes" {
            return vec![object("NodeSize", json!({"name": "n"}))];
        }
        let pods = ["a", "b"].map(|it| {
            object("PodSize", json!({"name": it, "namespace": "x", "labels": {"app": it}}))
        });
        if matches!(namespace, "" | "x") { pods.to_vec() } else { Vec::new() }
    }

    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let all = self.list(resource, namespace);
        all.into_iter().find(|it| it["metadata"]["name"] == name)
    }

    fn rows(&self, _: &str, objects: &[Value]) -> TableRows {
        let column = |name: &str| json!({"name": name, "type": "string"});
        let row = |it: &Value| vec![it["metadata"]["name"].clone(), it["size"].clone()];
        let columns = vec![column("Name"), column("Size")];
        TableRows { columns, cells: objects.iter().map(row).collect() }
    }
}

const ROOT: &str = "/apis/sizes.example.com/v1beta1";

async fn send_request(
    server: &Server,
    method: &str,
    path: &str,
    accept: &str,
) -> (StatusCode, Value) {
    send_request_as(server, Caller::server(), method, path, accept).await
}

async fn send_request_as(
    server: &Server,
    caller: Caller,
    method: &str,
    path: &str,
    accept: &str,
) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    let answer = server.api.handle(request.body(Bytes::new()).unwrap(), Some(caller)).await;
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

#[tokio::test]
async fn aggregated_groups_are_discovered_and_read() {
    let server = Server::start().await;
    // A document that was built before includes it too.
    let discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let before = send_request(&server, "GET", "/apis", discovery).await.1;
    server.api.register_aggregated_api(Arc::new(SizesApi));
    let after = send_request(&server, "GET", "/apis", discovery).await.1;
    let count = |it: &Value| it["items"].as_array().unwrap().len();
    assert_eq!(count(&after), count(&before) + 1);
    let entry = after["items"].as_array().unwrap().last().unwrap();
    assert_eq!(entry["metadata"]["name"], "sizes.example.com");
    assert_eq!(entry["versions"][0]["resources"][1]["scope"], "Namespaced");
    let groups = send_request(&server, "GET", "/apis", JSON).await.1;
    let groups = groups["groups"].as_array().unwrap();
    assert_eq!(groups.last().unwrap()["name"], "sizes.example.com");
    let group = send_request(&server, "GET", "/apis/sizes.example.com", JSON).await.1;
    assert_eq!(group["preferredVersion"]["version"], "v1beta1");
    let resources = send_request(&server, "GET", ROOT, JSON).await.1;
    assert_eq!(resources["resources"][0]["kind"], "NodeSize");
    assert_eq!(resources["resources"][0]["verbs"], json!(["get", "list"]));

    let node = send_request(&server, "GET", &format!("{ROOT}/nodes/n"), JSON).await;
    assert_eq!((node.0, &node.1["size"]), (StatusCode::OK, &json!(3)));
    let table = [
        ("pods", vec!["a", "b"]),
        ("namespaces/x/pods", vec!["a", "b"]),
        ("namespaces/y/pods", vec![]),
        ("pods?labelSelector=app%3Da", vec!["a"]),
        ("pods?labelSelector=app%20in%20(b)", vec!["b"]),
        ("pods?fieldSelector=metadata.name%3Db", vec!["b"]),
    ];
    for (path, expected) in table {
        let (status, list) = send_request(&server, "GET", &format!("{ROOT}/{path}"), JSON).await;
        assert_eq!((status, &list["kind"]), (StatusCode::OK, &json!("PodSizeList")), "{path}");
        let names = list["items"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|it| it["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{path}");
    }
    let (_, rows) = send_request(&server, "GET", &format!("{ROOT}/pods"), TABLE).await;
    assert_eq!(rows["columnDefinitions"][1]["name"], "Size");
    assert_eq!(rows["rows"][0]["cells"], json!(["a", 3]));
    assert_eq!(rows["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn unsupported_verbs_of_aggregated_groups_are_refused() {
    let server = Server::start().await;
    server.api.register_aggregated_api(Arc::new(SizesApi));
    let not_allowed = "the server does not allow this method on the requested resource";
    let unknown = "the server could not find the requested resource";
    let table = [
        ("GET", "namespaces/x/pods/c", 404, "podsizes.sizes.example.com \"x/c\" not found"),
        ("GET", "nodes/m", 404, "nodesizes.sizes.example.com \"m\" not found"),
        ("GET", "pods?watch=1", 405, not_allowed),
        ("GET", "others", 404, unknown),
        ("GET", "nodes/n/status", 404, unknown),
        ("GET", "namespaces/x/nodes", 404, unknown),
        ("POST", "namespaces/x/pods", 405, not_allowed),
        ("DELETE", "nodes/n", 405, not_allowed),
        ("GET", "pods?fieldSelector=spec.x%3D1", 400, "field label not supported: spec.x"),
    ];
    for (method, path, code, message) in table {
        let (status, answer) = send_request(&server, method, &format!("{ROOT}/{path}"), JSON).await;
        assert_eq!((status.as_u16(), &answer["message"]), (code, &json!(message)), "{path}");
    }
    // Access is decided by RBAC.
    let stranger = Caller::authenticated("somebody", &[]);
    let (status, answer) =
        send_request_as(&server, stranger, "GET", &format!("{ROOT}/nodes"), JSON).await;
    let message = "nodes.sizes.example.com is forbidden: User \"somebody\" cannot list resource \"nodes\" in API group \"sizes.example.com\" at the cluster scope";
    assert_eq!((status, &answer["message"]), (StatusCode::FORBIDDEN, &json!(message)));
}
