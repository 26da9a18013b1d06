//! Admission webhooks and admission policies.

use serde_json::Value;

use crate::behaviour::Rules;
use crate::faults::{Faults, Path};
use crate::names;
use crate::selector;
use crate::tree::{at, at_mut, each, fill, fill_object, int, is_empty, is_set, list, text};

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
            fill(hook, "reinvocationPolicy", "Never");
        }
    },
    validate: |object| check_hooks(object).into_vec(),
    validate_update: |new, _| check_hooks(new).into_vec(),
    ..Rules::NONE
};

pub(crate) const POLICY_RULES: Rules = Rules {
    default: |object| {
        fill(object, "spec.failurePolicy", "Fail");
        if let Some(resources) = at_mut(object, "spec.matchConstraints") {
            default_resources(resources);
        }
    },
    validate: |object| check_policy(object).into_vec(),
    validate_update: |new, _| check_policy(new).into_vec(),
    ..Rules::NONE
};

pub(crate) const BINDING_RULES: Rules = Rules {
    default: |object| {
        if let Some(resources) = at_mut(object, "spec.matchResources") {
            default_resources(resources);
        }
    },
    validate: |object| check_binding(object).into_vec(),
    validate_update: |new, _| check_binding(new).into_vec(),
    ..Rules::NONE
};

const FAILURE: [&str; 2] = ["Fail", "Ignore"];
const MATCH: [&str; 2] = ["Equivalent", "Exact"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

fn default_hook(hook: &mut Value) {
    fill(hook, "failurePolicy", "Fail");
    fill(hook, "matchPolicy", "Equivalent");
    fill_object(hook, "namespaceSelector");
    fill_object(hook, "objectSelector");
    fill(hook, "timeoutSeconds", 10);
    if let Some(service) = at_mut(hook, "clientConfig.service") {
        fill(service, "port", 443);
    }
    for rule in each(hook, "rules") {
        fill(rule, "scope", "*");
    }
}

fn default_resources(resources: &mut Value) {
    fill(resources, "matchPolicy", "Equivalent");
    fill_object(resources, "namespaceSelector");
    fill_object(resources, "objectSelector");
    for field in ["resourceRules", "excludeResourceRules"] {
        for rule in each(resources, field) {
            fill(rule, "scope", "*");
        }
    }
}

fn check_hooks(object: &Value) -> Faults {
    let mut faults = Faults::new();
    for (place, hook) in list(object, "webhooks").iter().enumerate() {
        check_hook(hook, &Path::new("webhooks").index(place), &mut faults);
    }
    faults
}

fn check_hook(hook: &Value, path: &Path, faults: &mut Faults) {
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

fn check_client(client: &Value, path: &Path, faults: &mut Faults) {
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
    for field in ["name", "namespace"] {
        faults.require(service, &path, field);
    }
    let port = int(service, "port").unwrap_or(443);
    if !names::port_number(port).is_empty() {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        faults.value(path.child("port"), port, detail);
    }
    let at_path = text(service, "path");
    if !at_path.is_empty() && !at_path.starts_with('/') {
        faults.value(path.child("path"), at_path, "must start with a '/'");
    }
}

fn check_url(url: &str, path: &Path, faults: &mut Faults) {
    let form = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{form}");
        faults.value(path.clone(), scheme, &detail);
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
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

fn check_rule(rule: &Value, path: &Path, faults: &mut Faults) {
    for field in ["operations", "apiGroups", "apiVersions", "resources"] {
        let values = list(rule, field);
        if values.is_empty() {
            faults.required(path.child(field), "");
            continue;
        }
        if field == "operations" {
            for (place, value) in values.iter().enumerate() {
                if !OPERATIONS.contains(&value.as_str().unwrap_or_default()) {
                    let place = path.child(field).index(place);
                    faults.not_supported(place, value.clone(), &OPERATIONS);
                }
            }
        }
        if field != "resources" && values.len() > 1 && values.iter().any(|value| value == "*") {
            let detail = "if '*' is present, must not specify other ";
            let what = match field {
                "operations" => "operations",
                "apiGroups" => "API groups",
                _ => "API versions",
            };
            faults.value(path.child(field), at(rule, field).clone(), &format!("{detail}{what}"));
        }
    }
    faults.one_of(rule, path, "scope", &SCOPES);
}

fn check_resources(resources: &Value, path: &Path, faults: &mut Faults) {
    faults.require_one_of(resources, path, "matchPolicy", &MATCH);
    for field in ["namespaceSelector", "objectSelector"] {
        selector::check(at(resources, field), &path.child(field), faults);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (place, rule) in list(resources, field).iter().enumerate() {
            check_rule(rule, &path.child(field).index(place), faults);
        }
    }
}

fn check_policy(object: &Value) -> Faults {
    let mut faults = Faults::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    faults.require_one_of(spec, &path, "failurePolicy", &FAILURE);
    if is_set(spec, "paramKind") {
        let place = path.child("paramKind");
        faults.require(at(spec, "paramKind"), &place, "apiVersion");
        faults.require(at(spec, "paramKind"), &place, "kind");
    }
    let constraints = at(spec, "matchConstraints");
    let place = path.child("matchConstraints");
    if constraints.is_null() {
        faults.required(place, "");
    } else {
        check_resources(constraints, &place, &mut faults);
        if is_empty(constraints, "resourceRules") {
            faults.required(place.child("resourceRules"), "");
        }
    }
    if is_empty(spec, "validations") && is_empty(spec, "auditAnnotations") {
        let detail = "validations or auditAnnotations must contain at least one item";
        faults.required(path.child("validations"), detail);
        faults.required(path.child("auditAnnotations"), detail);
    }
    for (place, rule) in list(spec, "validations").iter().enumerate() {
        let path = path.child("validations").index(place);
        if text(rule, "expression").trim().is_empty() {
            faults.required(path.child("expression"), "expression is not specified");
        }
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
        faults.one_of(rule, &path, "reason", &reasons);
    }
    for (place, condition) in list(spec, "matchConditions").iter().enumerate() {
        let path = path.child("matchConditions").index(place);
        let name = text(condition, "name");
        if faults.require(condition, &path, "name") {
            faults.text(&path.child("name"), name, names::qualified(name));
        }
        if text(condition, "expression").trim().is_empty() {
            faults.required(path.child("expression"), "");
        }
    }
    for (place, variable) in list(spec, "variables").iter().enumerate() {
        let path = path.child("variables").index(place);
        if is_empty(variable, "name") {
            faults.required(path.child("name"), "name is not specified");
        }
        if text(variable, "expression").trim().is_empty() {
            faults.required(path.child("expression"), "expression is not specified");
        }
    }
    faults
}

fn check_binding(object: &Value) -> Faults {
    let mut faults = Faults::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    if faults.require(spec, &path, "policyName") {
        let name = text(spec, "policyName");
        faults.text(&path.child("policyName"), name, names::subdomain(name));
    }
    if is_set(spec, "matchResources") {
        check_resources(at(spec, "matchResources"), &path.child("matchResources"), &mut faults);
    }
    let actions = list(spec, "validationActions");
    let place = path.child("validationActions");
    if actions.is_empty() {
        faults.required(place.clone(), "at least one validation action is required");
    }
    for (index, action) in actions.iter().enumerate() {
        if !matches!(action.as_str(), Some("Audit" | "Deny" | "Warn")) {
            let place = place.index(index);
            faults.not_supported(place, action.clone(), &["Audit", "Deny", "Warn"]);
        }
        if actions[..index].contains(action) {
            faults.duplicate(place.index(index), action.clone());
        }
    }
    let has = |word: &str| actions.iter().any(|it| it == word);
    if has("Deny") && has("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure \
                      information in the API response and headers serves no purpose)";
        faults.value(place, at(spec, "validationActions").clone(), detail);
    }
    faults
}
