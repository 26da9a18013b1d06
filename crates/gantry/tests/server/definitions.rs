//! Definitions of custom kinds with very many properties.

use gantry_process::clock::Clock;
use gantry_testkit::http::{Protocol, Request};
use serde_json::{Map, Value, json};

use super::slow_watchers::{mb, resident};
use super::{client, done, get, plan};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const COUNT: usize = 30;
const PROPERTIES: usize = 5_000;
/// What they may cost altogether: the text, what the store remembers of its changes, and as many
/// compiled schemas as are kept. Compiled twice each, with their trees, they took 160 MB.
const MAX_MEMORY_GROWTH: u64 = 110 << 20;

fn definition(nth: usize) -> Value {
    let properties: Map<String, Value> = (0..PROPERTIES)
        .map(|place| (format!("property{place}"), json!({ "type": "string", "maxLength": 63 })))
        .collect();
    let schema = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": properties },
    } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("things{nth}.large{nth}.test") },
        "spec": {
            "group": format!("large{nth}.test"), "scope": "Namespaced",
            "names": { "plural": format!("things{nth}"), "singular": format!("thing{nth}"),
                "kind": format!("Thing{nth}"), "listKind": format!("Thing{nth}List") },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_with_thousands_of_properties_cost_little() {
    let server = plan().flag("--ephemeral").start(&Clock::system()).await.unwrap();
    let client = client(&server, Protocol::Http2);
    // One of them warms up whatever is made once.
    done(&client.send(Request::post(DEFINITIONS, &definition(0))).await.unwrap());
    let before = resident(&server);
    for nth in 1..=COUNT {
        done(&client.send(Request::post(DEFINITIONS, &definition(nth))).await.unwrap());
    }
    let after = resident(&server);
    println!("{COUNT} definitions of {PROPERTIES}: {} MB became {} MB", mb(before), mb(after));
    assert!(after < before + MAX_MEMORY_GROWTH, "{} MB became {} MB", mb(before), mb(after));
    // All of them can be used, whichever was used last.
    for nth in (0..=COUNT).chain([0]) {
        let path = format!("/apis/large{nth}.test/v1/namespaces/default/things{nth}");
        let kind = format!("Thing{nth}");
        let name = format!("a{}", fastrand::u64(..));
        let mut thing = json!({ "apiVersion": format!("large{nth}.test/v1"), "kind": kind,
            "metadata": { "name": name }, "spec": { "property4999": "x", "unknown": 1 } });
        let made = done(&client.send(Request::post(&path, &thing)).await.unwrap());
        assert_eq!(made["spec"], json!({ "property4999": "x" }));
        thing["spec"]["property0"] = json!("x".repeat(64));
        let refused = client.send(Request::post(&path, &thing)).await.unwrap();
        assert_eq!(refused.status, 422, "{}", refused.text());
        let list = get(&client, &path).await;
        assert_eq!(list["items"][0]["spec"], json!({ "property4999": "x" }));
    }
}
