//! The identity of peers, and the negotiated protocol.

use gantry_testkit::pki::Authority;

use super::*;

#[tokio::test]
async fn client_certificates_are_verified() {
    let site = tls_server().await;
    let now = site.hand.clock().now();
    let groups = ["a", "b", "c"];
    let alice = site.pki.issue("alice", &groups, second(3600), now).unwrap();
    let foreign = Authority::new("gantry-ca").unwrap();
    let foreign = foreign.client("gantry-admin", &["system:masters"]).unwrap();
    let foreign = Identity { certificate: foreign.certificate, key: foreign.key };
    let server = site.pki.server().clone();
    // Made two hours ago for one.
    let stale = site.pki.issue("alice", &[], second(3600), now - second(7200)).unwrap();
    let table = [
        ("the owner", Some(site.pki.admin()), r#"gantry-admin ["system:masters"]"#),
        ("a user with groups", Some(&alice), r#"alice ["a", "b", "c"]"#),
        ("no certificate", None, "nobody"),
        ("another authority of the same name", Some(&foreign), "nobody unverified"),
        ("a certificate that ran out", Some(&stale), "nobody unverified"),
        ("a certificate for servers", Some(&server), "nobody unverified"),
    ];
    for (why, who, expected) in table {
        for (speak, version) in [(Speak::Http1, "HTTP/1.1"), (Speak::Http2, "HTTP/2.0")] {
            let answer = site.client(speak, who).send(Ask::get("/who")).await.unwrap();
            assert_eq!(answer.text(), format!("{expected} {version}"), "{why}");
        }
    }
}

#[tokio::test]
async fn a_certificate_can_expire_while_the_connection_is_open() {
    for (speak, version) in [(Speak::Http1, "HTTP/1.1"), (Speak::Http2, "HTTP/2.0")] {
        let site = test_server(true, |options| {
            options.timeouts.idle = second(100_000);
            options.timeouts.ping = second(100_000);
        })
        .await;
        let alice = site.pki.issue("alice", &[], second(3600), site.hand.clock().now()).unwrap();
        let client = site.client(speak, Some(&alice));
        let before = client.send(Ask::get("/who")).await.unwrap().text();
        assert_eq!(before, format!("alice [] {version}"));
        site.advance_clock(second(3602));
        let after = client.send(Ask::get("/who")).await.unwrap().text();
        assert_eq!(after, format!("nobody unverified {version}"));
        assert_eq!(site.metric("gantry_server_connections"), 1, "on the same connection");
        assert_eq!(site.connection_ends("closed"), 0);
    }
}

#[tokio::test]
async fn the_protocol_is_negotiated_and_http1_is_the_fallback() {
    let site = tls_server().await;
    let table = [
        (vec!["h2", "http/1.1"], Some("h2")),
        (vec!["http/1.1", "h2"], Some("h2")),
        (vec!["http/1.1"], Some("http/1.1")),
        (vec![], None),
    ];
    for (offered, expected) in table {
        for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13]] {
            let mut config = site.trust(versions);
            config.alpn_protocols = offered.iter().map(|name| (*name).into()).collect();
            let mut stream = site.connect_tls(config).await;
            let session = stream.get_ref().1;
            assert_eq!(session.alpn_protocol(), expected.map(str::as_bytes));
            assert_eq!(session.protocol_version(), Some(versions[0].version));
            if expected != Some("h2") {
                let ask = b"GET /who HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
                stream.write_all(ask).await.unwrap();
                let answer = String::from_utf8(read_all(&mut stream).await).unwrap();
                assert!(answer.ends_with("nobody HTTP/1.1"), "{answer}");
            }
        }
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections() {
    let mut site = tls_server().await;
    let certificate = ServerCertificate::new(site.pki.server()).unwrap();
    let door = TransportSecurity::Tls { certificate: certificate.clone(), clients: None };
    let options = Options::new("127.0.0.1:0".parse().unwrap(), door);
    let counters = Counters::register(&Metrics::new(&BuildInfo::default())).unwrap();
    let service = |_, _| async { Response::new(body::empty()) };
    site.address = serve(&mut site.tasks, "second", options, counters, service).await.unwrap();
    let shown = async |site: &TestServer| {
        let stream = site.connect_tls(site.trust(rustls::ALL_VERSIONS)).await;
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let before = shown(&site).await;
    let folder = private_folder();
    let other = Pki::open_or_create(folder.path(), &[], site.hand.clock().now()).unwrap();
    let mixed = Identity {
        certificate: other.server().certificate.clone(),
        key: site.pki.server().key.clone(),
    };
    assert!(certificate.replace(&mixed).is_err(), "not its key");
    assert_eq!(shown(&site).await, before, "the old one stays");
    certificate.replace(other.server()).unwrap();
    site.pki = other;
    assert_ne!(shown(&site).await, before);
}

#[tokio::test]
async fn plain_http_is_for_loopback_alone() {
    let mut site = plain_server().await;
    let mut socket = site.connect().await;
    let ask = b"GET /who HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    socket.write_all(ask).await.unwrap();
    let answer = String::from_utf8(read_all(&mut socket).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("nobody HTTP/1.1"), "{answer}");

    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:6443"] {
        let options = Options::new(address.parse().unwrap(), TransportSecurity::PlainOnLoopback);
        let counters = Counters::register(&Metrics::new(&BuildInfo::default())).unwrap();
        let service = |_, _| async { Response::new(body::empty()) };
        let error = serve(&mut site.tasks, "open", options, counters, service).await.unwrap_err();
        let expected = format!(
            "cannot serve without TLS on {address}: only a loopback address may do without; \
             listen on 127.0.0.1 or use TLS"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn a_head_response_has_the_headers_of_a_get_and_no_body() {
    let site = tls_server().await;
    for speak in [Speak::Http1, Speak::Http2] {
        let client = site.client(speak, None);
        let length = client.send(Ask::get("/who")).await.unwrap().body.len();
        for _ in 0..2 {
            let answer = client.send(Ask::new(Method::HEAD, "/who")).await.unwrap();
            assert_eq!(answer.headers["content-length"], length.to_string(), "{speak:?}");
            assert_eq!(answer.body, "", "{speak:?}");
        }
        let answer = client.send(Ask::new(Method::HEAD, "/stream")).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{speak:?}: not even a stream");
    }
}
