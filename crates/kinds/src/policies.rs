//! Admission policies and their bindings: what they may say.
//!
//! What their expressions may say is not known here: whoever compiles them is asked, at the place
//! where the real server asks, so that all that is wrong comes in the same order.

use std::collections::BTreeSet;

use gantry_schema::Invalid;
use serde_json::{Value, json};

use crate::behaviour::Rules;
use crate::faults::{Faults, Path};
use crate::names;
use crate::selector;
use crate::tree::{at, at_mut, each, fill, fill_object, is_empty, is_set, list, same, text};
use crate::webhooks::{FAILURE, MATCH, check_rule};

pub(crate) const POLICY_RULES: Rules = Rules {
    default: |object| {
        fill(object, "spec.failurePolicy", "Fail");
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
    fill(resources, "matchPolicy", "Equivalent");
    fill_object(resources, "namespaceSelector");
    fill_object(resources, "objectSelector");
    for field in ["resourceRules", "excludeResourceRules"] {
        for rule in each(resources, field) {
            fill(rule, "scope", "*");
        }
    }
}

/// Where an expression of a policy stands, which decides what it may mention and must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role<'a> {
    /// A condition of being asked at all.
    Condition,
    /// A variable of this name, for all that follows.
    Variable(&'a str),
    /// A rule.
    Validation,
    /// The words of a refusal.
    Message,
    /// The value of an audit annotation.
    Annotation,
}

/// Says what is wrong with an expression; nothing if it can be used.
pub type Judge<'a> = dyn FnMut(Role<'_>, &str) -> Option<String> + 'a;

/// What is wrong with a policy; `old` is what it replaces.
#[must_use]
pub fn validate_policy(object: &Value, old: Option<&Value>, judge: &mut Judge<'_>) -> Vec<Invalid> {
    let mut faults = Faults::new();
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
        // Types are found by rules.
        if is_empty(constraints, "resourceRules") {
            faults.required(place.child("resourceRules"), "");
        }
    }
    // Conditions that were fine once stay fine.
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

fn check_param_kind(kind: &Value, path: &Path, faults: &mut Faults) {
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

fn check_version(group: &str, version: &str, whole: &str, path: &Path, faults: &mut Faults) {
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
    judge: &mut Judge<'_>,
    faults: &mut Faults,
) {
    if conditions.len() > 64 {
        faults.add(Invalid::too_many(path.clone(), conditions.len(), 64));
    }
    let mut known = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let expression = text(condition, "expression").trim();
        let place = path.child("expression");
        if expression.is_empty() {
            faults.required(place, "");
        } else if let Some(why) = judge(Role::Condition, expression) {
            faults.value(place, expression, &why);
        }
        let name = text(condition, "name");
        if faults.require(condition, &path, "name") {
            faults.text(&path.child("name"), name, names::qualified(name));
            if !known.insert(name) {
                faults.duplicate(path.child("name"), name);
            }
        }
    }
}

fn check_variable(variable: &Value, path: &Path, judge: &mut Judge<'_>, faults: &mut Faults) {
    let name = text(variable, "name");
    if name.trim().is_empty() {
        faults.required(path.child("name"), "name is not specified");
    } else if !is_identifier(name) {
        faults.value(path.child("name"), name, "must be a valid CEL identifier");
    }
    let expression = text(variable, "expression");
    if expression.trim().is_empty() {
        faults.required(path.child("expression"), "expression is not specified");
    } else if let Some(why) = judge(Role::Variable(name), expression) {
        faults.value(path.child("expression"), expression, &why);
    }
}

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

fn check_validation(rule: &Value, path: &Path, judge: &mut Judge<'_>, faults: &mut Faults) {
    let expression = text(rule, "expression");
    if expression.trim().is_empty() {
        faults.required(path.child("expression"), "expression is not specified");
    } else if let Some(why) = judge(Role::Validation, expression) {
        faults.value(path.child("expression"), expression, &why);
    }
    let message = text(rule, "messageExpression");
    if !message.is_empty() {
        let why = if message.trim().is_empty() {
            Some("must be non-empty if specified".to_owned())
        } else {
            judge(Role::Message, message)
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
/// Less than an annotation may hold: an expression that joins texts makes longer ones.
const LONGEST_ANNOTATION: usize = 5 * 1024;

fn check_annotations(object: &Value, path: &Path, judge: &mut Judge<'_>, faults: &mut Faults) {
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
            faults.text(&path.child("key"), &whole, names::qualified(&whole));
        }
        let written = text(annotation, "valueExpression");
        let (expression, place) = (written.trim(), path.child("valueExpression"));
        if expression.is_empty() {
            faults.required(place, "valueExpression is not specified");
        } else if expression.len() > LONGEST_ANNOTATION {
            let detail = format!("must not exceed {LONGEST_ANNOTATION} bytes in length");
            faults.required(place, &detail);
        } else if let Some(why) = judge(Role::Annotation, expression) {
            faults.value(place, written, &why);
        }
        if !known.insert(key) {
            faults.duplicate(path.child("key"), key);
        }
    }
}

fn check_resources(resources: &Value, path: &Path, faults: &mut Faults) {
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

fn check_names(resources: &[Value], path: &Path, faults: &mut Faults) {
    let mut known = BTreeSet::new();
    for (index, name) in resources.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        faults.text(&path.index(index), name, names::path_segment(name, false));
        if !known.insert(name) {
            faults.duplicate(path.index(index), name);
        }
    }
}

fn check_binding(object: &Value) -> Faults {
    let mut faults = Faults::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    if faults.require(spec, &path, "policyName") {
        let name = text(spec, "policyName");
        faults.text(&path.child("policyName"), name, names::subdomain(name));
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

fn check_param_ref(reference: &Value, path: &Path, faults: &mut Faults) {
    let exclusive = "name and selector are mutually exclusive";
    let (name, selects) = (text(reference, "name"), is_set(reference, "selector"));
    if !name.is_empty() {
        faults.text(&path.child("name"), name, names::path_segment(name, false));
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

/// Words that expressions keep for themselves.
const RESERVED: [&str; 21] = [
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
        && !RESERVED.contains(&name)
}
