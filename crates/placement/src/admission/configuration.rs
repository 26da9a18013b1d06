//! The webhook configurations that tell an API server which requests to send where.
//!
//! They are written so that they cannot keep a cluster from working. Webhooks are called for pods
//! only if they claim devices, which the server evaluates by itself, and never in `kube-system`,
//! except for what only the allocator may write ([`super::protect`]). Such a pod is rejected when
//! the webhook does not answer: it would otherwise run without its devices. Objects of this group
//! are stored when the webhook does not answer: the controllers that act on them parse them again,
//! and report errors in their status.

use gantry_api::devices::DEVICE_ANNOTATIONS;
use gantry_api::object::KINDS;
use serde_json::{Value, json};

use super::{AdmissionCheck, config_map_access, protect};
use crate::scheduler::quota::ADMIN_ACCESS_LABEL;

/// The name of both objects.
pub const CONFIGURATION_NAME: &str = "gantry-devices";
const GROUP: &str = "devmgmtproto.k8s.io";
/// How long the server waits for an answer, in seconds. It takes a millisecond.
const WEBHOOK_TIMEOUT_SECONDS: u32 = 5;

/// What happens to a pod that claims devices when the webhook does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It is rejected: the next attempt may be answered.
    Fail,
    /// It is accepted unchanged, where the webhook cannot be absent.
    Ignore,
}

impl FailurePolicy {
    fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// Returns the configurations, mutating and validating. `client` returns the `clientConfig` of the
/// webhook at a path. `allocator` is the user that allocates devices to pods: no other user may
/// write what drivers trust.
#[must_use]
pub fn configurations(
    client: impl Fn(&str) -> Value,
    pods: FailurePolicy,
    allocator: &str,
) -> [Value; 2] {
    let hook = |name: &str, question: AdmissionCheck, rules: Value, policy: &str| {
        json!({
            "name": format!("{name}.devices.gantry.dev"),
            "clientConfig": client(question.path()),
            "rules": [rules],
            "failurePolicy": policy,
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": [namespace_is_not("kube-system")]},
            "objectSelector": {},
            "sideEffects": "None",
            "timeoutSeconds": WEBHOOK_TIMEOUT_SECONDS,
            "admissionReviewVersions": ["v1"],
        })
    };
    let about_pods = |question: AdmissionCheck| {
        let mut hook = hook("pods", question, create_pod_rules(), pods.as_str());
        hook["matchConditions"] =
            json!([{"name": "claims-devices", "expression": claims_devices_expression()}]);
        hook
    };
    let mut mutating = about_pods(AdmissionCheck::Mutate);
    // A later webhook may add claims to a pod.
    mutating["reinvocationPolicy"] = json!("IfNeeded");
    let kinds = KINDS.iter().filter(|it| it.group == GROUP).map(|it| it.plural);
    let kinds: Vec<&str> = kinds.collect();
    let ignore = FailurePolicy::Ignore.as_str();
    let content = hook("content", AdmissionCheck::Validate, create_update_rules(&kinds), ignore);
    let lookers = ["deviceprivilegedclaims", "deviceclaimtemplates"];
    let mut access =
        hook("access", AdmissionCheck::AdminAccess, create_update_rules(&lookers), ignore);
    let unlabelled = json!({"key": ADMIN_ACCESS_LABEL, "operator": "NotIn", "values": ["true"]});
    if let Some(all) = access["namespaceSelector"]["matchExpressions"].as_array_mut() {
        all.push(unlabelled);
    }
    // These are called only for users that do what they may not do: such requests may wait for an
    // answer.
    let strict = |name: &str, question: AdmissionCheck, rules: Value, condition: &str| {
        let mut hook = hook(name, question, rules, pods.as_str());
        // No namespace is exempt from the protection of what drivers trust.
        hook["namespaceSelector"] = json!({});
        hook["matchConditions"] = json!([{"name": name, "expression": condition}]);
        hook
    };
    let protected = |name: &str, rules: Value, condition: &str| {
        strict(name, AdmissionCheck::Protected, rules, condition)
    };
    let claims = ["deviceclaims", "deviceprivilegedclaims"];
    let claim_statuses = ["deviceclaims/status", "deviceprivilegedclaims/status"];
    let claim_condition =
        protect::status_match_condition(allocator, &protect::PROTECTED_CLAIM_FIELDS);
    let pool_condition =
        protect::status_match_condition(allocator, &protect::PROTECTED_POOL_FIELDS);
    let namers = ["deviceclaims", "deviceprivilegedclaims", "deviceclaimtemplates"];
    let validating = [
        about_pods(AdmissionCheck::Validate),
        content,
        access,
        protected(
            "pod-allocations",
            pod_and_binding_rules(),
            &protect::pod_match_condition(allocator),
        ),
        protected("claim-status", update_rules(&claim_statuses), &claim_condition),
        protected(
            "claim-finalizer",
            update_rules(&claims),
            &protect::finalizer_match_condition(allocator),
        ),
        protected("pool-status", update_rules(&["devicepools/status"]), &pool_condition),
        strict(
            "configs",
            AdmissionCheck::ConfigMapAccess,
            create_update_rules(&namers),
            &config_map_access::match_condition(),
        ),
        strict(
            "class-configs",
            AdmissionCheck::ConfigMapAccess,
            create_update_rules(&["deviceclasses"]),
            &config_map_access::class_match_condition(),
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
        "metadata": {"name": CONFIGURATION_NAME, "labels": {"app.kubernetes.io/part-of": "gantry"}},
        "webhooks": webhooks,
    })
}

fn namespace_is_not(namespace: &str) -> Value {
    json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]})
}

fn create_pod_rules() -> Value {
    json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        "operations": ["CREATE"], "scope": "Namespaced",
    })
}

/// Matches every way in which annotations of a pod are written.
fn pod_and_binding_rules() -> Value {
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

fn update_rules(resources: &[&str]) -> Value {
    json!({
        "apiGroups": [GROUP], "apiVersions": ["v1alpha1"], "resources": resources,
        "operations": ["UPDATE"], "scope": "*",
    })
}

fn create_update_rules(plurals: &[&str]) -> Value {
    json!({
        "apiGroups": [GROUP], "apiVersions": ["v1alpha1"], "resources": plurals,
        "operations": ["CREATE", "UPDATE"], "scope": "*",
    })
}

/// Returns the CEL expression that is true for pods that claim devices.
pub(super) fn claims_devices_expression() -> String {
    let names = DEVICE_ANNOTATIONS.map(|name| format!("'{name}' in object.metadata.annotations"));
    format!("has(object.metadata.annotations) && ({})", names.join(" || "))
}
