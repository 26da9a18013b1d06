//! Tests that a real server accepts our CRDs without warnings.

use gantry_api::object::KINDS;
use gantry_testkit::http::{Client, Request};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{http, shared, wait_until};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Creates every CRD, once for all tests, and waits until the server serves it.
pub(super) async fn establish(client: &Client) -> &'static [Value] {
    static ESTABLISHED: OnceCell<Vec<Value>> = OnceCell::const_new();
    let create = || async {
        let mut names = Vec::new();
        for kind in KINDS {
            let path = format!("{DEFINITIONS}?fieldValidation=Strict");
            let answer = client.send(Request::post(path, &kind.crd())).await.unwrap();
            let warning = answer.headers.get("warning");
            assert_eq!(answer.status, 201, "{}: {}", kind.kind, answer.text());
            assert_eq!(warning, None, "{}", kind.kind);
            names.push(kind.crd_name());
        }
        let mut established = Vec::new();
        for name in names {
            let is_established = |answer: &gantry_testkit::http::Response| {
                condition(&answer.json().unwrap(), "Established") == Some("True".to_owned())
            };
            let answer = wait_until(client, &format!("{DEFINITIONS}/{name}"), is_established).await;
            established.push(answer.json().unwrap());
        }
        established
    };
    ESTABLISHED.get_or_init(create).await
}

fn condition(object: &Value, wanted: &str) -> Option<String> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == wanted)?;
    Some(found["status"].as_str()?.to_owned())
}

#[tokio::test]
async fn every_definition_is_established_and_structural() {
    let (cluster, _tails) = shared().await;
    let established = establish(&http(cluster.admin())).await;
    assert_eq!(established.len(), KINDS.len());
    for definition in established {
        let name = &definition["metadata"]["name"];
        for (wanted, status) in
            [("NamesAccepted", Some("True")), ("NonStructuralSchema", None), ("Terminating", None)]
        {
            let found = condition(definition, wanted);
            assert_eq!(found.as_deref(), status, "{wanted} of {name}: {}", definition["status"]);
        }
    }
}
