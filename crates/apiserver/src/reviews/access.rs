//! May they: reviews of access, and what is wrong with them.

use gantry_rbac::Attributes;
use gantry_schema::Invalid;
use gantry_schema::names::{label_value, qualified_name};
use serde_json::{Value, json};

use crate::access::Caller;
use crate::selector::{FieldSelector, LabelSelector};

/// Which review it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    /// About anybody.
    Subject,
    /// About anybody, in one namespace.
    Local,
    /// About who asks.
    Own,
}

/// Everything that is wrong with a review.
pub(crate) fn faults(kind: Review, review: &Value) -> Vec<Invalid> {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut faults = Vec::new();
    if !resource.is_null() && !path.is_null() {
        let detail = "cannot be specified in combination with resourceAttributes";
        faults.push(Invalid::value("spec.nonResourceAttributes", &internal(path), detail));
    }
    if resource.is_null() && path.is_null() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        faults.push(Invalid::value("spec.resourceAttributes", &Value::Null, detail));
    }
    let groups = spec["groups"].as_array().is_some_and(|groups| !groups.is_empty());
    if kind != Review::Own && text(spec, "user").is_empty() && !groups {
        let detail = "at least one of user or group must be specified";
        faults.push(Invalid::value("spec.user", &json!(""), detail));
    }
    check_field_selector(&resource["fieldSelector"], &mut faults);
    check_label_selector(&resource["labelSelector"], &mut faults);
    let metadata = &review["metadata"];
    let free =
        |name: &str| name == "managedFields" || (kind == Review::Local && name == "namespace");
    let said = metadata.as_object().into_iter().flatten().filter(|(_, value)| !is_zero(value));
    if said.clone().any(|(name, _)| !free(name)) {
        let detail = match kind {
            Review::Local => "must be empty except for namespace",
            Review::Subject | Review::Own => "must be empty",
        };
        faults.push(Invalid::value("metadata", metadata, detail));
    }
    if kind == Review::Local {
        let namespace = text(resource, "namespace");
        if !resource.is_null() && namespace != text(metadata, "namespace") {
            let field = "spec.resourceAttributes.namespace";
            faults.push(Invalid::value(field, &json!(namespace), "must match metadata.namespace"));
        }
        if !path.is_null() {
            let detail = "disallowed on this kind of request";
            faults.push(Invalid::value("spec.nonResourceAttributes", &internal(path), detail));
        }
    }
    faults
}

/// Whom a review is about, unless it is about who asks.
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

/// What a review asks.
pub(crate) fn asked(review: &Value) -> Attributes {
    let (resource, path) =
        (&review["spec"]["resourceAttributes"], &review["spec"]["nonResourceAttributes"]);
    if resource.is_null() {
        return Attributes::path(text(path, "verb"), text(path, "path"));
    }
    let of = |name| text(resource, name);
    Attributes::resource(of("verb"), of("group"), of("resource"))
        .part(of("subresource"))
        .inside(of("namespace"))
        .named(of("name"))
}

/// What of a review was not understood; empty in most cases.
pub(crate) fn misunderstood(review: &Value) -> String {
    let resource = &review["spec"]["resourceAttributes"];
    let fields = &resource["fieldSelector"];
    let labels = &resource["labelSelector"];
    let bad_fields = FieldSelector::read(text(fields, "rawSelector")).is_err();
    let bad_labels = LabelSelector::read(text(labels, "rawSelector")).is_err();
    let lost = [
        ("fieldSelector", bad_fields, requirements(fields), field as fn(&Value) -> bool),
        ("labelSelector", bad_labels, requirements(labels), label),
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

/// Whether a requirement on fields means something: one value that is, or is not, there.
fn field(requirement: &Value) -> bool {
    matches!(text(requirement, "operator"), "In" | "NotIn")
        && requirement["values"].as_array().is_some_and(|values| values.len() == 1)
}

/// Whether a requirement on labels means something.
fn label(requirement: &Value) -> bool {
    matches!(text(requirement, "operator"), "In" | "NotIn" | "Exists" | "DoesNotExist")
}

fn check_field_selector(selector: &Value, faults: &mut Vec<Invalid>) {
    let path = "spec.resourceAttributes.fieldSelector";
    for (at, requirement) in check_selector(selector, path, faults) {
        if text(requirement, "key").is_empty() {
            faults.push(Invalid::required(format!("{at}.key"), "must be specified"));
        }
        check_values(requirement, &at, faults);
    }
}

fn check_label_selector(selector: &Value, faults: &mut Vec<Invalid>) {
    let path = "spec.resourceAttributes.labelSelector";
    for (at, requirement) in check_selector(selector, path, faults) {
        check_values(requirement, &at, faults);
        let key = text(requirement, "key");
        let wrong = |field: &str, text: &str, detail: &String| {
            Invalid::value(format!("{at}.{field}"), &json!(text), detail)
        };
        faults.extend(qualified_name(key).iter().map(|detail| wrong("key", key, detail)));
        let values = requirement["values"].as_array().into_iter().flatten();
        for (place, value) in values.filter_map(Value::as_str).enumerate() {
            let field = format!("values[{place}]");
            faults.extend(label_value(value).iter().map(|detail| wrong(&field, value, detail)));
        }
    }
}

/// Checks what both selectors have in common, and returns where their requirements are.
fn check_selector<'a>(
    selector: &'a Value,
    path: &str,
    faults: &mut Vec<Invalid>,
) -> Vec<(String, &'a Value)> {
    if selector.is_null() {
        return Vec::new();
    }
    let (raw, requirements) = (text(selector, "rawSelector"), requirements(selector));
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => {
            let detail = "may not specified at the same time as requirements";
            faults.push(Invalid::value(format!("{path}.rawSelector"), &json!(raw), detail));
        }
        (true, true) => {
            let detail =
                format!("when {path} is specified, requirements or rawSelector is required");
            faults.push(Invalid::required(format!("{path}.requirements"), &detail));
        }
        (true, false) | (false, true) => {}
    }
    let at = |place| format!("{path}.requirements[{place}]");
    requirements.iter().enumerate().map(|(place, it)| (at(place), it)).collect()
}

/// Operators want values or none. One that is not known may come from a newer client.
fn check_values(requirement: &Value, at: &str, faults: &mut Vec<Invalid>) {
    let none = requirement["values"].as_array().is_none_or(Vec::is_empty);
    let field = format!("{at}.values");
    match text(requirement, "operator") {
        "In" | "NotIn" if none => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            faults.push(Invalid::required(field, detail));
        }
        "Exists" | "DoesNotExist" if !none => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            faults.push(Invalid::forbidden(field, detail));
        }
        _ => {}
    }
}

fn requirements(selector: &Value) -> &[Value] {
    selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A path as the real server shows it: by the names its own code has for the fields.
fn internal(path: &Value) -> Value {
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
