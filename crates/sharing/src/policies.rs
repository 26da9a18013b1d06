//! The admission policies, which are always applied on servers that support them.

use gantry_reconcile::ApiPath;
use gantry_yaml as yaml;
use serde_json::Value;

use crate::definition::{list, text};
use crate::inventory::ObjectKind;

/// The published files, policies before their bindings.
const FILES: [&str; 4] = [
    include_str!("../../../config/validating-admission-policies/fma-bound-serverreqpod.yaml"),
    include_str!("../../../config/validating-admission-policies/fma-immutable-fields.yaml"),
    include_str!("../../../config/validating-admission-policies/bind-fma-bound-serverreqpod.yaml"),
    include_str!("../../../config/validating-admission-policies/bind-fma-immutable-fields.yaml"),
];

/// The objects of this build.
///
/// # Panics
/// Never: a test reads the files, which are part of the build.
#[must_use]
pub fn policies() -> Vec<Value> {
    let read = |text: &&str| yaml::read(text).expect("a test reads the published policies");
    FILES.iter().flat_map(read).map(|document| document.to_json()).collect()
}

/// The kind of an object, if it is a policy or a policy binding.
#[must_use]
pub fn kind(object: &Value) -> Option<ObjectKind> {
    let kind = ObjectKind::of(text(object, "/kind"))?;
    let ours = matches!(
        kind,
        ObjectKind::ValidatingAdmissionPolicy | ObjectKind::ValidatingAdmissionPolicyBinding
    );
    (ours && text(object, "/apiVersion") == "admissionregistration.k8s.io/v1").then_some(kind)
}

/// The discovery document that says whether a server supports these kinds.
pub const DISCOVERY_PATH: ApiPath = ApiPath::from_static("/apis/admissionregistration.k8s.io/v1");

/// The message for servers that do not.
pub const UNSUPPORTED_MESSAGE: &str = "this server does not serve ValidatingAdmissionPolicies in \
                               admissionregistration.k8s.io/v1 (Kubernetes 1.30 and later do); all \
                               works without them, except that improper edits are not refused";

/// Whether a server supports both kinds, by its response to [`DISCOVERY_PATH`]; `None` means not
/// found.
#[must_use]
pub fn are_supported(answer: Option<&Value>) -> bool {
    let served = |kind: ObjectKind| {
        let resources = answer.map(|it| list(it, "/resources")).unwrap_or_default();
        resources.iter().any(|it| it["name"] == kind.plural())
    };
    served(ObjectKind::ValidatingAdmissionPolicy)
        && served(ObjectKind::ValidatingAdmissionPolicyBinding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{POLICIES, POLICY_BINDINGS};
    use serde_json::json;

    #[test]
    fn cs_41_the_names_are_published() {
        let objects = policies();
        let names: Vec<_> = objects.iter().map(|it| text(it, "/metadata/name")).collect();
        assert_eq!(names, [POLICIES, POLICY_BINDINGS].concat());
        for object in &objects {
            assert!(kind(object).is_some(), "{object:#}");
        }
    }

    #[test]
    fn cs_31_controllers_are_known_by_the_end_of_their_name() {
        for policy in policies().iter().filter(|it| it["kind"] == "ValidatingAdmissionPolicy") {
            let suffix = "^system:serviceaccount:[^:]+:[^:]*-fma-controllers$";
            assert!(policy.to_string().contains(suffix), "{policy:#}");
        }
    }

    #[test]
    fn cs_39_both_kinds_must_be_served() {
        let answer = |names: &[&str]| {
            let resources: Vec<_> = names.iter().map(|it| json!({"name": it})).collect();
            json!({"resources": resources})
        };
        let both = answer(&["validatingadmissionpolicies", "validatingadmissionpolicybindings"]);
        let webhooks = answer(&["validatingwebhookconfigurations"]);
        let half = answer(&["validatingadmissionpolicies"]);
        assert!(are_supported(Some(&both)));
        for answer in [Some(&webhooks), Some(&half), Some(&json!({})), None] {
            assert!(!are_supported(answer), "{answer:?}");
        }
    }

    #[test]
    fn other_kinds_are_not_policies() {
        assert_eq!(kind(&json!({"kind": "Pod", "apiVersion": "v1"})), None);
        let old = json!({
            "kind": "ValidatingAdmissionPolicy",
            "apiVersion": "admissionregistration.k8s.io/v1beta1",
        });
        assert_eq!(kind(&old), None);
    }
}
