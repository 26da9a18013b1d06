//! Users who try to get devices or contents of objects that they may not use, on a cluster in one
//! process.

use gantry_testkit::http::Response;
use http::{HeaderName, HeaderValue};

use super::*;

const DEVICES: &str = "/apis/devmgmtproto.k8s.io/v1alpha1";
const CLAIMS: &str = "/apis/devmgmtproto.k8s.io/v1alpha1/namespaces/default/deviceclaims";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MERGE: &str = "application/merge-patch+json";
const TOLD: &str = "devmgmtproto.k8s.io/device-allocations";
const CARRIER: &str = "devmgmtproto.k8s.io/device-claims";
const CONTAINER_DEVICES_ANNOTATION: &str = "devmgmtproto.k8s.io/container-devices";
const FORGED: &str = r#"{"main":[{"driver":"gpu.example.com","pool":"cards","device":"card-3"}]}"#;

impl Cluster {
    /// Publishes a pool of four devices on the first node, and a class for them. Returns the node.
    async fn publish_fixture_pool(&self) -> String {
        let nodes = self.get("/api/v1/nodes").await;
        let node = nodes["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
        let object = |kind: &str, name: &str| json!({"apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": name}});
        let mut driver = object("DeviceDriver", "gpu.example.com");
        driver["deviceTypes"] = json!(["gpu"]);
        self.post(&format!("{DEVICES}/devicedrivers"), &driver).await;
        let mut class = object("DeviceClass", "gpu");
        class["spec"] = json!({"deviceType": "gpu"});
        self.post(&format!("{DEVICES}/deviceclasses"), &class).await;
        let mut pool = object("DevicePool", "cards");
        let devices: Vec<Value> = (0..4).map(|at| json!({"name": format!("card-{at}")})).collect();
        pool["spec"] = json!({"nodeName": node, "driver": "gpu.example.com", "devices": devices});
        self.post(&format!("{DEVICES}/devicepools"), &pool).await;
        node
    }

    async fn send(&self, request: Request) -> Response {
        self.client.send(request).await.unwrap()
    }

    /// Returns the reason why a pod is held.
    async fn wait_for_held_message(&self, pod: &str, says: &str) -> String {
        let message = |it: &Value| {
            let all = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = all.iter().find(|it| it["type"] == "PodScheduled");
            found.and_then(|it| it["message"].as_str()).unwrap_or_default().to_owned()
        };
        let what = format!("says {says:?}");
        let path = format!("{PODS}/{pod}");
        message(&self.wait_until(&path, &what, |it| message(it).contains(says)).await)
    }

    async fn wait_until_running(&self, pod: &str) -> Value {
        let runs = |it: &Value| it["status"]["phase"] == "Running";
        self.wait_until(&format!("{PODS}/{pod}"), "runs", runs).await
    }
}

fn claim(name: &str, configs: &Value) -> Value {
    let mut term = json!({"name": "main", "deviceClass": "gpu"});
    if configs.is_array() {
        term["configs"] = configs.clone();
    }
    json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClaim",
        "metadata": {"name": name}, "spec": {"claims": [term]},
    })
}

fn user_of(claim: &str) -> Value {
    let claims = json!([{"name": "c", "claimName": claim}]).to_string();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("user-of-{claim}"), "annotations": {
            CARRIER: claims, CONTAINER_DEVICES_ANNOTATION: r#"{"main":[{"name":"c"}]}"#,
        }},
        "spec": {
            "schedulerName": "gantry",
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10.1"}],
        },
    })
}

fn config(name: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name}])
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "y"}})
}

/// A name that is a query would turn the read of one object into a watch that never ends, or into a
/// list. It is rejected; and if it is stored all the same, without the webhook, it blocks no other
/// claim and nothing is copied.
#[tokio::test(flavor = "multi_thread")]
async fn references_of_claims_address_objects_and_nothing_else() {
    let cluster = Cluster::ephemeral().await;
    cluster.publish_fixture_pool().await;
    let evil = [
        ("watch", json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "?watch=1"}]), "name"),
        ("list", json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "?limit=5"}]), "name"),
        (
            "step",
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "../secrets/s"}]),
            "name",
        ),
        ("kind", json!([{"apiVersion": "v1", "kind": "Secret", "name": "s"}]), "kind"),
        (
            "core",
            json!([{"apiVersion": "v1", "kind": "ServiceAccount", "name": "default"}]),
            "kind",
        ),
        (
            "version",
            json!([{"apiVersion": "v1?x", "kind": "ConfigMap", "name": "a"}]),
            "apiVersion",
        ),
        ("group", json!([{"apiVersion": "a/../v1", "kind": "A", "name": "a"}]), "apiVersion"),
    ];
    for (name, configs, field) in &evil {
        let refused = cluster.send(Request::post(CLAIMS, &claim(name, configs))).await;
        assert_eq!(refused.status, 422, "{name}: {}", refused.text());
        let expected = format!("spec.claims[0].configs[0].{field}: ");
        assert!(refused.text().contains(&expected), "{name}: {}", refused.text());
    }
    let hooks = format!("{HOOKS}/gantry-devices");
    let stored = cluster.send(Request::delete(hooks)).await;
    assert!(stored.status.is_success(), "{}", stored.text());
    for (name, configs, _) in &evil {
        cluster.post(CLAIMS, &claim(name, configs)).await;
        cluster.post(PODS, &user_of(name)).await;
    }
    cluster.post(CONFIG_MAPS, &config_map("conf")).await;
    cluster.post(CLAIMS, &claim("good", &config("conf"))).await;
    cluster.post(PODS, &user_of("good")).await;
    cluster.wait_until_running("user-of-good").await;
    let good = cluster.get(&format!("{CLAIMS}/good")).await;
    assert_eq!(good["status"]["claimConfigs"][0]["data"], json!({"x": "y"}), "{good:#}");
    for (name, _, field) in &evil {
        let said = cluster.wait_for_held_message(&format!("user-of-{name}"), field).await;
        assert!(said.contains("configs[0]"), "{name}: {said}");
        let stored = cluster.get(&format!("{CLAIMS}/{name}")).await;
        assert_eq!(stored["status"].get("claimConfigs"), None, "{name}");
    }
}

/// A user cannot have an object copied into a claim that they may not read: ConfigMaps by the
/// permissions of the author, other kinds if their definition allows it, Secrets never.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_copies_what_they_may_not_read() {
    let cluster = Cluster::ephemeral().await;
    cluster.publish_fixture_pool().await;
    cluster.post(CONFIG_MAPS, &config_map("conf")).await;
    let grant = async |name: &str, group: &str, resource: &str, verbs: &[&str]| {
        let rules = json!([{"apiGroups": [group], "resources": [resource], "verbs": verbs}]);
        let api_version = "rbac.authorization.k8s.io/v1";
        let role = json!({"apiVersion": api_version, "kind": "Role", "metadata": {"name": name}, "rules": rules});
        cluster.post(&format!("{RBAC}/namespaces/default/roles"), &role).await;
        let binding = json!({
            "apiVersion": api_version, "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
        });
        cluster.post(&format!("{RBAC}/namespaces/default/rolebindings"), &binding).await;
    };
    grant("claims", "devmgmtproto.k8s.io", "deviceclaims", &["create", "get", "update"]).await;
    let as_mallory = |request: Request| {
        let name = HeaderName::from_static("impersonate-user");
        cluster.send(request.header(name, HeaderValue::from_static("mallory")))
    };
    let ask = |name: &str, configs: &Value| Request::post(CLAIMS, &claim(name, configs));
    let plain = as_mallory(ask("plain", &Value::Null)).await;
    assert_eq!(plain.status, 201, "{}", plain.text());
    let refused = as_mallory(ask("copy", &config("conf"))).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    let said = "spec.claims[0].configs[0]: Forbidden: ConfigMap default/conf would be copied";
    assert!(refused.text().contains(said), "{}", refused.text());
    // Nor by a change of what is there.
    let mut changed: Value = plain.json().unwrap();
    changed["spec"]["claims"][0]["configs"] = config("conf");
    let refused = as_mallory(Request::put(format!("{CLAIMS}/plain"), &changed)).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    grant("maps", "", "configmaps", &["get"]).await;
    let allowed = async || as_mallory(ask("copy", &config("conf"))).await.status == 201;
    let began = cluster.clock.moment();
    while !allowed().await {
        assert!(cluster.clock.moment() - began < CONDITION_TIMEOUT, "the right never counted");
        cluster.clock.sleep(POLL_INTERVAL).await;
    }
    // A kind is copied when its definition says that it may be.
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cardconfigs.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "cardconfigs", "singular": "cardconfig", "kind": "CardConfig", "listKind": "CardConfigList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    cluster.post(definitions, &definition).await;
    let own = format!("{definitions}/cardconfigs.example.com");
    let established = |it: &Value| {
        let all = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|it| it["type"] == "Established" && it["status"] == "True")
    };
    cluster.wait_until(&own, "is served", established).await;
    let object = json!({"apiVersion": "example.com/v1", "kind": "CardConfig", "metadata": {"name": "o"}, "mode": 1});
    cluster.post("/apis/example.com/v1/namespaces/default/cardconfigs", &object).await;
    let configs = json!([{"apiVersion": "example.com/v1", "kind": "CardConfig", "name": "o"}]);
    cluster.post(CLAIMS, &claim("own", &configs)).await;
    cluster.post(PODS, &user_of("own")).await;
    let label = "devmgmtproto.k8s.io/device-config";
    cluster.wait_for_held_message("user-of-own", label).await;
    cluster.merge(&own, &json!({"metadata": {"labels": {label: "true"}}})).await;
    // The allocator needs the right to read it beside that, which is the administrator's to give.
    cluster.wait_for_held_message("user-of-own", "may not be read by the allocator").await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "read-card-configs"},
        "rules": [{"apiGroups": ["example.com"], "resources": ["cardconfigs"], "verbs": ["get"]}],
    });
    cluster.post(&format!("{RBAC}/clusterroles"), &role).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "read-card-configs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "read-card-configs"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:gantry:devices"}],
    });
    cluster.post(&format!("{RBAC}/clusterrolebindings"), &binding).await;
    cluster.wait_until_running("user-of-own").await;
    let stored = cluster.get(&format!("{CLAIMS}/own")).await;
    assert_eq!(stored["status"]["claimConfigs"][0]["mode"], 1, "{stored:#}");
}

/// What drivers trust is written only by the allocator, not even by an administrator of the
/// cluster.
#[tokio::test(flavor = "multi_thread")]
async fn what_drivers_trust_is_written_by_the_allocator_alone() {
    let cluster = Cluster::ephemeral().await;
    let node = cluster.publish_fixture_pool().await;
    for name in ["victim", "own"] {
        cluster.post(CLAIMS, &claim(name, &Value::Null)).await;
    }
    cluster.post(PODS, &user_of("victim")).await;
    let victim = format!("{PODS}/user-of-victim");
    let is_told = |it: &Value| it["metadata"]["annotations"][TOLD].is_string();
    let running = cluster.wait_until(&victim, "has its devices", is_told).await;
    let stolen = running["metadata"]["annotations"][TOLD].clone();
    assert!(stolen.as_str().unwrap().contains("card-"), "{stolen}");
    let refused = async |why: &str, request: Request, says: &str| {
        let answer = cluster.send(request).await;
        assert_eq!(answer.status, 403, "{why}: {}", answer.text());
        let text = answer.text();
        assert!(text.contains(says) && text.contains("Forbidden"), "{why}: {text}");
    };
    // A pod that says itself what it has, or where it runs with what it claims.
    let mut thief = user_of("own");
    thief["metadata"]["annotations"][TOLD] = stolen.clone();
    refused("devices of another", Request::post(PODS, &thief), TOLD).await;
    let mut plain = user_of("own");
    plain["metadata"]["annotations"] = json!({TOLD: stolen});
    refused("without claims", Request::post(PODS, &plain), TOLD).await;
    for name in ["device-claim-statuses", "gate-opened"] {
        let mut pod = user_of("own");
        pod["metadata"]["annotations"][format!("devmgmtproto.k8s.io/{name}")] = json!("{}");
        refused(name, Request::post(PODS, &pod), name).await;
    }
    let mut bound = user_of("own");
    bound["spec"]["nodeName"] = json!(node);
    refused("a node beside claims", Request::post(PODS, &bound), "spec.nodeName").await;
    let system = "/api/v1/namespaces/kube-system/pods";
    refused("in the system's namespace", Request::post(system, &thief), TOLD).await;
    // By a change of a pod that runs, in every way there is.
    let forged = json!({"metadata": {"annotations": {TOLD: FORGED}}});
    refused("by a patch", Request::patch(&*victim, MERGE, &forged), TOLD).await;
    let status = format!("{victim}/status");
    refused("by the status", Request::patch(status, MERGE, &forged), TOLD).await;
    let gone = json!({"metadata": {"annotations": {TOLD: null}}});
    refused("by removal", Request::patch(&*victim, MERGE, &gone), TOLD).await;
    let apply = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user-of-victim", "annotations": {TOLD: FORGED}}});
    let path = format!("{victim}?fieldManager=thief&force=true");
    refused("by apply", Request::patch(path, "application/apply-patch+yaml", &apply), TOLD).await;
    let others = json!({"metadata": {"annotations": {CARRIER: "[]"}}});
    refused("other claims", Request::patch(&*victim, MERGE, &others), CARRIER).await;
    // By a binding, as a scheduler makes one.
    let mut waiting = user_of("own");
    waiting["metadata"] = json!({"name": "waiting"});
    waiting["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    cluster.post(PODS, &waiting).await;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        "metadata": {"name": "waiting", "annotations": {TOLD: stolen}},
    });
    refused("by a binding", Request::post(format!("{PODS}/waiting/binding"), &binding), TOLD).await;
    // Ledgers, and what keeps them consistent.
    let claimed = format!("{CLAIMS}/victim");
    let own = format!("{CLAIMS}/own/status");
    let forged = json!({"status": {"allocations": [{"claimName": "main", "devicePoolName": "cards", "deviceName": "card-0"}]}});
    refused("an allocation", Request::patch(own, MERGE, &forged), "status.allocations").await;
    let freed = json!({"status": {"reservedFor": [], "podNames": []}});
    refused("consumers", Request::patch(format!("{claimed}/status"), MERGE, &freed), "status.")
        .await;
    let freed = json!({"metadata": {"finalizers": null}});
    refused("the finalizer", Request::patch(&*claimed, MERGE, &freed), "metadata.finalizers").await;
    let ledger = format!("{DEVICES}/devicepools/cards/status");
    let empty = json!({"status": {"allocations": []}});
    refused("a ledger", Request::patch(ledger.clone(), MERGE, &empty), "status.allocations").await;
    // Users may still write what is theirs: labels, driver reports, nodes of pods without claims.
    cluster.merge(&victim, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    cluster.merge(&ledger, &json!({"status": {"availableDevices": 3}})).await;
    let report = json!({"status": {"deviceStatuses": [{"devicePoolName": "cards", "deviceName": "card-0"}]}});
    cluster.merge(&format!("{claimed}/status"), &report).await;
    let mut placed = user_of("own");
    placed["metadata"] = json!({"name": "placed"});
    placed["spec"]["nodeName"] = json!(node);
    cluster.post(PODS, &placed).await;
    // The allocator continues to work.
    cluster.post(PODS, &user_of("own")).await;
    cluster.wait_until(&format!("{PODS}/user-of-own"), "has its devices", is_told).await;
}
