//! Defines the fields that field selectors support.

use std::borrow::Cow;

use serde_json::Value;

use crate::tree::{at, list, text};

/// The fields that every kind supports.
const COMMON_FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

const POD: &[&str] = &[
    "spec.nodeName",
    "spec.host",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];
const CORE_EVENT: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];
const EVENT: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

/// Returns the fields of a built-in kind besides its name and namespace; none for most kinds.
#[must_use]
pub fn selectable_fields(group: &str, resource: &str) -> &'static [&'static str] {
    match (group, resource) {
        ("", "pods") => POD,
        ("", "nodes") => &["spec.unschedulable"],
        ("", "events") => CORE_EVENT,
        ("events.k8s.io", "events") => EVENT,
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

/// Returns the same fields under their names in stored objects: events are stored in the older of
/// their two API groups, and both groups show the same objects.
#[must_use]
pub fn stored_fields(group: &str, resource: &str) -> &'static [&'static str] {
    match (group, resource) {
        ("events.k8s.io", "events") => CORE_EVENT,
        _ => selectable_fields(group, resource),
    }
}

/// Returns the name of a field in stored objects.
#[must_use]
pub fn stored_name(field: &str) -> Cow<'_, str> {
    if field == "reportingController" {
        return Cow::Borrowed("reportingComponent");
    }
    match field.strip_prefix("regarding.") {
        Some(rest) => Cow::Owned(format!("involvedObject.{rest}")),
        None => Cow::Borrowed(field),
    }
}

/// Checks whether a list can be filtered by a field.
///
/// # Errors
///
/// The message of a 400. It differs between kinds with and without fields of their own; `own` are
/// the fields of a custom kind, or what [`selectable_fields`] returns for a built-in one.
pub fn check_field(field: &str, own: &[&str], is_custom: bool) -> Result<(), UnknownField> {
    if COMMON_FIELDS.contains(&field) || own.contains(&field) {
        return Ok(());
    }
    let field = field.to_owned();
    if own.is_empty() && !is_custom {
        return Err(UnknownField::Common { field });
    }
    Err(UnknownField::Own { field })
}

/// Why a list cannot be filtered by a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownField {
    /// The kind has no fields of its own.
    #[error(
        "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    )]
    Common {
        /// The field that was asked for.
        field: String,
    },
    /// The kind has fields of its own, but not this one.
    #[error("field label not supported: {field}")]
    Own {
        /// The field that was asked for.
        field: String,
    },
}

/// Returns the value of a field as selectors compare it: text, empty where there is none.
#[must_use]
pub fn field_value(object: &Value, field: &str) -> String {
    match field {
        "spec.host" => text(object, "spec.nodeName").to_owned(),
        "status.podIPs" => {
            let all = list(object, "status.podIPs").iter().map(|entry| text(entry, "ip"));
            all.collect::<Vec<_>>().join(",")
        }
        "spec.hostNetwork" | "spec.unschedulable" => {
            at(object, field).as_bool().unwrap_or_default().to_string()
        }
        "status.replicas" => number(at(object, field)),
        "status.successful" => number(at(object, "status.succeeded")),
        // Core events have no reporting component, those of `events.k8s.io` no source.
        "source" => {
            first_non_empty(text(object, "source.component"), text(object, "reportingComponent"))
        }
        "reportingComponent" => {
            first_non_empty(text(object, "reportingComponent"), text(object, "source.component"))
        }
        _ => match at(object, field) {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        },
    }
}

fn number(value: &Value) -> String {
    value.as_i64().unwrap_or_default().to_string()
}

fn first_non_empty(one: &str, other: &str) -> String {
    if one.is_empty() { other.to_owned() } else { one.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_compared_as_text() {
        let pod = json!({
            "metadata": { "name": "a" },
            "spec": { "nodeName": "n" },
            "status": { "podIPs": [{ "ip": "1" }, { "ip": "2" }] },
        });
        let table = [
            ("metadata.name", "a"),
            ("spec.host", "n"),
            ("spec.hostNetwork", "false"),
            ("status.podIPs", "1,2"),
            ("status.nominatedNodeName", ""),
        ];
        for (field, expected) in table {
            assert_eq!(field_value(&pod, field), expected, "{field}");
        }
        let job = json!({ "status": { "succeeded": 3 } });
        assert_eq!(field_value(&job, "status.successful"), "3");
        let event = json!({ "source": { "component": "k" } });
        assert_eq!(field_value(&event, "reportingComponent"), "k");
        for field in selectable_fields("events.k8s.io", "events") {
            let stored = stored_name(field);
            assert!(stored_fields("events.k8s.io", "events").contains(&&*stored), "{field}");
        }
    }

    #[test]
    fn unknown_fields_are_refused_in_two_ways() {
        let said = |field: &str, own: &[&str], custom: bool| {
            check_field(field, own, custom).map_err(|error| error.to_string())
        };
        assert_eq!(
            said("data.x", selectable_fields("", "configmaps"), false).unwrap_err(),
            "\"data.x\" is not a known field selector: only \"metadata.name\", \
             \"metadata.namespace\""
        );
        let pods = selectable_fields("", "pods");
        assert_eq!(
            said("spec.foo", pods, false).unwrap_err(),
            "field label not supported: spec.foo"
        );
        assert_eq!(said("spec.a", &[], true).unwrap_err(), "field label not supported: spec.a");
        for field in ["metadata.name", "spec.nodeName"] {
            assert_eq!(said(field, pods, false), Ok(()));
        }
    }
}
