//! Tests that clusters start as configured, and do not disturb one another.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::http::{Client, Credentials, Protocol, Request, Target};
use gantry_testkit::programs::Programs;

use super::{http, kubectl, namespace, print_line, shared};

#[tokio::test]
async fn every_client_reaches_it() {
    let (cluster, _tails) = shared().await;
    let admin = cluster.admin();
    let (fine, version) = kubectl(admin, &["version"]);
    assert!(fine && version.contains("Server Version: v1.34."), "{version}");
    let version = admin.client().await.unwrap().apiserver_version().await.unwrap();
    assert!(version.git_version.starts_with("v1.34."), "{version:?}");
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let client = admin.http(protocol, Clock::system()).unwrap();
        let answer = client.send(Request::get("/readyz")).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, "ok"), "{protocol:?}");
    }
    let mode = admin.kubeconfig().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the file holds the way to a key");
    let programs: Vec<_> = cluster.processes().into_iter().map(|(name, _)| name).collect();
    let expected = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"];
    assert_eq!(programs, expected);
}

#[tokio::test]
async fn nobody_may_do_nothing() {
    let (cluster, _tails) = shared().await;
    let table = [
        ("anonymous", Credentials::Anonymous, 403),
        ("an invented token", Credentials::Token("invented".to_owned()), 401),
    ];
    for (why, credentials, status) in table {
        let target = cluster.target(credentials);
        let clock = Clock::system();
        let client = Client::new(&target, Protocol::Http2, clock).unwrap();
        let answer = client.send(Request::get("/api/v1/namespaces")).await.unwrap();
        assert_eq!(answer.status, status, "{why}: {}", answer.text());
    }
}

#[tokio::test]
async fn two_run_side_by_side() {
    let (first, _tails) = shared().await;
    let second = RealCluster::start().await.unwrap();
    print_line(&format!("a second cluster, a server only, took {:.1?}", second.took()));
    namespace(&http(second.admin()), "side").await;
    let path = "/api/v1/namespaces/side";
    let elsewhere = http(first.admin()).send(Request::get(path)).await.unwrap();
    assert_eq!(elsewhere.status, 404, "they share nothing");
    let stranger = first.admin().target().clone();
    let base = second.admin().target().base.clone();
    let clock = Clock::system();
    let target = Target { base, ..stranger };
    let refused = Client::new(&target, Protocol::Http1, clock).unwrap();
    assert!(refused.send(Request::get(path)).await.is_err(), "not even an authority");
    let folder = second.folder();
    assert!(folder.exists() && folder != first.folder());
    drop(second);
    assert!(!folder.exists(), "dropped, and gone");
    let answer = http(first.admin()).send(Request::get("/readyz")).await.unwrap();
    assert_eq!(answer.text(), "ok", "the first does not mind");
}

#[test]
fn a_failed_start_names_the_program_and_leaves_nothing() {
    let cache = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_real-cluster"))
        .arg("--api-server-flag=--no-such-flag")
        .env("GANTRY_CACHE", cache.path())
        .env("GANTRY_TESTBED", Programs::find().unwrap().folder())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    let expected = "could not start the cluster: kube-apiserver ended with exit status: 1";
    assert_eq!(last, expected, "{said}");
    assert!(said.contains("--- kube-apiserver\nError: unknown flag: --no-such-flag\n"), "{said}");
    let left = fs::read_dir(cache.path().join("testbed/runs")).unwrap().count();
    assert_eq!(left, 0);
}
