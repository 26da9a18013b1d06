//! Validates the metadata that every object has, and its updates.

use std::collections::BTreeSet;

use gantry_schema::FieldError;
use serde_json::Value;

use crate::behaviour::{Behaviour, FinalizerNames};
use crate::field_errors::{FieldErrors, Path};
use crate::names::{self, NameRule};
use crate::tree::{at, entries, int, is_empty, is_set, list, text};

/// The limit on all annotation keys and values together. A store limits the whole object only, and
/// without this limit clients that read metadata alone would receive annotations of any size.
const ANNOTATIONS_LIMIT: usize = 256 << 10;

/// Validates an object's metadata, and returns errors and warnings.
///
/// `old` is the stored object of an update. A real server checks metadata in several layers, and
/// each of them reports; what a client sees as repeated causes is repeated here.
#[must_use]
pub fn validate_metadata(
    new: &Value,
    old: Option<&Value>,
    namespaced: bool,
    behaviour: &Behaviour,
) -> (Vec<FieldError>, Vec<String>) {
    let mut faults = FieldErrors::new();
    let meta = at(new, "metadata");
    let mut warnings = Vec::new();
    match old.map(|old| at(old, "metadata")) {
        None => check(meta, namespaced, behaviour, &mut faults),
        Some(old) => {
            check_common(meta, namespaced, NameRule::PathSegment, &mut faults);
            check_common_update(meta, old, &mut faults);
            for _ in 0..behaviour.metadata_checks.updates {
                check_common_update(meta, old, &mut faults);
                check_finalizer_names(meta, behaviour.finalizer_names, &mut faults);
            }
            for _ in 0..behaviour.metadata_checks.objects {
                check(meta, namespaced, behaviour, &mut faults);
            }
        }
    }
    if behaviour.finalizer_names == FinalizerNames::WarnUnqualified {
        let known: BTreeSet<&str> =
            old.map(|old| strings(old, "metadata.finalizers").collect()).unwrap_or_default();
        for name in strings(meta, "finalizers").filter(|name| !known.contains(name)) {
            warnings.extend(finalizer_warning(name));
        }
    }
    (faults.into_vec(), warnings)
}

/// Validates labels, as objects, templates and selectors have them.
pub(crate) fn check_labels(tree: &Value, path: &Path, field: &str, faults: &mut FieldErrors) {
    for (key, value) in entries(tree, field) {
        let path = path.child(field);
        faults.invalid_text(&path, key, names::qualified(key));
        let value = value.as_str().unwrap_or_default();
        faults.invalid_text(&path, value, names::label_value(value));
    }
}

/// Validates annotations, as objects and templates have them.
pub(crate) fn check_annotations(tree: &Value, path: &Path, faults: &mut FieldErrors) {
    let path = path.child("annotations");
    let mut size = 0;
    for (key, value) in entries(tree, "annotations") {
        faults.invalid_text(&path, key, names::qualified(&key.to_lowercase()));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        faults.add(FieldError::too_long(path, ANNOTATIONS_LIMIT));
    }
}

fn strings<'a>(tree: &'a Value, path: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    list(tree, path).iter().filter_map(Value::as_str)
}

fn check(meta: &Value, namespaced: bool, behaviour: &Behaviour, faults: &mut FieldErrors) {
    check_common(meta, namespaced, behaviour.name_rule, faults);
    check_finalizer_names(meta, behaviour.finalizer_names, faults);
}

fn check_common(meta: &Value, namespaced: bool, rule: NameRule, faults: &mut FieldErrors) {
    let path = Path::new("metadata");
    let prefix = text(meta, "generateName");
    if !prefix.is_empty() {
        faults.invalid_text(&path.child("generateName"), prefix, rule.check(prefix, true));
    }
    let name = text(meta, "name");
    if name.is_empty() {
        faults.required(path.child("name"), "name or generateName is required");
    } else {
        faults.invalid_text(&path.child("name"), name, rule.check(name, false));
    }
    let namespace = text(meta, "namespace");
    if !namespaced && !namespace.is_empty() {
        faults.forbidden(path.child("namespace"), "not allowed on this type");
    } else if namespaced && namespace.is_empty() {
        faults.required(path.child("namespace"), "");
    } else if namespaced {
        faults.invalid_text(&path.child("namespace"), namespace, names::label(namespace));
    }
    faults.not_negative(meta, &path, "generation");
    check_labels(meta, &path, "labels", faults);
    check_annotations(meta, &path, faults);
    check_owners(meta, &path, faults);
    let path = path.child("finalizers");
    for name in strings(meta, "finalizers") {
        faults.invalid_text(&path, name, names::qualified(name));
    }
    let both = ["orphan", "foregroundDeletion"];
    if both.iter().all(|name| strings(meta, "finalizers").any(|it| it == *name)) {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        faults.value(path, at(meta, "finalizers").clone(), detail);
    }
}

fn check_common_update(new: &Value, old: &Value, faults: &mut FieldErrors) {
    let path = Path::new("metadata");
    if is_set(old, "deletionTimestamp") {
        let known: BTreeSet<&str> = strings(old, "finalizers").collect();
        let wanted: BTreeSet<&str> = strings(new, "finalizers").collect();
        let added: Vec<String> =
            wanted.difference(&known).map(|name| format!("\"{name}\"")).collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new \
                 finalizers []string{{{}}}",
                added.join(", ")
            );
            faults.forbidden(path.child("finalizers"), &detail);
        }
    }
    if is_empty(new, "resourceVersion") {
        faults.value(path.child("resourceVersion"), "", "must be specified for an update");
    }
    let generation = int(new, "generation").unwrap_or_default();
    if generation < int(old, "generation").unwrap_or_default() {
        faults.value(path.child("generation"), generation, "must not be decremented");
    }
    let fields = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    for field in fields {
        faults.immutable(new, old, &path, field);
    }
    check_labels(new, &path, "labels", faults);
    check_annotations(new, &path, faults);
    check_owners(new, &path, faults);
}

fn check_owners(meta: &Value, path: &Path, faults: &mut FieldErrors) {
    let path = path.child("ownerReferences");
    let mut controller = None;
    for owner in list(meta, "ownerReferences") {
        let version = text(owner, "apiVersion");
        if version.is_empty() || version.ends_with('/') {
            faults.value(path.child("apiVersion"), version, "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if is_empty(owner, field) {
                faults.value(path.child(field), text(owner, field), "must not be empty");
            }
        }
        if (version, text(owner, "kind")) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            faults.value(path.clone(), owner.clone(), detail);
        }
        if crate::tree::flag(owner, "controller") {
            let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in \
                         references for {first} and {this}"
                    );
                    faults.value(path.clone(), at(meta, "ownerReferences").clone(), &detail);
                }
            }
        }
    }
}

fn check_finalizer_names(meta: &Value, rule: FinalizerNames, faults: &mut FieldErrors) {
    match rule {
        FinalizerNames::AnyQualified | FinalizerNames::WarnUnqualified => return,
        FinalizerNames::Qualified => {}
    }
    for (place, name) in strings(meta, "finalizers").enumerate() {
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            let path = Path::new("metadata").child("finalizers").index(place);
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            faults.value(path, name, detail);
        }
    }
}

/// Returns the warning for a finalizer without a domain.
fn finalizer_warning(name: &str) -> Option<String> {
    if name.contains('/') || matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        return None;
    }
    let path = if name.contains('.') { " including a path (/)" } else { "" };
    Some(format!(
        "metadata.finalizers: \"{name}\": prefer a domain-qualified finalizer name{path} to avoid \
         accidental conflicts with other finalizer writers"
    ))
}

#[cfg(test)]
mod tests;
