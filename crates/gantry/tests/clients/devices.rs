//! Devices with kubectl: what the original's readme shows, and its manifests on a real server.

use std::fs;
use std::path::Path;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::embedded::Plan;

use super::shell::{Outcome, Shell};

/// Runs a script that must succeed.
fn run(shell: &Shell, script: &str) -> Outcome {
    let outcome = shell.run(&format!("set -eu\n{script}"));
    assert_eq!(outcome.code, Some(0), "{script}\n{}\n{}", outcome.out, outcome.err);
    outcome
}

/// A server that knows the kinds, as people find it.
fn prepare_server(kubeconfig: &Path) -> Shell {
    let shell = Shell::new(kubeconfig);
    shell.link("testdata", "../api/tests/manifests/devices");
    run(
        &shell,
        "gantry devices crds | kubectl apply --server-side -f - >/dev/null
         kubectl wait --for=condition=Established --timeout=60s crd --all >/dev/null",
    );
    shell
}

/// The first two transcripts of the original's readme.
#[tokio::test]
async fn the_drivers_of_the_readme_are_applied_and_listed() {
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&Clock::system()).await.unwrap();
    let shell = prepare_server(server.kubeconfig());
    let applied = run(&shell, "kubectl apply -f testdata/drivers.yaml").out;
    let expected = "\
devicedriver.devmgmtproto.k8s.io/example.com-foozer created
devicedriver.devmgmtproto.k8s.io/example.com-barzer created
devicedriver.devmgmtproto.k8s.io/sriov-nic created
devicedriver.devmgmtproto.k8s.io/vlan created
";
    assert_eq!(applied, expected);
    // The order is the server's: by name, where the original's was the order of making.
    let listed = run(&shell, "kubectl get devicedrivers").out;
    let mut lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(lines.next().unwrap(), ["NAME", "AGE"], "{listed}");
    let lines: Vec<Vec<&str>> = lines.collect();
    assert!(lines.iter().all(|line| line.len() == 2), "{listed}");
    let names: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    assert_eq!(names, ["example.com-barzer", "example.com-foozer", "sriov-nic", "vlan"]);
    let wide = run(&shell, "kubectl get devicedrivers -o wide").out;
    let head: Vec<&str> = wide.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["NAME", "TYPES", "READY", "AGE"], "{wide}");
}

/// The kind of the configuration that the original's pods refer to.
const FOOZER_CONFIG: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foozerconfigs.foozer.example.com}
spec:
  group: foozer.example.com
  scope: Namespaced
  names: {plural: foozerconfigs, singular: foozerconfig, kind: FoozerConfig, listKind: FoozerConfigList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// What `inject` makes of the original's manifests, on a server that refuses what it does not know.
fn inject_and_apply(shell: &Shell) {
    fs::write(shell.home().join("foozer.yaml"), FOOZER_CONFIG).unwrap();
    run(
        shell,
        "kubectl apply -f foozer.yaml >/dev/null
         kubectl wait --for=condition=Established --timeout=60s crd foozerconfigs.foozer.example.com",
    );
    // A namespace's account is made by a controller, which need not run here.
    let Outcome { out, err, .. } = run(
        shell,
        "kubectl get serviceaccount default >/dev/null 2>&1 || kubectl create serviceaccount default
         gantry devices inject -f testdata/classes.yaml | kubectl apply --server-side --validate=strict -f -",
    );
    assert!(
        out.contains("deviceclass.devmgmtproto.k8s.io/sriov-nic-1gbps serverside-applied"),
        "{out}"
    );
    assert!(out.contains("configmap/vlan-driver-vlan-2000 serverside-applied"), "{out}");
    assert!(err.contains("metadata.name: \"sriov-nic-1Gbps\" written in lower case"), "{err}");
    assert!(err.contains("data.vlanID: put in quotes: \"2000\""), "{err}");
    for pod in ["embedded-foozer-single", "template-foozer-single", "shared-foozer"] {
        let script = format!(
            "gantry devices inject -f testdata/pod-{pod}.yaml >injected.yaml
             kubectl delete pod --all --force --grace-period=0 --ignore-not-found >/dev/null 2>&1
             kubectl apply --server-side --validate=strict -f injected.yaml"
        );
        let Outcome { out, err, .. } = run(shell, &script);
        assert!(out.contains("pod/") && out.contains("serverside-applied"), "{pod}: {out}");
        assert!(err.contains("moved to annotations"), "{pod}: {err}");
        let annotations = run(shell, "kubectl get pods -o yaml").out;
        assert!(annotations.contains("devmgmtproto.k8s.io/device-claims:"), "{annotations}");
        assert!(!annotations.contains("deviceClaims:"), "{annotations}");
    }
}

#[tokio::test]
async fn scenario_70_injected_pods_are_accepted_by_a_real_server() {
    let real = Box::pin(RealCluster::plan().start()).await.unwrap();
    inject_and_apply(&prepare_server(real.admin().kubeconfig()));
}

#[tokio::test]
async fn scenario_70_injected_pods_are_accepted_by_the_embedded_server() {
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&Clock::system()).await.unwrap();
    inject_and_apply(&prepare_server(server.kubeconfig()));
}
