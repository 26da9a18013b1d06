//! Which registries are trusted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use gantry_controller::transport::in_process;
use gantry_testkit::pki::Authority;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// What accepts connections with a certificate of this authority.
fn acceptor(authority: &Authority) -> TlsAcceptor {
    let issued = authority.server("registry", &["127.0.0.1"]).unwrap();
    let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(tls))
}

/// Serves a registry without images.
async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // A client that does not trust the certificate ends here.
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => request.push(byte),
                Err(_) => break,
            }
        }
        let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"none"}]}"#;
        let head = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json";
        let length = body.len();
        let answer =
            format!("{head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
        // The client may be gone.
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

/// MC-9: certificates in a ConfigMap of the namespace are trusted, as they are when a registry is
/// asked.
#[tokio::test]
async fn kms_45_certificates_of_a_config_map_are_trusted_as_they_are_now() {
    let [authority, other] = ["one", "two"].map(|it| Authority::new(it).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let data: Arc<Mutex<Option<Value>>> = Arc::default();
    let stored = Arc::clone(&data);
    let client = in_process(move |request: Request<Bytes>| {
        assert_eq!(request.uri().path(), "/api/v1/namespaces/drivers/configmaps/trusted");
        let (code, body) = match &*stored.lock().unwrap() {
            Some(data) => (StatusCode::OK, json!({"metadata": {"name": "trusted"}, "data": data})),
            None => (
                StatusCode::NOT_FOUND,
                json!({
                    "kind": "Status", "reason": "NotFound", "message": "none", "code": 404,
                }),
            ),
        };
        let body = Full::new(Bytes::from(body.to_string()));
        async move { Response::builder().status(code).body(body).unwrap() }
    });
    let mut responder =
        ImageResponder::new(ObjectReader::new(client), None, LiveSettings::default());
    responder.addresses = AddressPolicy::AllowLoopback;
    let clock = Clock::system();
    let query = |ca_config_map: Option<&str>| ImageQuery {
        namespace: "drivers".to_owned(),
        image: format!("{address}/vendor/driver:1"),
        secrets: Vec::new(),
        ca_config_map: ca_config_map.map(str::to_owned),
        insecure: false,
        insecure_skip_tls_verify: false,
        architectures: BTreeSet::new(),
        is_pushed: true,
    };
    let set = |new: Option<Value>| *data.lock().unwrap() = new;
    let check = async |query: ImageQuery| {
        let answer = responder.check(&query, &clock).await;
        answer.map_err(|error| error_chain(&error))
    };
    let checks = async {
        let unknown = check(query(None)).await.unwrap_err();
        assert!(unknown.contains("certificate"), "{unknown}");

        let trusted = || query(Some("trusted"));
        let missing = Ok(ImageState::CaBundleMissing("trusted".to_owned()));
        assert_eq!(check(trusted()).await, missing, "there is none");
        set(Some(json!({"other.crt": authority.own.certificate})));
        assert_eq!(check(trusted()).await, missing, "it has no key ca.crt");
        set(Some(json!({"ca.crt": other.own.certificate})));
        let unknown = check(trusted()).await.unwrap_err();
        assert!(unknown.contains("certificate"), "{unknown}");
        // The same responder, with what the ConfigMap has now.
        let both = format!("{}{}", other.own.certificate, authority.own.certificate);
        set(Some(json!({"ca.crt": both})));
        assert_eq!(check(trusted()).await, Ok(ImageState::Missing), "the registry has answered");
        set(Some(json!({"ca.crt": other.own.certificate})));
        check(trusted()).await.unwrap_err();
        set(Some(json!({"ca.crt": "no certificate"})));
        let invalid = check(trusted()).await.unwrap_err();
        assert!(invalid.contains("certificate"), "{invalid}");
    };
    tokio::select! {
        () = checks => {}
        () = serve(listener, acceptor(&authority)) => {}
    }
}
