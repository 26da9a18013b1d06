//! The admission policies, which are applied whatever is there, wherever a server knows such objects.

use gantry_api::yaml;
use gantry_reconcile::ApiPath;
use serde_json::Value;

use crate::definition::{list, text};
use crate::inventory::ObjectKind;

/// The published files, policies before what binds them.
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

/// Which of the two kinds an object is; nothing if it is neither.
#[must_use]
pub fn kind(object: &Value) -> Option<ObjectKind> {
    let kind = ObjectKind::of(text(object, "/kind"))?;
    let ours = matches!(
        kind,
        ObjectKind::ValidatingAdmissionPolicy | ObjectKind::ValidatingAdmissionPolicyBinding
    );
    (ours && text(object, "/apiVersion") == "admissionregistration.k8s.io/v1").then_some(kind)
}

/// Where a server says whether it knows these kinds.
pub const DISCOVERY: ApiPath = ApiPath::from_static("/apis/admissionregistration.k8s.io/v1");

/// What is said where it does not.
pub const UNSUPPORTED: &str = "this server does not serve ValidatingAdmissionPolicies in \
                               admissionregistration.k8s.io/v1 (Kubernetes 1.30 and later do); all \
                               works without them, except that improper edits are not refused";

/// Whether a server knows both kinds, by what it answers to [`DISCOVERY`]; nothing is "no such page".
#[must_use]
pub fn supported(answer: Option<&Value>) -> bool {
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
        assert!(supported(Some(&both)));
        for answer in [Some(&webhooks), Some(&half), Some(&json!({})), None] {
            assert!(!supported(answer), "{answer:?}");
        }
    }

    #[test]
    fn other_objects_are_none_of_these() {
        assert_eq!(kind(&json!({"kind": "Pod", "apiVersion": "v1"})), None);
        let old = json!({
            "kind": "ValidatingAdmissionPolicy",
            "apiVersion": "admissionregistration.k8s.io/v1beta1",
        });
        assert_eq!(kind(&old), None);
    }
}
