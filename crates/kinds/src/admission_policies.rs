//! Validates admission policies and their bindings.
//!
//! This crate cannot compile CEL expressions: an [`ExpressionChecker`] checks each one, at the
//! point where kube-apiserver does, so that all errors are reported in the same order.

use std::collections::BTreeSet;

use gantry_schema::FieldError;
use serde_json::{Value, json};

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::selector;
use crate::tree::{
    at, at_mut, each, is_empty, is_set, list, same, set_default, set_default_object, text,
};
use crate::webhooks::{FAILURE, MATCH, check_rule};

pub(crate) const POLICY_RULES: Rules = Rules {
    default: |object| {
        set_default(object, "spec.failurePolicy", "Fail");
        if let Some(resources) = at_mut(object, "spec.matchConstraints") {
            default_resources(resources);
        }
    },
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

fn default_resources(resources: &mut Value) {
    set_default(resources, "matchPolicy", "Equivalent");
    set_default_object(resources, "namespaceSelector");
    set_default_object(resources, "objectSelector");
    for field in ["resourceRules", "excludeResourceRules"] {
        for rule in each(resources, field) {
            set_default(rule, "scope", "*");
        }
    }
}

/// The kind of an expression in a policy, which decides the variables it may use and its result
/// type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionKind<'a> {
    /// A match condition.
    Condition,
    /// A variable of this name, which all following expressions may use.
    Variable(&'a str),
    /// A validation rule.
    Validation,
    /// The message of a rejection.
    Message,
    /// The value of an audit annotation.
    Annotation,
}

/// Returns what is wrong with an expression; nothing if it is valid.
pub type ExpressionChecker<'a> = dyn FnMut(ExpressionKind<'_>, &str) -> Option<String> + 'a;

/// Validates a policy; `old` is the object that it replaces.
#[must_use]
pub fn validate_policy(
    object: &Value,
    old: Option<&Value>,
    judge: &mut ExpressionChecker<'_>,
) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    faults.require_one_of(spec, &path, "failurePolicy", &FAILURE);
    if is_set(spec, "paramKind") {
        check_param_kind(at(spec, "paramKind"), &path.child("paramKind"), &mut faults);
    }
    let constraints = at(spec, "matchConstraints");
    let place = path.child("matchConstraints");
    if constraints.is_null() {
        faults.required(place, "");
    } else {
        check_resources(constraints, &place, &mut faults);
        // Types are determined by the match rules.
        if is_empty(constraints, "resourceRules") {
            faults.required(place.child("resourceRules"), "");
        }
    }
    // Conditions that were valid in the old object stay valid.
    let unchanged = |old: &Value| {
        ["paramKind", "matchConditions"].iter().all(|it| same(spec, at(old, "spec"), it))
    };
    if !old.is_some_and(unchanged) {
        let place = path.child("matchConditions");
        check_conditions(list(spec, "matchConditions"), &place, judge, &mut faults);
    }
    for (index, variable) in list(spec, "variables").iter().enumerate() {
        check_variable(variable, &path.child("variables").index(index), judge, &mut faults);
    }
    if is_empty(spec, "validations") && is_empty(spec, "auditAnnotations") {
        let detail = "validations or auditAnnotations must contain at least one item";
        faults.required(path.child("validations"), detail);
        faults.required(path.child("auditAnnotations"), detail);
        return faults.into_vec();
    }
    for (index, rule) in list(spec, "validations").iter().enumerate() {
        check_validation(rule, &path.child("validations").index(index), judge, &mut faults);
    }
    check_annotations(object, &path.child("auditAnnotations"), judge, &mut faults);
    faults.into_vec()
}

fn check_param_kind(kind: &Value, path: &Path, faults: &mut FieldErrors) {
    let version = text(kind, "apiVersion");
    let place = path.child("apiVersion");
    match version.split('/').collect::<Vec<_>>()[..] {
        [""] => faults.required(place, ""),
        ["", ""] => faults.value(place, version, "version must be specified"),
        [plain] => check_version("", plain, version, &place, faults),
        [group, plain] => check_version(group, plain, version, &place, faults),
        _ => {
            let detail = format!("unexpected GroupVersion string: {version}");
            faults.value(place, version, &detail);
        }
    }
    let name = text(kind, "kind");
    if name.is_empty() {
        faults.required(path.child("kind"), "");
        return;
    }
    let complaints = names::label_1035(&name.to_lowercase());
    if !complaints.is_empty() {
        let detail =
            format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
        faults.value(path.child("kind"), name, &detail);
    }
}

fn check_version(group: &str, version: &str, whole: &str, path: &Path, faults: &mut FieldErrors) {
    let complaints = if group.is_empty() { Vec::new() } else { names::subdomain(group) };
    if !complaints.is_empty() {
        faults.value(path.clone(), group, &complaints.join(","));
    }
    if version.is_empty() {
        faults.value(path.clone(), whole, "version must be specified");
        return;
    }
    let complaints = names::label_1035(version);
    if !complaints.is_empty() {
        faults.value(path.clone(), version, &complaints.join(","));
    }
}

/// Checks the conditions of a policy or of a webhook.
pub(crate) fn check_conditions(
    conditions: &[Value],
    path: &Path,
    judge: &mut ExpressionChecker<'_>,
    faults: &mut FieldErrors,
) {
    if conditions.len() > 64 {
        faults.add(FieldError::too_many(path.clone(), conditions.len(), 64));
    }
    let mut known = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let expression = text(condition, "expression").trim();
        let place = path.child("expression");
        if expression.is_empty() {
            faults.required(place, "");
        } else if let Some(why) = judge(ExpressionKind::Condition, expression) {
            faults.value(place, expression, &why);
        }
        let name = text(condition, "name");
        if faults.require(condition, &path, "name") {
            faults.invalid_text(&path.child("name"), name, names::qualified(name));
            if !known.insert(name) {
                faults.duplicate(path.child("name"), name);
            }
        }
    }
}

fn check_variable(
    variable: &Value,
    path: &Path,
    judge: &mut ExpressionChecker<'_>,
    faults: &mut FieldErrors,
) {
    let name = text(variable, "name");
    if name.trim().is_empty() {
        faults.required(path.child("name"), "name is not specified");
    } else if !is_identifier(name) {
        faults.value(path.child("name"), name, "must be a valid CEL identifier");
    }
    let expression = text(variable, "expression");
    if expression.trim().is_empty() {
        faults.required(path.child("expression"), "expression is not specified");
    } else if let Some(why) = judge(ExpressionKind::Variable(name), expression) {
        faults.value(path.child("expression"), expression, &why);
    }
}

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

fn check_validation(
    rule: &Value,
    path: &Path,
    judge: &mut ExpressionChecker<'_>,
    faults: &mut FieldErrors,
) {
    let expression = text(rule, "expression");
    if expression.trim().is_empty() {
        faults.required(path.child("expression"), "expression is not specified");
    } else if let Some(why) = judge(ExpressionKind::Validation, expression) {
        faults.value(path.child("expression"), expression, &why);
    }
    let message = text(rule, "messageExpression");
    if !message.is_empty() {
        let why = if message.trim().is_empty() {
            Some("must be non-empty if specified".to_owned())
        } else {
            judge(ExpressionKind::Message, message)
        };
        if let Some(why) = why {
            faults.value(path.child("messageExpression"), message, &why);
        }
    }
    let message = text(rule, "message");
    if !message.is_empty() && message.trim().is_empty() {
        faults.value(path.child("message"), message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        faults.value(path.child("message"), message, "must not contain line breaks");
    }
    faults.one_of(rule, path, "reason", &REASONS);
}

const MOST_ANNOTATIONS: usize = 20;
/// Less than the size limit of annotations: an expression that concatenates texts produces longer
/// ones.
const LONGEST_ANNOTATION: usize = 5 * 1024;

fn check_annotations(
    object: &Value,
    path: &Path,
    judge: &mut ExpressionChecker<'_>,
    faults: &mut FieldErrors,
) {
    let annotations = list(object, "spec.auditAnnotations");
    if annotations.len() > MOST_ANNOTATIONS {
        let shown = annotations.iter().map(
            |it| json!({ "Key": text(it, "key"), "ValueExpression": text(it, "valueExpression") }),
        );
        let detail = format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations");
        faults.value(path.clone(), shown.collect::<Vec<_>>(), &detail);
    }
    let policy = text(object, "metadata.name");
    let mut known = BTreeSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let path = path.index(index);
        let key = text(annotation, "key");
        if policy.is_empty() {
            faults.value(path.child("key"), key, "requires metadata.name be non-empty");
        } else {
            let whole = format!("{policy}/{key}");
            faults.invalid_text(&path.child("key"), &whole, names::qualified(&whole));
        }
        let written = text(annotation, "valueExpression");
        let (expression, place) = (written.trim(), path.child("valueExpression"));
        if expression.is_empty() {
            faults.required(place, "valueExpression is not specified");
        } else if expression.len() > LONGEST_ANNOTATION {
            let detail = format!("must not exceed {LONGEST_ANNOTATION} bytes in length");
            faults.required(place, &detail);
        } else if let Some(why) = judge(ExpressionKind::Annotation, expression) {
            faults.value(place, written, &why);
        }
        if !known.insert(key) {
            faults.duplicate(path.child("key"), key);
        }
    }
}

fn check_resources(resources: &Value, path: &Path, faults: &mut FieldErrors) {
    faults.require_one_of(resources, path, "matchPolicy", &MATCH);
    for field in ["namespaceSelector", "objectSelector"] {
        selector::check(at(resources, field), &path.child(field), faults);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in list(resources, field).iter().enumerate() {
            let path = path.child(field).index(index);
            check_names(list(rule, "resourceNames"), &path.child("resourceNames"), faults);
            check_rule(rule, &path, faults);
        }
    }
}

fn check_names(resources: &[Value], path: &Path, faults: &mut FieldErrors) {
    let mut known = BTreeSet::new();
    for (index, name) in resources.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        faults.invalid_text(&path.index(index), name, names::path_segment(name, false));
        if !known.insert(name) {
            faults.duplicate(path.index(index), name);
        }
    }
}

fn check_binding(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    if faults.require(spec, &path, "policyName") {
        let name = text(spec, "policyName");
        faults.invalid_text(&path.child("policyName"), name, names::subdomain(name));
    }
    if is_set(spec, "paramRef") {
        check_param_ref(at(spec, "paramRef"), &path.child("paramRef"), &mut faults);
    }
    if is_set(spec, "matchResources") {
        check_resources(at(spec, "matchResources"), &path.child("matchResources"), &mut faults);
    }
    let actions = list(spec, "validationActions");
    let place = path.child("validationActions");
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
        faults.value(place.clone(), at(spec, "validationActions").clone(), detail);
    }
    if actions.is_empty() {
        faults.required(place, "at least one validation action is required");
    }
    faults
}

fn check_param_ref(reference: &Value, path: &Path, faults: &mut FieldErrors) {
    let exclusive = "name and selector are mutually exclusive";
    let (name, selects) = (text(reference, "name"), is_set(reference, "selector"));
    if !name.is_empty() {
        faults.invalid_text(&path.child("name"), name, names::path_segment(name, false));
        if selects {
            faults.forbidden(path.child("name"), exclusive);
        }
    }
    if selects {
        selector::check(at(reference, "selector"), &path.child("selector"), faults);
        if !name.is_empty() {
            faults.forbidden(path.child("selector"), exclusive);
        }
    }
    if name.is_empty() && !selects {
        faults.required(path.clone(), "one of name or selector must be specified");
    }
    faults.require_one_of(reference, path, "parameterNotFoundAction", &["Deny", "Allow"]);
}

/// Identifiers that CEL reserves.
const RESERVED_IDENTIFIERS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

fn is_identifier(name: &str) -> bool {
    let letter = |it: u8| it == b'_' || it.is_ascii_alphabetic();
    name.bytes().next().is_some_and(letter)
        && name.bytes().all(|it| letter(it) || it.is_ascii_digit())
        && !RESERVED_IDENTIFIERS.contains(&name)
}
