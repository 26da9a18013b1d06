//! Validates admission webhooks.

use gantry_schema::FieldError;
use serde_json::Value;

use crate::admission_policies::{ExpressionChecker, check_conditions};
use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::selector;
use crate::tree::{
    at, at_mut, each, int, is_empty, is_set, list, set_default, set_default_object, text,
};

pub(crate) const VALIDATING_RULES: Rules = Rules {
    default: |object| each(object, "webhooks").for_each(default_hook),
    validate: |object| check_hooks(object).into_vec(),
    validate_update: |new, _| check_hooks(new).into_vec(),
    ..Rules::NONE
};

pub(crate) const MUTATING_RULES: Rules = Rules {
    default: |object| {
        for hook in each(object, "webhooks") {
            default_hook(hook);
            set_default(hook, "reinvocationPolicy", "Never");
        }
    },
    validate: |object| check_hooks(object).into_vec(),
    validate_update: |new, _| check_hooks(new).into_vec(),
    ..Rules::NONE
};

pub(crate) const FAILURE: [&str; 2] = ["Fail", "Ignore"];
pub(crate) const MATCH: [&str; 2] = ["Equivalent", "Exact"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

fn default_hook(hook: &mut Value) {
    set_default(hook, "failurePolicy", "Fail");
    set_default(hook, "matchPolicy", "Equivalent");
    set_default_object(hook, "namespaceSelector");
    set_default_object(hook, "objectSelector");
    set_default(hook, "timeoutSeconds", 10);
    if let Some(service) = at_mut(hook, "clientConfig.service") {
        set_default(service, "port", 443);
    }
    for rule in each(hook, "rules") {
        set_default(rule, "scope", "*");
    }
}

/// Validates the names and conditions of webhooks; `old` is the object that is replaced.
///
/// `judge` checks expressions: it returns what is wrong with one.
#[must_use]
pub fn validate_conditions(
    object: &Value,
    old: Option<&Value>,
    judge: &mut ExpressionChecker<'_>,
) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let hooks = list(object, "webhooks");
    // Conditions that were valid in the old object stay valid.
    let known: Vec<&Value> = old
        .map(|old| list(old, "webhooks"))
        .unwrap_or_default()
        .iter()
        .map(|hook| at(hook, "matchConditions"))
        .collect();
    for (place, hook) in hooks.iter().enumerate() {
        let path = Path::new("webhooks").index(place);
        if !known.contains(&at(hook, "matchConditions")) {
            let conditions = list(hook, "matchConditions");
            check_conditions(conditions, &path.child("matchConditions"), judge, &mut faults);
        }
        let name = text(hook, "name");
        if hooks[..place].iter().any(|other| text(other, "name") == name) {
            faults.duplicate(path.child("name"), name);
        }
    }
    faults.into_vec()
}

fn check_hooks(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    for (place, hook) in list(object, "webhooks").iter().enumerate() {
        check_hook(hook, &Path::new("webhooks").index(place), &mut faults);
    }
    faults
}

fn check_hook(hook: &Value, path: &Path, faults: &mut FieldErrors) {
    let name = text(hook, "name");
    if faults.require(hook, path, "name") {
        let complaints = names::subdomain(name);
        if !complaints.is_empty() {
            faults.value(path.child("name"), name, &complaints.join(","));
        } else if name.split('.').count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            faults.value(path.child("name"), name, detail);
        }
    }
    for (place, rule) in list(hook, "rules").iter().enumerate() {
        check_rule(rule, &path.child("rules").index(place), faults);
    }
    faults.one_of(hook, path, "failurePolicy", &FAILURE);
    faults.one_of(hook, path, "matchPolicy", &MATCH);
    if is_empty(hook, "sideEffects") {
        faults.required(path.child("sideEffects"), "must specify one of None, NoneOnDryRun");
    } else {
        faults.one_of(hook, path, "sideEffects", &["None", "NoneOnDryRun"]);
    }
    if let Some(seconds) = int(hook, "timeoutSeconds").filter(|it| !(1..=30).contains(it)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        faults.value(path.child("timeoutSeconds"), seconds, detail);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if is_set(hook, field) {
            selector::check(at(hook, field), &path.child(field), faults);
        }
    }
    faults.one_of(hook, path, "reinvocationPolicy", &["IfNeeded", "Never"]);
    let versions = list(hook, "admissionReviewVersions");
    let place = path.child("admissionReviewVersions");
    if versions.is_empty() {
        faults.required(place, "must specify one of v1, v1beta1");
    } else if !versions.iter().any(|it| matches!(it.as_str(), Some("v1" | "v1beta1"))) {
        let value = at(hook, "admissionReviewVersions").clone();
        faults.value(place, value, "must include at least one of v1, v1beta1");
    }
    check_client(at(hook, "clientConfig"), &path.child("clientConfig"), faults);
}

fn check_client(client: &Value, path: &Path, faults: &mut FieldErrors) {
    let service = at(client, "service");
    let url = at(client, "url").as_str();
    if service.is_null() == url.is_none() {
        let detail = "exactly one of url or service is required";
        faults.required(path.clone(), detail);
        return;
    }
    if let Some(url) = url {
        check_url(url, &path.child("url"), faults);
        return;
    }
    let path = path.child("service");
    // Upstream reports the wrong one of the two fields, and clients look for the field it names.
    for (field, blamed) in [("namespace", "name"), ("name", "namespace")] {
        if is_empty(service, field) {
            faults.required(path.child(blamed), "");
        }
    }
    let port = int(service, "port").unwrap_or(443);
    if !names::port_number(port).is_empty() {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        faults.value(path.child("port"), port, detail);
    }
    check_path(text(service, "path"), &path.child("path"), faults);
}

fn check_path(at_path: &str, path: &Path, faults: &mut FieldErrors) {
    if matches!(at_path, "" | "/") {
        return;
    }
    if at_path == "//" {
        faults.value(path.clone(), at_path, "segment[0] may not be empty");
        return;
    }
    if !at_path.starts_with('/') {
        faults.value(path.clone(), at_path, "must start with a '/'");
    }
    let mut letters = at_path.chars();
    letters.next();
    let rest = letters.as_str();
    for (place, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            faults.value(path.clone(), at_path, &format!("segment[{place}] may not be empty"));
            continue;
        }
        for complaint in names::subdomain(step) {
            faults.value(path.clone(), at_path, &format!("segment[{place}]: {complaint}"));
        }
    }
}

fn check_url(url: &str, path: &Path, faults: &mut FieldErrors) {
    let form = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{form}");
        faults.value(path.clone(), scheme, &detail);
    }
    // Without a scheme there is no host either, only a path.
    let host = if scheme.is_empty() { "" } else { rest };
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() {
        faults.value(path.clone(), host, &format!("host must be specified{form}"));
    }
    if let Some((user, _)) = host.split_once('@') {
        let detail = "user information is not permitted in the URL";
        faults.value(path.clone(), user, detail);
    }
    if let Some((_, fragment)) = rest.split_once('#') {
        let detail = "fragments are not permitted in the URL";
        faults.value(path.clone(), fragment, detail);
    }
    if let Some((_, query)) = rest.split('#').next().unwrap_or_default().split_once('?') {
        let detail = "query parameters are not permitted in the URL";
        faults.value(path.clone(), query, detail);
    }
}

/// Validates one rule that selects requests.
pub(crate) fn check_rule(rule: &Value, path: &Path, faults: &mut FieldErrors) {
    for (field, what) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let (values, place) = (list(rule, field), path.child(field));
        if values.is_empty() {
            faults.required(place.clone(), "");
        }
        if values.len() > 1 && values.iter().any(|value| value == "*") {
            let detail = format!("if '*' is present, must not specify other {what}");
            faults.value(place.clone(), at(rule, field).clone(), &detail);
        }
        for (index, value) in values.iter().enumerate() {
            let word = value.as_str().unwrap_or_default();
            if field == "operations" && !OPERATIONS.contains(&word) {
                faults.not_supported(place.index(index), word, &OPERATIONS);
            }
            if field == "apiVersions" && word.is_empty() {
                faults.required(place.index(index), "");
            }
        }
    }
    check_rule_resources(at(rule, "resources"), &path.child("resources"), faults);
    faults.one_of(rule, path, "scope", &SCOPES);
}

fn check_rule_resources(resources: &Value, path: &Path, faults: &mut FieldErrors) {
    let words: Vec<&str> =
        resources.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if words.is_empty() {
        faults.required(path.clone(), "");
    }
    let (mut all_parts, mut of_all) = (Vec::new(), Vec::new());
    let mut whole = false;
    for (index, word) in words.iter().enumerate() {
        let place = path.index(index);
        let (resource, part) = match word.split_once('/') {
            _ if word.is_empty() => {
                faults.required(place, "");
                continue;
            }
            None => {
                // The last one decides, as in upstream.
                whole = *word != "*";
                continue;
            }
            Some(halves) => halves,
        };
        if all_parts.contains(&resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {word}");
            faults.value(place.clone(), *word, &detail);
        }
        if of_all.contains(&part) {
            let detail = format!("if '*/{part}' is present, must not specify {word}");
            faults.value(place, *word, &detail);
        }
        if part == "*" {
            all_parts.push(resource);
        }
        if resource == "*" {
            of_all.push(part);
        }
    }
    if words.len() > 1 && words.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        faults.value(path.clone(), resources.clone(), detail);
    }
    if words.contains(&"*") && whole {
        let detail = "if '*' is present, must not specify other resources without subresources";
        faults.value(path.clone(), resources.clone(), detail);
    }
}
