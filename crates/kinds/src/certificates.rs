//! Validates CertificateSigningRequests, except for the encoded request itself.

use gantry_schema::FieldError;
use serde_json::Value;

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::tree::{at, copy_field, equal, int, is_set, list, put, text};

pub(crate) const RULES: Rules = Rules {
    // The spec of a request is immutable; only its status changes.
    update: |new, old| copy_field(new, old, "spec"),
    status: |new, old, now| {
        set_condition_times(new, old, now);
        preserve_approval(new, old);
    },
    validate: |object| validate(object, None).into_vec(),
    validate_update: |new, old| validate_change(new, old, AllowedChange::Nothing),
    validate_status: |new, old| validate_change(new, old, AllowedChange::Certificate),
    ..Rules::NONE
};

/// What an update of a request may add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllowedChange {
    Nothing,
    Certificate,
    Decision,
}

/// The conditions that approve or deny a request.
const APPROVAL_CONDITIONS: [&str; 2] = ["Approved", "Denied"];
/// The conditions that are never removed and are always true.
const PERMANENT_CONDITIONS: [&str; 3] = ["Approved", "Denied", "Failed"];
/// The signer of requests from before `signerName` was required; it signs nothing.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// The shortest lifetime of a certificate in seconds.
const MIN_EXPIRATION_SECONDS: i64 = 600;

/// The valid usages of a certificate, sorted.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn validate(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    let usages = list(spec, "usages");
    if usages.is_empty() {
        faults.required(path.child("usages"), "");
    }
    let tolerant =
        |wrong: fn(&[Value]) -> bool| old.is_some_and(|old| wrong(list(old, "spec.usages")));
    if !tolerant(|usages| usages.iter().any(|it| !is_usage(it))) {
        for (place, usage) in usages.iter().enumerate().filter(|(_, it)| !is_usage(it)) {
            let path = path.child("usages").index(place);
            faults.not_supported(path, usage.clone(), &USAGES);
        }
    }
    if !tolerant(|usages| (0..usages.len()).any(|place| usages[..place].contains(&usages[place]))) {
        for (place, usage) in usages.iter().enumerate() {
            if usages[..place].contains(usage) {
                faults.duplicate(path.child("usages").index(place), usage.clone());
            }
        }
    }
    let signer = text(spec, "signerName");
    let had_legacy = old.is_some_and(|old| text(old, "spec.signerName") == LEGACY_SIGNER);
    if signer == LEGACY_SIGNER && !had_legacy {
        let detail = "the legacy signerName is not allowed via this API version";
        faults.value(path.child("signerName"), signer, detail);
    } else {
        check_signer(signer, &path.child("signerName"), &mut faults);
    }
    if let Some(seconds) = int(spec, "expirationSeconds").filter(|it| *it < MIN_EXPIRATION_SECONDS)
    {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        faults.value(path.child("expirationSeconds"), seconds, detail);
    }
    check_conditions(object, old, &mut faults);
    faults
}

fn is_usage(usage: &Value) -> bool {
    usage.as_str().is_some_and(|it| USAGES.contains(&it))
}

/// Validates a name of the form `example.com/signer-name`.
fn check_signer(name: &str, path: &Path, faults: &mut FieldErrors) {
    const MAX_DOMAIN_LENGTH: usize = 253;
    const MAX_SIGNER_NAME_LENGTH: usize = 571;
    if name.is_empty() {
        faults.required(path.clone(), "");
        return;
    }
    let parts: Vec<&str> = name.split('/').collect();
    let [domain, rest] = parts[..] else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        faults.value(path.clone(), name, detail);
        return;
    };
    if domain.len() > MAX_DOMAIN_LENGTH {
        faults.add(FieldError::too_long(path.clone(), MAX_DOMAIN_LENGTH));
    }
    let labels: Vec<&str> = domain.split('.').collect();
    check_labels(domain, &labels, names::label, path, faults);
    if labels.len() < 2 {
        let detail = "should be a domain with at least two segments separated by dots";
        faults.value(path.clone(), domain, detail);
    }
    let labels: Vec<&str> = rest.split('.').collect();
    check_labels(rest, &labels, names::subdomain, path, faults);
    if name.len() > MAX_SIGNER_NAME_LENGTH {
        faults.add(FieldError::too_long(path.clone(), MAX_SIGNER_NAME_LENGTH));
    }
}

/// Reports the first invalid label.
fn check_labels(
    whole: &str,
    labels: &[&str],
    rule: fn(&str) -> Vec<String>,
    path: &Path,
    faults: &mut FieldErrors,
) {
    let wrong = labels.iter().find_map(|label| {
        let complaints = rule(label);
        (!complaints.is_empty()).then_some((label, complaints))
    });
    for complaint in wrong.iter().flat_map(|(_, complaints)| complaints) {
        let label = wrong.as_ref().map_or(&"", |(label, _)| label);
        let detail = format!("validating label {label:?}: {complaint}");
        faults.value(path.clone(), whole, &detail);
    }
}

fn conditions<'a>(object: &'a Value, kind: &str) -> Vec<&'a Value> {
    list(object, "status.conditions").iter().filter(|it| text(it, "type") == kind).collect()
}

fn check_conditions(object: &Value, old: Option<&Value>, faults: &mut FieldErrors) {
    let path = Path::new("status").child("conditions");
    let all = list(object, "status.conditions");
    let had_both = old.is_some_and(|old| {
        APPROVAL_CONDITIONS.iter().all(|kind| !conditions(old, kind).is_empty())
    });
    for (place, condition) in all.iter().enumerate() {
        let kind = text(condition, "type");
        let path_of = path.index(place);
        if kind.is_empty() {
            faults.required(path_of.child("type"), "");
        }
        let allowed: &[&str] = if PERMANENT_CONDITIONS.contains(&kind) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        faults.require_one_of(condition, &path_of, "status", allowed);
        let before = &all[..place];
        let other = APPROVAL_CONDITIONS
            .iter()
            .find(|it| **it != kind)
            .filter(|_| APPROVAL_CONDITIONS.contains(&kind));
        let contradicted =
            other.is_some_and(|it| before.iter().any(|had| text(had, "type") == *it));
        if contradicted && !had_both {
            let detail = "Approved and Denied conditions are mutually exclusive";
            faults.value(path.clone(), kind, detail);
        }
        if before.iter().any(|had| text(had, "type") == kind) {
            faults.duplicate(path_of.child("type"), kind);
        }
    }
}

/// Validates a write through `/approval`.
pub(crate) fn validate_approval(new: &Value, old: &Value) -> Vec<FieldError> {
    validate_change(new, old, AllowedChange::Decision)
}

fn validate_change(new: &Value, old: &Value, allowed: AllowedChange) -> Vec<FieldError> {
    let mut faults = validate(new, Some(old));
    let path = Path::new("status");
    for kind in PERMANENT_CONDITIONS {
        let (now, before) = (conditions(new, kind), conditions(old, kind));
        if now.len() < before.len() {
            let detail = format!("updates may not remove a condition of type {kind:?}");
            faults.forbidden(path.child("conditions"), &detail);
        }
    }
    if allowed != AllowedChange::Decision {
        for kind in APPROVAL_CONDITIONS {
            let (now, before) = (conditions(new, kind), conditions(old, kind));
            if now.len() > before.len() {
                let detail = format!("updates may not add a condition of type {kind:?}");
                faults.forbidden(path.child("conditions"), &detail);
            } else if now.len() == before.len() && !now.iter().zip(before).all(|(a, b)| equal(a, b))
            {
                let detail = format!("updates may not modify a condition of type {kind:?}");
                faults.forbidden(path.child("conditions"), &detail);
            }
        }
    }
    let (now, before) = (text(new, "status.certificate"), text(old, "status.certificate"));
    if now != before {
        if allowed != AllowedChange::Certificate {
            let detail = "updates may not set certificate content";
            faults.forbidden(path.child("certificate"), detail);
        } else if !before.is_empty() {
            let detail = "updates may not modify existing certificate content";
            faults.forbidden(path.child("certificate"), detail);
        } else if !is_certificates(now) {
            let detail = "must contain at least one CERTIFICATE PEM block";
            faults.value(path.child("certificate"), "<certificate data>", detail);
        }
    }
    faults.into_vec()
}

/// Returns whether a base64 text holds certificates in PEM.
fn is_certificates(text: &str) -> bool {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    let text = String::from_utf8(bytes).unwrap_or_default();
    text.contains("-----BEGIN CERTIFICATE-----") && text.contains("-----END CERTIFICATE-----")
}

/// Preserves the approval conditions in a status write that repeats them. A write that adds or
/// removes some is rejected later.
fn preserve_approval(new: &mut Value, old: &Value) {
    for kind in APPROVAL_CONDITIONS {
        let before: Vec<Value> = conditions(old, kind).into_iter().cloned().collect();
        if conditions(new, kind).len() != before.len() {
            continue;
        }
        let mut before = before.into_iter();
        let now = crate::tree::each(new, "status.conditions");
        for condition in now.filter(|it| text(it, "type") == kind) {
            if let Some(had) = before.next() {
                *condition = had;
            }
        }
    }
}

/// Sets the missing update and transition times of conditions.
pub(crate) fn set_condition_times(new: &mut Value, old: &Value, now: &str) {
    for condition in crate::tree::each(new, "status.conditions") {
        if !is_set(condition, "lastUpdateTime") {
            put(condition, "lastUpdateTime", now);
        }
        if is_set(condition, "lastTransitionTime") {
            continue;
        }
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        let same = list(old, "status.conditions").iter().find(|had| {
            text(had, "type") == kind
                && text(had, "status") == status
                && is_set(had, "lastTransitionTime")
        });
        let since = same.map_or(now, |had| text(had, "lastTransitionTime")).to_owned();
        put(condition, "lastTransitionTime", since);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::behaviour::{SubresourceKind, behaviour};

    fn request(spec: &Value) -> Value {
        let mut object = json!({
            "metadata": { "name": "r" },
            "spec": {
                "request": "", "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"],
            },
        });
        for (field, value) in spec.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        object
    }

    fn messages(faults: &[FieldError]) -> String {
        faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn requests_name_a_signer_and_usages() {
        let form =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        let table = [
            (json!({}), String::new()),
            (json!({ "usages": [] }), "spec.usages: Required value".to_owned()),
            (
                json!({ "usages": ["signing", "signing"] }),
                "spec.usages[1]: Duplicate value: \"signing\"".to_owned(),
            ),
            (json!({ "signerName": "" }), "spec.signerName: Required value".to_owned()),
            (
                json!({ "signerName": "a/b/c" }),
                format!("spec.signerName: Invalid value: \"a/b/c\": {form}"),
            ),
            (
                json!({ "signerName": "a/b" }),
                "spec.signerName: Invalid value: \"a\": should be a domain with at least two \
                 segments separated by dots"
                    .to_owned(),
            ),
            (
                json!({ "signerName": "kubernetes.io/legacy-unknown" }),
                "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy \
                 signerName is not allowed via this API version"
                    .to_owned(),
            ),
            (
                json!({ "expirationSeconds": 599 }),
                "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than \
                 600 seconds (10 minutes)"
                    .to_owned(),
            ),
        ];
        let rules = behaviour("certificates.k8s.io", "certificatesigningrequests");
        for (spec, expected) in table {
            assert_eq!(messages(&rules.validate_create(&request(&spec))), expected);
        }
        let unknown = messages(&rules.validate_create(&request(&json!({ "usages": ["x"] }))));
        assert!(unknown.starts_with("spec.usages[0]: Unsupported value: \"x\""), "{unknown}");
    }

    #[test]
    fn csr_subresources_write_own_fields() {
        let rules = behaviour("certificates.k8s.io", "certificatesigningrequests");
        let with = |conditions: &[&str], certificate: &str| {
            let mut object = request(&json!({}));
            let condition = |kind: &&str| json!({ "type": kind, "status": "True" });
            object["status"]["conditions"] = conditions.iter().map(condition).collect();
            if !certificate.is_empty() {
                object["status"]["certificate"] = json!(certificate);
            }
            object
        };
        let pem = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";
        let prefix = "status.conditions: Forbidden: updates may not";
        let table = [
            (SubresourceKind::Approval, with(&[], ""), with(&["Approved"], ""), String::new()),
            (SubresourceKind::Approval, with(&[], ""), with(&["Denied"], ""), String::new()),
            (
                SubresourceKind::Approval,
                with(&["Approved"], ""),
                with(&["Denied"], ""),
                format!("{prefix} remove a condition of type \"Approved\""),
            ),
            (
                SubresourceKind::Approval,
                with(&["Approved"], ""),
                with(&["Approved", "Denied"], ""),
                "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are \
                 mutually exclusive"
                    .to_owned(),
            ),
            (
                SubresourceKind::Status,
                with(&[], ""),
                with(&["Approved"], ""),
                format!("{prefix} add a condition of type \"Approved\""),
            ),
            (SubresourceKind::Status, with(&["Approved"], ""), with(&["Approved", "Failed"], ""), String::new()),
            (SubresourceKind::Status, with(&["Approved"], ""), with(&["Approved"], pem), String::new()),
            (
                SubresourceKind::Status,
                with(&[], ""),
                with(&[], "eA=="),
                "status.certificate: Invalid value: \"<certificate data>\": must contain at least \
                 one CERTIFICATE PEM block"
                    .to_owned(),
            ),
            (
                SubresourceKind::Status,
                with(&[], pem),
                with(&[], ""),
                "status.certificate: Forbidden: updates may not modify existing certificate content"
                    .to_owned(),
            ),
        ];
        for (part, old, mut new, expected) in table {
            rules.prepare_update(&mut new, &old, part, "now");
            assert_eq!(messages(&rules.validate_update(&new, &old, part)), expected, "{new}");
        }
        // An approval changes nothing but conditions, and the main path none of them.
        for part in [SubresourceKind::Approval, SubresourceKind::Main] {
            let (old, mut new) = (with(&[], ""), with(&[], pem));
            rules.prepare_update(&mut new, &old, part, "now");
            assert_eq!(new["status"]["certificate"], Value::Null);
        }
        let (old, mut new) = (with(&[], ""), with(&["Approved"], ""));
        rules.prepare_update(&mut new, &old, SubresourceKind::Approval, "now");
        let stamped = json!([{
            "type": "Approved", "status": "True",
            "lastUpdateTime": "now", "lastTransitionTime": "now",
        }]);
        assert_eq!(new["status"]["conditions"], stamped);
    }
}
