//! The published policies that protect dual pods: what an ordinary user may not set or change, and
//! what the controllers of any release may. The same steps are taken on a real server by `make
//! e2e`.
//!
//! Pods that carry what is protected are made in the name of controllers, as they are in earnest.

use std::path::Path;

use gantry_process::clock::Clock;
use gantry_testkit::http::{Client, Request, Response};
use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};

const PREFIX: &str = "dual-pods.llm-d.ai";

/// The four objects, one to a file.
const FILES: [&str; 4] = [
    "fma-bound-serverreqpod",
    "fma-immutable-fields",
    "bind-fma-bound-serverreqpod",
    "bind-fma-immutable-fields",
];

fn config() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config"))
}

/// A test of each scenario. Each has a server of its own, from a function that gives it and the way
/// to it.
macro_rules! scenarios {
    ($start:path) => {
        $crate::shared_policies::scenarios! {
            $start;
            as_34_the_requester_of_a_launcher_stays => as_34,
            as_35_the_dual_label_stays => as_35,
            as_36_the_dual_label_is_not_deleted => as_36,
            as_37_a_bound_requester_keeps_its_config => as_37,
            as_38_routing_metadata_stays => as_38,
            as_39_all_else_is_free => as_39,
            cs_31_controllers_are_known_by_their_suffix => cs_31,
            g_26_bookkeeping_is_neither_forged_nor_changed => g_26,
            g_26_a_bound_direct_requester_keeps_its_patch => g_26_direct,
            as_43_controllers_of_two_releases_may_write => as_43,
        }
    };
    ($start:path; $($name:ident => $run:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let clock = gantry_process::clock::Clock::system();
            let (_server, target) = $start(&clock).await;
            let http1 = gantry_testkit::http::Protocol::Http1;
            let client = gantry_testkit::http::Client::new(&target, http1, clock.clone()).unwrap();
            let place = $crate::shared_policies::Place::new(&client, &clock, "one").await;
            $crate::shared_policies::$run(&place).await;
        }
    )+};
}

pub(crate) use scenarios;

/// A server with the policies in effect and a namespace to try them in.
pub(crate) struct Place<'a> {
    client: &'a Client,
    clock: Clock,
    namespace: String,
}

impl<'a> Place<'a> {
    /// Applies the policies and waits until they are in effect: on a real server that takes a
    /// while.
    pub(crate) async fn new(client: &'a Client, clock: &Clock, namespace: &str) -> Self {
        let place = Self { client, clock: clock.clone(), namespace: namespace.to_owned() };
        let object = json!({ "metadata": { "name": namespace } });
        place.made(Request::post("/api/v1/namespaces", &object)).await;
        let account = json!({ "metadata": { "name": "default" } });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        // A server with controllers makes it too.
        place.send(Request::post(path, &account)).await;
        for file in FILES {
            let kind = if file.starts_with("bind-") { "policybindings" } else { "policies" };
            let group = "/apis/admissionregistration.k8s.io/v1";
            let path =
                format!("{group}/validatingadmission{kind}/{file}?fieldManager=test&force=true");
            let text = std::fs::read(
                config().join("validating-admission-policies").join(format!("{file}.yaml")),
            )
            .unwrap();
            let apply = HeaderValue::from_static("application/apply-patch+yaml");
            let request = Request::new(http::Method::PATCH, path)
                .body(text)
                .header(http::header::CONTENT_TYPE, apply);
            let answer = place.send(request).await;
            assert!(answer.status.is_success(), "{file}: {}", answer.text());
        }
        place.pod("probe", json!({}), json!({ "requester": "uid probe" })).await;
        place.pod("bound-probe", json!({ "dual": "x" }), config_annotation("a")).await;
        // Another value each time: one that went through is what is there, and no change.
        for value in 0.. {
            let value = json!(format!("other {value}"));
            let one = place.annotate("probe", "requester", value.clone()).await;
            let two = place.annotate("bound-probe", "inference-server-config", value).await;
            if one.status == 422 && two.status == 422 {
                break;
            }
            clock.sleep(std::time::Duration::from_millis(25)).await;
        }
        place
    }

    async fn send(&self, request: Request) -> Response {
        self.client.send(request).await.unwrap()
    }

    async fn made(&self, request: Request) {
        let answer = self.send(request).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    async fn pod(&self, name: &str, labels: Value, annotations: Value) {
        let pod = json!({
            "metadata": {
                "name": name, "labels": prefixed(&labels), "annotations": prefixed(&annotations),
            },
            "spec": { "containers": [{ "name": "c", "image": "registry.test/c:1" }] },
        });
        self.made(self.as_controller(Request::post(self.pods(), &pod))).await;
    }

    /// Tries to make a pod as an ordinary user; nothing is stored.
    async fn try_to_make(&self, metadata: &Value, user: Option<&str>) -> Response {
        let mut pod = json!({
            "metadata": metadata,
            "spec": { "containers": [{ "name": "c", "image": "registry.test/c:1" }] },
        });
        pod["metadata"]["name"] = json!("tried");
        let request = Request::post(format!("{}?dryRun=All", self.pods()), &pod);
        self.send(in_the_name_of(request, user)).await
    }

    fn as_controller(&self, request: Request) -> Request {
        in_the_name_of(request, Some(&self.controller()))
    }

    fn controller(&self) -> String {
        format!("system:serviceaccount:{}:maker-fma-controllers", self.namespace)
    }

    async fn change(&self, pod: &str, metadata: &Value, user: Option<&str>) -> Response {
        let path = format!("{}/{pod}", self.pods());
        let patch = json!({ "metadata": metadata });
        let request = Request::patch(path, "application/merge-patch+json", &patch);
        self.send(in_the_name_of(request, user)).await
    }

    async fn annotate(&self, pod: &str, key: &str, value: Value) -> Response {
        self.change(pod, &json!({ "annotations": { format!("{PREFIX}/{key}"): value } }), None)
            .await
    }

    async fn label(&self, pod: &str, key: &str, value: Value) -> Response {
        self.change(pod, &json!({ "labels": { format!("{PREFIX}/{key}"): value } }), None).await
    }
}

/// The request as somebody else, who may do everything that no policy forbids.
fn in_the_name_of(request: Request, user: Option<&str>) -> Request {
    let Some(user) = user else { return request };
    let user = HeaderValue::from_str(user).unwrap();
    let all = HeaderValue::from_static("system:masters");
    request
        .header(HeaderName::from_static("impersonate-user"), user)
        .header(HeaderName::from_static("impersonate-group"), all)
}

fn prefixed(map: &Value) -> Value {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(name, value)| (format!("{PREFIX}/{name}"), value.clone())).collect()
}

fn config_annotation(name: &str) -> Value {
    json!({ "inference-server-config": name })
}

fn denied(answer: &Response, policy: &str, words: &str) {
    let body = answer.json().unwrap();
    assert_eq!(answer.status, 422, "{body:#}");
    let message = body["message"].as_str().unwrap();
    let who = format!("ValidatingAdmissionPolicy '{policy}' with binding 'bind-{policy}'");
    assert!(message.contains(&who) && message.contains(words), "{message}");
}

fn allowed(answer: &Response) {
    assert_eq!(answer.status, 200, "{}", answer.text());
}

const IMMUTABLE: &str = "fma-immutable-fields";
const BOUND: &str = "fma-bound-serverreqpod";

/// An ordinary user may not change `requester` on a launcher.
pub(crate) async fn as_34(place: &Place<'_>) {
    let labels = json!({ "launcher-config-name": "lc", "dual": "req" });
    place.pod("as-34", labels, json!({ "requester": "uid req" })).await;
    let answer = place.annotate("as-34", "requester", json!("uid other")).await;
    denied(&answer, IMMUTABLE, "dual-pods.llm-d.ai/requester");
    let answer = place.annotate("as-34", "requester", Value::Null).await;
    denied(&answer, IMMUTABLE, "dual-pods.llm-d.ai/requester");
}

/// Nor change its `dual` label.
pub(crate) async fn as_35(place: &Place<'_>) {
    let labels = json!({ "launcher-config-name": "lc", "dual": "req" });
    place.pod("as-35", labels, json!({})).await;
    let answer = place.label("as-35", "dual", json!("other")).await;
    denied(&answer, IMMUTABLE, "dual-pods.llm-d.ai/dual");
}

/// Nor delete it.
pub(crate) async fn as_36(place: &Place<'_>) {
    let labels = json!({ "launcher-config-name": "lc", "dual": "req" });
    place.pod("as-36", labels, json!({})).await;
    let answer = place.label("as-36", "dual", Value::Null).await;
    denied(&answer, IMMUTABLE, "dual-pods.llm-d.ai/dual");
    // Absent and empty are the same.
    place.pod("as-36-none", json!({ "launcher-config-name": "lc" }), json!({})).await;
    allowed(&place.label("as-36-none", "dual", json!("")).await);
}

/// Nor change or delete `inference-server-config` on a bound requester.
pub(crate) async fn as_37(place: &Place<'_>) {
    place.pod("as-37", json!({ "dual": "launcher" }), config_annotation("isc")).await;
    for value in [json!("other"), Value::Null] {
        let answer = place.annotate("as-37", "inference-server-config", value).await;
        denied(&answer, BOUND, "inference-server-config");
    }
}

/// Nor change `isc-routing-metadata`.
pub(crate) async fn as_38(place: &Place<'_>) {
    let labels = json!({ "launcher-config-name": "lc", "dual": "req" });
    place.pod("as-38", labels, json!({ "isc-routing-metadata": "{}" })).await;
    let answer = place.annotate("as-38", "isc-routing-metadata", json!("{\"labels\":{}}")).await;
    denied(&answer, IMMUTABLE, "dual-pods.llm-d.ai/isc-routing-metadata");
}

/// Everything else is free: unrelated labels, unbound requesters, unrelated pods.
pub(crate) async fn as_39(place: &Place<'_>) {
    place.pod("as-39-bound", json!({ "dual": "launcher" }), config_annotation("isc")).await;
    allowed(&place.change("as-39-bound", &json!({ "labels": { "team": "a" } }), None).await);
    place.pod("as-39-unbound", json!({}), config_annotation("isc")).await;
    allowed(&place.annotate("as-39-unbound", "inference-server-config", json!("other")).await);
    allowed(&place.change("as-39-unbound", &json!({ "labels": { "team": "a" } }), None).await);
    place.pod("as-39-other", json!({}), json!({})).await;
    let metadata = json!({ "labels": { "a": "b" }, "annotations": { "c": "d" } });
    allowed(&place.change("as-39-other", &metadata, None).await);
    allowed(&place.annotate("as-39-other", "vllm-instance-signature", json!("0a")).await);
}

/// The controllers of two releases in two namespaces may write what is protected, users may not.
pub(crate) async fn as_43(one: &Place<'_>) {
    let two = Place::new(one.client, &one.clock, "two").await;
    for (place, release) in [one, &two].into_iter().zip(["one", "two"]) {
        let labels = json!({ "launcher-config-name": "lc", "dual": "req" });
        place.pod("as-43", labels, json!({ "requester": "uid req" })).await;
        let change = json!({
            "annotations": { format!("{PREFIX}/requester"): null },
            "labels": { format!("{PREFIX}/dual"): null },
        });
        let namespace = &place.namespace;
        let user = format!("system:serviceaccount:{namespace}:{release}-users");
        denied(&place.change("as-43", &change, Some(&user)).await, IMMUTABLE, "requester");
        let controller = format!("system:serviceaccount:{namespace}:{release}-fma-controllers");
        allowed(&place.change("as-43", &change, Some(&controller)).await);
        place.pod("as-43-bound", json!({ "dual": "x" }), config_annotation("isc")).await;
        let change =
            json!({ "annotations": { format!("{PREFIX}/inference-server-config"): "other" } });
        let answer = place.change("as-43-bound", &change, Some(&user)).await;
        denied(&answer, BOUND, "inference-server-config");
        allowed(&place.change("as-43-bound", &change, Some(&controller)).await);
    }
}

/// Annotations and labels that only the controllers write.
const ANNOTATIONS: [&str; 9] = [
    "requester",
    "status",
    "instance-id",
    "server-port",
    "vllm-config",
    "isc-routing-metadata",
    "nominal",
    "launcher-config-hash",
    "launcher-populator-template-hash",
];
const LABELS: [&str; 5] = ["dual", "launcher-config-name", "instance", "node-name", "sleeping"];

/// Every protected key: whether it is an annotation or a label, and its name.
fn protected() -> impl Iterator<Item = (&'static str, &'static str)> {
    let annotations = ANNOTATIONS.iter().map(|key| ("annotations", *key));
    annotations.chain(LABELS.iter().map(|key| ("labels", *key)))
}

fn entry(list: &str, key: &str, value: &Value) -> Value {
    json!({ list: { format!("{PREFIX}/{key}"): value } })
}

/// Nobody makes a pod that claims to be the controllers' work, and nobody changes one that is.
pub(crate) async fn g_26(place: &Place<'_>) {
    let all = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), json!("old"))).collect();
    place.pod("g-26", all(&LABELS), all(&ANNOTATIONS)).await;
    place.pod("g-26-none", json!({}), json!({})).await;
    let controller = place.controller();
    for (list, key) in protected() {
        let full = format!("{PREFIX}/{key}");
        let forged = place.try_to_make(&entry(list, key, &json!("x")), None).await;
        denied(&forged, IMMUTABLE, &format!("may not be set: {full}"));
        let real = place.try_to_make(&entry(list, key, &json!("x")), Some(&controller)).await;
        assert_eq!(real.status, 201, "{key}: {}", real.text());
        let empty = place.try_to_make(&entry(list, key, &json!("")), None).await;
        assert_eq!(empty.status, 201, "{key}: {}", empty.text());
        for value in [json!("new"), json!(""), Value::Null] {
            let answer = place.change("g-26", &entry(list, key, &value), None).await;
            denied(&answer, IMMUTABLE, &format!("may not be changed: {full}"));
        }
        let answer = place.change("g-26-none", &entry(list, key, &json!("new")), None).await;
        denied(&answer, IMMUTABLE, &format!("may not be changed: {full}"));
        allowed(&place.change("g-26-none", &entry(list, key, &json!("")), None).await);
        let answer =
            place.change("g-26", &entry(list, key, &json!("new")), Some(&controller)).await;
        allowed(&answer);
    }
    // What users and launchers write stays theirs.
    let launcher = format!("system:serviceaccount:{}:launcher", place.namespace);
    let free = [
        ("annotations", "inference-server-config"),
        ("annotations", "server-patch"),
        ("annotations", "admin-port"),
        ("annotations", "accelerators"),
        ("annotations", "vllm-instance-signature"),
        ("labels", "launcher-stuck"),
    ];
    for (list, key) in free {
        let made = place.try_to_make(&entry(list, key, &json!("x")), None).await;
        assert_eq!(made.status, 201, "{key}: {}", made.text());
        allowed(&place.change("g-26-none", &entry(list, key, &json!("x")), Some(&launcher)).await);
    }
}

/// A bound requester of the direct variant keeps its patch and does not become one of the other.
pub(crate) async fn g_26_direct(place: &Place<'_>) {
    let dual = || json!({ "dual": "provider" });
    let patch = || json!({ "server-patch": "old" });
    place.pod("direct-bound", dual(), patch()).await;
    place.pod("direct-free", json!({}), patch()).await;
    let both = json!({ "server-patch": "old", "inference-server-config": "isc" });
    place.pod("both-bound", dual(), both).await;
    let table = [
        ("another patch", "direct-bound", "server-patch", json!("new"), false),
        ("no patch", "direct-bound", "server-patch", Value::Null, false),
        ("an empty patch", "direct-bound", "server-patch", json!(""), false),
        ("the other variant", "direct-bound", "inference-server-config", json!("isc"), false),
        ("nothing is no variant", "direct-bound", "inference-server-config", json!(""), true),
        ("the same patch", "direct-bound", "server-patch", json!("old"), true),
        ("another port", "direct-bound", "admin-port", json!("9"), true),
        ("a patch that is ignored", "both-bound", "server-patch", json!("new"), true),
        ("its config is not", "both-bound", "inference-server-config", json!("new"), false),
        ("not bound", "direct-free", "server-patch", json!("new"), true),
        ("not bound, other variant", "direct-free", "inference-server-config", json!("i"), true),
    ];
    for (why, pod, key, value, free) in table {
        let answer = place.annotate(pod, key, value).await;
        match free {
            true => assert_eq!(answer.status, 200, "{why}: {}", answer.text()),
            false => denied(&answer, BOUND, key),
        }
    }
    let change = entry("annotations", "server-patch", &json!("new"));
    allowed(&place.change("direct-bound", &change, Some(&place.controller())).await);
}

/// The controllers are known by the end of their account's name, in any namespace and release.
pub(crate) async fn cs_31(place: &Place<'_>) {
    let table = [
        ("a release", "system:serviceaccount:a:fma-fma-controllers", true),
        ("another one elsewhere", "system:serviceaccount:b:two-fma-controllers", true),
        ("a release of no name", "system:serviceaccount:a:-fma-controllers", true),
        ("the end alone", "system:serviceaccount:a:fma-controllers", false),
        ("something after it", "system:serviceaccount:a:x-fma-controllers-2", false),
        ("something before it", "xsystem:serviceaccount:a:x-fma-controllers", false),
        ("too many parts", "system:serviceaccount:a:b:x-fma-controllers", false),
        ("no namespace", "system:serviceaccount::x-fma-controllers", false),
        ("a person", "x-fma-controllers", false),
        ("another case", "system:serviceaccount:a:x-FMA-controllers", false),
    ];
    place.pod("cs-31", json!({ "dual": "x" }), config_annotation("isc")).await;
    for (number, (why, user, exempt)) in table.into_iter().enumerate() {
        // Another value each time: one that went through is what is there, and no change.
        let value = json!(format!("value-{number}"));
        let changes = [
            (IMMUTABLE, entry("labels", "sleeping", &value)),
            (BOUND, entry("annotations", "inference-server-config", &value)),
        ];
        for (policy, change) in changes {
            let answer = place.change("cs-31", &change, Some(user)).await;
            match exempt {
                true => assert_eq!(answer.status, 200, "{why}: {}", answer.text()),
                false => denied(&answer, policy, "FMA controllers"),
            }
        }
    }
}
