//! Metrics of an operator on the embedded server.

use gantry_process::clock::Clock;
use gantry_testkit::http::{Client, Credentials, Protocol, Request, Target};

use super::{get, site};
use crate::shared_metrics::{Served, metrics_are_for_readers, token_of};
use crate::shared_operator::done;
use crate::shared_process::Operator;

#[tokio::test(flavor = "multi_thread")]
async fn rb_5_metrics_take_tls_a_token_and_the_right_to_read_them() {
    let (_server, site) = site().await;
    site.install_definitions().await;
    metrics_are_for_readers(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_5_without_review_rights_only_probes_answer() {
    let (_server, site) = site().await;
    site.install_definitions().await;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gantry-metrics-auth";
    done(&site.admin.send(Request::delete(path)).await.unwrap());
    let token = token_of(&site, "prometheus").await;
    let mut served = Served::start(&site).await;
    let (status, said) = served.metrics.send(Some(&token), Request::get("/metrics")).await;
    assert_eq!(status, 503, "{said}");
    assert!(said.contains("the log of the operator says why"), "{said}");
    let line = served.operator.wait_for_line("could not review a reader of metrics");
    assert!(line.contains("may not create tokenreviews.authentication.k8s.io"), "{line}");

    // Kubelets have no token, and use another address; there are no metrics there.
    assert_eq!(get(&served.probes, "/healthz").await, (200, "ok".to_owned()));
    assert_eq!(get(&served.probes, "/metrics").await.0, 404);
    assert_eq!(get(&served.probes, "/status").await.0, 200, "from this machine");
}

/// Without files there is still TLS, with a self-signed certificate.
#[tokio::test(flavor = "multi_thread")]
async fn rb_5_by_default_there_is_tls_on_loopback() {
    let (server, site) = site().await;
    site.install_definitions().await;
    let kubeconfig = site.kubeconfig().await;
    let (_folder, file) =
        super::file("health: {bindAddress: '0'}\nmetrics: {bindAddress: 'localhost:0'}\n");
    let flags = ["--config-file", &file, "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut operator = Operator::start(&flags);
    let line = operator.wait_for_line("listening");
    assert!(line.contains("tls=true") && line.contains("127.0.0.1:"), "{line}");
    let (_, rest) = line.split_once("address=").unwrap();
    let address = rest.trim_matches('"').split(['"', ' ']).next().unwrap();
    let ask = async |base: String| {
        let authority = server.target().authority.clone();
        let target = Target { base, authority, credentials: Credentials::Anonymous };
        let client = Client::new(&target, Protocol::Http1, Clock::system()).unwrap();
        client.send(Request::get("/metrics")).await
    };
    assert!(ask(format!("http://{address}")).await.is_err(), "without TLS there is no answer");
    let error = ask(format!("https://{address}")).await.unwrap_err();
    let error = format!("{error:?}");
    assert!(error.contains("UnknownIssuer") || error.contains("BadSignature"), "{error}");
}
