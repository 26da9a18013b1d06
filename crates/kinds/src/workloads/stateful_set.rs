//! Defaults and validates StatefulSets and ControllerRevisions.

use std::borrow::Cow;
use std::collections::BTreeSet;

use gantry_schema::FieldError;
use serde_json::{Value, json};

use super::{
    check_counters, check_restart_policy, check_selected_pods, check_selector, default_template,
};
use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::pod::equal_except;
use crate::tree::{at, each, is_empty, is_set, list, put, set_default, text};

pub(crate) const RULES: Rules = Rules {
    default,
    validate: |object| validate(object).into_vec(),
    validate_update,
    validate_status,
    warnings: crate::warnings::template,
    ..Rules::NONE
};

pub(crate) const REVISION_RULES: Rules = Rules {
    validate: |object| validate_revision(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = validate_revision(new);
        faults.immutable(new, old, &Path::new(""), "data");
        faults.into_vec()
    },
    ..Rules::NONE
};

fn default(object: &mut Value) {
    default_template(object, "spec.template");
    set_default(object, "spec.podManagementPolicy", "OrderedReady");
    if is_empty(object, "spec.updateStrategy.type") {
        set_default(object, "spec.updateStrategy.type", "RollingUpdate");
        set_default(object, "spec.updateStrategy.rollingUpdate.partition", 0);
    }
    if text(object, "spec.updateStrategy.type") == "RollingUpdate"
        && is_set(object, "spec.updateStrategy.rollingUpdate")
    {
        set_default(object, "spec.updateStrategy.rollingUpdate.partition", 0);
    }
    set_default(object, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain");
    set_default(object, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain");
    set_default(object, "spec.replicas", 1);
    set_default(object, "spec.revisionHistoryLimit", 10);
    for claim in each(object, "spec.volumeClaimTemplates") {
        set_default(claim, "kind", "PersistentVolumeClaim");
        set_default(claim, "apiVersion", "v1");
        crate::storage::default_claim(claim);
    }
}

fn validate(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    let policy = text(spec, "podManagementPolicy");
    if policy.is_empty() {
        faults.required(path.child("podManagementPolicy"), "");
    } else if !matches!(policy, "OrderedReady" | "Parallel") {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        faults.value(path.child("podManagementPolicy"), policy, detail);
    }
    check_strategy(at(spec, "updateStrategy"), &path.child("updateStrategy"), &mut faults);
    let policies = path.child("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let policy = at(spec, "persistentVolumeClaimRetentionPolicy");
        faults.one_of(policy, &policies, field, &["Retain", "Delete"]);
    }
    faults.not_negative(spec, &path, "replicas");
    faults.not_negative(spec, &path, "minReadySeconds");
    faults.not_negative(at(spec, "ordinals"), &path.child("ordinals"), "start");
    let service = text(spec, "serviceName");
    if !service.is_empty() {
        faults.invalid_text(&path.child("serviceName"), service, names::label(service));
    }
    if check_selector(spec, "statefulset", &path, &mut faults) {
        check_selected_pods(spec, &template_with_claims(spec), &path, &mut faults);
    }
    check_restart_policy(spec, "StatefulSet", &path, &mut faults);
    faults
}

/// Returns the pod template with the volumes that the claim templates add to every pod, so that
/// containers may mount them. As in the pods themselves, they come first and replace volumes of the
/// same name.
fn template_with_claims(spec: &Value) -> Cow<'_, Value> {
    let template = at(spec, "template");
    let claims = list(spec, "volumeClaimTemplates").iter();
    let claimed: BTreeSet<&str> = claims.map(|it| text(it, "metadata.name")).collect();
    if claimed.is_empty() {
        return Cow::Borrowed(template);
    }
    let own = list(template, "spec.volumes").iter();
    let own = own.filter(|it| !claimed.contains(text(it, "name"))).cloned();
    let added = claimed
        .iter()
        .map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } }));
    let volumes: Vec<Value> = added.chain(own).collect();
    let mut template = template.clone();
    put(&mut template, "spec.volumes", volumes);
    Cow::Owned(template)
}

fn check_strategy(strategy: &Value, path: &Path, faults: &mut FieldErrors) {
    let rolling = at(strategy, "rollingUpdate");
    match text(strategy, "type") {
        "" => faults.required(path.clone(), ""),
        "OnDelete" => {
            if !rolling.is_null() {
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                let shown = json!({
                    "Partition": at(rolling, "partition"),
                    "MaxUnavailable": at(rolling, "maxUnavailable"),
                });
                faults.value(path.child("rollingUpdate"), shown, detail);
            }
        }
        "RollingUpdate" => {
            faults.not_negative(rolling, &path.child("rollingUpdate"), "partition");
        }
        other => {
            let shown = json!({ "Type": other, "RollingUpdate": rolling });
            faults.value(path.clone(), shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = validate(new);
    let mutable = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "persistentVolumeClaimRetentionPolicy",
        "revisionHistoryLimit",
    ];
    if !equal_except(at(new, "spec"), at(old, "spec"), &mutable) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', \
                      'template', 'updateStrategy', 'revisionHistoryLimit', \
                      'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        faults.forbidden(Path::new("spec"), detail);
    }
    faults.into_vec()
}

fn validate_status(new: &Value, _old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let fields = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    let parts = [
        ("readyReplicas", "replicas"),
        ("currentReplicas", "replicas"),
        ("updatedReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ];
    check_counters(new, &fields, &parts, &mut faults);
    faults.into_vec()
}

fn validate_revision(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let path = Path::new("");
    if !is_set(object, "data") {
        faults.required(path.child("data"), "data is mandatory");
    }
    faults.not_negative(object, &path, "revision");
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behaviour::{SubresourceKind, behaviour};

    /// Returns a set with these claim templates, whose pods have this spec.
    fn set(claims: &[&str], pod: &Value) -> Value {
        let claim = |name: &&str| {
            json!({
                "metadata": { "name": name },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            })
        };
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": "a", "namespace": "n" },
            "spec": {
                "serviceName": "s",
                "selector": { "matchLabels": { "app": "a" } },
                "template": { "metadata": { "labels": { "app": "a" } }, "spec": pod },
                "volumeClaimTemplates": claims.iter().map(claim).collect::<Vec<_>>(),
            },
        });
        behaviour("apps", "statefulsets").default(&mut object);
        object
    }

    fn container(field: &str, value: &Value) -> Value {
        json!({ "name": "c", "image": "i", field: value })
    }

    #[test]
    fn containers_use_the_volumes_of_claim_templates() {
        let mount = |name: &str| json!([{ "name": name, "mountPath": "/data" }]);
        let device = json!([{ "name": "data", "devicePath": "/dev/x" }]);
        let plain = json!({ "name": "c", "image": "i" });
        let with = |fields: &Value| {
            let mut pod = json!({ "containers": [plain] });
            for (field, value) in fields.as_object().unwrap() {
                pod[field] = value.clone();
            }
            pod
        };
        let mounted = container("volumeMounts", &mount("data"));
        let init = json!({ "name": "i", "image": "i", "volumeMounts": mount("data") });
        let own = |names: &[&str]| {
            names.iter().map(|it| json!({ "name": it, "emptyDir": {} })).collect::<Vec<_>>()
        };
        let missing = "spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"other\"";
        let table = [
            ("mounted", &["data"][..], with(&json!({ "containers": [mounted] })), ""),
            (
                "as a device",
                &["data"],
                with(&json!({ "containers": [container("volumeDevices", &device)] })),
                "",
            ),
            ("by an init container", &["data"], with(&json!({ "initContainers": [init] })), ""),
            (
                "twice the same template",
                &["data", "data"],
                with(&json!({ "containers": [mounted] })),
                "",
            ),
            (
                "in the place of a volume of the pod",
                &["data"],
                with(&json!({ "containers": [mounted], "volumes": own(&["data", "more"]) })),
                "",
            ),
            (
                "a volume that neither has",
                &["data"],
                with(&json!({ "containers": [container("volumeMounts", &mount("other"))] })),
                missing,
            ),
            (
                "no templates",
                &[],
                with(&json!({ "containers": [container("volumeMounts", &mount("other"))] })),
                missing,
            ),
            (
                "what is wrong stays wrong",
                &["data"],
                with(&json!({ "volumes": own(&["x", "x"]) })),
                "spec.template.spec.volumes[2].name: Duplicate value: \"x\"",
            ),
        ];
        for (why, claims, pod, expected) in table {
            let object = set(claims, &pod);
            let rules = behaviour("apps", "statefulsets");
            for faults in [
                rules.validate_create(&object),
                rules.validate_update(&object, &object, SubresourceKind::Main),
            ] {
                let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
                assert_eq!(said.join("; "), expected, "{why}");
            }
        }
    }
}
