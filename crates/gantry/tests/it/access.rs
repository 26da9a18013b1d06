//! Roles and bindings: they take effect when the write is acknowledged, and default ones are
//! restored.

use gantry_process::clock::Clock;
use gantry_testkit::embedded::{EmbeddedServer, Plan};
use gantry_testkit::http::{Client, Protocol, Request, Response};
use http::{HeaderName, HeaderValue};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;

use super::gantry;

const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn plan() -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_gantry"))
}

/// An administrator, who can impersonate any user.
#[derive(Clone)]
struct Admin(Client);

impl Admin {
    fn of(server: &EmbeddedServer, clock: &Clock) -> Self {
        Self(Client::new(server.target(), Protocol::Http2, clock.clone()).unwrap())
    }

    async fn create(&self, path: &str, object: &Value) {
        let answer = self.0.send(Request::post(format!("{GROUP}/{path}"), object)).await.unwrap();
        assert_eq!(answer.status.as_u16(), 201, "{}", answer.text());
    }

    async fn get(&self, path: &str) -> Value {
        let request = Request::get(format!("{GROUP}/{path}"));
        self.0.send(request).await.unwrap().json().unwrap()
    }

    async fn patch(&self, path: &str, patch: &Value) {
        let request = Request::patch(format!("{GROUP}/{path}"), MERGE, patch);
        let answer = self.0.send(request).await.unwrap();
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
    }

    async fn delete(&self, path: &str) {
        let answer = self.0.send(Request::delete(format!("{GROUP}/{path}"))).await.unwrap();
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
    }

    async fn as_user(&self, user: &str, request: Request) -> Response {
        let name = HeaderName::from_static("impersonate-user");
        let request = request.header(name, HeaderValue::from_str(user).unwrap());
        self.0.send(request).await.unwrap()
    }

    /// Whether a user may list pods: the status of trying.
    async fn lists_pods(&self, user: &str) -> u16 {
        self.as_user(user, Request::get(PODS)).await.status.as_u16()
    }
}

fn rules(verb: &str) -> Value {
    json!([{ "verbs": [verb], "apiGroups": [""], "resources": ["pods"] }])
}

fn binding(name: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": { "name": name }, "subjects": [{ "kind": "User", "name": user }],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_takes_effect_at_once() {
    let clock = Clock::system();
    let server = plan().flag("--ephemeral").start(&clock).await.unwrap();
    let admin = Admin::of(&server, &clock);
    let role = json!({ "metadata": { "name": "lister" }, "rules": rules("list") });
    admin.create("clusterroles", &role).await;
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let admin = admin.clone();
        writers.spawn(async move {
            for nth in 0..25 {
                let user = format!("user-{writer}-{nth}");
                assert_eq!(admin.lists_pods(&user).await, 403, "{user} has no role yet");
                let collection = "namespaces/default/rolebindings";
                admin.create(collection, &binding(&user, "lister", &user)).await;
                assert_eq!(admin.lists_pods(&user).await, 200, "{user} has the role");
                admin.delete(&format!("{collection}/{user}")).await;
                assert_eq!(admin.lists_pods(&user).await, 403, "{user} has lost it");
            }
        });
    }
    writers.join_all().await;
    // A role that changes does so for everyone who holds it.
    admin.create("clusterrolebindings", &binding("all", "lister", "bob")).await;
    assert_eq!(admin.lists_pods("bob").await, 200);
    admin.patch("clusterroles/lister", &json!({ "rules": rules("get") })).await;
    assert_eq!(admin.lists_pods("bob").await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_roles_include_their_sources() {
    let clock = Clock::system();
    let server = plan().flag("--ephemeral").start(&clock).await.unwrap();
    let admin = Admin::of(&server, &clock);
    admin.create("clusterrolebindings", &binding("bob", "admin", "bob")).await;
    let widgets = || Request::get("/apis/x.test/v1/namespaces/default/widgets");
    let status = async || admin.as_user("bob", widgets()).await.status.as_u16();
    assert_eq!(status().await, 403);
    // To view is to edit, and to edit is to be an administrator.
    let part = |verb: &str| {
        json!({
            "metadata": { "name": "part", "labels": {
                "rbac.authorization.k8s.io/aggregate-to-view": "true",
            } },
            "rules": [{ "verbs": [verb], "apiGroups": ["x.test"], "resources": ["widgets"] }],
        })
    };
    admin.create("clusterroles", &part("list")).await;
    assert_eq!(status().await, 404, "allowed, but there is no such kind");
    for role in ["view", "edit", "admin"] {
        let stored = admin.get(&format!("clusterroles/{role}")).await;
        assert!(stored["rules"].to_string().contains("widgets"), "{role}");
        let owners = stored["metadata"]["managedFields"].to_string();
        assert!(owners.contains("clusterrole-aggregation-controller"), "{role}: {owners}");
    }
    admin.patch("clusterroles/part", &part("get")).await;
    assert_eq!(status().await, 403);
    admin.patch("clusterroles/part", &part("list")).await;
    assert_eq!(status().await, 404);
    // Rules that a user writes into an aggregated role do not stay.
    admin.patch("clusterroles/view", &json!({ "rules": rules("delete") })).await;
    let view = admin.get("clusterroles/view").await;
    assert!(!view["rules"].to_string().contains("delete"), "{view:#}");
    admin.delete("clusterroles/part").await;
    assert_eq!(status().await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_restores_default_roles() {
    let clock = Clock::system();
    let data = tempfile::tempdir().unwrap();
    let data = data.path().join("data");
    let mut server = plan().data(&data).start(&clock).await.unwrap();
    let admin = Admin::of(&server, &clock);
    let before = admin.get("clusterroles/system:discovery").await;
    admin.delete("clusterroles/system:basic-user").await;
    admin.delete("clusterrolebindings/system:discovery").await;
    let local = "namespaces/kube-system/roles/system:controller:token-cleaner";
    let cleaner = admin.get(local).await;
    admin.patch(local, &json!({ "rules": rules("get") })).await;
    // What is wrong on purpose stays.
    let keep = json!({ "rules": [], "metadata": { "annotations": {
        "rbac.authorization.kubernetes.io/autoupdate": "false",
    } } });
    admin.patch("clusterroles/system:monitoring", &keep).await;
    // The roleRef of a binding cannot be changed, so the binding is recreated.
    admin.delete("clusterrolebindings/system:basic-user").await;
    let wrong = binding("system:basic-user", "view", "bob");
    admin.create("clusterrolebindings", &wrong).await;
    let revision = |object: &Value| object["metadata"]["resourceVersion"].clone();
    server.signal(Signal::TERM).unwrap();
    assert!(server.wait_for_exit(Duration::from_secs(60), &clock).await.unwrap().success());

    let server = plan().data(&data).start(&clock).await.unwrap();
    let admin = Admin::of(&server, &clock);
    let after = admin.get("clusterroles/system:discovery").await;
    assert_eq!(revision(&after), revision(&before), "what was right was not written");
    assert_eq!(admin.get("clusterroles/system:basic-user").await["kind"], "ClusterRole");
    let discovery = admin.get("clusterrolebindings/system:discovery").await;
    assert_eq!(discovery["subjects"][0]["name"], "system:authenticated");
    let restored = admin.get(local).await["rules"].to_string();
    assert!(restored.contains("pods"), "what was added stays: {restored}");
    assert!(restored.contains("secrets"), "{restored}, but was {cleaner:#}");
    let monitoring = admin.get("clusterroles/system:monitoring").await;
    assert!(monitoring["rules"].as_array().is_none_or(Vec::is_empty), "{monitoring:#}");
    let turned = admin.get("clusterrolebindings/system:basic-user").await;
    assert_eq!(turned["roleRef"]["name"], "system:basic-user");
    assert_eq!(turned["subjects"][0]["name"], "system:authenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn authorization_modes_are_evaluated_in_order() {
    let clock = Clock::system();
    let table = [
        ("AlwaysAllow", 200, "200"),
        ("AlwaysDeny", 403, "in the namespace \"default\": Everything is forbidden."),
        ("RBAC,AlwaysAllow", 200, "200"),
        ("RBAC,AlwaysDeny", 403, ": Everything is forbidden."),
    ];
    for (modes, status, words) in table {
        let plan = plan().flag("--ephemeral").flag(format!("--authorization-mode={modes}"));
        let server = plan.start(&clock).await.unwrap();
        let admin = Admin::of(&server, &clock);
        let answer = admin.as_user("bob", Request::get(PODS)).await;
        assert_eq!(answer.status.as_u16(), status, "{modes}");
        assert!(status == 200 || answer.text().contains(&words.replace('"', "\\\"")), "{modes}");
    }
    let run = gantry(&["apiserver", "--authorization-mode", "RBAC,Node"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("[possible values: RBAC, AlwaysAllow, AlwaysDeny]"), "{}", run.err);
    let run = gantry(&["apiserver", "--authorization-mode", "RBAC,RBAC"]);
    assert!(run.code != 0 && run.err.contains("names RBAC more than once"), "{}", run.err);
}
