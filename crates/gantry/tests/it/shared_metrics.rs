//! Access to an operator's metrics, on any server. The same steps are run on a real one by `make
//! e2e`.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_serve::pki::StandaloneCertificate;
use gantry_testkit::http::{Client, Credentials, Protocol, Request, Target};
use serde_json::json;
use tokio::task::JoinSet;

use crate::shared_operator::{Site, done};
use crate::shared_process::Operator;

/// An operator whose metrics are served with TLS.
pub(crate) struct Served {
    pub(crate) operator: Operator,
    pub(crate) probes: String,
    pub(crate) metrics: Page,
    _folder: tempfile::TempDir,
}

/// Where metrics are served, and whose certificate that shows.
#[derive(Clone)]
pub(crate) struct Page {
    address: String,
    authority: String,
}

impl Served {
    /// Starts one with the rights of the manifests, and with a certificate that the test can
    /// verify.
    pub(crate) async fn start(site: &Site) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sealed = StandaloneCertificate::create(&[], Clock::system().now()).unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let certificate = write("tls.crt", &sealed.identity.certificate);
        let key = write("tls.key", &sealed.identity.key);
        let config = write(
            "gantry.yaml",
            &format!(
                "health: {{bindAddress: '127.0.0.1:0'}}\n\
                 metrics: {{bindAddress: '127.0.0.1:0', certFile: {certificate}, keyFile: {key}}}\n"
            ),
        );
        let kubeconfig = site.kubeconfig().await;
        let flags = ["--config-file", &config, "--kubeconfig", kubeconfig.to_str().unwrap()];
        let mut operator = Operator::start(&flags);
        let [probes, address] = [(); 2].map(|()| listening(&mut operator));
        let metrics = Page { address, authority: sealed.authority };
        Self { operator, probes, metrics, _folder: folder }
    }
}

impl Page {
    /// Sends a request to where metrics are served.
    pub(crate) async fn send(&self, token: Option<&str>, request: Request) -> (u16, String) {
        let credentials =
            token.map_or(Credentials::Anonymous, |it| Credentials::Token(it.to_owned()));
        let base = format!("https://{}", self.address);
        let target = Target { base, authority: self.authority.clone(), credentials };
        let client = Client::new(&target, Protocol::Http1, Clock::system()).unwrap();
        let answer = client.send(request).await.unwrap();
        (answer.status.as_u16(), answer.text())
    }
}

/// Where it serves something next, from its log.
fn listening(operator: &mut Operator) -> String {
    loop {
        let line = operator.lines.recv_timeout(Duration::from_secs(60));
        assert!(line.is_ok(), "it does not listen:\n{}", operator.said());
        let line = line.unwrap();
        operator.read.push(line.clone());
        let listens = line.contains("listening");
        if let Some((_, rest)) = line.split_once("address=").filter(|_| listens) {
            return rest.trim_matches('"').split(['"', ' ']).next().unwrap().to_owned();
        }
    }
}

/// A token of an account with no rights.
pub(crate) async fn token_of(site: &Site, name: &str) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    site.create(accounts, &json!({ "metadata": { "name": name } })).await;
    let path = format!("{accounts}/{name}/token");
    let made = done(&site.admin.send(Request::post(path, &json!({}))).await.unwrap());
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// Metrics need TLS, a valid token, and the permission to read them.
pub(crate) async fn metrics_are_for_readers(site: &Site) {
    let (reader, tenant) = (token_of(site, "prometheus").await, token_of(site, "tenant").await);
    let binding = json!({
        "metadata": { "name": "prometheus" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": gantry::manifests::METRICS_READER,
        },
        "subjects": [{ "kind": "ServiceAccount", "name": "prometheus", "namespace": "default" }],
    });
    site.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let mut served = Served::start(site).await;
    let page = &served.metrics;

    // A real server applies roles a moment after they are stored; denials are cached for ten
    // seconds.
    let (clock, metrics) = (Clock::system(), || Request::get("/metrics"));
    let give_up = clock.moment() + Duration::from_secs(60);
    let text = loop {
        let (status, text) = page.send(Some(&reader), metrics()).await;
        if status == 200 {
            break text;
        }
        assert!(clock.moment() < give_up, "{status} {text}");
        clock.sleep(Duration::from_millis(100)).await;
    };
    assert!(text.contains("gantry_build_info") && text.ends_with("# EOF\n"), "{text}");

    // Not the last letter of the signature: some of its bits may be unused.
    let at = reader.len() - 10;
    let other = if reader.as_bytes()[at] == b'x' { "y" } else { "x" };
    let forged = format!("{}{other}{}", &reader[..at], &reader[at + 1..]);
    let denied = "user \"system:serviceaccount:default:tenant\" may not get /metrics";
    let table = [
        ("nobody", None, metrics(), 401, "send a token"),
        ("an invented token", Some("invented"), metrics(), 401, "does not accept this token"),
        ("a forged token", Some(&*forged), metrics(), 401, "does not accept this token"),
        ("an account without the right", Some(&*tenant), metrics(), 403, denied),
        ("another page", Some(&*reader), Request::get("/status"), 403, "may not get /status"),
        ("no page", Some(&*reader), Request::get("/metrics/x"), 404, "not found"),
        ("a path in disguise", Some(&*reader), Request::get("//metrics"), 404, "not found"),
        ("a write", Some(&*reader), Request::post("/metrics", &json!({})), 405, "only GET"),
    ];
    for (why, token, request, status, text) in table {
        let (found, said) = page.send(token, request).await;
        assert_eq!(found, status, "{why}: {said}");
        assert!(said.contains(text), "{why}: {said}");
        assert!(!said.contains("gantry_build_info"), "{why}: {said}");
    }

    // Many callers with unknown tokens do not displace a reader.
    let mut crowd = JoinSet::new();
    for at in 0..100 {
        let page = page.clone();
        crowd.spawn(async move {
            page.send(Some(&format!("invented-{at}")), Request::get("/metrics")).await.0
        });
    }
    for status in crowd.join_all().await {
        assert!(matches!(status, 401 | 429), "{status}");
    }
    assert_eq!(page.send(Some(&reader), metrics()).await.0, 200);

    // Kubelets have no token, and use another address. No token is in the log.
    let (base, credentials) = (format!("http://{}", served.probes), Credentials::Anonymous);
    let target = Target { base, authority: String::new(), credentials };
    let probes = Client::new(&target, Protocol::Http1, clock).unwrap();
    assert_eq!(probes.send(Request::get("/healthz")).await.unwrap().status.as_u16(), 200);
    assert_eq!(probes.send(metrics()).await.unwrap().status.as_u16(), 404);
    let log = served.operator.said();
    assert!(!log.contains(&reader) && !log.contains("invented"), "{log}");
}
