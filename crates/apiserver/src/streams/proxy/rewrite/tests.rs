use super::*;

const PREFIX: &str = "/api/v1/namespaces/x/pods/p:80/proxy";

fn proxied(rest: &str) -> ProxyPath {
    let uri: Uri = format!("{PREFIX}{rest}").parse().unwrap();
    let path = decode(uri.path(), false);
    let part = path.trim_end_matches('/').split_once("p:80/").unwrap().1.to_owned();
    ProxyPath::of(&uri, &part)
}

#[test]
fn paths_are_forwarded_unchanged() {
    let table = [
        ("", "", None),
        ("/", "/", None),
        ("/a/b", "/a/b", None),
        ("/a/b/", "/a/b/", None),
        ("/a%20b%3Fc?d=%20&e", "/a b?c", Some("d=%20&e")),
        ("/a/../../b", "/b", None),
    ];
    for (rest, path, query) in table {
        let read = proxied(rest);
        assert_eq!((read.path.as_str(), read.query.as_deref()), (path, query), "{rest}");
    }
    assert_eq!(proxied("/a%20b/").prefix, PREFIX);
    assert_eq!(proxied("/a%20b/").forwarded(), format!("{PREFIX}/a%20b/"));
    assert_eq!(proxied("?a=b").with_slash(), format!("{PREFIX}/?a=b"));
    assert_eq!(escape("/a b?c/ü~"), "/a%20b%3Fc/%C3%BC~");
}

#[test]
fn hop_by_hop_and_credential_headers_are_removed() {
    let list = [
        ("authorization", "Bearer secret"),
        ("connection", "keep-alive, X-Own"),
        ("keep-alive", "5"),
        ("x-own", "1"),
        ("te", "trailers"),
        ("upgrade", "websocket"),
        ("proxy-authorization", "secret"),
        ("impersonate-user", "bob"),
        ("impersonate-extra-a", "b"),
        ("x-remote-user", "admin"),
        ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0, chat"),
        ("accept", "text/html"),
        ("cookie", "a=b"),
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    for (kept, expected) in [
        (KeptHeaders::Nothing, vec!["accept", "cookie", "sec-websocket-protocol"]),
        (
            KeptHeaders::Upgrade,
            vec!["accept", "connection", "cookie", "sec-websocket-protocol", "upgrade"],
        ),
    ] {
        let mut headers = headers.clone();
        remove_hop_by_hop(&mut headers, kept);
        remove_credentials(&mut headers);
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "chat");
        assert!(headers.values().all(|it| !it.to_str().unwrap().contains("c2Vj")));
    }
}

#[test]
fn redirects_of_a_backend_lead_through_the_proxy() {
    let through = |path: &str| format!("{PREFIX}{path}");
    let table = [
        ("/login", through("/login")),
        ("/login/?a=b#c", through("/login/?a=b#c")),
        ("http://127.16.0.2:80/a/", through("/a/")),
        ("//127.16.0.2:80/a", through("/a")),
        ("http://gantry:6443/a", format!("http://gantry:6443{}", through("/a"))),
        ("http://example.com/a", "http://example.com/a".to_owned()),
        ("login", "login".to_owned()),
        ("../login", "../login".to_owned()),
        ("http://127.16.0.2:80", "http://127.16.0.2:80".to_owned()),
        (&through("/again"), through("/again")),
    ];
    for (location, expected) in table {
        let found = relocate(location, PREFIX, "127.16.0.2:80", "gantry:6443");
        assert_eq!(found, expected, "{location}");
    }
}
