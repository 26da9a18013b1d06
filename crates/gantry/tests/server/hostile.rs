//! Hostile clients. Whatever they do, the server stays up, its memory is bounded, it discloses
//! nothing and serves the others.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::EmbeddedServer;
use gantry_testkit::http::{Client, Credentials, Protocol, RawConnection, Request, Target};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::slow_watchers::{mb, resident};
use super::{CONFIG_MAPS, MERGE, SECRETS, client, done, make, plan};

/// How long a connection must be silent before the response is taken as complete.
const RESPONSE_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// What any of these may cost in memory: most bring many times as much, and ten thousand
/// connections get twenty-five kilobytes each.
const MAX_MEMORY_GROWTH: u64 = 300 << 20;

/// A server with a secret in it, and a well-behaved client.
struct TestServer {
    server: EmbeddedServer,
    clock: Clock,
    client: Client,
}

impl TestServer {
    async fn open() -> Self {
        let clock = Clock::system();
        let server = plan().flag("--ephemeral").start(&clock).await.unwrap();
        let guest = client(&server, Protocol::Http2);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "secret" }, "stringData": { "word": "sesame" },
        });
        done(&guest.send(Request::post(SECRETS, &secret)).await.unwrap());
        Self { server, clock, client: guest }
    }

    /// Returns a client of the same server without credentials.
    fn anonymous_target(&self) -> Target {
        Target { credentials: Credentials::Anonymous, ..self.server.target().clone() }
    }

    async fn connect(&self, target: &Target) -> RawConnection {
        RawConnection::connect(target, self.clock.clone()).await.unwrap()
    }

    /// Sends bytes on a new connection and returns all that comes back.
    async fn send_raw(&self, target: &Target, bytes: &[u8]) -> String {
        let mut connection = self.connect(target).await;
        // The server may close the connection before everything is sent.
        let _: Result<(), _> = connection.send(bytes).await;
        connection.receive_until_quiet(RESPONSE_IDLE_TIMEOUT).await
    }

    /// Runs an attack while another client works, and measures what it cost both.
    async fn attack_during_workload<T>(&self, what: &str, attack: impl Future<Output = T>) -> T {
        let before = resident(&self.server);
        let alone = self.run_workload().await;
        let (outcome, beside) = tokio::join!(attack, self.run_workload());
        let after = self.run_workload().await;
        let now = resident(&self.server);
        let said = writeln!(
            std::io::stderr(),
            "{what}: ten writes and reads took {alone:?} before, {beside:?} beside, {after:?} \
             after; resident {} MB became {} MB",
            mb(before),
            mb(now)
        );
        said.unwrap();
        assert!(
            now < before + MAX_MEMORY_GROWTH,
            "{what}: {} MB became {} MB",
            mb(before),
            mb(now)
        );
        outcome
    }

    /// Creates and reads ten objects: every request must succeed.
    async fn run_workload(&self) -> Duration {
        let began = self.clock.moment();
        for _ in 0..10 {
            let name = format!("work-{:x}", fastrand::u64(..));
            make(&self.client, &name, "here").await;
            let path = format!("{CONFIG_MAPS}/{name}");
            let read = done(&self.client.send(Request::get(path)).await.unwrap());
            assert_eq!(read["data"]["text"], "here");
        }
        self.clock.moment() - began
    }
}

fn statuses(heard: &str) -> Vec<&str> {
    let heads = heard.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head.get(..3).unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_paths_lead_nowhere() {
    let house = TestServer::open().await;
    let secrets = "namespaces/default/secrets";
    let paths = [
        format!("/healthz/../api/v1/{secrets}/secret"),
        format!("/healthz/%2e%2e/api/v1/{secrets}/secret"),
        format!("/version/..%2fapi/v1/{secrets}/secret"),
        format!("/healthz;/api/v1/{secrets}/secret"),
        format!("/healthz%00/../../api/v1/{secrets}/secret"),
        format!("//api//v1//{secrets}//secret"),
        format!("/api/v1/{secrets}/secret%00"),
        format!("/api/v1/{secrets}/./secret"),
        format!("/api/v1/{secrets}/x/../secret"),
        format!("/API/V1/{secrets}/secret"),
        format!("/api/v1/{secrets}%2fsecret"),
        format!("/%61pi/v1/{secrets}/secret"),
        format!("/api/v1/{secrets}/secret/"),
        format!("/api\\v1\\{secrets}\\secret"),
        format!("https://127.0.0.1/api/v1/{secrets}/secret"),
        format!("http://169.254.169.254/api/v1/{secrets}/secret"),
        "/api/v1/secrets?watch=1&timeoutSeconds=1".to_owned(),
        "/api/v1/watch/secrets".to_owned(),
        format!("/api/v1/{secrets}/%73ecret?pretty=1&healthz"),
        format!("/api/v1/{secrets}/{}", "../".repeat(4000)),
        format!("/{}", "a/".repeat(8000)),
        format!("/api/v1/{secrets}/{}", "%".repeat(3000)),
        "*".to_owned(),
        "/healthz HTTP/1.1\r\nX: y\r\n\r\nGET /api/v1/secrets".to_owned(),
    ];
    let stranger = house.anonymous_target();
    for path in &paths {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let heard = house.send_raw(&stranger, request.as_bytes()).await;
        assert!(!heard.contains("c2VzYW1l"), "{path}: the secret is out:\n{heard}");
        let answers = statuses(&heard);
        let first = answers.first().copied().unwrap_or("none");
        let told = path.starts_with("/healthz HTTP");
        assert!(first.starts_with('4') || told, "{path}: {first}");
        assert!(!answers.iter().any(|it| it.starts_with('5')), "{path}:\n{heard}");
    }
    // The owner gets there only by the plain path.
    let straight = house.client.send(Request::get(format!("{SECRETS}/secret"))).await.unwrap();
    assert_eq!(done(&straight)["data"]["word"], "c2VzYW1l");
    for path in [format!("{SECRETS}/../secrets/secret"), format!("/{SECRETS}/secret")] {
        let answer = house.client.send(Request::get(path.clone())).await.unwrap();
        assert!(answer.status.is_client_error(), "{path}: {}", answer.status);
    }
}

/// Two servers that disagree about where a request ends let one client send requests as another.
/// Whatever is hidden in a body must never be executed.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_hidden_in_another_is_not_carried_out() {
    let house = TestServer::open().await;
    let map = r#"{"metadata":{"name":"hidden"}}"#;
    let hidden = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: \
         {}\r\nConnection: close\r\n\r\n{map}",
        map.len()
    );
    let chunk = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    let length = hidden.len();
    let table = [
        ("a length and chunks", "Content-Length: 4\r\nTransfer-Encoding: chunked", chunk.clone()),
        ("chunks and a length", "Transfer-Encoding: chunked\r\nContent-Length: 4", chunk.clone()),
        ("two lengths", "Content-Length: 0\r\nContent-Length: LENGTH", hidden.clone()),
        ("lengths in one line", "Content-Length: 0, LENGTH", hidden.clone()),
        ("a length with a sign", "Content-Length: +LENGTH", hidden.clone()),
        ("a length in hexadecimal", "Content-Length: 0xff", hidden.clone()),
        ("a negative length", "Content-Length: -1", hidden.clone()),
        ("a space before the colon", "Content-Length : LENGTH", hidden.clone()),
        ("chunks by another name", "Transfer-Encoding: xchunked", chunk.clone()),
        ("chunks not last", "Transfer-Encoding: chunked, identity", chunk.clone()),
        ("chunks twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", chunk.clone()),
        ("a folded line", "Transfer-Encoding:\r\n chunked", chunk.clone()),
        ("a tab", "Transfer-Encoding:\tchunked", chunk.clone()),
        ("a bare line feed", "X: y\nContent-Length: LENGTH", hidden.clone()),
        ("a zero in a name", "Content\0-Length: LENGTH", hidden.clone()),
        (
            "an endless size of a chunk",
            "Transfer-Encoding: chunked",
            format!("{}\r\n", "f".repeat(40)),
        ),
        (
            "a size that overflows",
            "Transfer-Encoding: chunked",
            format!("1{}\r\nx", "0".repeat(16)),
        ),
    ];
    for (what, headers, body) in table {
        let headers = headers.replace("LENGTH", &length.to_string());
        // A read of which the body is ignored: all that follows it must be taken for its body.
        let request = format!("GET {SECRETS} HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n{body}");
        let mut connection = house.connect(house.server.target()).await;
        let _: Result<(), _> = connection.send(request.as_bytes()).await;
        let heard = connection.receive_until_quiet(Duration::from_millis(300)).await;
        let answers = statuses(&heard);
        assert!(answers.len() <= 1, "{what}: one request, and these answers: {answers:?}\n{heard}");
        let path = format!("{CONFIG_MAPS}/hidden");
        let there = house.client.send(Request::get(path)).await.unwrap();
        assert_eq!(there.status, StatusCode::NOT_FOUND, "{what}: it was carried out:\n{heard}");
    }
    house.run_workload().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_too_large_are_refused_and_not_kept() {
    const BODY: usize = 4 << 20;
    let house = TestServer::open().await;
    let text = vec![b'x'; BODY];
    let known = client(&house.server, Protocol::Http2);
    let unknown =
        Client::new(&house.anonymous_target(), Protocol::Http2, house.clock.clone()).unwrap();
    house
        .attack_during_workload("large bodies", async {
            let mut sending = JoinSet::new();
            for round in 0..100 {
                let sender = if round % 2 == 0 { known.clone() } else { unknown.clone() };
                let request = Request::new(Method::POST, CONFIG_MAPS).body(text.clone());
                sending.spawn(async move { sender.send(request).await });
            }
            for answer in sending.join_all().await {
                // Closed in the middle of a body it need not read, or rejected.
                let Ok(answer) = answer else { continue };
                let told = [StatusCode::PAYLOAD_TOO_LARGE, StatusCode::TOO_MANY_REQUESTS];
                assert!(told.contains(&answer.status), "{} {}", answer.status, answer.text());
            }
        })
        .await;
}

/// Deep nesting must not be walked down: a stack is finite.
#[tokio::test(flavor = "multi_thread")]
async fn deep_nesting_is_refused_in_every_format() {
    const DEPTH: usize = 100_000;
    let house = TestServer::open().await;
    let lists = [vec![b'['; DEPTH], vec![b']'; DEPTH]].concat();
    let mut maps = "{\"a\":".repeat(DEPTH);
    maps.push('1');
    maps.push_str(&"}".repeat(DEPTH));
    let mut blocks = String::new();
    for depth in 0..1_500 {
        writeln!(blocks, "{}a:", " ".repeat(depth)).unwrap();
    }
    let bodies = [lists, maps.into_bytes(), blocks.into_bytes()];
    let types = [
        (Method::POST, "application/json"),
        (Method::POST, "application/yaml"),
        (Method::PATCH, MERGE),
        (Method::PATCH, "application/json-patch+json"),
        (Method::PATCH, "application/strategic-merge-patch+json"),
        (Method::PATCH, "application/apply-patch+yaml"),
    ];
    make(&house.client, "deep", "").await;
    house
        .attack_during_workload("depth", async {
            for body in &bodies {
                for (method, kind) in &types {
                    let path = match *method {
                        Method::PATCH => format!("{CONFIG_MAPS}/deep?fieldManager=me"),
                        _ => CONFIG_MAPS.to_owned(),
                    };
                    let request = Request::new(method.clone(), path)
                        .header(http::header::CONTENT_TYPE, kind.parse().unwrap())
                        .body(body.clone());
                    let answer = house.client.send(request).await.unwrap();
                    let start = String::from_utf8_lossy(&body[..8]).into_owned();
                    assert!(answer.status.is_client_error(), "{kind} {start}: {}", answer.status);
                    assert!(answer.text().len() < 8 << 10, "{kind} {start}: a long answer");
                }
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn yaml_aliases_do_not_multiply_memory() {
    let house = TestServer::open().await;
    let mut laughs =
        String::from("metadata:\n  name: laughs\ndata:\n  a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (name, last) in ('b'..='j').zip('a'..) {
        let list = vec![format!("*{last}"); 9].join(",");
        writeln!(laughs, "  {name}: &{name} [{list}]").unwrap();
    }
    let blow = "x".repeat(100_000);
    let mut quadratic = format!("data:\n  a: &a {blow}\n");
    for step in 0..20_000 {
        writeln!(quadratic, "  a{step}: *a").unwrap();
    }
    let itself = "metadata: &a\n  annotations: *a\n".to_owned();
    house
        .attack_during_workload("aliases", async {
            for body in [laughs, quadratic, itself] {
                for (method, path, kind) in [
                    (Method::POST, CONFIG_MAPS.to_owned(), "application/yaml"),
                    (
                        Method::PATCH,
                        format!("{CONFIG_MAPS}/laughs?fieldManager=me"),
                        "application/apply-patch+yaml",
                    ),
                ] {
                    let request = Request::new(method, path)
                        .header(http::header::CONTENT_TYPE, kind.parse().unwrap())
                        .body(body.clone());
                    let answer = house.client.send(request).await.unwrap();
                    assert!(answer.status.is_client_error(), "{kind}: {}", answer.status);
                }
            }
        })
        .await;
}

/// A rule whose cost grows with the product of lists is rejected when it is defined, and one whose
/// cost cannot be estimated when it is evaluated.
#[tokio::test(flavor = "multi_thread")]
async fn expensive_cel_rules_are_stopped() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let house = TestServer::open().await;
    let definition = |limit: Option<u32>| {
        let mut list = json!({ "type": "array", "items": { "type": "integer" } });
        if let Some(limit) = limit {
            list["maxItems"] = json!(limit);
        }
        let rule = "self.all(a, self.all(b, self.all(c, a + b + c < 100)))";
        list["x-kubernetes-validations"] = json!([{ "rule": rule }]);
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "costs.example.com" },
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": { "plural": "costs", "kind": "Cost" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": { "type": "object", "properties": { "list": list } },
                } }],
            },
        })
    };
    house
        .attack_during_workload("costly rules", async {
            let unbounded = Request::post(DEFINITIONS, &definition(None));
            let answer = house.client.send(unbounded).await.unwrap();
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
            assert!(
                answer.text().contains("estimated rule cost exceeds budget"),
                "{}",
                answer.text()
            );
            // What is defined with a bound that keeps it cheap is asked, as often as anyone likes.
            done(
                &house
                    .client
                    .send(Request::post(DEFINITIONS, &definition(Some(20))))
                    .await
                    .unwrap(),
            );
            assert_expensive_policy_stops(&house.client).await;
            let kinds = "/apis/example.com/v1/namespaces/default/costs";
            let mut asking = JoinSet::new();
            for step in 0..50 {
                let list: Vec<u32> = (0..20).collect();
                let object = json!({
                    "apiVersion": "example.com/v1", "kind": "Cost",
                    "metadata": { "name": format!("c{step}") }, "list": list,
                });
                let (guest, request) = (house.client.clone(), Request::post(kinds, &object));
                asking.spawn(async move { guest.send(request).await.unwrap().status });
            }
            for status in asking.join_all().await {
                assert_eq!(status, StatusCode::CREATED);
            }
        })
        .await;
}

/// A policy whose cost cannot be estimated is aborted when it is evaluated, and rejects the
/// request.
async fn assert_expensive_policy_stops(guest: &Client) {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    let every = "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, \
                 a + b + c >= 0)))";
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
        "operations": ["UPDATE"] });
    let policy = json!({ "metadata": { "name": "costly" }, "spec": {
        "matchConstraints": { "resourceRules": [rule] },
        "validations": [{ "expression": every }],
    } });
    let binding = json!({ "metadata": { "name": "costly" }, "spec": {
        "policyName": "costly", "validationActions": ["Deny"],
    } });
    for (plural, object) in [("policies", policy), ("policybindings", binding)] {
        let path = format!("{GROUP}/validatingadmission{plural}");
        done(&guest.send(Request::post(path, &object)).await.unwrap());
    }
    let change = json!({ "metadata": { "labels": { "a": "b" } } });
    let request = Request::patch(format!("{SECRETS}/secret"), MERGE, &change);
    let answer = guest.send(request).await.unwrap();
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text());
    assert!(answer.text().contains("cost limit exceeded"), "{}", answer.text());
}

/// Silent connections, and headers that never end.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_block_clients() {
    const SILENT: usize = 10_000;
    const SLOW: usize = 300;
    let house = TestServer::open().await;
    let address = house.server.target().base.trim_start_matches("https://").to_owned();
    let stranger = house.anonymous_target();
    house
        .attack_during_workload("silence", async {
            let mut silent = Vec::with_capacity(SILENT);
            while silent.len() < SILENT {
                silent.push(TcpStream::connect(&address).await.unwrap());
            }
            let mut slow = Vec::with_capacity(SLOW);
            for _ in 0..SLOW {
                let mut connection = house.connect(&stranger).await;
                connection.send(b"GET /healthz HTTP/1.1\r\nX-").await.unwrap();
                slow.push(connection);
            }
            for _ in 0..3 {
                house.run_workload().await;
                for connection in &mut slow {
                    // One that was cut for being slow is as good.
                    let _: Result<(), _> = connection.send(b"a").await;
                }
            }
            (silent, slow)
        })
        .await;
}

/// Everything a web page could send across origins is rejected or discloses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn anonymous_requests_see_health_and_version_only() {
    let house = TestServer::open().await;
    let stranger =
        Client::new(&house.anonymous_target(), Protocol::Http2, house.clock.clone()).unwrap();
    for open in ["/healthz", "/livez", "/readyz", "/version"] {
        let answer = stranger.send(Request::get(open)).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{open}");
    }
    let closed = [
        "/",
        "/api",
        "/apis",
        "/openapi/v3",
        "/metrics",
        "/api/v1/namespaces",
        "/apis/apps/v1",
        "/readyz/../metrics",
        "/logs",
        "/debug/pprof/",
    ];
    for path in closed {
        let answer = stranger.send(Request::get(path)).await.unwrap();
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}: {}", answer.text());
        let said: Value = answer.json().unwrap();
        assert_eq!(said["reason"], "Forbidden", "{path}");
    }
    for token in ["", "x", "Bearer", "\u{7f}"] {
        let Ok(value) = format!("Bearer {token}").parse() else { continue };
        let request = Request::get("/api").header(http::header::AUTHORIZATION, value);
        let answer = stranger.send(request).await.unwrap();
        let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
        assert!(refused.contains(&answer.status), "{token:?}: {}", answer.status);
    }
}
