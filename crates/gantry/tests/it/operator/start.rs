//! The start against a server, with the rights of the manifests.

use std::path::Path;

use gantry_testkit::http::Request;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::{JoinSet, spawn_blocking};

use super::{Run, gantry_with, get, site};
use crate::shared_operator::{Site, config_map, done, namespace};
use crate::shared_process::Operator;

const ENVIRONMENT: [(&str, &str); 1] = [("NAMESPACE", "gantry-system")];

/// Runs an operator that is expected to exit by itself.
async fn run_to_exit(kubeconfig: &Path, flags: &[&str]) -> Run {
    let mut arguments = vec!["operator".to_owned()];
    arguments.extend(["--kubeconfig".to_owned(), kubeconfig.to_str().unwrap().to_owned()]);
    arguments
        .extend(["--metrics-bind-address=0", "--health-probe-bind-address=0"].map(str::to_owned));
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let run = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        gantry_with(&arguments, &ENVIRONMENT, "")
    };
    spawn_blocking(run).await.unwrap()
}

async fn make(site: &Site, name: &str, data: &Value, binary: &Value) {
    let object = json!({ "metadata": { "name": name }, "data": data, "binaryData": binary });
    let path = format!("{}/configmaps", namespace());
    done(&site.admin.send(Request::post(path, &object)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn cf_3_many_operators_that_start_at_once_agree_on_one_map() {
    let (_server, site) = site().await;
    let kubeconfig = site.kubeconfig().await;
    // A dry run comes first, and writes nothing.
    let run = run_to_exit(&kubeconfig, &["--check-config"]).await;
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.err.contains("gantry-system/gantry-config, config.yaml: does not exist"),
        "{}",
        run.err
    );
    assert_eq!(site.get(&config_map("gantry-config")).await.status.as_u16(), 404);

    let mut operators = JoinSet::new();
    for _ in 0..4 {
        let kubeconfig = kubeconfig.clone();
        operators.spawn(async move { run_to_exit(&kubeconfig, &[]).await });
    }
    let runs = operators.join_all().await;
    for run in &runs {
        assert_eq!(run.code, 3, "{}", run.err);
        let expected = "error: the cluster lacks CustomResourceDefinitions that the configuration \
                        needs: appwrappers.workload.codeflare.dev (absent); install them with: \
                        gantry crds | kubectl apply --server-side -f -\n";
        assert!(run.err.ends_with(expected), "{}", run.err);
        assert!(run.err.contains("starting the operator"), "{}", run.err);
        assert!(run.err.contains(env!("CARGO_PKG_VERSION")), "{}", run.err);
    }
    let wrote = runs.iter().filter(|run| run.err.contains("wrote the configuration")).count();
    assert_eq!(wrote, 1);
    let map = done(&site.get(&config_map("gantry-config")).await);
    let expected = gantry::config::render::defaults().unwrap();
    assert_eq!(map["data"], json!({ "config.yaml": expected }));
}

#[tokio::test(flavor = "multi_thread")]
async fn cf_2_and_cf_7_what_the_maps_say_is_what_is_used() {
    let (server, site) = site().await;
    let kubeconfig = site.kubeconfig().await;
    let old = json!({ "any": "mcad: {backoffTime: 11}\n" });
    make(&site, "codeflare-operator-config", &old, &Value::Null).await;
    let run = run_to_exit(&kubeconfig, &["--print-config"]).await;
    let line =
        "  backoffTime: 11 # from ConfigMap gantry-system/codeflare-operator-config, any:1:8\n";
    assert!(run.code == 0 && run.out.contains(line), "{}{}", run.out, run.err);
    // It is read and never written, and nothing is written in its place.
    assert_eq!(run_to_exit(&kubeconfig, &[]).await.code, 3);
    assert_eq!(done(&site.get(&config_map("codeflare-operator-config")).await)["data"], old);
    assert_eq!(site.get(&config_map("gantry-config")).await.status.as_u16(), 404);

    // Gantry's own name comes first, and must have one key.
    make(&site, "gantry-config", &json!({ "a": "", "b": "" }), &Value::Null).await;
    let run = run_to_exit(&kubeconfig, &[]).await;
    let cannot =
        "cannot use ConfigMap gantry-config: exactly one data key must exist, found 2: a, b";
    assert!(run.code == 1 && run.err.contains(cannot), "{}", run.err);

    // An administrator's credentials read what the operator's may not.
    make(&site, "binary", &Value::Null, &json!({ "c": "AA==" })).await;
    let run = run_to_exit(server.kubeconfig(), &["--config=binary"]).await;
    let cannot = "exactly one data key must exist, found none; binaryData does not count (c)";
    assert!(run.code == 1 && run.err.contains(cannot), "{}", run.err);
    make(&site, "wrong", &json!({ "x": "mcad: {backoffTime: -1}" }), &Value::Null).await;
    let run = run_to_exit(server.kubeconfig(), &["--config=wrong"]).await;
    let cannot = "error: ConfigMap gantry-system/wrong, x:1:21: mcad.backoffTime: found -1";
    assert!(run.code == 1 && run.err.contains(cannot), "{}", run.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_names_the_right_that_is_missing() {
    let (_server, site) = site().await;
    let kubeconfig = site.kubeconfig().await;
    // Without what it may do with wrapped objects, the operator knows two ConfigMaps by name.
    let wrapped = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gantry-wrapped";
    done(&site.admin.send(Request::delete(wrapped)).await.unwrap());
    let run = run_to_exit(&kubeconfig, &["--config=other"]).await;
    let may_not = "may not get configmaps other in namespace gantry-system: give the operator's \
                   service account the verb get on configmaps";
    assert!(run.code == 1 && run.err.contains(may_not), "{}", run.err);
    let run =
        run_to_exit(&kubeconfig, &["--check-config", "--ocm-secret-namespace=gantry-system"]).await;
    let may_not = "may not get secrets instascale-ocm-secret in namespace gantry-system";
    assert!(run.code == 1 && run.err.contains(may_not), "{}", run.err);
    // An unreachable server is not a refusal.
    let run = run_to_exit(&kubeconfig, &["--check-config", "--master=https://127.0.0.1:1"]).await;
    assert!(run.code == 1 && run.err.contains("the API server does not respond"), "{}", run.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn op_18_standalone_instascale_objects_are_read() {
    let (server, site) = site().await;
    let data = json!({ "maxScaleoutAllowed": "9", "machineSetsStrategy": "duplicate" });
    make(&site, "instascale-config", &data, &Value::Null).await;
    let secret = json!({ "metadata": { "name": "instascale-ocm-secret" } });
    let path = format!("{}/secrets", namespace());
    done(&site.admin.send(Request::post(path, &secret)).await.unwrap());
    let (_folder, file) = super::file("instascale: {maxScaleoutAllowed: 1}\n");
    let flags = [
        "--print-config",
        "--config-file",
        &file,
        "--configs-namespace=gantry-system",
        "--ocm-secret-namespace=gantry-system",
    ];
    let run = run_to_exit(server.kubeconfig(), &flags).await;
    assert_eq!(run.code, 0, "{}", run.err);
    let map = "ConfigMap gantry-system/instascale-config";
    for line in [
        format!("  maxScaleoutAllowed: 9 # from {map}, maxScaleoutAllowed\n"),
        format!("  machineSetsStrategy: duplicate # from {map}, machineSetsStrategy\n"),
        "    name: instascale-ocm-secret # from Secret gantry-system/instascale-ocm-secret\n"
            .into(),
    ] {
        assert!(run.out.contains(&line), "{line:?} in\n{}", run.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c_4_an_operator_serves_probes_and_metrics_and_stops_when_told() {
    let (_server, site) = site().await;
    site.install_definitions().await;
    let kubeconfig = site.kubeconfig().await;
    for signal in [Signal::TERM, Signal::INT] {
        let text = "health: {bindAddress: '127.0.0.1:0', readinessEndpointName: readiness}\n\
                    metrics: {bindAddress: 'localhost:0', secureServing: false}\nextra: 1\nmcad: {odd: 1}\nmcadEnabled: false\n";
        // One port that the system chooses is not shared: there would be no telling which.
        let (_folder, file) = super::file(&text.replace("localhost", "[::1]"));
        let mut operator = Operator::start(&[
            "--config-file",
            &file,
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
        ]);
        let said = operator.wait_for_line("extra: ignored: unknown key");
        assert!(said.starts_with('W'), "{said}");
        let (probes, metrics) = (operator.address(), operator.address());
        operator.wait_for_line("nothing will be reconciled");

        assert_eq!(get(&probes, "/healthz").await, (200, "ok".to_owned()));
        let (status, page) = get(&probes, "/readiness").await;
        assert_eq!(status, 500, "without controllers it is not ready: {page}");
        assert!(page.contains("controllers failed: no controllers are enabled"), "{page}");
        assert_eq!(get(&probes, "/metrics").await.0, 404);
        let (status, page) = get(&metrics, "/metrics").await;
        assert_eq!(status, 200);
        assert!(page.contains("gantry_config_unknown_keys_total 2\n"), "{page}");
        assert!(page.contains("gantry_build_info"), "{page}");

        operator.signal(signal);
        operator.wait_for_line("shutting down");
        assert_eq!(operator.wait_for_exit().0.code(), Some(0), "{signal:?}");
    }
}

/// An unresponsive server does not prevent the operator from stopping.
#[test]
fn an_operator_stops_when_told_before_it_knows_what_to_do() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let master = format!("--master=https://{}", silent.local_addr().unwrap());
    let mut operator = Operator::start(&[&master]);
    operator.wait_for_line("starting the operator");
    let (_connection, _) = silent.accept().unwrap();
    operator.signal(Signal::TERM);
    operator.wait_for_line("stopped before the configuration was loaded");
    assert_eq!(operator.wait_for_exit().0.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_ends_the_start() {
    let (_server, site) = site().await;
    let kubeconfig = site.kubeconfig().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let flag = format!("--config-file={}", site.folder.path().join("absent").display());
    let (_folder, file) = super::file(&format!(
        "health: {{bindAddress: \"{0}\"}}\nmetrics: {{bindAddress: \"{0}\", secureServing: false}}\n",
        taken.local_addr().unwrap()
    ));
    let arguments =
        ["operator", "--config-file", &file, "--kubeconfig", kubeconfig.to_str().unwrap()];
    let run = gantry_with(&arguments, &ENVIRONMENT, "");
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(
        run.err.contains("could not serve probes and metrics: could not listen on"),
        "{}",
        run.err
    );
    // A missing file is not an error: its volume may be optional.
    assert_eq!(run_to_exit(&kubeconfig, &[&flag]).await.code, 3);
}
