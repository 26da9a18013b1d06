//! The objects by which an API server knows whom to ask, and about what.
//!
//! They are made so that they cannot keep a cluster from working. Pods are asked about only if they
//! claim devices, which the server finds out by itself, and never in `kube-system`, except about what only
//! the allocator may write ([`super::protect`]). Such a pod is
//! refused when nobody answers: it would otherwise run without its devices. Objects of this group are
//! kept when nobody answers: whoever acts on them reads them again, and says what is wrong in their
//! status.

use gantry_api::devices::CARRIER_ANNOTATIONS;
use gantry_api::object::KINDS;
use serde_json::{Value, json};

use super::{Question, copied, protect};
use crate::scheduler::quota::ADMIN_LABEL;

/// The name of both objects.
pub const CONFIGURATION: &str = "gantry-devices";
const GROUP: &str = "devmgmtproto.k8s.io";
/// How long the server waits for an answer, in seconds. It takes a millisecond.
const PATIENCE: u32 = 5;

/// What becomes of a pod that claims devices when nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It is refused: the next try may be answered.
    Refuse,
    /// It is taken as it is, where whoever answers cannot be absent.
    Ignore,
}

impl Failure {
    fn policy(self) -> &'static str {
        match self {
            Self::Refuse => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// The configurations, mutating and validating. `client` says how whoever answers is reached at a path:
/// it is a `clientConfig`. `allocator` is the user that gives devices to pods: what drivers trust is
/// written by nobody else.
#[must_use]
pub fn configurations(
    client: impl Fn(&str) -> Value,
    pods: Failure,
    allocator: &str,
) -> [Value; 2] {
    let hook = |name: &str, question: Question, rules: Value, policy: &str| {
        json!({
            "name": format!("{name}.devices.gantry.dev"),
            "clientConfig": client(question.path()),
            "rules": [rules],
            "failurePolicy": policy,
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": [outside("kube-system")]},
            "objectSelector": {},
            "sideEffects": "None",
            "timeoutSeconds": PATIENCE,
            "admissionReviewVersions": ["v1"],
        })
    };
    let about_pods = |question: Question| {
        let mut hook = hook("pods", question, new_pods(), pods.policy());
        hook["matchConditions"] = json!([{"name": "claims-devices", "expression": carries()}]);
        hook
    };
    let mut mutating = about_pods(Question::Mutate);
    // Whoever comes later may add what a pod claims.
    mutating["reinvocationPolicy"] = json!("IfNeeded");
    let kinds = KINDS.iter().filter(|it| it.group == GROUP).map(|it| it.plural);
    let kinds: Vec<&str> = kinds.collect();
    let ignore = Failure::Ignore.policy();
    let content = hook("content", Question::Validate, written(&kinds), ignore);
    let lookers = ["deviceprivilegedclaims", "deviceclaimtemplates"];
    let mut access = hook("access", Question::Unlabelled, written(&lookers), ignore);
    let unlabelled = json!({"key": ADMIN_LABEL, "operator": "NotIn", "values": ["true"]});
    if let Some(all) = access["namespaceSelector"]["matchExpressions"].as_array_mut() {
        all.push(unlabelled);
    }
    // Whoever is asked about by these is a user who does what is not theirs: they may wait for an answer.
    let strict = |name: &str, question: Question, rules: Value, condition: &str| {
        let mut hook = hook(name, question, rules, pods.policy());
        // No namespace is exempt from what drivers trust.
        hook["namespaceSelector"] = json!({});
        hook["matchConditions"] = json!([{"name": name, "expression": condition}]);
        hook
    };
    let protected = |name: &str, rules: Value, condition: &str| {
        strict(name, Question::Protected, rules, condition)
    };
    let claims = ["deviceclaims", "deviceprivilegedclaims"];
    let claim_statuses = ["deviceclaims/status", "deviceprivilegedclaims/status"];
    let claim_condition = protect::status_condition(allocator, &protect::CLAIM_STATUS);
    let pool_condition = protect::status_condition(allocator, &protect::POOL_STATUS);
    let namers = ["deviceclaims", "deviceprivilegedclaims", "deviceclaimtemplates"];
    let validating = [
        about_pods(Question::Validate),
        content,
        access,
        protected("pod-allocations", pods_and_bindings(), &protect::pod_condition(allocator)),
        protected("claim-status", updated(&claim_statuses), &claim_condition),
        protected("claim-finalizer", updated(&claims), &protect::finalizer_condition(allocator)),
        protected("pool-status", updated(&["devicepools/status"]), &pool_condition),
        strict("configs", Question::Copied, written(&namers), &copied::condition()),
        strict(
            "class-configs",
            Question::Copied,
            written(&["deviceclasses"]),
            &copied::class_condition(),
        ),
    ];
    [
        configuration("MutatingWebhookConfiguration", &[mutating]),
        configuration("ValidatingWebhookConfiguration", &validating),
    ]
}

fn configuration(kind: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": CONFIGURATION, "labels": {"app.kubernetes.io/part-of": "gantry"}},
        "webhooks": webhooks,
    })
}

fn outside(namespace: &str) -> Value {
    json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]})
}

fn new_pods() -> Value {
    json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        "operations": ["CREATE"], "scope": "Namespaced",
    })
}

/// Every way in which annotations of a pod are written.
fn pods_and_bindings() -> Value {
    let resources = [
        "pods",
        "pods/status",
        "pods/binding",
        "pods/ephemeralcontainers",
        "pods/resize",
        "bindings",
    ];
    json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": resources,
        "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
    })
}

fn updated(resources: &[&str]) -> Value {
    json!({
        "apiGroups": [GROUP], "apiVersions": ["v1alpha1"], "resources": resources,
        "operations": ["UPDATE"], "scope": "*",
    })
}

fn written(plurals: &[&str]) -> Value {
    json!({
        "apiGroups": [GROUP], "apiVersions": ["v1alpha1"], "resources": plurals,
        "operations": ["CREATE", "UPDATE"], "scope": "*",
    })
}

/// Whether a pod claims devices, in the server's own language.
pub(super) fn carries() -> String {
    let names = CARRIER_ANNOTATIONS.map(|name| format!("'{name}' in object.metadata.annotations"));
    format!("has(object.metadata.annotations) && ({})", names.join(" || "))
}
