//! Admission of Modules and Preflights, and of the deletion of namespaces that have Modules.
//!
//! The rules are those of `gantry check`: the same decoder reads the object. The controllers apply
//! them as well, so the webhook is optional; with it a bad object is refused at once.

use gantry_api::decode;
use gantry_api::finding::{Finding, Findings};
use gantry_api::kernel_modules::{ModuleSpec, check_host_paths};
use gantry_api::object::Object;
use serde_json::{Value, json};

use crate::labels::NAMESPACE_LABEL;

/// The name of the webhook configuration.
pub const CONFIGURATION_NAME: &str = "gantry-modules";
/// How long a server waits for an answer.
const TIMEOUT_SECONDS: u32 = 10;

/// What a review is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// A Module.
    Module,
    /// A Preflight.
    Preflight,
    /// A ManagedClusterModule.
    ManagedClusterModule,
    /// The deletion of a namespace.
    Namespace,
}

impl ReviewKind {
    /// All kinds.
    pub const ALL: [Self; 4] =
        [Self::Module, Self::Preflight, Self::ManagedClusterModule, Self::Namespace];

    /// The path at which reviews are answered.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Module => "/validate/ooto-sigs-k8s-io-v1alpha1-module",
            Self::Preflight => "/validate/ooto-sigs-k8s-io-v1alpha1-preflight",
            Self::ManagedClusterModule => {
                "/validate/hub-ooto-sigs-k8s-io-v1alpha1-managedclustermodule"
            }
            Self::Namespace => "/validate/namespace",
        }
    }

    /// The kind of reviews that are sent to a path.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.path() == path)
    }
}

/// What is wrong with the host paths of a Module (W-17), where an administrator allows only some.
#[must_use]
pub fn host_path_problems(spec: &ModuleSpec, allowed: &[String]) -> Vec<String> {
    if allowed.is_empty() {
        return Vec::new();
    }
    check_host_paths(spec, allowed).errors.iter().map(finding_text).collect()
}

/// A finding with the path of its field.
fn finding_text(finding: &Finding) -> String {
    format!("{}: {}", finding.path, finding.text)
}

/// Answers an AdmissionReview, where only host paths in these directories are allowed; all are if
/// there are none.
#[must_use]
pub fn answer_review(kind: ReviewKind, review: &Value, allowed_host_paths: &[String]) -> Value {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"].as_str().unwrap_or_default()});
    let decision = match request.is_object() {
        true => decide(kind, request, allowed_host_paths),
        false => Decision::denied("not an AdmissionReview with a request".to_owned()),
    };
    response["allowed"] = json!(decision.denied.is_none());
    if let Some((code, reason, message)) = decision.denied {
        response["status"] = json!({"code": code, "reason": reason, "message": message});
    }
    if !decision.warnings.is_empty() {
        response["warnings"] = json!(decision.warnings);
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

#[derive(Debug, Default)]
struct Decision {
    /// Code, reason and message.
    denied: Option<(u16, &'static str, String)>,
    warnings: Vec<String>,
}

impl Decision {
    fn denied(message: String) -> Self {
        Self { denied: Some((422, "Invalid", message)), warnings: Vec::new() }
    }
}

fn decide(kind: ReviewKind, request: &Value, allowed_host_paths: &[String]) -> Decision {
    if kind == ReviewKind::Namespace {
        return namespace_deletion(request);
    }
    let object = &request["object"];
    // Finalizers of an object that was stored before can always be removed.
    let is_update = !request["oldObject"].is_null();
    if is_update && request["oldObject"]["spec"] == object["spec"] {
        return Decision::default();
    }
    let (decoded, findings) = match decode::object(object) {
        Ok((decoded, findings)) => (Some(decoded), findings),
        Err(findings) => (None, findings),
    };
    let Findings { errors, warnings, .. } = findings;
    let warnings = warnings.iter().map(finding_text).collect();
    let mut errors: Vec<String> = errors.iter().map(finding_text).collect();
    if let Some(Object::Module(module)) = &decoded {
        errors.extend(host_path_problems(&module.spec, allowed_host_paths));
    }
    match errors.is_empty() {
        true => Decision { denied: None, warnings },
        false => Decision { warnings, ..Decision::denied(errors.join("; ")) },
    }
}

/// A namespace with Modules is not deleted: its drivers would be left loaded, and nobody would
/// unload them.
fn namespace_deletion(request: &Value) -> Decision {
    let namespace = &request["oldObject"];
    if namespace["metadata"]["labels"].get(NAMESPACE_LABEL).is_none() {
        return Decision::default();
    }
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
    let message = format!(
        "namespace holds Modules; delete them first: kubectl delete modules.ooto.sigs.k8s.io --all \
         --namespace {name}"
    );
    Decision { denied: Some((403, "Forbidden", message)), warnings: Vec::new() }
}

/// The configuration that makes a server send reviews.
#[must_use]
pub fn configuration(client: impl Fn(&str) -> Value, failure_policy: &str) -> Value {
    let hook = |name: &str, kind: ReviewKind, rules: Value| {
        json!({
            "name": format!("{name}.modules.gantry.dev"),
            "clientConfig": client(kind.path()),
            "rules": [rules],
            "failurePolicy": failure_policy,
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "admissionReviewVersions": ["v1"],
        })
    };
    let written = |group: &str, plural: &str, scope: &str| {
        json!({
            "apiGroups": [group], "apiVersions": ["v1alpha1"], "resources": [plural],
            "operations": ["CREATE", "UPDATE"], "scope": scope,
        })
    };
    let deleted = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"],
        "operations": ["DELETE"], "scope": "Cluster",
    });
    let mut namespaces = hook("namespaces", ReviewKind::Namespace, deleted);
    // Only namespaces with Modules: an operator that does not run must not keep others.
    namespaces["objectSelector"] =
        json!({"matchExpressions": [{"key": NAMESPACE_LABEL, "operator": "Exists"}]});
    let group = "ooto.sigs.k8s.io";
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION_NAME},
        "webhooks": [
            hook("modules", ReviewKind::Module, written(group, "modules", "Namespaced")),
            hook("preflights", ReviewKind::Preflight, written(group, "preflights", "Cluster")),
            hook(
                "managedclustermodules",
                ReviewKind::ManagedClusterModule,
                written("hub.ooto.sigs.k8s.io", "managedclustermodules", "Cluster"),
            ),
            namespaces,
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(mapping: &Value) -> Value {
        json!({
            "apiVersion": "ooto.sigs.k8s.io/v1alpha1", "kind": "Module",
            "metadata": {"name": "m", "namespace": "n"},
            "spec": {"selector": {}, "driverContainer": {"container": {
                "kernelMappings": [mapping],
            }}},
        })
    }

    fn asked(kind: ReviewKind, request: Value) -> Value {
        let mut request = request;
        request["uid"] = json!("u");
        let answer = answer_review(kind, &json!({"request": request}), &[]);
        assert_eq!(answer["response"]["uid"], "u");
        answer["response"].clone()
    }

    #[test]
    fn kms_15_modules_are_admitted_by_the_rules() {
        let good = module(&json!({"literal": "6.1.0", "containerImage": "example.com/a:1"}));
        let answer = asked(ReviewKind::Module, json!({"object": good}));
        assert_eq!(answer["allowed"], true, "{answer}");
        let bad = module(&json!({"regexp": "(", "containerImage": "example.com/a:1"}));
        let answer = asked(ReviewKind::Module, json!({"object": bad}));
        assert_eq!(answer["allowed"], false);
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(message.contains("kernelMappings[0].regexp: invalid regexp"), "{message}");
        // A stored Module that breaks a rule can still lose its finalizer.
        let mut released = bad.clone();
        released["metadata"]["finalizers"] = json!([]);
        let answer = asked(ReviewKind::Module, json!({"object": released, "oldObject": bad}));
        assert_eq!(answer["allowed"], true);
        let answer = answer_review(ReviewKind::Module, &json!({}), &[]);
        assert_eq!(answer["response"]["allowed"], false);
    }

    #[test]
    fn kms_16_a_module_with_a_device_plugin_only_is_admitted() {
        let mut plugin = module(&Value::Null);
        plugin["spec"] =
            json!({"selector": {}, "devicePlugin": {"container": {"image": "example.com/p:1"}}});
        let answer = asked(ReviewKind::Module, json!({"object": plugin}));
        assert_eq!(answer, json!({"uid": "u", "allowed": true}));
        plugin["spec"]["devicePlugin"] = Value::Null;
        let answer = asked(ReviewKind::Module, json!({"object": plugin}));
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(message.contains("at least one of driverContainer, devicePlugin"), "{message}");
    }

    #[test]
    fn kms_17_host_paths_are_in_allowed_directories() {
        let allowed = ["/dev".to_owned(), "/sys/".to_owned()];
        let table = [
            ("/dev", true),
            ("/dev/null", true),
            ("//sys/x", true),
            ("/devious", false),
            ("/dev/../etc", false),
            ("/", false),
            ("dev/null", false),
        ];
        for (path, expected) in table {
            for part in ["driverContainer", "devicePlugin"] {
                let mut module =
                    module(&json!({"literal": "6.1.0", "containerImage": "example.com/a:1"}));
                module["spec"]["devicePlugin"] = json!({"container": {"image": "example.com/p:1"}});
                module["spec"][part]["volumes"] =
                    json!([{"name": "v", "hostPath": {"path": path}}]);
                let review = json!({"request": {"uid": "u", "object": module}});
                let answer = answer_review(ReviewKind::Module, &review, &allowed);
                let response = &answer["response"];
                assert_eq!(response["allowed"], expected, "{part} {path}: {response}");
                let message = response["status"]["message"].as_str().unwrap_or_default();
                let refused = format!(
                    "spec.{part}.volumes[0].hostPath.path: hostPath \"{path}\" is not allowed; \
                     use a path below /dev, /sys"
                );
                assert_eq!(message, if expected { "" } else { &refused });
                let anywhere = answer_review(ReviewKind::Module, &review, &[]);
                assert_eq!(anywhere["response"]["allowed"], true, "no list, no restriction");
            }
        }
    }

    #[test]
    fn kms_18_w_27_a_namespace_with_modules_is_not_deleted() {
        let namespace = |labels: Value| json!({"metadata": {"name": "n", "labels": labels}});
        let with = json!({"oldObject": namespace(json!({NAMESPACE_LABEL: ""}))});
        let answer = asked(ReviewKind::Namespace, with);
        assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(403)));
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(message.starts_with("namespace holds Modules; delete them first"), "{message}");
        let without = json!({"oldObject": namespace(json!({}))});
        assert_eq!(asked(ReviewKind::Namespace, without)["allowed"], true);
    }

    #[test]
    fn each_webhook_has_a_path_of_its_own() {
        let configuration = configuration(|path| json!({"service": {"path": path}}), "Fail");
        for hook in configuration["webhooks"].as_array().unwrap() {
            let path = hook["clientConfig"]["service"]["path"].as_str().unwrap();
            assert!(ReviewKind::from_path(path).is_some(), "{path}");
        }
        assert_eq!(ReviewKind::from_path("/validate/other"), None);
    }
}
