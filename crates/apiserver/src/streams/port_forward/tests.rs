use http::HeaderName;
use http_body_util::BodyExt as _;

use super::*;

fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
}

#[tokio::test]
async fn every_client_transport_is_negotiated() {
    let socket = [
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
    ];
    let with =
        |protocol: &'static str| [&socket[..], &[("sec-websocket-protocol", protocol)]].concat();
    let old = [("upgrade", "SPDY/3.1"), ("connection", "Upgrade")];
    let offers = |protocol| [&old[..], &[("x-stream-protocol-version", protocol)]].concat();
    let ports = |ports: &[u16]| Ok(ForwardTransport::WebSocketChannels(ports.to_vec()));
    let common = "unable to upgrade: unable to negotiate protocol: client supports [x.k8s.io], \
                  server accepts [portforward.k8s.io]";
    let table = [
        (offers("portforward.k8s.io"), "", Ok(ForwardTransport::Spdy)),
        (offers("x.k8s.io, portforward.k8s.io"), "", Ok(ForwardTransport::Spdy)),
        (offers("x.k8s.io"), "", Err((403, common))),
        (old.to_vec(), "", Err((400, "unable to upgrade: X-Stream-Protocol-Version is required"))),
        (with("SPDY/3.1+portforward.k8s.io"), "", Ok(ForwardTransport::WebSocketTunnel)),
        (
            with("v4.channel.k8s.io,SPDY/3.1+portforward.k8s.io"),
            "ports=1",
            Ok(ForwardTransport::WebSocketTunnel),
        ),
        (with("SPDY/3.1+x.k8s.io"), "", Err((403, common))),
        (with("v4.channel.k8s.io"), "ports=80,443&ports=1", ports(&[80, 443, 1])),
        (socket.to_vec(), "ports=80", ports(&[80])),
        (with("v4.base64.channel.k8s.io"), "ports=80", Err((403, ""))),
        (with("v4.channel.k8s.io"), "ports=0", Err((400, "port \"0\" must be > 0"))),
        (with("v4.channel.k8s.io"), "", Err((400, "query parameter \"port\" is required"))),
    ];
    for (list, query, expected) in table {
        let query = Query::read(Some(query));
        let read = ForwardTransport::read(&headers(&list), &query, Verb::Get).unwrap();
        match (read, expected) {
            (Ok((form, response)), Ok(expected)) => {
                assert_eq!((form, response.status().as_u16()), (expected, 101), "{list:?}");
            }
            (Err(response), Err((code, words))) => {
                assert_eq!(response.status(), code, "{list:?}");
                let body = response.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(body, words, "{list:?}");
            }
            (read, expected) => panic!("{list:?}: {read:?} is not {expected:?}"),
        }
    }
    let none =
        ForwardTransport::read(&headers(&[("upgrade", "SPDY/3.1")]), &Query::read(None), Verb::Get);
    assert_eq!(none.unwrap_err().message, "Upgrade request required");
    let many: Vec<String> = (1..=65).map(|it| it.to_string()).collect();
    let many = format!("ports={}", many.join(","));
    let words = super::ports(&Query::read(Some(&many))).unwrap_err();
    assert!(words.contains("name up to 64"), "{words}");
}
