//! The API server calls the operator's webhook about devices, over the network, with the
//! permissions of the manifests.

use std::net::TcpListener;

use gantry_testkit::http::Request;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::simulation::start;
use super::site;
use crate::shared_operator::{done, manifests, namespace};

const CLASSES: &str = "/apis/devmgmtproto.k8s.io/v1alpha1/deviceclasses?dryRun=All";
const PODS: &str = "/api/v1/namespaces/default/pods?dryRun=All";
const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gantry-devices";

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_trusts_the_webhook() {
    let (_server, site) = site().await;
    site.install_definitions().await;
    for file in ["optional/devices.yaml", "optional/devices-webhook.yaml"] {
        site.apply_file(&manifests().join(file)).await;
    }
    // A port that was free a moment ago is rarely taken; if it is, the operator reports it and
    // exits.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "mcadEnabled: false\nhealth: {{bindAddress: '0'}}\nmetrics: {{bindAddress: '0'}}\ndevices:\n  \
         enabled: true\n  mode: gate\n  webhook: {{enabled: true, bindAddress: '127.0.0.1:{port}', \
         url: 'https://127.0.0.1:{port}'}}\n"
    );
    let (mut operator, _folder) = start(&site, &config).await;
    operator.wait_for_line("serving admission webhooks for devices");
    let class = json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClass",
        "metadata": {"name": "odd"}, "spec": {"deviceType": "gpu", "deviceMaxCount": 1},
    });
    let answer = site.admin.send(Request::post(CLASSES, &class)).await.unwrap();
    done(&answer);
    let warning = answer.headers["warning"].to_str().unwrap();
    assert_eq!(warning, r#"299 - "spec.deviceMaxCount: deprecated name; use \"maxDeviceCount\"""#);
    let pod = |claims: &str| {
        json!({
            "metadata": {"name": "p", "annotations": {"devmgmtproto.k8s.io/device-claims": claims}},
            "spec": {"containers": [{"name": "main", "image": "i"}]},
        })
    };
    // Without its controllers a server has no accounts of its own.
    let account = json!({"name": "default", "namespace": "default"});
    site.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})).await;
    let made = site.create(PODS, &pod(r#"[{"claimName":"c"}]"#)).await;
    let gates = json!([{"name": "devmgmtproto.k8s.io/devices"}]);
    assert_eq!(made["spec"]["schedulingGates"], gates, "{made}");
    let refused = site.admin.send(Request::post(PODS, &pod("[{"))).await.unwrap();
    assert_eq!(refused.status.as_u16(), 422, "{}", refused.text());

    // Another replica, or the next start, serves the same certificate.
    let shown = |it: &Value| it["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let before = shown(&done(&site.get(CONFIGURATION).await));
    let secret = done(&site.get(&format!("{}/secrets/gantry-webhook", namespace())).await);
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert_eq!(before, secret["data"]["ca.crt"], "what the server believes is what is kept");
    operator.signal(Signal::TERM);
    let (status, said) = spawn_blocking(move || operator.wait_for_exit()).await.unwrap();
    assert!(status.success(), "{said}");
    // Pods with devices are rejected while the webhook is down, and others are accepted.
    let late = site.admin.send(Request::post(PODS, &pod(r#"[{"claimName":"c"}]"#))).await.unwrap();
    assert_eq!(late.status.as_u16(), 500, "{}", late.text());
    let mut plain = pod("");
    plain["metadata"].as_object_mut().unwrap().remove("annotations");
    site.create(PODS, &plain).await;
    done(&site.admin.send(Request::post(CLASSES, &class)).await.unwrap());
    let (mut operator, _folder) = start(&site, &config).await;
    operator.wait_for_line("serving admission webhooks for devices");
    assert_eq!(shown(&done(&site.get(CONFIGURATION).await)), before);
}
