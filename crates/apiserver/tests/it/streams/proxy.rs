//! Proxied requests to programs in pods.

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream,
};

use super::client::{self, HttpResponse};
use super::{PODS, TestListener};

/// A small web server for one request.
pub(super) async fn backend(stream: DuplexStream) {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if line.trim_end().is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line.replace('\r', ""));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let more = match path.as_str() {
        "/redirect" => "location: /login?next=1\r\naccess-control-allow-origin: *\r\n",
        "/ws" => {
            let answer = "HTTP/1.1 101 Switching Protocols\r\nupgrade: test\r\nconnection: Upgrade\r\n\
                          x-own: 1\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
            let mut word = [0; 5];
            stream.read_exact(&mut word).await.unwrap();
            stream.write_all(&word).await.unwrap();
            return;
        }
        "/no" => "x-own: 1\r\n",
        _ => "content-type: text/x-head\r\n",
    };
    let (code, text) = match path.as_str() {
        "/redirect" => ("302 Found", String::new()),
        "/no" => ("403 Forbidden", "no".to_owned()),
        "/big" => ("200 OK", "x".repeat(300_000)),
        "/cut" => ("200 OK", "x".to_owned()),
        _ => ("201 Created", format!("{head}\n{}", String::from_utf8(body).unwrap())),
    };
    let length = if path == "/cut" { 1000 } else { text.len() };
    let answer = format!(
        "HTTP/1.1 {code}\r\n{more}keep-alive: 5\r\nconnection: keep-alive\r\ncontent-length: \
         {length}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
    if !head.starts_with("HEAD ") {
        stream.write_all(text.as_bytes()).await.unwrap();
    }
}

async fn send_request(
    listening: &TestListener,
    method: &str,
    path: &str,
    body: &str,
) -> HttpResponse {
    let headers = [
        ("authorization", "Bearer secret"),
        ("accept", "text/html"),
        ("x-forwarded-for", "198.51.100.1"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
    ];
    client::send(listening.address, method, &format!("{PODS}/{path}"), &headers, body).await
}

#[tokio::test]
async fn requests_are_forwarded_without_credentials() {
    let listening = TestListener::start().await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let body = if method == "POST" { "a body" } else { "" };
        let reply = send_request(&listening, method, "p:80/proxy/a%20b/c/?d=%2F&e", body).await;
        assert_eq!(reply.status, 201, "{method}: {}", reply.body);
        assert_eq!(reply.header("content-type"), Some("text/x-head"));
        assert_eq!(reply.header("keep-alive"), None);
        let (head, sent) = reply.body.split_once("\n\n").unwrap();
        assert_eq!(sent, body);
        let mut lines = head.lines();
        assert_eq!(lines.next(), Some(format!("{method} /a%20b/c/?d=%2F&e HTTP/1.1").as_str()));
        let mut lines: Vec<&str> = lines.collect();
        lines.retain(|it| !it.starts_with("content-length"));
        lines.sort_unstable();
        let expected = [
            "accept: text/html",
            "host: test",
            "x-forwarded-for: 198.51.100.1, 192.0.2.7",
            "x-forwarded-uri: /api/v1/namespaces/default/pods/p:80/proxy/a%20b/c/",
        ];
        assert_eq!(lines, expected, "{method}");
    }
    let reply = send_request(&listening, "HEAD", "http:p:80/proxy/x", "").await;
    assert_eq!((reply.status, reply.body.as_str()), (201, ""));
}

#[tokio::test]
async fn responses_are_unchanged_except_for_redirects() {
    let listening = TestListener::start().await;
    let reply = send_request(&listening, "GET", "p:80/proxy/redirect", "").await;
    let login = format!("{PODS}/p:80/proxy/login?next=1");
    assert_eq!((reply.status, reply.header("location")), (302, Some(login.as_str())));
    assert_eq!(reply.header("access-control-allow-origin"), None);
    let reply = send_request(&listening, "GET", "p:80/proxy?a=b", "").await;
    let slash = format!("{PODS}/p:80/proxy/?a=b");
    assert_eq!((reply.status, reply.header("location")), (301, Some(slash.as_str())));
    let reply = send_request(&listening, "GET", "p:80/proxy/big", "").await;
    assert_eq!((reply.status, reply.body.len()), (200, 300_000));
    // A program that sends less than its content length: the client can detect it.
    let mut stream = tokio::net::TcpStream::connect(listening.address).await.unwrap();
    let request = format!("GET {PODS}/p:80/proxy/cut HTTP/1.1\r\nhost: test\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // However the connection ends, it ends before the promised length.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.len() < 1000, "{answer:?}");
}

#[tokio::test]
async fn unreachable_backends_have_kubernetes_messages() {
    let listening = TestListener::start().await;
    let refused =
        "error trying to reach service: dial tcp 127.16.0.2:81: connect: connection refused";
    let closed = "error trying to reach service: dial tcp: lookup tcp/web: unknown port";
    let table = [
        ("p:81/proxy/", 503, refused),
        ("p:web/proxy/", 503, closed),
        ("x/proxy/", 404, "pods \"x\" not found"),
        ("free:80/proxy/", 400, "address not allowed"),
        ("ftp:p:80/proxy/", 400, "invalid pod request \"ftp:p:80\""),
    ];
    for (path, code, words) in table {
        let reply = send_request(&listening, "GET", path, "").await;
        let status: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!((reply.status, status["message"].as_str()), (code, Some(words)), "{path}");
    }
    let reply = send_request(&listening, "GET", "https:p:443/proxy/", "").await;
    assert_eq!(reply.status, 400);
    let reply =
        client::send_request(listening.address, "GET", "/api/v1/nodes/n/proxy/pods", &[]).await;
    assert_eq!(reply.status, 500);
    assert!(reply.body.contains("the proxy of nodes is not served"), "{}", reply.body);
}

#[tokio::test]
async fn upgraded_connections_are_joined() {
    let listening = TestListener::start().await;
    let headers = [("connection", "Upgrade"), ("upgrade", "test")];
    let path = format!("{PODS}/p:80/proxy/ws");
    let (mut stream, reply) = client::begin(listening.address, "GET", &path, &headers).await;
    assert_eq!((reply.status, reply.header("upgrade")), (101, Some("test")));
    assert_eq!(reply.header("x-own"), Some("1"));
    stream.write_all(b"hello").await.unwrap();
    let mut word = [0; 5];
    stream.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"hello");
    assert_eq!(stream.read(&mut word).await.unwrap(), 0, "the program has left");
    // A program that refuses the upgrade.
    let path = format!("{PODS}/p:80/proxy/no");
    let reply = client::send_request(listening.address, "GET", &path, &headers).await;
    assert_eq!((reply.status, reply.body.as_str()), (403, "no"));
    let path = format!("{PODS}/p:80/proxy/else");
    let reply = client::send_request(listening.address, "GET", &path, &headers).await;
    assert_eq!(reply.status, 500);
    assert!(reply.body.contains("invalid upgrade response: status code 201"), "{}", reply.body);
    let path = format!("{PODS}/p:81/proxy/ws");
    let reply = client::send_request(listening.address, "GET", &path, &headers).await;
    assert!(reply.body.contains("error dialing backend: dial tcp"), "{}", reply.body);
}

#[tokio::test]
async fn a_service_proxies_to_a_ready_pod() {
    let listening = TestListener::start().await;
    let kind = "application/merge-patch+json";
    let address =
        json!({ "status": { "podIP": "127.16.0.2", "podIPs": [{ "ip": "127.16.0.2" }] } });
    listening.server.send_request("PATCH", &format!("{PODS}/p/status"), kind, &address).await;
    let services = "/api/v1/namespaces/default/services";
    for name in ["s", "idle", "astray"] {
        let ports = json!([{ "name": "web", "port": 8000 }, { "name": "off", "port": 81 }]);
        listening
            .create(
                services,
                &json!({
                    "metadata": { "name": name }, "spec": { "ports": ports },
                }),
            )
            .await;
    }
    let slice = |service: &str, address: &str, ready: bool| {
        json!({
            "metadata": { "name": service, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4",
            "ports": [{ "name": "web", "port": 80 }],
            "endpoints": [{
                "addresses": [address], "conditions": { "ready": ready },
                "targetRef": { "kind": "Pod", "namespace": "default", "name": "p" },
            }],
        })
    };
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    listening.create(slices, &slice("s", "127.16.0.2", true)).await;
    listening.create(slices, &slice("idle", "127.16.0.2", false)).await;
    // An endpoint with an address that is not the pod's.
    listening.create(slices, &slice("astray", "127.16.0.9", true)).await;
    let none = |id: &str| format!("no endpoints available for service \"{id}\"");
    let table = [
        ("s:8000", 201, None),
        ("s:web", 201, None),
        ("http:s:web", 201, None),
        ("s", 503, Some(none("s"))),
        ("s:off", 503, Some(none("s:off"))),
        ("s:9", 503, Some("no service port 9 found for service \"s\"".to_owned())),
        ("idle:web", 503, Some(none("idle:web"))),
        ("astray:web", 503, Some(none("astray:web"))),
        ("x:80", 404, Some("services \"x\" not found".to_owned())),
        ("x", 404, Some("endpoints \"x\" not found".to_owned())),
        ("a:b:c:d", 400, Some("invalid service request \"a:b:c:d\"".to_owned())),
    ];
    for (id, code, words) in table {
        let path = format!("{services}/{id}/proxy/");
        let reply = client::send_request(listening.address, "GET", &path, &[]).await;
        assert_eq!(reply.status, code, "{id}: {}", reply.body);
        if let Some(words) = words {
            let status: Value = serde_json::from_str(&reply.body).unwrap();
            assert_eq!(status["message"], words, "{id}");
        }
    }
}
