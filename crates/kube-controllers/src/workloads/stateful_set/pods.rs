//! The pods of a stateful set: their identity and their content.

use gantry_reconcile::{Event, Plan, Step};
use serde_json::{Value, json};

use super::claims;
use super::{ObservedStatefulSet, REVISION_LABEL, Templates};
use crate::view::{Pod, StatefulSet, UpdateStrategyKind};
use crate::workloads::{template, writes};

/// The label of a pod with its name.
const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// The label of a pod with its ordinal.
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// Returns the name of the set and the ordinal of a pod, by the pod's name.
pub(super) fn parent_and_ordinal(name: &str) -> Option<(&str, i64)> {
    let (set, number) = name.rsplit_once('-')?;
    let digits = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
    let number: i32 = number.parse().ok().filter(|_| digits)?;
    Some((set, number.into()))
}

/// Returns the ordinal of a pod.
pub(super) fn ordinal(pod: &Pod) -> Option<i64> {
    parent_and_ordinal(&pod.metadata.name).map(|(_, ordinal)| ordinal)
}

/// Returns the ordinals a set's pods are to have.
pub(super) fn ordinal_range(set: &StatefulSet) -> std::ops::Range<i64> {
    let start = set.spec.ordinals.start;
    start..start.saturating_add(set.spec.replicas)
}

/// Returns the revision of a pod.
pub(super) fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.get(REVISION_LABEL).map_or("", String::as_str)
}

/// Returns whether a pod has its identity labels.
pub(super) fn has_identity(pod: &Pod) -> bool {
    pod.metadata.labels.get(NAME_LABEL) == Some(&pod.metadata.name)
}

/// Sets the identity labels of a pod.
pub(super) fn set_identity(
    observed: &ObservedStatefulSet,
    pod: &Pod,
    ordinal: i64,
    plan: &mut Plan,
) {
    let name = &pod.metadata.name;
    let labels = json!({NAME_LABEL: name, INDEX_LABEL: ordinal.to_string()});
    let write = writes::patch::<Pod>(&pod.metadata, json!({"metadata": {"labels": labels}}));
    plan.steps.push(with_events(observed, Step::new(write), PodOperation::Update, name));
}

/// Creates the pod with this ordinal: of the former template below the partition, and of the new
/// one otherwise.
pub(super) fn create_pod(
    observed: &ObservedStatefulSet,
    templates: &Templates<'_>,
    ordinal: i64,
    plan: &mut Plan,
) {
    let set = &observed.set;
    let former = match (set.spec.update_strategy.kind, set.spec.update_strategy.rolling_update) {
        (UpdateStrategyKind::RollingUpdate, None) => set.status.current_replicas,
        (UpdateStrategyKind::OnDelete, None) => 0,
        (UpdateStrategyKind::RollingUpdate | UpdateStrategyKind::OnDelete, Some(from)) => {
            from.partition
        }
    };
    let is_former = ordinal < set.spec.ordinals.start.saturating_add(former);
    let (revision, template) = if is_former { &templates.current } else { &templates.update };
    let name = format!("{}-{ordinal}", set.metadata.name);
    let mut pod = template::pod::<StatefulSet>(template, &set.metadata, &name);
    let labels = [
        (NAME_LABEL, name.as_str()),
        (INDEX_LABEL, &ordinal.to_string()),
        (REVISION_LABEL, *revision),
    ];
    for (label, value) in labels {
        pod["metadata"]["labels"][label] = json!(value);
    }
    pod["spec"]["hostname"] = json!(name);
    if !set.spec.service_name.is_empty() {
        pod["spec"]["subdomain"] = json!(set.spec.service_name);
    }
    let volumes = volumes(set, ordinal, &pod["spec"]["volumes"]);
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = Value::Array(volumes);
    }
    plan.steps.push(with_events(
        observed,
        Step::new(writes::create::<Pod>(pod)),
        PodOperation::Create,
        &name,
    ));
}

/// Returns the volumes of a pod: those of its claims, and those of the template that have other
/// names.
fn volumes(set: &StatefulSet, ordinal: i64, others: &Value) -> Vec<Value> {
    let claimed: Vec<&str> =
        set.spec.volume_claim_templates.iter().map(claims::volume_name).collect();
    let claims = claims::claim_names(set, ordinal);
    let own = claimed.iter().zip(claims).map(
        |(volume, claim)| json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}),
    );
    let others = others.as_array().into_iter().flatten();
    let others = others.filter(|it| !it["name"].as_str().is_some_and(|it| claimed.contains(&it)));
    own.chain(others.cloned()).collect()
}

/// Deletes a pod.
pub(super) fn delete_pod(observed: &ObservedStatefulSet, pod: &Pod, plan: &mut Plan) {
    let step = Step::new(writes::delete::<Pod>(&pod.metadata));
    plan.steps.push(with_events(observed, step, PodOperation::Delete, &pod.metadata.name));
}

/// The kind of operation on a pod.
#[derive(Clone, Copy, Debug)]
enum PodOperation {
    Create,
    Update,
    Delete,
}

/// A write about a pod with the events of stateful sets.
fn with_events(observed: &ObservedStatefulSet, step: Step, verb: PodOperation, name: &str) -> Step {
    let (verb, done, refused) = match verb {
        PodOperation::Create => ("create", "SuccessfulCreate", "FailedCreate"),
        PodOperation::Update => ("update", "SuccessfulUpdate", "FailedUpdate"),
        PodOperation::Delete => ("delete", "SuccessfulDelete", "FailedDelete"),
    };
    let set = &observed.set.metadata.name;
    let message = format!("{verb} Pod {name} in StatefulSet {set} successful");
    let error = format!("{verb} Pod {name} in StatefulSet {set} failed error");
    step.on_success(Event::normal(observed.about(), done, message)).on_refusal(Event::warning(
        observed.about(),
        refused,
        error,
    ))
}
