//! What pods use, and autoscalers that follow it.

use http::header::{ACCEPT, HeaderName, HeaderValue};

use super::*;

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

/// A deployment whose pods request a fifth of a processor each and use so much together.
fn under_load(app: &str, replicas: u32, load: &str) -> Value {
    let mut deployment = deployment(app, replicas);
    let template = &mut deployment["spec"]["template"];
    template["metadata"]["annotations"] = json!({"gantry.dev/sim-cpu-load": load});
    let requests = json!({"cpu": "200m", "memory": "100Mi"});
    template["spec"]["containers"][0]["resources"] = json!({"requests": requests});
    deployment
}

/// An autoscaler that wants half of what is requested to be used.
fn autoscaler(name: &str, target: &Value, most: u32) -> Value {
    let metric =
        json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}});
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": metric}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    })
}

impl Cluster {
    /// Asks as somebody, in some form.
    async fn ask_as(&self, user: &'static str, path: &str, accept: &'static str) -> (u16, Value) {
        let request = Request::get(path)
            .header(ACCEPT, HeaderValue::from_static(accept))
            .header(HeaderName::from_static("impersonate-user"), HeaderValue::from_static(user));
        let answer = self.client.send(request).await.unwrap();
        (answer.status.as_u16(), answer.json().unwrap_or_default())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_and_node_metrics_need_read_access() {
    let cluster = Cluster::ephemeral().await;
    let mut web = deployment("web", 2);
    let template = &mut web["spec"]["template"];
    template["metadata"]["annotations"] =
        json!({"gantry.dev/sim-cpu-usage": "80%", "gantry.dev/sim-memory-usage": "30Mi"});
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}});
    cluster.post(DEPLOYMENTS, &web).await;
    let pods = format!("{METRICS}/namespaces/default/pods?labelSelector=app%3Dweb");
    let two = |list: &Value| list["items"].as_array().is_some_and(|it| it.len() == 2);
    let list = cluster.wait_until(&pods, "were two", two).await;
    assert_eq!(list["kind"], "PodMetricsList");
    let used = json!([{"name": "main", "usage": {"cpu": "400m", "memory": "30Mi"}}]);
    assert_eq!(list["items"][0]["containers"], used);
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    let one = cluster.get(&format!("{METRICS}/namespaces/default/pods/{name}")).await;
    assert_eq!((&one["kind"], &one["containers"]), (&json!("PodMetrics"), &used));
    let nodes = cluster.get(&format!("{METRICS}/nodes")).await;
    assert_eq!(nodes["items"].as_array().unwrap().len(), 3);
    let groups = cluster.get("/apis").await;
    let groups = groups["groups"].as_array().unwrap();
    assert!(groups.iter().any(|it| it["name"] == "metrics.k8s.io"));

    // As `kubectl get` shows it.
    let admin = "kubernetes-admin";
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let subjects =
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": admin}]);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "viewers"}, "roleRef": role, "subjects": subjects,
    });
    let (status, _) = cluster.ask_as(admin, &pods, table).await;
    assert_eq!(status, 403);
    cluster.post(path, &binding).await;
    let (status, rows) = cluster.ask_as(admin, &pods, table).await;
    assert_eq!(status, 200, "{rows:#}");
    let columns = rows["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<&str> = columns.map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "cpu", "memory", "Window"]);
    let cells = rows["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[1..], [json!("400m"), json!("30Mi"), json!("1s")]);
    let (status, _) = cluster.ask_as(admin, &format!("{METRICS}/nodes"), "application/json").await;
    assert_eq!(status, 403, "nodes are no part of a namespace");
    cluster.stop(Signal::TERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn autoscalers_follow_what_pods_use() {
    let cluster = Cluster::ephemeral().await;
    // 600m for pods that should use 100m each.
    cluster.post(DEPLOYMENTS, &under_load("web", 2, "600m")).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    cluster.post(AUTOSCALERS, &autoscaler("web", &target, 10)).await;
    let web = format!("{DEPLOYMENTS}/web");
    cluster.wait_until(&web, "had six replicas", |it| is_rolled_out(it, 6)).await;
    let autoscaler_path = format!("{AUTOSCALERS}/web");
    let settled = |it: &Value| {
        it["status"]["currentReplicas"] == 6
            && it["status"]["desiredReplicas"] == 6
            && it["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 50
    };
    let hpa = cluster.wait_until(&autoscaler_path, "settled", settled).await;
    let conditions = hpa["status"]["conditions"].as_array().unwrap().iter();
    let conditions: Vec<(&Value, &Value)> =
        conditions.map(|it| (&it["type"], &it["status"])).collect();
    let expected =
        [("AbleToScale", "True"), ("ScalingActive", "True"), ("ScalingLimited", "False")];
    let expected: Vec<(Value, Value)> =
        expected.iter().map(|(kind, status)| (json!(kind), json!(status))).collect();
    assert_eq!(conditions, expected.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>());
    let events = "/api/v1/namespaces/default/events";
    let said = "cpu resource utilization (percentage of request) above target";
    let told = |list: &Value| {
        list["items"].as_array().unwrap().iter().any(|it| {
            it["reason"] == "SuccessfulRescale"
                && it["source"]["component"] == "horizontal-pod-autoscaler"
                && it["message"].as_str().unwrap().ends_with(said)
        })
    };
    cluster.wait_until(events, "told of the change", told).await;

    // The load goes, and the replicas with it.
    for (name, _) in cluster.pods("web").await {
        let idle = json!({"metadata": {"annotations": {"gantry.dev/sim-cpu-load": "10m"}}});
        let kind = "application/merge-patch+json";
        // One that the autoscaler has just removed is not there any more.
        let path = format!("{PODS}/{name}");
        cluster.client.send(Request::patch(path.as_str(), kind, &idle)).await.unwrap();
    }
    let fewer = |it: &Value| it["spec"]["replicas"].as_u64() < Some(6);
    cluster.wait_until(&web, "had less replicas", fewer).await;
    cluster.stop(Signal::TERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn autoscalers_scale_any_scale_subresource() {
    let cluster = Cluster::ephemeral().await;
    let replicas = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": replicas, "status": replicas}});
    let scale = json!({
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "crews.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "crews", "singular": "crew", "kind": "Crew"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"scale": scale},
            }],
        },
    });
    cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let crews = "/apis/example.com/v1/namespaces/default/crews";
    let crew = json!({
        "apiVersion": "example.com/v1", "kind": "Crew", "metadata": {"name": "deck"},
        "spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "crew=deck"},
    });
    cluster.wait_until(crews, "were served", |it| it["kind"] == "CrewList").await;
    cluster.post(crews, &crew).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "deck-0", "labels": {"crew": "deck"},
            "annotations": {"gantry.dev/sim-cpu-usage": "150%"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/crew:1",
            "resources": {"requests": {"cpu": "100m"}}}]},
    });
    cluster.post(PODS, &pod).await;
    let target = json!({"apiVersion": "example.com/v1", "kind": "Crew", "name": "deck"});
    cluster.post(AUTOSCALERS, &autoscaler("deck", &target, 3)).await;
    let three = |it: &Value| it["spec"]["replicas"] == 3;
    cluster.wait_until(&format!("{crews}/deck"), "had three replicas", three).await;

    // What cannot be moved says so. A name is a name, whatever it looks like.
    let strange = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x?watch=1"});
    cluster.post(AUTOSCALERS, &autoscaler("strange", &strange, 3)).await;
    let says = |it: &Value| {
        let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| {
            let message = it["message"].as_str().unwrap_or_default();
            it["reason"] == "FailedGetScale" && message.ends_with("\"x?watch=1\" not found")
        })
    };
    cluster.wait_until(&format!("{AUTOSCALERS}/strange"), "said why not", says).await;
    cluster.stop(Signal::TERM).await;
}
