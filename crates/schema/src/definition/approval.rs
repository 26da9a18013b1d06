//! Groups of Kubernetes itself, which require an approval.

use serde_json::Value;

use super::names::Condition;
use crate::field_error::FieldError;
use crate::format::is_absolute_url;
use crate::go;
use crate::metadata::invalid_value;

const ANNOTATION: &str = "api-approved.kubernetes.io";
const FIELD: &str = "metadata.annotations[api-approved.kubernetes.io]";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Approval {
    Invalid,
    Approved,
    Bypassed,
    Missing,
}

/// Whether a definition in a protected group may stand there. What was let in before is let be.
pub(super) fn validate(definition: &Value, old: Option<&Value>, faults: &mut Vec<FieldError>) {
    if !is_protected(definition) {
        return;
    }
    let (approval, reason) = state(definition);
    if old.is_some_and(|old| state(old).0 == approval) {
        return;
    }
    match approval {
        Approval::Missing => faults.push(FieldError::required(FIELD, &reason)),
        Approval::Invalid => faults.push(invalid_value(FIELD, annotation(definition), &reason)),
        Approval::Approved | Approval::Bypassed => {}
    }
}

/// The condition `KubernetesAPIApprovalPolicyConformant`, for definitions in protected groups.
#[must_use]
pub fn approval_condition(definition: &Value) -> Option<Condition> {
    if !is_protected(definition) {
        return None;
    }
    let (approval, message) = state(definition);
    let (status, reason) = match approval {
        Approval::Invalid => (false, "InvalidAnnotation"),
        Approval::Approved => (true, "ApprovedAnnotation"),
        Approval::Bypassed => (false, "UnapprovedAnnotation"),
        Approval::Missing => (false, "MissingAnnotation"),
    };
    let kind = "KubernetesAPIApprovalPolicyConformant";
    Some(Condition { kind, status, reason, message })
}

fn is_protected(definition: &Value) -> bool {
    let group = definition.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    ["k8s.io", "kubernetes.io"].iter().any(|own| {
        group.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn annotation(definition: &Value) -> &str {
    let annotations = definition.pointer("/metadata/annotations");
    annotations.and_then(|it| it.get(ANNOTATION)?.as_str()).unwrap_or_default()
}

fn state(definition: &Value) -> (Approval, String) {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let text = annotation(definition);
    let start = format!("protected groups must have approval annotation {ANNOTATION:?}");
    if text.is_empty() {
        (Approval::Missing, format!("{start}, {SEE}"))
    } else if text.starts_with("unapproved") {
        (Approval::Bypassed, format!("not approved: {}", go::quote(text)))
    } else if is_absolute_url(text) {
        (Approval::Approved, format!("approved in {text}"))
    } else {
        let reason = "with either a URL or a reason starting with \"unapproved\"";
        (Approval::Invalid, format!("{start} {reason}, {SEE}"))
    }
}
