//! Defaults, validates and updates pods and pod templates.

use gantry_schema::FieldError;
use serde_json::Value;

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::metadata::{check_annotations, check_labels};
use crate::tree::{at, copy_field, each, is_set, list, put, remove, same};

pub(crate) mod containers;
pub(crate) mod defaults;
mod placement;
mod resources;
mod security;
mod spec;
pub(crate) mod status;
mod update;
mod volumes;

pub(crate) use placement::{TAINT_EFFECTS, check_node_selector};
pub(crate) use resources::{check_resource_name, check_whole_number};
pub(crate) use volumes::check_host_path;

pub(crate) const RULES: Rules = Rules {
    default: defaults::pod,
    create: status::create,
    update: |_, _| {},
    status: status::update_status,
    validate: create,
    validate_update: update::validate,
    validate_status: update::validate_status,
    warnings: crate::warnings::pod,
};

pub(crate) const TEMPLATE_RULES: Rules = Rules {
    default: |object| {
        if let Some(template) = crate::tree::at_mut(object, "template") {
            defaults::template(template);
        }
    },
    validate: |object| {
        let mut faults = FieldErrors::new();
        check_template(at(object, "template"), &Path::new("template"), &mut faults);
        faults.into_vec()
    },
    validate_update: |new, _| {
        let mut faults = FieldErrors::new();
        check_template(at(new, "template"), &Path::new("template"), &mut faults);
        faults.into_vec()
    },
    ..Rules::NONE
};

fn create(object: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let path = Path::new("spec");
    spec::check(at(object, "spec"), &path, &mut faults);
    if !list(object, "spec.ephemeralContainers").is_empty() {
        faults.forbidden(path.child("ephemeralContainers"), "cannot be set on create");
    }
    if is_set(object, "spec.nodeName") && !list(object, "spec.schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        faults.forbidden(path.child("nodeName"), detail);
    }
    faults.into_vec()
}

/// Validates a pod template, wherever it occurs.
pub(crate) fn check_template(template: &Value, path: &Path, faults: &mut FieldErrors) {
    let metadata = at(template, "metadata");
    check_labels(metadata, path, "labels", faults);
    check_annotations(metadata, path, faults);
    let path = path.child("spec");
    spec::check(at(template, "spec"), &path, faults);
    if !list(template, "spec.ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        faults.forbidden(path.child("ephemeralContainers"), detail);
    }
}

/// Copies everything from the stored pod but some fields.
pub(crate) fn preserve_except(new: &mut Value, old: &Value, fields: &[&str]) {
    let mut kept = old.clone();
    for field in fields {
        copy_field(&mut kept, new, field);
    }
    for field in ["metadata.resourceVersion", "metadata.uid", "metadata.managedFields"] {
        copy_field(&mut kept, new, field);
    }
    *new = kept;
}

/// Copies everything from the stored pod but what a resize may change.
pub(crate) fn preserve_except_resources(new: &mut Value, old: &Value) {
    let wanted = new.clone();
    preserve_except(new, old, &["spec.resources"]);
    for name in ["containers", "initContainers"] {
        let path = format!("spec.{name}");
        for container in each(new, &path) {
            let same_name = |it: &&Value| it.get("name") == container.get("name");
            if let Some(from) = list(&wanted, &path).iter().find(same_name) {
                copy_field(container, from, "resources");
                copy_field(container, from, "resizePolicy");
            }
        }
    }
}

/// Checks that ephemeral containers are only added, never changed or removed.
pub(crate) fn validate_ephemeral_containers(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let path = Path::new("spec").child("ephemeralContainers");
    spec::check(at(new, "spec"), &Path::new("spec"), &mut faults);
    let (wanted, had) =
        (list(new, "spec.ephemeralContainers"), list(old, "spec.ephemeralContainers"));
    for before in had {
        let name = crate::tree::text(before, "name");
        match wanted.iter().position(|it| crate::tree::text(it, "name") == name) {
            None => {
                let detail =
                    format!("existing ephemeral containers \"{name}\" may not be removed\n");
                faults.forbidden(path.clone(), &detail);
            }
            Some(place) if !crate::tree::equal(&wanted[place], before) => {
                let detail =
                    format!("existing ephemeral containers \"{name}\" may not be changed\n");
                faults.forbidden(path.clone(), &detail);
            }
            Some(_) => {}
        }
    }
    faults.into_vec()
}

/// Returns a spec without the fields that are checked separately.
pub(crate) fn without(tree: &Value, fields: &[&str]) -> Value {
    let mut tree = tree.clone();
    for field in fields {
        remove(&mut tree, field);
    }
    tree
}

/// Returns whether two specs differ in nothing but some fields.
pub(crate) fn equal_except(new: &Value, old: &Value, fields: &[&str]) -> bool {
    crate::tree::equal(&without(new, fields), &without(old, fields))
}

/// Resets some fields to their old values, to compare the rest.
pub(crate) fn with_old_fields(new: &Value, old: &Value, fields: &[&str]) -> Value {
    let mut tree = new.clone();
    for field in fields {
        if !same(new, old, field) {
            match at(old, field) {
                Value::Null => drop(remove(&mut tree, field)),
                before => put(&mut tree, field, before.clone()),
            }
        }
    }
    tree
}

#[cfg(test)]
mod tests;
