//! Sends requests to a whole server: no request of a client causes an internal server error.
#![no_main]

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use gantry_apiserver::{AnonymousAccess, Api, Authenticator, Caller, Settings};
use gantry_fuzz::{kinds, tree};
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{TaskMetrics, Tasks};
use gantry_token::{Key, StaticTokens};
use gantry_store::{Durability, Options, Store};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

/// Internal errors that Kubernetes itself reports for wrong requests, and messages of this server
/// about what it does not serve.
const KNOWN: &[&str] = &[
    "resourceVersion should not be set on objects to be created",
    "strconv.ParseUint: parsing",
    "failed to create typed patch object",
    "failed to create typed live object",
    "failed to create manager for existing fields",
    "failed to decode managed fields",
    "failed to update managed fields",
    ".spec.replicas",
    "does not serve",
    "error decoding from json",
    "cannot be handled",
    "converting",
    "unable to parse",
    "map: ",
    "does not contain declared merge key",
    "delete patch type with no merge key defined",
];

struct TestRequest {
    method: Method,
    uri: String,
    content: &'static str,
    accept: &'static str,
    body: Vec<u8>,
}

const QUERIES: &[&str] = &[
    "", "", "", "", "dryRun=All", "fieldManager=m", "fieldManager=n&force=true", "limit=1",
    "fieldValidation=Strict", "labelSelector=a", "labelSelector=a+in+(b,c)", "continue=abc",
    "fieldSelector=metadata.name%3Da", "resourceVersion=0", "resourceVersion=1", "pretty=true",
    "resourceVersion=abc", "resourceVersion=1&resourceVersionMatch=Exact", "timeout=1s",
    "propagationPolicy=Foreground", "propagationPolicy=Orphan", "gracePeriodSeconds=0",
    "gracePeriodSeconds=-1", "orphanDependents=true", "fieldSelector=spec.nodeName%3Da",
];

const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+yaml",
];

const ACCEPTS: &[&str] = &[
    "application/json",
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
];

fn test_request(u: &mut Unstructured<'_>, kind: Option<&kinds::Kind>) -> Result<TestRequest> {
    let (prefix, plural, namespaced, api_version, name) = match kind {
        Some(kind) => {
            let root = if kind.group.is_empty() { "/api/" } else { "/apis/" };
            let prefix = format!("{root}{}", kind.api_version);
            (prefix, kind.plural.as_str(), kind.namespaced, kind.api_version.as_str(), &*kind.name)
        }
        None => ("/apis/example.com/v1".to_owned(), "widgets", true, "example.com/v1", "Widget"),
    };
    let method = u.choose(&[
        Method::POST, Method::POST, Method::PUT, Method::PATCH, Method::PATCH, Method::PATCH,
        Method::GET, Method::DELETE,
    ])?;
    let namespace = if namespaced { "/namespaces/default" } else { "" };
    let mut uri = format!("{prefix}{namespace}/{plural}");
    let collection = *method == Method::POST || u.ratio(1, 6)?;
    if !collection {
        uri += *u.choose(&["/a", "/a", "/a", "/b"])?;
    }
    if u.ratio(1, 5)? {
        if collection {
            uri += "/a";
        }
        uri += *u.choose(&[
            "/status", "/status", "/scale", "/eviction", "/binding", "/finalize", "/approval",
            "/resize", "/ephemeralcontainers", "/token", "/log",
        ])?;
    }
    uri = format!("{uri}?{}", u.choose(QUERIES)?);
    let schema = match kind {
        Some(kind) => &*kind.schema,
        None => kinds::custom(u)?,
    };
    let mut object = kinds::named(tree::shaped(u, schema)?, api_version, name);
    let mut content = *u.choose(&["application/json", "application/json", "application/yaml"])?;
    if *method == Method::PATCH {
        content = u.choose(PATCHES)?;
        match content {
            "application/json-patch+json" => {
                let names = ["/metadata/labels", "/spec", "/metadata/name", "/a", "", "/status"];
                let step = json!({
                    "op": *u.choose(&["add", "remove", "replace", "move", "copy", "test"])?,
                    "path": *u.choose(&names)?, "from": *u.choose(&names)?,
                    "value": tree::free(u)?,
                });
                object = json!([step]);
            }
            "application/strategic-merge-patch+json" => tree::direct(u, &mut object)?,
            _ => {}
        }
    }
    if uri.contains("/scale") && u.arbitrary()? {
        object = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "a" },
            "spec": { "replicas": tree::number(u)? },
        });
    }
    if u.ratio(1, 12)? {
        object = tree::free(u)?;
    }
    let mut body = object.to_string().into_bytes();
    if u.ratio(1, 20)? {
        content = "application/vnd.kubernetes.protobuf";
        body = u.arbitrary()?;
    }
    if u.ratio(1, 30)? {
        body.truncate(u.int_in_range(0..=body.len())?);
    }
    Ok(TestRequest { method: method.clone(), uri, content, accept: u.choose(ACCEPTS)?, body })
}

async fn send(api: &Api, sent: TestRequest) {
    let sent_body = String::from_utf8_lossy(&sent.body).into_owned();
    let request = Request::builder()
        .method(&sent.method)
        .uri(&sent.uri)
        .header("content-type", sent.content)
        .header("accept", sent.accept);
    let Ok(request) = request.body(Bytes::from(sent.body)) else { return };
    let response = api.handle(request, Some(Caller::server())).await;
    let status = response.status();
    let body = response.into_body().collect().await.expect("responses end").to_bytes();
    if status.is_server_error() {
        let text = String::from_utf8_lossy(&body);
        let known = KNOWN.iter().any(|it| text.contains(it));
        let line = format!("{} {} {}", sent.method, sent.uri, sent.content);
        assert!(known, "{line}\n{sent_body}\n{status} {text}");
    } else if status.is_success() && sent.accept == "application/json" {
        serde_json::from_slice::<Value>(&body).expect("responses are JSON");
    }
}

fn definition() -> TestRequest {
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {}, "scale": {
                    "specReplicasPath": ".spec.b", "statusReplicasPath": ".status.b",
                } },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                } } },
            }],
        },
    });
    TestRequest {
        method: Method::POST,
        uri: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
        content: "application/json",
        accept: "application/json",
        body: object.to_string().into_bytes(),
    }
}

fn test_requests(u: &mut Unstructured<'_>) -> Result<Vec<TestRequest>> {
    let kind = if u.ratio(4, 5)? { Some(kinds::builtin(u)?) } else { None };
    let mut requests = vec![definition()];
    for _ in 0..u.int_in_range(1..=8)? {
        requests.push(test_request(u, kind)?);
    }
    Ok(requests)
}

fuzz_target!(|data: &[u8]| {
    let requests = gantry_fuzz::or_skip!(test_requests(&mut Unstructured::new(data)));
    let runtime = Builder::new_current_thread().enable_time().build().expect("it can be made");
    runtime.block_on(async {
        let (store, _) = Store::open(&Options::new(Durability::Ephemeral)).expect("it is new");
        let metrics = Metrics::new(&BuildInfo::default());
        let task_metrics = TaskMetrics::register(&metrics).expect("once");
        let stop = CancellationToken::new();
        let jitter = fastrand::Rng::with_seed(1);
        let mut tasks = Tasks::new(Clock::system(), task_metrics, jitter, &stop);
        let key = Key::generate().expect("random numbers are available");
        let (issuer, tokens) = ("https://issuer".to_owned(), StaticTokens::default());
        let authenticator =
            Authenticator::new(key, issuer, tokens, AnonymousAccess::Allowed);
        let settings = Settings::new(authenticator, metrics);
        let api = Api::start(store, settings, &mut tasks).await.expect("it can start");
        for request in requests {
            send(&api, request).await;
        }
        stop.cancel();
        tasks.join().await.expect("no task is lost");
    });
});
