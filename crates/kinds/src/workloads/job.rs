//! Defaults and validates Jobs.

use gantry_schema::{FieldError, FieldErrorReason};
use serde_json::{Map, Value, json};

use super::default_template;
use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::pod::{check_template, with_old_fields};
use crate::selector;
use crate::tree::{
    at, at_mut, each, flag, int, is_empty, is_set, list, put, same, set_default, text,
};

/// The labels that tie pods to their Job: its UID and its name. The older spellings stay for
/// clients that select by them.
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
const OLD_UID_LABEL: &str = "controller-uid";
const OLD_NAME_LABEL: &str = "job-name";

pub(crate) const RULES: Rules = Rules {
    default: |object| {
        default_template(object, "spec.template");
        default_labels(object);
        if let Some(spec) = at_mut(object, "spec") {
            default_spec(spec);
            set_default(spec, "completionMode", "NonIndexed");
            set_default(spec, "suspend", false);
            let policy =
                if is_set(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
            set_default(spec, "podReplacementPolicy", policy);
            set_default(spec, "manualSelector", false);
        }
    },
    create: |object, _| generate_selector(object),
    validate: |object| validate(object).into_vec(),
    validate_update,
    validate_status,
    warnings: crate::warnings::workload,
    ..Rules::NONE
};

fn default_spec(spec: &mut Value) {
    if !is_set(spec, "completions") && !is_set(spec, "parallelism") {
        put(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    let limit = if is_set(spec, "backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    set_default(spec, "backoffLimit", limit);
    default_patterns(spec);
}

/// Sets the defaults that job templates have as well.
pub(crate) fn default_patterns(spec: &mut Value) {
    for rule in each(spec, "podFailurePolicy.rules") {
        for pattern in each(rule, "onPodConditions") {
            set_default(pattern, "status", "True");
        }
    }
}

/// Generates the selector of a Job, unless the client set one: a Job must own its pods exclusively.
fn generate_selector(object: &mut Value) {
    if flag(object, "spec.manualSelector") {
        return;
    }
    let (name, uid) = (text(object, "metadata.name"), text(object, "metadata.uid"));
    let own = [
        (UID_LABEL, json!(uid)),
        (NAME_LABEL, json!(name)),
        (OLD_UID_LABEL, json!(uid)),
        (OLD_NAME_LABEL, json!(name)),
    ];
    // Labels of the Job that came from its template get the same; the Job's own labels stay.
    let labels = at(object, "metadata.labels");
    let inherited = is_empty(object, "metadata.labels")
        || labels == at(object, "spec.template.metadata.labels");
    add(object, "spec.selector.matchLabels", &own[..1]);
    add(object, "spec.template.metadata.labels", &own);
    if inherited {
        add(object, "metadata.labels", &own);
    }
}

/// Copies the labels of the template to a Job without labels.
fn default_labels(object: &mut Value) {
    let labels = at(object, "spec.template.metadata.labels").clone();
    if labels.is_object() && is_empty(object, "metadata.labels") {
        put(object, "metadata.labels", labels);
    }
}

fn add(object: &mut Value, path: &str, labels: &[(&str, Value)]) {
    let mut all: Map<String, Value> = at(object, path).as_object().cloned().unwrap_or_default();
    for (key, value) in labels {
        all.insert((*key).to_owned(), value.clone());
    }
    put(object, path, Value::Object(all));
}

fn validate(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    if !flag(object, "spec.manualSelector") {
        check_generated(object, &mut faults);
    }
    check_spec(object, &mut faults);
    faults
}

fn check_generated(object: &Value, faults: &mut FieldErrors) {
    let path = Path::new("spec");
    let wanted = json!({ "matchLabels": { UID_LABEL: text(object, "metadata.uid") } });
    if is_set(object, "spec.selector") && *at(object, "spec.selector") != wanted {
        let detail = "`selector` not auto-generated";
        faults.value(path.child("selector"), at(object, "spec.selector").clone(), detail);
    }
}

fn check_spec(object: &Value, faults: &mut FieldErrors) {
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    check_template_spec(spec, &path, faults);
    let value = at(spec, "selector");
    if value.is_null() {
        faults.required(path.child("selector"), "");
    } else {
        selector::check(value, &path.child("selector"), faults);
    }
    let labels = at(spec, "template.metadata.labels");
    if !selector::matches(value, labels) {
        let path = path.child("template").child("metadata").child("labels");
        faults.value(path, labels.clone(), "`selector` does not match template `labels`");
    }
}

/// Validates what Jobs and the templates of CronJobs share.
pub(super) fn check_template_spec(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for field in counts {
        faults.not_negative(spec, path, field);
    }
    if is_set(spec, "maxFailedIndexes") && !is_set(spec, "backoffLimitPerIndex") {
        let detail = "when maxFailedIndexes is specified";
        faults.required(path.child("backoffLimitPerIndex"), detail);
    }
    if let Some(owner) = at(spec, "managedBy").as_str() {
        crate::networking::check_domain_path(owner, &path.child("managedBy"), faults);
    }
    check_indexes(spec, path, faults);
    check_failure_policy(spec, &path.child("podFailurePolicy"), faults);
    if is_set(spec, "successPolicy") && text(spec, "completionMode") != "Indexed" {
        let shown = json!({ "Rules": at(spec, "successPolicy.rules") });
        faults.value(path.child("successPolicy"), shown, "requires indexed completion mode");
    }
    if is_set(spec, "podReplacementPolicy") {
        let policies: &[&str] = if is_set(spec, "podFailurePolicy") {
            &["Failed"]
        } else {
            &["Failed", "TerminatingOrFailed"]
        };
        faults.one_of(spec, path, "podReplacementPolicy", policies);
    }
    check_template(at(spec, "template"), &path.child("template"), faults);
    let policy = text(spec, "template.spec.restartPolicy");
    let path = path.child("template").child("spec").child("restartPolicy");
    match policy {
        "Always" | "" => faults.required(path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" => {
            if is_set(spec, "podFailurePolicy") {
                let detail = "only \"Never\" is supported when podFailurePolicy is specified";
                faults.value(path, policy, detail);
            }
        }
        other => faults.not_supported(path, other, &["OnFailure", "Never"]),
    }
}

/// The most pods that an indexed Job may run at once.
const MOST_PARALLEL: i64 = 100_000;

fn check_indexes(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    faults.one_of(spec, path, "completionMode", &["NonIndexed", "Indexed"]);
    if text(spec, "completionMode") != "Indexed" {
        if matches!(text(spec, "completionMode"), "NonIndexed" | "") {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if is_set(spec, field) {
                    let detail = "requires indexed completion mode";
                    faults.value(path.child(field), at(spec, field).clone(), detail);
                }
            }
        }
        return;
    }
    if !is_set(spec, "completions") {
        faults.required(path.child("completions"), "when completion mode is Indexed");
    }
    if let Some(count) = int(spec, "parallelism").filter(|count| *count > MOST_PARALLEL) {
        let detail = format!(
            "must be less than or equal to {MOST_PARALLEL} when completion mode is Indexed"
        );
        faults.value(path.child("parallelism"), count, &detail);
    }
    if let (Some(most), Some(all)) = (int(spec, "maxFailedIndexes"), int(spec, "completions"))
        && most > all
    {
        let detail = "must be less than or equal to completions";
        faults.value(path.child("maxFailedIndexes"), most, detail);
    }
}

fn check_failure_policy(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    for (place, rule) in list(spec, "podFailurePolicy.rules").iter().enumerate() {
        let path = path.child("rules").index(place);
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        let action = text(rule, "action");
        if action == "FailIndex" && !is_set(spec, "backoffLimitPerIndex") {
            let detail = "requires the backoffLimitPerIndex to be set";
            faults.value(path.child("action"), action, detail);
        }
        faults.require_one_of(rule, &path, "action", &actions);
        let codes = at(rule, "onExitCodes");
        let conditions = list(rule, "onPodConditions");
        if !codes.is_null() {
            let path = path.child("onExitCodes");
            faults.require_one_of(codes, &path, "operator", &["In", "NotIn"]);
            if is_empty(codes, "values") {
                faults.value(
                    path.child("values"),
                    at(codes, "values").clone(),
                    "at least one value is required",
                );
            }
            if !conditions.is_empty() {
                let message = "Invalid value: specifying both OnExitCodes and OnPodConditions is \
                               not supported";
                faults.add_with_message(
                    path.clone(),
                    FieldErrorReason::Invalid,
                    message.to_owned(),
                );
            }
        } else if conditions.is_empty() {
            let message =
                "Invalid value: specifying one of OnExitCodes and OnPodConditions is required";
            faults.add_with_message(path.clone(), FieldErrorReason::Invalid, message.to_owned());
        }
        for (place, pattern) in conditions.iter().enumerate() {
            let path = path.child("onPodConditions").index(place);
            let kind = text(pattern, "type");
            faults.invalid_text(&path.child("type"), kind, crate::names::qualified(kind));
            faults.require_one_of(pattern, &path, "status", &["False", "True", "Unknown"]);
        }
    }
}

fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = validate(new);
    check_spec(new, &mut faults);
    let path = Path::new("spec");
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    // An indexed Job may change completions and parallelism together.
    let elastic = text(spec, "completionMode") == "Indexed"
        && is_set(spec, "completions")
        && same(spec, spec, "completions")
        && int(spec, "completions") == int(spec, "parallelism");
    if !elastic {
        faults.immutable(spec, before, &path, "completions");
    }
    faults.immutable(spec, before, &path, "selector");
    check_template_update(new, old, &path, &mut faults);
    let fields = [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ];
    for field in fields {
        faults.immutable(spec, before, &path, field);
    }
    faults.into_vec()
}

/// Allows changes of the scheduling directives in the template of a suspended Job that never ran.
fn check_template_update(new: &Value, old: &Value, path: &Path, faults: &mut FieldErrors) {
    let waits = flag(old, "spec.suspend") && !is_set(old, "status.startTime");
    let directives = [
        "spec.affinity.nodeAffinity",
        "spec.nodeSelector",
        "spec.tolerations",
        "spec.schedulingGates",
        "metadata.labels",
        "metadata.annotations",
    ];
    let directives: &[&str] = if waits { &directives } else { &[] };
    let (template, before) = (at(new, "spec.template"), at(old, "spec.template"));
    let rest = with_old_fields(template, before, directives);
    if !crate::tree::equal(&rest, before) {
        faults.value(path.child("template"), template.clone(), "field is immutable");
    }
}

fn validate_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let path = Path::new("status");
    let status = at(new, "status");
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        faults.not_negative(status, &path, field);
    }
    let is_true = |object: &Value, kind: &str| {
        let found = |it: &Value| text(it, "type") == kind && text(it, "status") == "True";
        list(object, "status.conditions").iter().any(found)
    };
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(new, kind) {
            let message =
                format!("Invalid value: cannot disable the terminal {kind}=True condition");
            faults.add_with_message(path.child("conditions"), FieldErrorReason::Invalid, message);
        }
    }
    if is_true(new, "Complete") && is_true(new, "Failed") {
        let message = "Invalid value: cannot set Complete=True and Failed=True conditions";
        faults.add_with_message(
            path.child("conditions"),
            FieldErrorReason::Invalid,
            message.to_owned(),
        );
    }
    for field in ["failed", "succeeded"] {
        let count = |object: &Value| int(at(object, "status"), field).unwrap_or_default();
        if count(new) < count(old) && !(field == "succeeded" && is_set(new, "spec.successPolicy")) {
            let detail = format!("cannot decrease the {field} counter");
            faults.value(path.child(field), count(new), &detail);
        }
    }
    faults.into_vec()
}
