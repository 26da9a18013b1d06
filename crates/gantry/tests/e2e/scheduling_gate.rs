//! Pods with the scheduling gate on a real Kubernetes: its webhooks, its own scheduler, and a node
//! that this scheduler rejects for a reason that the gate does not consider.

use std::net::TcpListener;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::{Nodes, RealCluster};
use gantry_testkit::http::Request;
use serde_json::{Value, json};

use crate::shared_operator::{Site, manifests};
use crate::shared_process::Operator;

const DEVICES: &str = "/apis/devmgmtproto.k8s.io/v1alpha1";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Returns a port that is free at this moment.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_102_a_node_that_kube_scheduler_refuses_is_exchanged_for_another() {
    let clock = Clock::system();
    let real = RealCluster::plan().controllers().nodes(Nodes::Simulated(2)).start().await.unwrap();
    let site = Site::new(real.admin().target(), &clock).await;
    // With the permissions of the manifests, and no others.
    for file in ["optional/devices.yaml", "optional/devices-webhook.yaml"] {
        site.apply_file(&manifests().join(file)).await;
    }
    site.install_definitions().await;
    let established = |it: &Value| {
        let conditions = it["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|it| it["type"] == "Established" && it["status"] == "True")
    };
    for kind in gantry_api::object::KINDS {
        let path =
            format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", kind.crd_name());
        site.until(&path, established).await;
    }
    let port = port();
    let config = format!(
        "mcadEnabled: false\nhealth: {{bindAddress: '0'}}\nmetrics: {{bindAddress: '0'}}\n\
         clientConnection: {{qps: -1}}\ndevices:\n  enabled: true\n  mode: gate\n  webhook:\n    \
         enabled: true\n    bindAddress: 127.0.0.1:{port}\n    url: https://127.0.0.1:{port}\n"
    );
    let file = site.folder.path().join("gantry.yaml");
    std::fs::write(&file, config).unwrap();
    let kubeconfig = site.kubeconfig().await;
    let flags = ["--config-file", file.to_str().unwrap(), "--kubeconfig"];
    let mut operator = Operator::start(&[&flags[..], &[kubeconfig.to_str().unwrap()]].concat());
    let told = |it: &Value| it["webhooks"].as_array().is_some_and(|all| !all.is_empty());
    for kind in ["mutating", "validating"] {
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/gantry-devices"
        );
        let found = site.until(&path, told).await;
        assert!(
            found["webhooks"][0]["clientConfig"]["caBundle"].is_string(),
            "{}",
            operator.said()
        );
    }
    assert_admission_answers(&site, &clock).await;
    assert_pod_moves(&site).await;
    assert!(operator.child.try_wait().unwrap().is_none(), "{}", operator.said());
}

/// A server takes a moment until it calls a new webhook.
async fn assert_admission_answers(site: &Site, clock: &Clock) {
    let class = json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClass",
        "metadata": {"name": "odd"}, "spec": {"deviceType": "gpu", "deviceMaxCount": 1},
    });
    let place = format!("{DEVICES}/deviceclasses?dryRun=All");
    let give_up = clock.moment() + std::time::Duration::from_secs(60);
    loop {
        let answer = site.admin.send(Request::post(place.clone(), &class)).await.unwrap();
        assert!(answer.status.is_success(), "{}", answer.text());
        let warnings = answer.headers.get_all("warning").iter();
        let warnings: Vec<&str> = warnings.map(|it| it.to_str().unwrap()).collect();
        if !warnings.is_empty() {
            let expected =
                r#"299 - "spec.deviceMaxCount: deprecated name; use \"maxDeviceCount\"""#;
            assert_eq!(warnings, [expected]);
            break;
        }
        assert!(clock.moment() < give_up, "nobody was asked");
        clock.sleep(std::time::Duration::from_millis(50)).await;
    }
    let mut pod = template("bare");
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    loop {
        let made = site.create(&format!("{PODS}?dryRun=All"), &pod).await;
        if made["spec"]["schedulingGates"] == json!([{"name": "devmgmtproto.k8s.io/devices"}]) {
            break;
        }
        assert!(clock.moment() < give_up, "nobody was asked: {made:#}");
        clock.sleep(std::time::Duration::from_millis(50)).await;
    }
    let mut wrong = pod;
    wrong["metadata"]["annotations"]["devmgmtproto.k8s.io/device-claims"] = json!("[{");
    let answer = site.admin.send(Request::post(PODS, &wrong)).await.unwrap();
    assert_eq!(answer.status.as_u16(), 422, "{}", answer.text());
    assert!(answer.text().contains("is neither JSON nor YAML"), "{}", answer.text());
}

/// A pod that claims a device, names no scheduler for it, and has an anti-affinity to pods with the
/// label `quiet`.
fn template(name: &str) -> Value {
    let term = json!({
        "labelSelector": {"matchLabels": {"quiet": "please"}},
        "topologyKey": "kubernetes.io/hostname",
    });
    json!({
        "metadata": {
            "name": name,
            "labels": {"app": "train"},
            "annotations": {
                "devmgmtproto.k8s.io/device-claims":
                    r#"[{"name":"gpu","claim":{"claims":[{"deviceType":"gpu"}]}}]"#,
                "devmgmtproto.k8s.io/container-devices": r#"{"main":[{"name":"gpu"}]}"#,
            },
        },
        "spec": {
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10.1"}],
        },
    })
}

async fn assert_pod_moves(site: &Site) {
    let group = "devmgmtproto.k8s.io/v1alpha1";
    site.create(
        &format!("{DEVICES}/devicedrivers"),
        &json!({"apiVersion": group, "kind": "DeviceDriver",
            "metadata": {"name": "gpu.example.com"}, "deviceTypes": ["gpu"]}),
    )
    .await;
    // The node with fewer devices is the better one, as far as devices are concerned.
    for (node, count) in [("node-0", 1), ("node-1", 2)] {
        let spec = json!({"nodeName": node, "driver": "gpu.example.com", "deviceCount": count});
        let pool = json!({"apiVersion": group, "kind": "DevicePool",
            "metadata": {"name": format!("{node}-gpus")}, "spec": spec});
        site.create(&format!("{DEVICES}/devicepools"), &pool).await;
    }
    let quiet = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "quiet", "labels": {"quiet": "please"}},
        "spec": {
            "nodeName": "node-0",
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10.1"}],
        },
    });
    site.create(PODS, &quiet).await;
    let mut template = template("");
    template["metadata"].as_object_mut().unwrap().remove("name");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "train"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "train"}},
            "template": template,
        },
    });
    site.create("/apis/apps/v1/namespaces/default/deployments", &deployment).await;
    let allocations = "devmgmtproto.k8s.io/device-allocations";
    let moved = |it: &Value| {
        let pods = it["items"].as_array().into_iter().flatten();
        pods.into_iter().any(|pod| {
            pod["spec"]["nodeName"] == "node-1"
                && pod["metadata"]["annotations"][allocations].is_string()
        })
    };
    let pods = site.until(&format!("{PODS}?labelSelector=app%3Dtrain"), moved).await;
    let pod = &pods["items"][0];
    assert_eq!(pod["spec"]["schedulerName"], "default-scheduler", "{pod:#}");
    assert!(pod["spec"]["schedulingGates"].is_null(), "{pod:#}");
    let opened =
        pod["metadata"]["annotations"]["devmgmtproto.k8s.io/gate-opened"].as_str().unwrap();
    assert!(opened.contains("node-1"), "{opened}");
    let pool = site.get(&format!("{DEVICES}/devicepools/node-0-gpus")).await.json().unwrap();
    let refusals = &pool["status"]["refusals"];
    assert_eq!(refusals[0]["nodeName"], "node-0", "it was tried there first: {pool:#}");
    let free = |it: &Value| it["status"]["allocations"].as_array().is_none_or(Vec::is_empty);
    site.until(&format!("{DEVICES}/devicepools/node-0-gpus"), free).await;
}
