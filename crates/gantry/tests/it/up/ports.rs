//! A program in a simulated pod, reached through the server by real bytes.

#![expect(clippy::panic, reason = "a test that cannot go on has failed")]

use bytes::BytesMut;
use gantry_apiserver::streams::spdy::{Decoder, Encoder, Frame, Headers};
use http::header::{AUTHORIZATION, CONNECTION, HeaderName, HeaderValue, UPGRADE};

use super::*;

fn echo(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{
            "name": "main", "image": "gantry.dev/echo:1",
            "ports": [{"containerPort": 8080, "name": "web"}],
        }]},
    })
}

/// What the program says it was asked.
async fn ask(cluster: &Cluster, path: &str) -> Value {
    let bearer = HeaderValue::from_static("Bearer ");
    let request = Request::get(path).header(AUTHORIZATION, bearer);
    let answer = cluster.client.send(request).await.unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_reached_through_the_proxy_and_through_forwarded_ports() {
    let cluster = Cluster::ephemeral().await;
    cluster.post(PODS, &echo("web")).await;
    let is_ready = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    let pod = cluster.wait_until(&format!("{PODS}/web"), "was ready", is_ready).await;

    // The proxy of the pod.
    for id in ["web", "web:8080", "http:web:web"] {
        let path = format!("{PODS}/{id}/proxy/hello?a=b");
        let said = ask(&cluster, &path).await;
        assert_eq!((&said["pod"], &said["path"]), (&json!("web"), &json!("/hello?a=b")), "{id}");
        assert_eq!(said["headers"]["authorization"], Value::Null);
        assert_eq!(said["headers"]["x-forwarded-for"], "127.0.0.1");
    }
    let refused = cluster.get(&format!("{PODS}/web:8081/proxy/")).await;
    let address = pod["status"]["podIP"].as_str().unwrap();
    let words = format!(
        "error trying to reach service: dial tcp {address}:8081: connect: connection refused"
    );
    assert_eq!((&refused["code"], &refused["message"]), (&json!(503), &json!(words)));

    // The proxy of a service.
    let services = "/api/v1/namespaces/default/services";
    let ports = json!([{"port": 80, "targetPort": "web"}]);
    let spec = json!({"selector": {"app": "web"}, "ports": ports});
    let service = json!({"metadata": {"name": "site"}, "spec": spec});
    cluster.post(services, &service).await;
    let through = format!("{services}/site:80/proxy/x");
    let said = cluster.wait_until(&through, "led to the pod", |it| it["pod"] == "web").await;
    assert_eq!(said["path"], "/x");

    forward(&cluster, "web").await;
    cluster.stop(Signal::TERM).await;
}

/// Forwards a port and asks the program over it.
async fn forward(cluster: &Cluster, name: &str) {
    let protocol = HeaderName::from_static("x-stream-protocol-version");
    let request = Request::new(http::Method::POST, format!("{PODS}/{name}/portforward"))
        .header(CONNECTION, HeaderValue::from_static("Upgrade"))
        .header(UPGRADE, HeaderValue::from_static("SPDY/3.1"))
        .header(protocol, HeaderValue::from_static("portforward.k8s.io"));
    let mut session = cluster.client.upgrade(request).await.unwrap();
    assert_eq!(session.status, 101);
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    for (stream, kind) in [(1, "error"), (3, "data")] {
        let list = [("streamtype", kind), ("port", "8080"), ("requestid", "0")];
        let list = list.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers = Headers(list.to_vec());
        let begin = Frame::SynStream { stream, headers, fin: false };
        session.write(&encoder.encode(&begin)).await.unwrap();
    }
    let request = "GET /over-there HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
    let data = Frame::Data { stream: 3, bytes: request.into(), fin: false };
    session.write(&encoder.encode(&data)).await.unwrap();
    let (mut input, mut said) = (BytesMut::new(), Vec::new());
    'reading: loop {
        while let Some(frame) = decoder.next(&mut input).unwrap() {
            match frame {
                Frame::Data { stream: 3, bytes, fin } => {
                    said.extend_from_slice(&bytes);
                    if fin {
                        break 'reading;
                    }
                }
                Frame::SynReply { .. } | Frame::WindowUpdate { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        input.extend_from_slice(&session.read(1, CONDITION_TIMEOUT).await.unwrap());
    }
    let said = String::from_utf8(said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
    assert!(said.contains("\"path\":\"/over-there\""), "{said}");
}
