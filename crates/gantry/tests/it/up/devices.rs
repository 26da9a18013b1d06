//! Pods that claim devices, from manifests to nodes and back.

use super::programs::{ask, is_ready};
use super::*;

const DEVICES: &str = "/apis/devmgmtproto.k8s.io/v1alpha1";
const CLAIM: &str = "/apis/devmgmtproto.k8s.io/v1alpha1/namespaces/default/deviceclaims/train";

impl Cluster {
    async fn publish(&self, plural: &str, kind: &str, mut object: Value) {
        object["apiVersion"] = json!("devmgmtproto.k8s.io/v1alpha1");
        object["kind"] = json!(kind);
        let place = match kind {
            "DeviceClaim" => format!("{DEVICES}/namespaces/default/{plural}"),
            _ => format!("{DEVICES}/{plural}"),
        };
        self.post(&place, &object).await;
    }

    async fn delete(&self, path: &str) {
        let answer = self.client.send(Request::delete(path)).await.unwrap();
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
    }

    /// How many entries the ledgers have in all.
    async fn ledger_entries(&self) -> usize {
        let pools = self.get(&format!("{DEVICES}/devicepools")).await;
        let pools = pools["items"].as_array().unwrap().clone();
        pools.iter().map(|it| it["status"]["allocations"].as_array().map_or(0, Vec::len)).sum()
    }
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {
                "devmgmtproto.k8s.io/device-claims": r#"[{"name":"t","claimName":"train"}]"#,
                "devmgmtproto.k8s.io/container-devices": r#"{"main":[{"name":"t"}]}"#,
            },
        },
        "spec": {
            "schedulerName": "gantry",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": "registry.k8s.io/pause:3.10.1",
                "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}},
            }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_share_and_release_devices() {
    let cluster = Cluster::ephemeral().await;
    let nodes = cluster.get("/api/v1/nodes").await;
    let node = nodes["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    for (name, device_type) in [("gpu.example.com", "gpu"), ("nic.example.com", "sriov-vf")] {
        let driver = json!({"metadata": {"name": name}, "deviceTypes": [device_type]});
        cluster.publish("devicedrivers", "DeviceDriver", driver).await;
    }
    for (name, constraint) in [("h100", "true"), ("l4", "false")] {
        let spec = json!({"deviceType": "gpu", "constraints": constraint});
        let class = json!({"metadata": {"name": name}, "spec": spec});
        cluster.publish("deviceclasses", "DeviceClass", class).await;
    }
    let numa = |value: &str| json!([{"name": "numa", "stringValue": value}]);
    let gpus = json!({
        "nodeName": node,
        "driver": "gpu.example.com",
        "deviceType": "gpu",
        "attributes": [
            {"name": "vendor", "stringValue": "example.com"},
            {"name": "firmwareVersion", "semVerValue": "1.8.2"},
        ],
        "resources": [{"name": "mem", "capacity": "8"}, {"name": "sm", "capacity": "7"}],
        "devices": [
            {"name": "full", "attributes": numa("0"), "requests": {"mem": "8", "sm": "7"}},
            {"name": "half-a", "attributes": numa("0"), "requests": {"mem": "4", "sm": "3"}},
        ],
    });
    let vfs = json!({
        "nodeName": node,
        "driver": "nic.example.com",
        "deviceType": "sriov-vf",
        "devices": [
            {"name": "vf0", "attributes": numa("1")},
            {"name": "vf1", "attributes": numa("0")},
        ],
    });
    for (name, spec) in [("node-a-h100", gpus), ("node-a-vf", vfs)] {
        let pool = json!({"metadata": {"name": name}, "spec": spec});
        cluster.publish("devicepools", "DevicePool", pool).await;
    }
    let train = json!({
        "metadata": {"name": "train"},
        "spec": {
            "matchAttributes": ["numa"],
            "claims": [
                {"name": "nic", "deviceType": "sriov-vf"},
                {"name": "gpu", "oneOf": [
                    {"deviceClass": "h100"},
                    {"deviceClass": "l4", "requests": {"count": "2"}, "limits": {"count": "2"},
                        "matchAttributes": ["pcie-root"]},
                ]},
            ],
        },
    });
    cluster.publish("deviceclaims", "DeviceClaim", train).await;
    let mut echo = pod("p");
    echo["spec"]["containers"][0]["image"] = json!("gantry.dev/echo");
    echo["spec"]["containers"][0]["env"] = json!([{"name": "ECHO_ALLOW", "value": "devices"}]);
    for pod in [echo, pod("q")] {
        cluster.post(PODS, &pod).await;
    }
    for name in ["p", "q"] {
        let told = "devmgmtproto.k8s.io/device-allocations";
        let runs = |it: &Value| {
            it["status"]["phase"] == "Running" && it["metadata"]["annotations"][told].is_string()
        };
        let pod =
            cluster.wait_until(&format!("{PODS}/{name}"), "runs with its devices", runs).await;
        assert_eq!(pod["spec"]["nodeName"], *node);
        let annotation = |name: &str| -> Value {
            serde_json::from_str(pod["metadata"]["annotations"][name].as_str().unwrap()).unwrap()
        };
        let names = annotation("devmgmtproto.k8s.io/device-claim-statuses");
        assert_eq!(names, json!({"t": "train"}));
        assert_eq!(
            annotation(told),
            json!({"main": [
                {"driver": "nic.example.com", "pool": "node-a-vf", "claim": "train", "device": "vf1"},
                {"driver": "gpu.example.com", "pool": "node-a-h100", "claim": "train", "device": "full"},
            ]})
        );
    }
    // A program is shown the devices of its container.
    let running = cluster.wait_until(&format!("{PODS}/p"), "became ready", is_ready).await;
    let address = format!("{}:8080", running["status"]["podIP"].as_str().unwrap());
    let (_, devices) = ask("GET", &address, "/devices", "").await;
    let devices: Value = serde_json::from_str(&devices).unwrap();
    let devices: Vec<&Value> =
        devices.as_array().into_iter().flatten().map(|it| &it["device"]).collect();
    assert_eq!(devices, ["vf1", "full"]);
    let claim = cluster.get(CLAIM).await;
    let status = &claim["status"];
    assert_eq!(status["podNames"], json!(["p", "q"]), "{claim:#}");
    assert_eq!((&status["nodeName"], &status["selected"]), (&json!(node), &json!({"gpu": 0})));
    assert_eq!(claim["metadata"]["finalizers"], json!(["devmgmtproto.k8s.io/delete-protection"]));
    assert_eq!(cluster.ledger_entries().await, 2);

    cluster.delete(&format!("{PODS}/p")).await;
    let alone = |it: &Value| it["status"]["podNames"] == json!(["q"]);
    let claim = cluster.wait_until(CLAIM, "is the other pod's alone", alone).await;
    assert_eq!(claim["status"]["allocations"].as_array().unwrap().len(), 2, "it keeps its devices");
    cluster.delete(&format!("{PODS}/q")).await;
    let released = |it: &Value| {
        let free = it["status"]["allocations"].is_null() && it["status"]["podNames"].is_null();
        free && it["metadata"]["finalizers"].is_null()
    };
    cluster.wait_until(CLAIM, "is released", released).await;
    assert_eq!(cluster.ledger_entries().await, 0, "the ledgers come before the finalizer");
    cluster.stop(Signal::TERM).await;
}

/// Sends what kubectl would, and gives back what it would print: the answer and its warnings.
async fn create_with_warnings(
    cluster: &Cluster,
    path: &str,
    object: &Value,
) -> (Value, Vec<String>) {
    let answer = cluster.client.send(Request::post(path, object)).await.unwrap();
    let warnings = answer.headers.get_all("warning").iter();
    // `299 - "text"`, with quotes and backslashes escaped.
    let text = |it: &http::HeaderValue| -> String {
        let quoted = it.to_str().unwrap().strip_prefix("299 - ").unwrap().to_owned();
        serde_json::from_str(&quoted).unwrap()
    };
    let warnings = warnings.map(text).collect();
    (answer.json().unwrap(), warnings)
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_get_warnings_and_pods_wait_for_devices() {
    let cluster = Cluster::ephemeral().await;
    let classes = format!("{DEVICES}/deviceclasses");
    let class = json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClass",
        "metadata": {"name": "odd"},
        "spec": {"deviceTypes": "gpu", "deviceMaxCount": 1, "contstraints": "device.vendor = 'a'"},
    });
    let (made, warnings) = create_with_warnings(&cluster, &classes, &class).await;
    assert_eq!(made["metadata"]["name"], "odd", "{made}");
    assert_eq!(
        warnings,
        [
            "spec.deviceMaxCount: deprecated name; use \"maxDeviceCount\"",
            "spec.contstraints: read as \"constraints\": ignoring it would open the class to the \
             devices of every vendor; use that name",
            "spec.deviceTypes: deprecated name; use \"deviceType\"",
            "spec.constraints: `=` is not CEL; use `==`. Until then the constraint does not compile \
             and no device matches",
        ]
    );
    // What no schema can say is refused as well.
    let mut several = class.clone();
    several["metadata"]["name"] = json!("several");
    several["spec"]["deviceTypes"] = json!(["gpu", "nic"]);
    let (refused, _) = create_with_warnings(&cluster, &classes, &several).await;
    let message = refused["message"].as_str().unwrap();
    let expected = "spec.deviceTypes: a class has one device type, not 2; use \"deviceType\"";
    assert!(message.contains(expected), "{message}");

    let privileged = json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DevicePrivilegedClaim",
        "metadata": {"name": "all"}, "spec": {"driver": "gpu.example.com"},
    });
    let place = format!("{DEVICES}/namespaces/default/deviceprivilegedclaims");
    let (refused, _) = create_with_warnings(&cluster, &place, &privileged).await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("needs the label devmgmtproto.k8s.io/admin-access"), "{message}");

    let mut bare = pod("bare");
    bare["spec"].as_object_mut().unwrap().remove("schedulerName");
    let (made, warnings) = create_with_warnings(&cluster, PODS, &bare).await;
    assert_eq!(made["spec"]["schedulerName"], "gantry", "{made}");
    assert_eq!(warnings, Vec::<String>::new());
    let mut wrong = pod("wrong");
    wrong["metadata"]["annotations"]["devmgmtproto.k8s.io/container-devices"] =
        json!(r#"{"side":[{"name":"t"}]}"#);
    let (refused, _) = create_with_warnings(&cluster, PODS, &wrong).await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("the pod has no container \"side\""), "{message}");
    let mut plain = pod("plain");
    plain["metadata"].as_object_mut().unwrap().remove("annotations");
    plain["spec"].as_object_mut().unwrap().remove("schedulerName");
    let (made, _) = create_with_warnings(&cluster, PODS, &plain).await;
    assert_eq!(made["spec"]["schedulerName"], "default-scheduler", "it claims nothing");
}

/// With `--devices-mode gate` pods get the gate, and the scheduler that they would have had.
#[tokio::test(flavor = "multi_thread")]
async fn in_gate_mode_pods_stay_gated_until_allocated() {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral");
    let cluster = Cluster::start(plan.flag("--devices-mode=gate")).await;
    let nodes = cluster.get("/api/v1/nodes").await;
    let nodes = nodes["items"].as_array().unwrap();
    let node = nodes[1]["metadata"]["name"].as_str().unwrap();
    let driver = json!({"metadata": {"name": "gpu.example.com"}, "deviceTypes": ["gpu"]});
    cluster.publish("devicedrivers", "DeviceDriver", driver).await;
    let train = json!({"metadata": {"name": "train"}, "spec": {"claims": [{"deviceType": "gpu"}]}});
    cluster.publish("deviceclaims", "DeviceClaim", train).await;

    let mut bare = pod("bare");
    bare["spec"].as_object_mut().unwrap().remove("schedulerName");
    let (made, warnings) = create_with_warnings(&cluster, PODS, &bare).await;
    assert_eq!(made["spec"]["schedulingGates"], json!([{"name": "devmgmtproto.k8s.io/devices"}]));
    assert_eq!(made["spec"]["schedulerName"], "default-scheduler", "its own stays");
    assert_eq!(warnings, Vec::<String>::new());
    let mut plain = pod("plain");
    plain["metadata"].as_object_mut().unwrap().remove("annotations");
    plain["spec"].as_object_mut().unwrap().remove("schedulerName");
    let (made, _) = create_with_warnings(&cluster, PODS, &plain).await;
    assert!(made["spec"]["schedulingGates"].is_null(), "it claims nothing: {made}");
    cluster
        .wait_until(&format!("{PODS}/plain"), "runs", |it| it["status"]["phase"] == "Running")
        .await;

    let place = format!("{PODS}/bare");
    let expected = format!(
        "0/{count} nodes: {count} insufficient devices for claim t ({count} no pools)",
        count = nodes.len()
    );
    let waits = |it: &Value| {
        let said = it["status"]["conditions"].as_array().into_iter().flatten();
        said.into_iter().any(|it| {
            it["type"] == "PodScheduled"
                && it["reason"] == "SchedulingGated"
                && it["message"] == expected.as_str()
        })
    };
    let pod = cluster.wait_until(&place, "says what it waits for", waits).await;
    assert!(pod["spec"]["nodeName"].is_null(), "{pod:#}");
    let spec = json!({"nodeName": node, "driver": "gpu.example.com", "deviceCount": 1});
    let pool = json!({"metadata": {"name": "p"}, "spec": spec});
    cluster.publish("devicepools", "DevicePool", pool).await;
    let allocations = "devmgmtproto.k8s.io/device-allocations";
    let runs = |it: &Value| {
        it["status"]["phase"] == "Running" && it["metadata"]["annotations"][allocations].is_string()
    };
    let pod = cluster.wait_until(&place, "runs with its devices", runs).await;
    assert_eq!(pod["spec"]["nodeName"], *node);
    assert!(pod["spec"]["schedulingGates"].is_null(), "{pod:#}");
    assert_eq!(pod["spec"]["schedulerName"], "default-scheduler");
    let got: Value =
        serde_json::from_str(pod["metadata"]["annotations"][allocations].as_str().unwrap())
            .unwrap();
    assert_eq!(
        got,
        json!({"main": [{"driver": "gpu.example.com", "pool": "p", "claim": "train", "count": 1}]})
    );
}

/// The gate, with the scheduler of the cluster in the place of Kubernetes' own.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_behind_the_gate_is_bound_by_the_other_scheduler() {
    let cluster = Cluster::ephemeral().await;
    let nodes = cluster.get("/api/v1/nodes").await;
    let node = nodes["items"][1]["metadata"]["name"].as_str().unwrap().to_owned();
    let driver = json!({"metadata": {"name": "gpu.example.com"}, "deviceTypes": ["gpu"]});
    cluster.publish("devicedrivers", "DeviceDriver", driver).await;
    let spec = json!({"nodeName": node, "driver": "gpu.example.com", "deviceCount": 1});
    cluster
        .publish("devicepools", "DevicePool", json!({"metadata": {"name": "p"}, "spec": spec}))
        .await;
    let train = json!({"metadata": {"name": "train"}, "spec": {"claims": [{"deviceType": "gpu"}]}});
    cluster.publish("deviceclaims", "DeviceClaim", train).await;
    let mut gated = pod("gated");
    gated["spec"].as_object_mut().unwrap().remove("schedulerName");
    gated["spec"]["schedulingGates"] = json!([{"name": "devmgmtproto.k8s.io/devices"}]);
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]});
    gated["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
    }});
    cluster.post(PODS, &gated).await;
    let told = "devmgmtproto.k8s.io/device-allocations";
    let runs = |it: &Value| {
        it["status"]["phase"] == "Running" && it["metadata"]["annotations"][told].is_string()
    };
    let pod = cluster.wait_until(&format!("{PODS}/gated"), "runs with its devices", runs).await;
    assert_eq!(pod["spec"]["nodeName"], *node);
    assert_eq!(pod["spec"]["schedulerName"], "default-scheduler");
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    let pin = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    assert_eq!(terms[0]["matchFields"], json!([pin]));
    assert_eq!(terms[0]["matchExpressions"], term["matchExpressions"], "what was asked stays");
}
