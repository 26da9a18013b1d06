//! The operator's manifests on any server, and the operator as its own service account. The same
//! steps are taken on a real server by `make e2e`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::http::{Client, Credentials, Protocol, Request, Response, Target};
use serde_json::{Value, json};

/// The safety net for what must come: many times what a loaded machine needs.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// An API server with the operator's manifests in it.
pub(crate) struct Site {
    target: Target,
    pub(crate) admin: Client,
    pub(crate) folder: tempfile::TempDir,
    clock: Clock,
}

impl Site {
    /// Brings what `kubectl apply -f config/operator` brings.
    pub(crate) async fn new(target: &Target, clock: &Clock) -> Self {
        let admin = Client::new(target, Protocol::Http2, clock.clone()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let site = Self { target: target.clone(), admin, folder, clock: clock.clone() };
        for file in files(&manifests()) {
            site.apply_file(&file).await;
        }
        site
    }

    pub(crate) async fn apply_file(&self, file: &Path) {
        for object in served_objects(file) {
            self.apply(&object).await;
        }
    }

    /// Server-side apply, without a word about conflicts: there must be none.
    pub(crate) async fn apply(&self, object: &Value) -> Value {
        let path = format!("{}?fieldManager=install", path_of(object));
        let request = Request::patch(path, "application/apply-patch+yaml", object);
        done(&self.admin.send(request).await.unwrap())
    }

    pub(crate) async fn install_definitions(&self) {
        for kind in gantry_api::object::KINDS {
            self.apply(&kind.crd()).await;
        }
    }

    /// The operator's own credentials.
    pub(crate) async fn token(&self) -> String {
        let account = gantry::manifests::SERVICE_ACCOUNT;
        let path = format!("{}/serviceaccounts/{account}/token", namespace());
        let made = done(&self.admin.send(Request::post(path, &json!({}))).await.unwrap());
        made["status"]["token"].as_str().unwrap().to_owned()
    }

    /// A client with the operator's own credentials.
    pub(crate) async fn operator(&self) -> Client {
        let credentials = Credentials::Token(self.token().await);
        let target = Target { credentials, ..self.target.clone() };
        Client::new(&target, Protocol::Http2, self.clock.clone()).unwrap()
    }

    /// A kubeconfig with the operator's own credentials.
    pub(crate) async fn kubeconfig(&self) -> PathBuf {
        let Target { base, authority, .. } = &self.target;
        let trusted = self.folder.path().join("ca.crt");
        std::fs::write(&trusted, authority).unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{ "name": "it", "cluster": {
                "server": base, "certificate-authority": trusted,
            } }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "operator" } }],
            "users": [{ "name": "operator", "user": { "token": self.token().await } }],
        });
        let path = self.folder.path().join("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Asks until the answer is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let give_up = self.clock.moment() + CONDITION_TIMEOUT;
        loop {
            // What is not served yet is answered in plain text.
            let answer = self.get(path).await.json().unwrap_or(Value::Null);
            if wanted(&answer) {
                return answer;
            }
            assert!(self.clock.moment() < give_up, "{path}: last answer: {answer:#}");
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits a moment before something is asked again.
    pub(crate) async fn pause(&self) {
        self.clock.sleep(POLL_INTERVAL).await;
    }

    /// Makes an object, which must not be there.
    pub(crate) async fn create(&self, collection: &str, object: &Value) -> Value {
        done(&self.admin.send(Request::post(collection, object)).await.unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.admin.send(Request::get(path)).await.unwrap()
    }
}

/// Where the manifests are.
pub(crate) fn manifests() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/operator")).to_owned()
}

/// The files of a folder, in the order in which kubectl takes them.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

pub(crate) fn namespace() -> String {
    format!("/api/v1/namespaces/{}", gantry::manifests::NAMESPACE)
}

pub(crate) fn config_map(name: &str) -> String {
    format!("{}/configmaps/{name}", namespace())
}

/// The JSON of an answer that must be a success.
pub(crate) fn done(answer: &Response) -> Value {
    assert!(answer.status.is_success(), "{} {}", answer.status, answer.text());
    answer.json().unwrap()
}

/// The path of an object of the kinds that are applied here.
fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let place = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    let plural = match kind.to_lowercase() {
        kind if kind.ends_with('y') => format!("{}ies", kind.trim_end_matches('y')),
        kind => format!("{kind}s"),
    };
    format!("{root}/{version}{place}/{plural}/{}", text(&object["metadata"]["name"]))
}

/// Whether a client may do this, as the server sees it.
async fn is_allowed(client: &Client, attributes: &Value) -> bool {
    let review = json!({ "spec": { "resourceAttributes": attributes } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = done(&client.send(Request::post(path, &review)).await.unwrap());
    answer["status"]["allowed"].as_bool().unwrap()
}

fn about(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Value {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    json!({
        "verb": verb, "group": group, "resource": resource, "subresource": part,
        "namespace": namespace, "name": name,
    })
}

/// Waits until a client may do this.
async fn wait_until_allowed(site: &Site, client: &Client, attributes: &Value) {
    let allowed = site.clock.timeout(CONDITION_TIMEOUT, async {
        while !is_allowed(client, attributes).await {
            site.clock.sleep(POLL_INTERVAL).await;
        }
    });
    assert!(allowed.await.is_ok(), "{attributes}");
}

/// The operator may do what it does, and nothing else.
pub(crate) async fn rb_1(site: &Site) {
    let operator = site.operator().await;
    let (own, rbac, queue) =
        ("gantry-system", "rbac.authorization.k8s.io", "workload.codeflare.dev");
    let definitions = "customresourcedefinitions";
    let hooks = "mutatingwebhookconfigurations";
    let table = [
        // expected verb group resource namespace name
        (true, "get", "", "configmaps", own, "gantry-config"),
        (true, "get", "", "configmaps", own, "codeflare-operator-config"),
        (true, "create", "", "configmaps", own, ""),
        (false, "update", "", "configmaps", own, "gantry-config"),
        (true, "patch", "", "configmaps", own, "gantry-config-in-effect"),
        (false, "patch", "", "configmaps", own, "gantry-config"),
        (false, "patch", "", "configmaps", "default", "gantry-config-in-effect"),
        (true, "create", "authentication.k8s.io", "tokenreviews", "", ""),
        (true, "create", "authorization.k8s.io", "subjectaccessreviews", "", ""),
        (true, "create", "coordination.k8s.io", "leases", own, ""),
        (true, "update", "coordination.k8s.io", "leases", own, "gantry-operator"),
        (false, "update", "coordination.k8s.io", "leases", "kube-system", "kube-scheduler"),
        (true, "create", "", "events", "default", ""),
        (false, "delete", "", "events", "default", "x"),
        (
            true,
            "get",
            "apiextensions.k8s.io",
            definitions,
            "",
            "appwrappers.workload.codeflare.dev",
        ),
        (false, "get", "apiextensions.k8s.io", definitions, "", "widgets.example.org"),
        (false, "create", "apiextensions.k8s.io", definitions, "", ""),
        (true, "watch", queue, "appwrappers", "default", ""),
        (true, "update", queue, "appwrappers/status", "default", "x"),
        (true, "watch", "", "nodes", "", ""),
        (false, "patch", "", "nodes", "", "n"),
        (true, "create", "batch", "jobs", "default", ""),
        (true, "delete", "ray.io", "rayclusters", "default", "x"),
        (false, "patch", "batch", "jobs", "default", "x"),
        (false, "get", "", "secrets", "default", "x"),
        (false, "get", "", "secrets", own, "x"),
        (false, "list", "", "secrets", "", ""),
        (false, "create", "", "serviceaccounts", "default", ""),
        (false, "create", "", "serviceaccounts/token", own, "controller-manager"),
        (false, "create", rbac, "clusterroles", "", ""),
        (false, "create", rbac, "clusterrolebindings", "", ""),
        (false, "create", rbac, "roles", own, ""),
        (false, "create", rbac, "rolebindings", own, ""),
        (false, "bind", rbac, "clusterroles", "", "cluster-admin"),
        (false, "impersonate", "", "users", "", "x"),
        (false, "create", "apps", "daemonsets", "default", ""),
        (false, "update", "apps", "deployments", own, "gantry-operator"),
        (true, "patch", "admissionregistration.k8s.io", hooks, "", "gantry-queue"),
        (false, "patch", "admissionregistration.k8s.io", hooks, "", "others"),
        (false, "create", "", "secrets", "default", ""),
        (false, "update", "machine.openshift.io", "machinesets", "default", "x"),
    ];
    let (given, refused): (Vec<_>, Vec<_>) = table.into_iter().partition(|(given, ..)| *given);
    // On a real server roles take effect when they have been noticed, so what is given comes first.
    for (_, verb, group, resource, namespace, name) in given {
        wait_until_allowed(site, &operator, &about(verb, group, resource, namespace, name)).await;
    }
    for (_, verb, group, resource, namespace, name) in refused {
        let attributes = about(verb, group, resource, namespace, name);
        assert!(!is_allowed(&operator, &attributes).await, "{attributes}");
    }
    // Not only asked about: tried.
    let role = json!({ "metadata": { "name": "mine" }, "rules": [] });
    let tries = [
        (Request::post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role), 403),
        (Request::post(format!("{}/serviceaccounts", namespace()), &role), 403),
        (Request::get("/api/v1/namespaces/default/secrets"), 403),
        (Request::get("/api/v1/nodes"), 200),
    ];
    for (request, expected) in tries {
        let line = format!("{} {}", request.method, request.path_and_query);
        assert_eq!(operator.send(request).await.unwrap().status.as_u16(), expected, "{line}");
    }
}

/// A platform adds kinds by a label.
pub(crate) async fn rb_2(site: &Site) {
    let operator = site.operator().await;
    let widgets = about("create", "example.org", "widgets", "default", "");
    assert!(!is_allowed(&operator, &widgets).await);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {
            "name": "widgets-can-be-wrapped",
            "labels": { gantry_queue::subsystem::WRAPPED_LABEL: "true" },
        },
        "rules": [{ "apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["create"] }],
    });
    site.apply(&role).await;
    wait_until_allowed(site, &operator, &widgets).await;
}

/// Every manifest is accepted twice, and changes nothing the second time.
pub(crate) async fn rb_3(site: &Site) {
    // The role for a single namespace names one that users replace by theirs.
    let drivers = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "drivers"}});
    site.apply(&drivers).await;
    let mut objects = 0;
    for folder in [manifests().join("optional"), manifests()] {
        for file in files(&folder) {
            site.apply_file(&file).await;
            for object in served_objects(&file) {
                assert_unchanged(site, &object).await;
                objects += 1;
            }
        }
    }
    assert!(objects > 15, "{objects}");
    let path = "/apis/apps/v1/namespaces/gantry-system/deployments/gantry-operator";
    let pod = done(&site.get(path).await)["spec"]["template"]["spec"].clone();
    let container = &pod["containers"][0];
    let resources = json!({ "cpu": "1", "memory": "1Gi" });
    assert_eq!(container["resources"], json!({ "limits": resources, "requests": resources }));
    assert_eq!(pod["serviceAccountName"], "controller-manager");
    assert_eq!(pod["terminationGracePeriodSeconds"], 10);
    let probe = &container["livenessProbe"];
    assert_eq!((&probe["initialDelaySeconds"], &probe["periodSeconds"]), (&json!(15), &json!(20)));
}

/// The objects of a file without those of kinds that OpenShift alone has.
fn served_objects(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let documents = gantry_yaml::read(&text).unwrap();
    let objects = documents.iter().map(|it| it.to_json());
    objects.filter(|it| it["kind"] != "SecurityContextConstraints").collect()
}

/// Controllers write to status and to sums of roles; what was applied stays as it is.
async fn assert_unchanged(site: &Site, object: &Value) {
    let path = path_of(object);
    let before = done(&site.get(&path).await);
    let after = site.apply(object).await;
    for part in ["spec", "rules", "roleRef", "subjects"] {
        assert_eq!(after[part], before[part], "{path}");
    }
    assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"], "{path}");
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"], "{path}");
}
