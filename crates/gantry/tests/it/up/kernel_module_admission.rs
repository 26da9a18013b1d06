//! What a server says to changes of Modules, Preflights and ManagedClusterModules: rules of the
//! schema, which compare an object with its predecessor, and rules of the webhook.

use super::kernel_modules::MODULES;
use super::*;

const PREFLIGHTS: &str = "/apis/ooto.sigs.k8s.io/v1alpha1/preflights";
const MANAGED: &str = "/apis/hub.ooto.sigs.k8s.io/v1alpha1/managedclustermodules";

/// The version may not come or go.
const VERSION_STAYS: &str = "version cannot be added or removed on an existing Module; recreate it";

/// The spec of a Module whose container has a version, or none.
fn module_spec(version: Option<&str>) -> Value {
    let mut container = json!({
        "command": ["sleep", "infinity"],
        "kernelMappings": [{"literal": "6.1.0", "containerImage": "example.com/hello:1"}],
    });
    if let Some(version) = version {
        container["version"] = json!(version);
    }
    json!({
        // No node has this label: the table is about the server alone.
        "selector": {"example.com/none": "true"},
        "driverContainer": {"container": container},
        "devicePlugin": {"container": {"image": "example.com/plugin:1"}},
    })
}

fn managed_spec(version: Option<&str>) -> Value {
    let module = module_spec(version);
    json!({"moduleSpec": module, "spokeNamespace": "drivers", "selector": {}})
}

/// A row of the table: the collection, the object, and changes of it with what is said about them;
/// nothing where they are accepted.
type Row = (&'static str, Value, Vec<(Value, Option<&'static str>)>);

impl Cluster {
    /// Sends a merge patch, and returns the status of the response and its message.
    async fn change(&self, path: &str, patch: &Value) -> (u16, String) {
        let kind = "application/merge-patch+json";
        let answer = self.client.send(Request::patch(path, kind, patch)).await.unwrap();
        let said: Value = answer.json().unwrap();
        (answer.status.as_u16(), said["message"].as_str().unwrap_or_default().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w_23_w_26_what_may_not_change_is_refused_when_it_is_changed() {
    let cluster = Cluster::ephemeral().await;
    let object = |api: &str, kind: &str, name: &str, spec: Value| {
        let metadata = json!({"name": name});
        json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})
    };
    let (api, hub) = ("ooto.sigs.k8s.io/v1alpha1", "hub.ooto.sigs.k8s.io/v1alpha1");
    let driver = |version: Value| json!({"driverContainer": {"container": {"version": version}}});
    let version = |version: Value| json!({"spec": driver(version)});
    let of_hub = |version: Value| json!({"spec": {"moduleSpec": driver(version)}});
    let table: [Row; 5] = [
        (
            MODULES,
            object(api, "Module", "versioned", module_spec(Some("1"))),
            vec![
                (version(json!("2")), None),
                (version(Value::Null), Some(VERSION_STAYS)),
                (version(json!("")), Some(VERSION_STAYS)),
                // Where the driver goes as a whole, its version goes with it.
                (json!({"spec": {"driverContainer": null}}), None),
            ],
        ),
        (
            MODULES,
            object(api, "Module", "plain", module_spec(None)),
            vec![
                (version(json!("1")), Some(VERSION_STAYS)),
                (version(json!("")), None),
                (json!({"spec": {"selector": {"example.com/other": "true"}}}), None),
            ],
        ),
        (
            PREFLIGHTS,
            object(api, "Preflight", "next", json!({"kernelVersion": "6.8.0-45-generic"})),
            vec![
                (json!({"spec": {"kernelVersion": "6.8.0-46-generic"}}), Some("immutable")),
                (json!({"spec": {"kernelVersion": "6.8.0-45-generic"}}), None),
                (json!({"spec": {"pushBuiltImage": true}}), None),
            ],
        ),
        (
            MANAGED,
            object(hub, "ManagedClusterModule", "versioned", managed_spec(Some("1"))),
            vec![(of_hub(json!("2")), None), (of_hub(Value::Null), Some(VERSION_STAYS))],
        ),
        (
            MANAGED,
            object(hub, "ManagedClusterModule", "plain", managed_spec(None)),
            vec![
                (of_hub(json!("1")), Some(VERSION_STAYS)),
                (json!({"spec": {"spokeNamespace": "other"}}), None),
            ],
        ),
    ];
    for (collection, object, changes) in table {
        cluster.post(collection, &object).await;
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
        for (patch, refused) in changes {
            let before = cluster.get(&path).await["spec"].clone();
            let (status, message) = cluster.change(&path, &patch).await;
            match refused {
                Some(words) => {
                    assert_eq!(status, 422, "{path} {patch}: {message}");
                    assert!(message.contains(words), "{path} {patch}: {message}");
                    assert_eq!(cluster.get(&path).await["spec"], before, "{path} {patch}");
                }
                None => assert_eq!(status, 200, "{path} {patch}: {message}"),
            }
        }
    }
}

/// Rules that no schema states: the webhook applies them to creations and to changes of each kind.
#[tokio::test(flavor = "multi_thread")]
async fn kms_15_w_1_w_28_each_kind_has_its_webhook() {
    let cluster = Cluster::ephemeral().await;
    let unclosed = "kernelMappings[0].regexp: invalid regexp";
    let mappings = json!([{"regexp": "(", "containerImage": "example.com/hello:1"}]);
    let bad_mapping = json!({"driverContainer": {"container": {"kernelMappings": mappings}}});
    let table = [
        (MODULES, "Module", module_spec(None), bad_mapping.clone(), unclosed),
        (
            PREFLIGHTS,
            "Preflight",
            json!({"kernelVersion": "6.8.0"}),
            json!({"labels": {"gpu": "not a label value"}}),
            "spec.labels.gpu: Invalid value: \"not a label value\": must be a label value",
        ),
        (
            MANAGED,
            "ManagedClusterModule",
            managed_spec(None),
            json!({"moduleSpec": bad_mapping}),
            unclosed,
        ),
    ];
    for (collection, kind, good, bad, words) in table {
        let group = collection.split('/').nth(2).unwrap();
        let object = |name: &str| {
            json!({
                "apiVersion": format!("{group}/v1alpha1"), "kind": kind,
                "metadata": {"name": name}, "spec": good,
            })
        };
        cluster.post(collection, &object("good")).await;
        let path = format!("{collection}/good");
        let (status, message) = cluster.change(&path, &json!({"spec": bad})).await;
        assert_eq!(status, 422, "{kind}: {message}");
        assert!(message.contains("admission webhook") && message.contains(words), "{message}");
        assert_eq!(cluster.get(&path).await["metadata"]["generation"], 1, "{kind}");
        let mut created = object("bad");
        for (field, value) in bad.as_object().unwrap() {
            created["spec"][field] = value.clone();
        }
        if kind == "ManagedClusterModule" {
            created["spec"]["moduleSpec"]["selector"] = json!({});
        }
        let answer = cluster.client.send(Request::post(collection, &created)).await.unwrap();
        assert_eq!(answer.status, 422, "{kind}: {}", answer.text());
        assert!(answer.json().unwrap()["message"].as_str().unwrap().contains(words));
        // What it says is right is changed.
        let label = json!({"metadata": {"labels": {"changed": "yes"}}});
        assert_eq!(cluster.change(&path, &label).await.0, 200, "{kind}");
    }
}
