//! AppWrappers of users who may not create everything, with an operator that checks access. The
//! same steps are run on a real server by `make e2e`.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_queue::app_wrapper::AUTHOR_ANNOTATION;
use gantry_testkit::http::{Request, Response};
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::shared_operator::{Site, done, manifests};
use crate::shared_process::Operator;

const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gantry-queue";

/// An AppWrapper around a Job.
pub(crate) fn wrapper(name: &str) -> Value {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "registry.test/c" }],
        } } },
    });
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": { "name": name },
        "spec": { "resources": { "GenericItems": [{ "generictemplate": job }] } },
    })
}

/// Returns the request as another user.
pub(crate) fn by(user: &str, request: Request) -> Request {
    let name = HeaderName::from_static("impersonate-user");
    request.header(name, HeaderValue::from_str(user).unwrap())
}

/// Returns the objects that allow users to do this in the namespace `default`.
pub(crate) fn grant(name: &str, users: &[&str], group: &str, resource: &str) -> [Value; 2] {
    let rbac = "rbac.authorization.k8s.io";
    let metadata = json!({ "name": name, "namespace": "default" });
    let subject = |user: &&str| json!({ "apiGroup": rbac, "kind": "User", "name": user });
    [
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{ "apiGroups": [group], "resources": [resource],
                "verbs": ["create", "get", "list", "patch", "update"] }],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": name },
            "subjects": users.iter().map(subject).collect::<Vec<_>>(),
        }),
    ]
}

/// The configuration of an operator with its webhooks at this port.
pub(crate) fn config(port: u16) -> String {
    format!(
        "health: {{bindAddress: '0'}}\nmetrics: {{bindAddress: '0'}}\nmcad: {{checkUserAccess: true}}\n\
         devices: {{webhook: {{bindAddress: '127.0.0.1:{port}', url: 'https://127.0.0.1:{port}'}}}}\n"
    )
}

pub(crate) fn message(wrapper: &Value) -> String {
    wrapper["status"]["message"].as_str().unwrap_or_default().to_owned()
}

fn condition<'a>(wrapper: &'a Value, kind: &str) -> Option<&'a Value> {
    wrapper["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == kind)
}

fn is(state: &'static str) -> impl Fn(&Value) -> bool {
    move |it| it["status"]["state"] == state
}

async fn create(site: &Site, user: &str, object: &Value) -> Response {
    site.admin.send(by(user, Request::post(WRAPPERS, object))).await.unwrap()
}

/// Creates what must exist before the operator starts: its permissions, the users', and an
/// AppWrapper from before.
pub(crate) async fn prepare(site: &Site) {
    site.apply_file(&manifests().join("45-check-user-access.yaml")).await;
    let all = ["alice", "bob", "carol"];
    for object in grant("wraps", &all, "workload.codeflare.dev", "appwrappers") {
        site.apply(&object).await;
    }
    for object in grant("runs", &["alice"], "batch", "jobs") {
        site.apply(&object).await;
    }
    // Carol may create bindings, and the operator may bind every role.
    for object in grant("binds", &["carol"], "rbac.authorization.k8s.io", "rolebindings") {
        site.apply(&object).await;
    }
    let rbac = "rbac.authorization.k8s.io";
    site.apply(&json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole",
        "metadata": { "name": "wrapped-bindings",
            "labels": { "gantry.dev/aggregate-to-wrapped-kinds": "true" } },
        "rules": [
            { "apiGroups": [rbac], "resources": ["rolebindings"],
                "verbs": ["create", "delete", "get", "list", "watch"] },
            { "apiGroups": [rbac], "resources": ["clusterroles"], "verbs": ["bind"] },
        ],
    }))
    .await;
    // It names an administrator as author, which is not verified.
    let mut early = wrapper("early");
    let forged = json!({ "username": "admin", "groups": ["system:masters"] }).to_string();
    early["metadata"]["annotations"] = json!({ AUTHOR_ANNOTATION: forged });
    site.create(WRAPPERS, &early).await;
}

/// DS-9, beside an operator with the [configuration](config) for it. `gantry` is run with these
/// arguments.
pub(crate) async fn ds_9(
    site: &Site,
    clock: &Clock,
    operator: &mut Operator,
    gantry: impl Fn(&[&str]) -> String,
) {
    let told = |it: &Value| it["webhooks"].as_array().is_some_and(|all| !all.is_empty());
    let found = site.until(CONFIGURATION, told).await;
    // A server takes a moment until it calls a new webhook, and authors written in that moment are
    // not trusted.
    let made = found["metadata"]["creationTimestamp"].as_str().unwrap();
    let believed = made.parse::<Timestamp>().unwrap() + Duration::from_secs(5);
    while clock.now() < believed + Duration::from_secs(1) {
        clock.sleep(Duration::from_millis(100)).await;
    }
    denied_and_allowed(site).await;
    attack_a_binding_that_the_author_could_not_create(site).await;
    recorded(site).await;

    // An AppWrapper from before has no author, whatever it says.
    let path = format!("{WRAPPERS}/early");
    let waits = |it: &Value| condition(it, "Backoff").is_some();
    let early = site.until(&path, waits).await;
    assert_eq!(condition(&early, "Backoff").unwrap()["reason"], "AuthorNotRecorded", "{early:#}");
    assert!(
        message(&early).contains("created before") && message(&early).contains("create it again")
    );
    assert_eq!(early["status"]["canrun"], Value::Null, "{early:#}");
    let page = gantry(&["queue", "-o", "wide"]);
    assert!(page.contains("Access: it was created before"), "{page}");
    let page = gantry(&["explain", "aw/early"]);
    assert!(page.contains("when authors began to be recorded"), "{page}");
    let page = gantry(&["explain", "aw/refused"]);
    assert!(page.contains("user \"bob\" cannot create resource \"jobs\""), "{page}");

    // A granted permission applies to recreated objects, however soon that is.
    for object in grant("runs", &["alice", "bob"], "batch", "jobs") {
        site.apply(&object).await;
    }
    done(&create(site, "bob", &wrapper("granted")).await);
    site.until(&format!("{WRAPPERS}/granted"), is("Running")).await;
    done(&site.get(&format!("{JOBS}/granted")).await);
    assert!(operator.child.try_wait().unwrap().is_none(), "{}", operator.said());
}

async fn denied_and_allowed(site: &Site) {
    let mut refused = wrapper("refused");
    let forged = json!({ "username": "alice" }).to_string();
    refused["metadata"]["annotations"] = json!({ AUTHOR_ANNOTATION: forged });
    done(&create(site, "bob", &refused).await);
    done(&create(site, "alice", &wrapper("allowed")).await);
    let allowed = site.until(&format!("{WRAPPERS}/allowed"), is("Running")).await;
    assert!(condition(&allowed, "HeadOfLine").is_some(), "{allowed:#}");
    done(&site.get(&format!("{JOBS}/allowed")).await);
    let refused = site.until(&format!("{WRAPPERS}/refused"), is("Failed")).await;
    let words = "default/refused creation failure: user \"bob\" cannot create resource \"jobs\" in \
                 API group \"batch\" in the namespace \"default\"";
    assert!(message(&refused).starts_with(words), "{}", message(&refused));
    assert!(message(&refused).ends_with("create the AppWrapper again"), "{}", message(&refused));
    let failed = condition(&refused, "Failed").unwrap();
    assert_eq!(failed["reason"], "ItemCreationFailure.", "{refused:#}");
    assert_eq!(failed["message"], refused["status"]["message"]);
    assert!(condition(&refused, "HeadOfLine").is_none(), "it never passed: {refused:#}");
    assert_eq!(site.get(&format!("{JOBS}/refused")).await.status.as_u16(), 404);
}

/// The operator may bind any role, its author may only create bindings: the server would refuse the
/// author.
async fn attack_a_binding_that_the_author_could_not_create(site: &Site) {
    let rbac = "rbac.authorization.k8s.io";
    let mut attack = wrapper("attack");
    attack["spec"]["resources"]["GenericItems"][0]["generictemplate"] = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": { "name": "attack" },
        "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": rbac, "kind": "User", "name": "carol" }],
    });
    let place = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let binding = &attack["spec"]["resources"]["GenericItems"][0]["generictemplate"];
    let directly = site.admin.send(by("carol", Request::post(place, binding))).await.unwrap();
    assert_eq!(directly.status.as_u16(), 403, "{}", directly.text());
    done(&create(site, "carol", &attack).await);
    let refused = site.until(&format!("{WRAPPERS}/attack"), is("Failed")).await;
    let words = "user \"carol\" cannot bind resource \"clusterroles\" named \"cluster-admin\"";
    assert!(message(&refused).contains(words), "{}", message(&refused));
    assert_eq!(site.get(&format!("{place}/attack")).await.status.as_u16(), 404);
}

/// The author changes with the user who writes the items, and in no other way.
async fn recorded(site: &Site) {
    let path = format!("{WRAPPERS}/allowed");
    let author = |it: &Value| -> String {
        let text = it["metadata"]["annotations"][AUTHOR_ANNOTATION].as_str().unwrap();
        let author: Value = serde_json::from_str(text).unwrap();
        author["username"].as_str().unwrap().to_owned()
    };
    let merge = "application/merge-patch+json";
    let forged = json!({ "username": "admin" }).to_string();
    let table = [
        ("a label", json!({ "metadata": { "labels": { "a": "b" } } }), "alice"),
        (
            "a forged author",
            json!({ "metadata": { "annotations": { AUTHOR_ANNOTATION: forged } } }),
            "alice",
        ),
        ("none", json!({ "metadata": { "annotations": { AUTHOR_ANNOTATION: null } } }), "alice"),
        ("a priority", json!({ "spec": { "priority": 3 } }), "alice"),
        ("other items", json!({ "spec": { "resources": { "GenericItems": [] } } }), "bob"),
    ];
    for (why, patch, expected) in table {
        let request = by("bob", Request::patch(path.clone(), merge, &patch));
        let after = done(&site.admin.send(request).await.unwrap());
        assert_eq!(author(&after), expected, "{why}");
    }
}
