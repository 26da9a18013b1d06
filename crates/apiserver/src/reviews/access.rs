//! Access reviews: their kinds and their validation.

use gantry_rbac::Attributes;
use gantry_schema::FieldError;
use gantry_schema::names::{label_value, qualified_name};
use serde_json::{Value, json};

use crate::access::Caller;
use crate::request::selector::{FieldSelector, LabelSelector};

/// The kind of an access review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessReview {
    /// About any user.
    Subject,
    /// About any user, in one namespace.
    Local,
    /// About the caller.
    SelfSubject,
}

/// Returns everything that is wrong with a review.
pub(crate) fn validate(kind: AccessReview, review: &Value) -> Vec<FieldError> {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut faults = Vec::new();
    if !resource.is_null() && !path.is_null() {
        let detail = "cannot be specified in combination with resourceAttributes";
        faults.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            &internal_path(path),
            detail,
        ));
    }
    if resource.is_null() && path.is_null() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        faults.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, detail));
    }
    let groups = spec["groups"].as_array().is_some_and(|groups| !groups.is_empty());
    if kind != AccessReview::SelfSubject && text(spec, "user").is_empty() && !groups {
        let detail = "at least one of user or group must be specified";
        faults.push(FieldError::invalid("spec.user", &json!(""), detail));
    }
    check_field_selector(&resource["fieldSelector"], &mut faults);
    check_label_selector(&resource["labelSelector"], &mut faults);
    let metadata = &review["metadata"];
    let free = |name: &str| {
        name == "managedFields" || (kind == AccessReview::Local && name == "namespace")
    };
    let said = metadata.as_object().into_iter().flatten().filter(|(_, value)| !is_zero(value));
    if said.clone().any(|(name, _)| !free(name)) {
        let detail = match kind {
            AccessReview::Local => "must be empty except for namespace",
            AccessReview::Subject | AccessReview::SelfSubject => "must be empty",
        };
        faults.push(FieldError::invalid("metadata", metadata, detail));
    }
    if kind == AccessReview::Local {
        let namespace = text(resource, "namespace");
        if !resource.is_null() && namespace != text(metadata, "namespace") {
            let field = "spec.resourceAttributes.namespace";
            faults.push(FieldError::invalid(
                field,
                &json!(namespace),
                "must match metadata.namespace",
            ));
        }
        if !path.is_null() {
            let detail = "disallowed on this kind of request";
            faults.push(FieldError::invalid(
                "spec.nonResourceAttributes",
                &internal_path(path),
                detail,
            ));
        }
    }
    faults
}

/// Returns the user a review is about, unless it is about the caller.
pub(crate) fn subject(review: &Value) -> Caller {
    let spec = &review["spec"];
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    Caller {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

/// Returns the attributes a review asks about.
pub(crate) fn attributes(review: &Value) -> Attributes {
    let (resource, path) =
        (&review["spec"]["resourceAttributes"], &review["spec"]["nonResourceAttributes"]);
    if resource.is_null() {
        return Attributes::path(text(path, "verb"), text(path, "path"));
    }
    let of = |name| text(resource, name);
    Attributes::resource(of("verb"), of("group"), of("resource"))
        .with_subresource(of("subresource"))
        .in_namespace(of("namespace"))
        .with_name(of("name"))
}

/// Returns which selectors of a review were not understood; empty in most cases.
pub(crate) fn selector_errors(review: &Value) -> String {
    let resource = &review["spec"]["resourceAttributes"];
    let fields = &resource["fieldSelector"];
    let labels = &resource["labelSelector"];
    let bad_fields = FieldSelector::read(text(fields, "rawSelector")).is_err();
    let bad_labels = LabelSelector::read(text(labels, "rawSelector")).is_err();
    let lost = [
        (
            "fieldSelector",
            bad_fields,
            requirements(fields),
            is_valid_field_requirement as fn(&Value) -> bool,
        ),
        ("labelSelector", bad_labels, requirements(labels), is_valid_label_requirement),
    ];
    let mut errors = Vec::new();
    for (name, bad, requirements, is_known) in lost {
        let known = requirements.iter().filter(|&it| is_known(it)).count();
        if !bad && known == requirements.len() {
            continue;
        }
        let partly = if known > 0 { "partially " } else { "" };
        errors.push(format!("spec.resourceAttributes.{name} {partly}ignored due to parse error"));
    }
    errors.join("; ")
}

/// Whether a field requirement is usable: one value that must, or must not, match.
fn is_valid_field_requirement(requirement: &Value) -> bool {
    matches!(text(requirement, "operator"), "In" | "NotIn")
        && requirement["values"].as_array().is_some_and(|values| values.len() == 1)
}

/// Whether a label requirement is usable.
fn is_valid_label_requirement(requirement: &Value) -> bool {
    matches!(text(requirement, "operator"), "In" | "NotIn" | "Exists" | "DoesNotExist")
}

fn check_field_selector(selector: &Value, faults: &mut Vec<FieldError>) {
    let path = "spec.resourceAttributes.fieldSelector";
    for (at, requirement) in check_selector(selector, path, faults) {
        if text(requirement, "key").is_empty() {
            faults.push(FieldError::required(format!("{at}.key"), "must be specified"));
        }
        check_values(requirement, &at, faults);
    }
}

fn check_label_selector(selector: &Value, faults: &mut Vec<FieldError>) {
    let path = "spec.resourceAttributes.labelSelector";
    for (at, requirement) in check_selector(selector, path, faults) {
        check_values(requirement, &at, faults);
        let key = text(requirement, "key");
        let wrong = |field: &str, text: &str, detail: &String| {
            FieldError::invalid(format!("{at}.{field}"), &json!(text), detail)
        };
        faults.extend(qualified_name(key).iter().map(|detail| wrong("key", key, detail)));
        let values = requirement["values"].as_array().into_iter().flatten();
        for (place, value) in values.filter_map(Value::as_str).enumerate() {
            let field = format!("values[{place}]");
            faults.extend(label_value(value).iter().map(|detail| wrong(&field, value, detail)));
        }
    }
}

/// Checks what both selectors have in common, and returns the path of their requirements.
fn check_selector<'a>(
    selector: &'a Value,
    path: &str,
    faults: &mut Vec<FieldError>,
) -> Vec<(String, &'a Value)> {
    if selector.is_null() {
        return Vec::new();
    }
    let (raw, requirements) = (text(selector, "rawSelector"), requirements(selector));
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => {
            let detail = "may not specified at the same time as requirements";
            faults.push(FieldError::invalid(format!("{path}.rawSelector"), &json!(raw), detail));
        }
        (true, true) => {
            let detail =
                format!("when {path} is specified, requirements or rawSelector is required");
            faults.push(FieldError::required(format!("{path}.requirements"), &detail));
        }
        (true, false) | (false, true) => {}
    }
    let at = |place| format!("{path}.requirements[{place}]");
    requirements.iter().enumerate().map(|(place, it)| (at(place), it)).collect()
}

/// Checks that operators have values or none, as they need. An unknown one may come from a newer
/// client.
fn check_values(requirement: &Value, at: &str, faults: &mut Vec<FieldError>) {
    let none = requirement["values"].as_array().is_none_or(Vec::is_empty);
    let field = format!("{at}.values");
    match text(requirement, "operator") {
        "In" | "NotIn" if none => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            faults.push(FieldError::required(field, detail));
        }
        "Exists" | "DoesNotExist" if !none => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            faults.push(FieldError::forbidden(field, detail));
        }
        _ => {}
    }
}

fn requirements(selector: &Value) -> &[Value] {
    selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns a path as the real server shows it: by the names of the fields in its own code.
fn internal_path(path: &Value) -> Value {
    json!({ "Path": text(path, "path"), "Verb": text(path, "verb") })
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}
