//! Admission of changed pods and priority classes.

use http::StatusCode;
use serde_json::{Value, json};

use crate::Server;

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_pods_run_pod_admission() {
    let server = Server::start().await;
    let account = json!({ "metadata": { "name": "default" } });
    server.create("/api/v1/namespaces/default/serviceaccounts", account).await;
    let pod = json!({
        "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "i" }] },
    });
    let made = server.create(PODS, pod).await;
    let fields = ["priority", "preemptionPolicy", "tolerations"];
    let path = format!("{PODS}/p");
    let mut sent = made.clone();
    sent["metadata"]["resourceVersion"] = Value::Null;
    for field in fields {
        sent["spec"].as_object_mut().unwrap().remove(field);
    }
    let mut patch = json!({ "spec": {} });
    for field in fields {
        patch["spec"][field] = Value::Null;
    }
    let applied = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "labels": { "by": "apply" } },
    });
    let table = [
        ("PUT", "", "application/json", &sent),
        ("PUT", "?dryRun=All", "application/json", &sent),
        ("PATCH", "", "application/merge-patch+json", &patch),
        ("PATCH", "", "application/strategic-merge-patch+json", &patch),
        ("PATCH", "?fieldManager=m&force=true", "application/apply-patch+yaml", &applied),
    ];
    for (nth, (method, query, content, body)) in table.into_iter().enumerate() {
        let mut body = body.clone();
        // So that there is a change to store.
        body["metadata"]["labels"]["nth"] = json!(nth.to_string());
        let (status, answer) =
            server.send_request(method, &format!("{path}{query}"), content, &body).await;
        assert_eq!(status, StatusCode::OK, "{content}: {answer}");
        for field in fields {
            assert_eq!(answer["spec"][field], made["spec"][field], "{content}: {field}");
        }
    }
    // Another priority than the one that was computed is still refused.
    let other = json!({ "spec": { "priority": 7 } });
    let (status, _) =
        server.send_request("PATCH", &path, "application/merge-patch+json", other).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test(flavor = "multi_thread")]
async fn plug_ins_that_are_off_do_nothing_to_updates() {
    let off = ["Priority", "DefaultTolerationSeconds"].map(str::to_owned);
    let server = Server::start_with(|settings| {
        settings.plugins = gantry_apiserver::AdmissionPlugins::from_flags(&[], &off).unwrap();
    })
    .await;
    let account = json!({ "metadata": { "name": "default" } });
    server.create("/api/v1/namespaces/default/serviceaccounts", account).await;
    let pod = json!({ "metadata": { "name": "p" }, "spec": {
        "priority": 3, "containers": [{ "name": "c", "image": "i" }],
    } });
    let made = server.create(PODS, pod).await;
    assert_eq!(made["spec"]["tolerations"], Value::Null);
    let patch = json!({ "spec": { "priority": null } });
    let path = format!("{PODS}/p");
    let (status, _) =
        server.send_request("PATCH", &path, "application/merge-patch+json", patch).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_one_default_priority_class() {
    let server = Server::start().await;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name: &str, default: bool| json!({ "metadata": { "name": name }, "value": 5, "globalDefault": default });
    server.create(classes, class("one", true)).await;
    let (status, answer) =
        server.send_request("POST", classes, "application/json", class("two", true)).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let words = "priorityclasses.scheduling.k8s.io \"two\" is forbidden: PriorityClass one is \
                 already marked as default. Only one default can exist";
    assert_eq!(answer["message"], words);
    server.create(classes, class("two", false)).await;
    let patch = |name: &str| (format!("{classes}/{name}"), json!({ "globalDefault": true }));
    for (name, expected) in [("two", StatusCode::FORBIDDEN), ("one", StatusCode::OK)] {
        let (path, body) = patch(name);
        let (status, _) =
            server.send_request("PATCH", &path, "application/merge-patch+json", body).await;
        assert_eq!(status, expected, "{name}");
    }
}
