//! Validates roles and bindings.

use gantry_schema::FieldError;
use serde_json::{Value, json};

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::selector;
use crate::tree::{at, each, is_empty, is_set, list, same, set_default, text};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) const ROLE_RULES: Rules = Rules {
    validate: |object| check_role(object, true).into_vec(),
    validate_update: |new, _| concat_errors(check_role(new, true), check_role(new, true)),
    ..Rules::NONE
};

pub(crate) const CLUSTER_ROLE_RULES: Rules = Rules {
    validate: |object| check_role(object, false).into_vec(),
    validate_update: |new, _| concat_errors(check_role(new, false), check_role(new, false)),
    ..Rules::NONE
};

pub(crate) const BINDING_RULES: Rules = Rules {
    default: default_binding,
    validate: |object| check_binding(object, true).into_vec(),
    validate_update: |new, old| update_binding(new, old, true),
    ..Rules::NONE
};

pub(crate) const CLUSTER_BINDING_RULES: Rules = Rules {
    default: default_binding,
    validate: |object| check_binding(object, false).into_vec(),
    validate_update: |new, old| update_binding(new, old, false),
    ..Rules::NONE
};

/// Repeats the errors: two layers of kube-apiserver check an update, and both report what they
/// find.
fn concat_errors(one: FieldErrors, other: FieldErrors) -> Vec<FieldError> {
    let mut all = one.into_vec();
    all.extend(other.into_vec());
    all
}

fn default_binding(object: &mut Value) {
    if is_set(object, "roleRef") {
        set_default(object, "roleRef.apiGroup", GROUP);
    }
    for subject in each(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            set_default(subject, "apiGroup", GROUP);
        }
    }
}

fn check_role(object: &Value, namespaced: bool) -> FieldErrors {
    let mut faults = FieldErrors::new();
    for (place, rule) in list(object, "rules").iter().enumerate() {
        let path = Path::new("rules").index(place);
        if is_empty(rule, "verbs") {
            faults.required(path.child("verbs"), "verbs must contain at least one value");
        }
        let urls = at(rule, "nonResourceURLs");
        let place = path.child("nonResourceURLs");
        if !is_empty(rule, "nonResourceURLs") {
            if namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                faults.value(place.clone(), urls.clone(), detail);
            }
            let others = ["apiGroups", "resources", "resourceNames"];
            if others.iter().any(|field| !is_empty(rule, field)) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                faults.value(place, urls.clone(), detail);
            }
            continue;
        }
        if is_empty(rule, "apiGroups") {
            let detail = "resource rules must supply at least one api group";
            faults.required(path.child("apiGroups"), detail);
        }
        if is_empty(rule, "resources") {
            let detail = "resource rules must supply at least one resource";
            faults.required(path.child("resources"), detail);
        }
    }
    if is_set(object, "aggregationRule") {
        let path = Path::new("aggregationRule").child("clusterRoleSelectors");
        let selectors = list(object, "aggregationRule.clusterRoleSelectors");
        if selectors.is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            faults.required(path, detail);
        } else {
            for (place, value) in selectors.iter().enumerate() {
                selector::check(value, &path.index(place), &mut faults);
            }
        }
    }
    faults
}

fn check_binding(object: &Value, namespaced: bool) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (role, path) = (at(object, "roleRef"), Path::new("roleRef"));
    if text(role, "apiGroup") != GROUP {
        faults.not_supported(path.child("apiGroup"), text(role, "apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(role, "kind")) {
        faults.not_supported(path.child("kind"), text(role, "kind"), kinds);
    }
    if faults.require(role, &path, "name") {
        let name = text(role, "name");
        faults.invalid_text(&path.child("name"), name, names::path_segment(name, false));
    }
    for (place, subject) in list(object, "subjects").iter().enumerate() {
        check_subject(subject, namespaced, &Path::new("subjects").index(place), &mut faults);
    }
    faults
}

fn check_subject(subject: &Value, namespaced: bool, path: &Path, faults: &mut FieldErrors) {
    faults.require(subject, path, "name");
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                faults.invalid_text(&path.child("name"), name, names::subdomain(name));
            }
            if !group.is_empty() {
                faults.not_supported(path.child("apiGroup"), group, &[""]);
            }
            if !namespaced && is_empty(subject, "namespace") {
                faults.required(path.child("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                faults.not_supported(path.child("apiGroup"), group, &[GROUP]);
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            faults.not_supported(path.child("kind"), other, &kinds);
        }
    }
}

fn update_binding(new: &Value, old: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut all = check_binding(new, namespaced).into_vec();
    let mut faults = FieldErrors::new();
    if !same(new, old, "roleRef") {
        let role = at(new, "roleRef");
        let shown = json!({
            "APIGroup": at(role, "apiGroup"), "Kind": at(role, "kind"), "Name": at(role, "name"),
        });
        faults.value(Path::new("roleRef"), shown, "cannot change roleRef");
    }
    all.extend(check_binding(new, namespaced).into_vec());
    all.extend(faults.into_vec());
    all
}
