//! The operator's webhook for Modules on a real API server.

use std::net::TcpListener;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::http::{Request, Response};
use serde_json::{Value, json};

use crate::shared_operator::{Site, done, manifests, namespace};
use crate::shared_process::Operator;

const MODULES: &str = "/apis/ooto.sigs.k8s.io/v1alpha1/namespaces/drivers/modules";
const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gantry-modules";

/// The safety net for what must come: many times what a loaded machine needs.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts an operator and waits until it serves the webhook.
async fn start(site: &Site, config: &str) -> (Operator, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gantry.yaml");
    std::fs::write(&path, config).unwrap();
    let kubeconfig = site.kubeconfig().await;
    let flags =
        ["--config-file", path.to_str().unwrap(), "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut operator = Operator::start(&flags);
    loop {
        let line = operator.lines.recv_timeout(START_TIMEOUT);
        let line = line.unwrap_or_else(|_| panic!("no webhook:\n{}", operator.said()));
        let serves = line.contains("serving admission webhooks for kernel modules");
        operator.read.push(line);
        if serves {
            return (operator, folder);
        }
    }
}

fn module(mapping: &Value) -> Value {
    json!({
        "apiVersion": "ooto.sigs.k8s.io/v1alpha1", "kind": "Module",
        "metadata": {"name": "m", "namespace": "drivers"},
        "spec": {"selector": {}, "driverContainer": {"container": {"kernelMappings": [mapping]}}},
    })
}

async fn create(site: &Site, mapping: &Value) -> Response {
    site.admin.send(Request::post(MODULES, &module(mapping))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_15_w_1_and_kms_18_bad_modules_and_deletions_of_namespaces_are_refused() {
    let clock = Clock::system();
    let plan = RealCluster::plan().housekeeping();
    let real = plan.start().await.unwrap();
    let site = Site::new(real.admin().target(), &clock).await;
    site.install_definitions().await;
    for file in ["optional/modules.yaml", "optional/modules-webhook.yaml"] {
        site.apply_file(&manifests().join(file)).await;
    }
    // A definition is served a moment after it is there.
    site.until(MODULES, |it| it["kind"] == "ModuleList").await;
    let drivers = json!({"metadata": {"name": "drivers"}});
    site.create("/api/v1/namespaces", &drivers).await;
    // A port that was free a moment ago is rarely taken; if it is, the operator says so and ends.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = json!({
        "mcadEnabled": false,
        "clientConnection": {"qps": -1},
        "leaderElection": {"leaderElect": false},
        "health": {"bindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "modules": {"enabled": true, "webhook": {"enabled": true}},
        "devices": {"webhook": {
            "bindAddress": format!("127.0.0.1:{port}"), "url": format!("https://127.0.0.1:{port}"),
        }},
    });
    let config = config.to_string();
    let (operator, _folder) = start(&site, &config).await;
    let shown = |it: &Value| it["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let before = shown(&done(&site.get(CONFIGURATION).await));

    let bad = json!({"regexp": "(", "containerImage": "example.com/a:1"});
    refused_with_path(&create(&site, &bad).await);
    let good = json!({"literal": "6.1.0", "containerImage": "example.com/a:1"});
    done(&create(&site, &good).await);
    let path = format!("{MODULES}/m");
    let change = json!({"spec": {"driverContainer": {"container": {"kernelMappings": [bad]}}}});
    let request = Request::patch(&*path, "application/merge-patch+json", &change);
    refused_with_path(&site.admin.send(request).await.unwrap());

    // A namespace with Modules is kept, and deleted when they are gone.
    let namespaces = "/api/v1/namespaces/drivers";
    let marked = |it: &Value| it["metadata"]["labels"]["ooto.sigs.k8s.io/contains-modules"] == "";
    site.until(namespaces, marked).await;
    let answer = site.admin.send(Request::delete(namespaces)).await.unwrap();
    assert_eq!(answer.status.as_u16(), 403, "{}", answer.text());
    let said = "namespace holds Modules; delete them first: kubectl delete \
                modules.ooto.sigs.k8s.io --all --namespace drivers";
    assert!(answer.text().contains(said), "{}", answer.text());

    // The next operator finds that the certificate is not usable, and makes another one.
    drop(operator);
    let secret = format!("{}/secrets/gantry-webhook", namespace());
    let damage = json!({"data": {"tls.crt": "", "tls.key": ""}});
    let request = Request::patch(&*secret, "application/merge-patch+json", &damage);
    done(&site.admin.send(request).await.unwrap());
    let (_operator, _folder) = start(&site, &config).await;
    let after = shown(&done(&site.get(CONFIGURATION).await));
    assert_ne!(before, after, "another authority");
    // The API server believes the new one when it has noticed the configuration.
    let second = json!({"literal": "6.2.0", "containerImage": "example.com/a:1"});
    let change = json!({"spec": {"driverContainer": {"container": {"kernelMappings": [second]}}}});
    let give_up = clock.moment() + START_TIMEOUT;
    loop {
        let request = Request::patch(&*path, "application/merge-patch+json", &change);
        let answer = site.admin.send(request).await.unwrap();
        if answer.status.is_success() {
            break;
        }
        assert!(clock.moment() < give_up, "{}", answer.text());
        site.pause().await;
    }
    refused_with_path(&create(&site, &bad).await);
    done(&site.admin.send(Request::delete(&*path)).await.unwrap());
    site.until(&path, |it| it["code"] == 404).await;
    site.until(namespaces, |it| !marked(it)).await;
    done(&site.admin.send(Request::delete(namespaces)).await.unwrap());
    site.until(namespaces, |it| it["code"] == 404).await;
}

/// The answer names the field and what is wrong with it.
fn refused_with_path(answer: &Response) {
    let said = answer.text();
    assert_eq!(answer.status.as_u16(), 422, "{said}");
    let path = "spec.driverContainer.container.kernelMappings[0].regexp: invalid regexp";
    assert!(said.contains(path), "{said}");
}
