//! Programs in simulated pods: what they have, what they may do, and when they are ready.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Cluster, PODS};
use gantry_testkit::http::Request;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Asks a pod, and gives back the code and the body of its answer.
pub(crate) async fn ask(method: &str, address: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: pod\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, body.trim_end().to_owned())
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

fn demo() -> Value {
    let field = json!({"fieldRef": {"fieldPath": "spec.nodeName"}});
    let secret = json!({"secretKeyRef": {"name": "login", "key": "user"}});
    let probe = json!({"httpGet": {"path": "/ready", "port": "web"}, "periodSeconds": 1});
    json!({
        "metadata": {"name": "demo", "labels": {"app": "demo"}},
        "spec": {
            "serviceAccountName": "reader",
            "containers": [{
                "name": "echo", "image": "gantry.dev/echo:1",
                "command": ["/bin/sh", "-c"], "args": ["exec echo --node $(NODE)"],
                "ports": [{"name": "web", "containerPort": 18081}],
                "env": [
                    {"name": "NODE", "valueFrom": field}, {"name": "LOGIN", "valueFrom": secret},
                    {"name": "TEXT", "value": "on $(NODE)"},
                    {"name": "ECHO_ALLOW", "value": "env,file,api,ready"},
                ],
                "readinessProbe": probe,
                "volumeMounts": [{"name": "login", "mountPath": "/etc/login"}],
            }],
            "volumes": [{"name": "login", "secret": {"secretName": "login"}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_what_its_pod_says() {
    let cluster = Cluster::ephemeral().await;
    cluster.post(ACCOUNTS, &json!({"metadata": {"name": "reader"}})).await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    cluster
        .post(&format!("{RBAC}/roles"), &json!({"metadata": {"name": "reader"}, "rules": rules}))
        .await;
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    });
    cluster.post(&format!("{RBAC}/rolebindings"), &binding).await;
    let service = json!({
        "metadata": {"name": "demo"}, "spec": {"selector": {"app": "demo"}, "ports": [{"port": 80}]},
    });
    cluster.post("/api/v1/namespaces/default/services", &service).await;
    cluster.post(PODS, &demo()).await;
    let path = format!("{PODS}/demo");

    // The Secret is missing: the pod waits, and says for what.
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DFailedMount";
    let words = "MountVolume.SetUp failed for volume \"login\" : secret \"login\" not found";
    cluster
        .wait_until(events, "told of the missing Secret", |it| {
            it["items"].as_array().into_iter().flatten().any(|it| it["message"] == words)
        })
        .await;
    let waiting = cluster.get(&path).await;
    let state = &waiting["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(state["reason"], "ContainerCreating", "{waiting:#}");
    let secret =
        json!({"metadata": {"name": "login"}, "stringData": {"user": "ada", "password": "one"}});
    cluster.post(SECRETS, &secret).await;
    let pod = cluster.wait_until(&path, "became ready", is_ready).await;
    let address = format!("{}:18081", pod["status"]["podIP"].as_str().unwrap());

    // Its environment, its files, and no others.
    let (code, env) = ask("GET", &address, "/env", "").await;
    let env: Value = serde_json::from_str(&env).unwrap();
    let node = &pod["spec"]["nodeName"];
    assert_eq!((code, &env["NODE"], &env["LOGIN"]), (200, node, &json!("ada")));
    assert_eq!(env["TEXT"], format!("on {}", node.as_str().unwrap()));
    assert_eq!(env["KUBERNETES_SERVICE_HOST"], "127.0.0.1");
    let file = async |path: &str| ask("GET", &address, &format!("/file?path={path}"), "").await;
    assert_eq!(file("/etc/login/password").await, (200, "one".to_owned()));
    assert_eq!(file("/etc/passwd").await.0, 404);
    assert_eq!(file("/etc/login/../../etc/passwd").await.0, 404);
    let token = file("/var/run/secrets/kubernetes.io/serviceaccount/token").await;
    assert_eq!((token.0, token.1.split('.').count()), (200, 3), "a token");

    // A change of the Secret reaches its file without a restart.
    cluster.merge(&format!("{SECRETS}/login"), &json!({"stringData": {"password": "two"}})).await;
    let began = cluster.clock.moment();
    while file("/etc/login/password").await.1 != "two" {
        assert!(
            cluster.clock.moment() - began < super::CONDITION_TIMEOUT,
            "the file never changed"
        );
        cluster.clock.sleep(super::POLL_INTERVAL).await;
    }

    // The API server, as its account and with its rights.
    let api = async |path: &str| ask("GET", &address, &format!("/api?path={path}"), "").await;
    let (code, list) = api(CONFIG_MAPS).await;
    assert!(code == 200 && list.contains("kube-root-ca.crt"), "{code} {list}");
    let (code, refused) = api(SECRETS).await;
    let whose = "system:serviceaccount:default:reader";
    assert!(code == 403 && refused.contains(whose), "{code} {refused}");

    // It withdraws its readiness: the pod and its endpoints follow, both ways.
    for is in [false, true] {
        assert_eq!(ask("PUT", &address, "/ready", &is.to_string()).await.0, 200);
        cluster.wait_until(&path, "followed its program", |it| is_ready(it) == is).await;
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                      ?labelSelector=kubernetes.io%2Fservice-name%3Ddemo";
        cluster
            .wait_until(slices, "followed its pod", |it| {
                it["items"][0]["endpoints"][0]["conditions"]["ready"] == is
            })
            .await;
    }
    let seen = cluster.get(&path).await;
    assert_eq!(seen["status"]["containerStatuses"][0]["restartCount"], 0, "{seen:#}");

    // Without notice: nothing answers any more.
    let gone = Request::delete(format!("{path}?gracePeriodSeconds=0"));
    assert!(cluster.client.send(gone).await.unwrap().status.is_success());
    cluster.wait_until(&path, "was gone", |it| it["code"] == 404).await;
    let began = cluster.clock.moment();
    while TcpStream::connect(&address).await.is_ok() {
        assert!(cluster.clock.moment() - began < super::CONDITION_TIMEOUT, "it still listens");
        cluster.clock.sleep(super::POLL_INTERVAL).await;
    }
}

/// What is not alive is started again, and its last words are kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_alive_is_started_again() {
    let cluster = Cluster::ephemeral().await;
    let probe = json!({
        "exec": {"command": ["sh", "-c", "echo gone; false"]}, "periodSeconds": 1, "failureThreshold": 1,
        "initialDelaySeconds": 1,
    });
    let pod = json!({
        "metadata": {"name": "sick"},
        "spec": {"containers": [{
            "name": "echo", "image": "gantry.dev/echo", "livenessProbe": probe,
            "lifecycle": {"preStop": {"exec": {"command": ["false"]}}},
            "ports": [{"containerPort": 18082}],
        }]},
    });
    cluster.post(PODS, &pod).await;
    let path = format!("{PODS}/sick");
    let restarted =
        |it: &Value| it["status"]["containerStatuses"][0]["restartCount"].as_u64() >= Some(1);
    cluster.wait_until(&path, "was started again", restarted).await;
    for (reason, words) in [
        ("Unhealthy", "Liveness probe failed: gone"),
        ("Killing", "Container echo failed liveness probe, will be restarted"),
        ("FailedPreStopHook", "PreStopHook failed: "),
    ] {
        let events = format!("/api/v1/namespaces/default/events?fieldSelector=reason%3D{reason}");
        cluster
            .wait_until(&events, words, |it| {
                let all = it["items"].as_array().into_iter().flatten();
                all.into_iter().any(|it| it["message"] == words)
            })
            .await;
    }
    let pod = json!({
        "metadata": {"name": "wrong"},
        "spec": {"restartPolicy": "Never", "containers": [{
            "name": "echo", "image": "gantry.dev/echo", "env": [{"name": "PORT", "value": "many"}],
        }]},
    });
    cluster.post(PODS, &pod).await;
    let path = format!("{PODS}/wrong");
    let ended = cluster.wait_until(&path, "failed", |it| it["status"]["phase"] == "Failed").await;
    let end = &ended["status"]["containerStatuses"][0]["state"]["terminated"];
    let words = "cannot listen on port \"many\": set PORT to a number";
    assert_eq!([&end["exitCode"], &end["message"]], [&json!(2), &json!(words)]);
}
