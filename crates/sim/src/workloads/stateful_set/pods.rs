//! The pods of a stateful set: where they are and what they are like.

use gantry_reconcile::{Note, Plan, Step};
use serde_json::{Value, json};

use super::claims;
use super::{REVISION_LABEL, Seen, Templates};
use crate::view::{Pod, StatefulSet, UpdateKind};
use crate::workloads::{template, writes};

/// The label of a pod that carries its name.
const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// The label of a pod that carries its number.
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The name of the set and the number of a pod, by the pod's name.
pub(super) fn place(name: &str) -> Option<(&str, i64)> {
    let (set, number) = name.rsplit_once('-')?;
    let digits = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
    let number: i32 = number.parse().ok().filter(|_| digits)?;
    Some((set, number.into()))
}

/// The number of a pod.
pub(super) fn ordinal(pod: &Pod) -> Option<i64> {
    place(&pod.metadata.name).map(|(_, ordinal)| ordinal)
}

/// The numbers a set's pods are to have.
pub(super) fn range(set: &StatefulSet) -> std::ops::Range<i64> {
    let start = set.spec.ordinals.start;
    start..start.saturating_add(set.spec.replicas)
}

/// The revision of a pod.
pub(super) fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.get(REVISION_LABEL).map_or("", String::as_str)
}

/// Whether a pod says who it is.
pub(super) fn has_identity(pod: &Pod) -> bool {
    pod.metadata.labels.get(NAME_LABEL) == Some(&pod.metadata.name)
}

/// Makes a pod say who it is.
pub(super) fn identify(seen: &Seen, pod: &Pod, ordinal: i64, plan: &mut Plan) {
    let name = &pod.metadata.name;
    let labels = json!({NAME_LABEL: name, INDEX_LABEL: ordinal.to_string()});
    let write = writes::change::<Pod>(&pod.metadata, json!({"metadata": {"labels": labels}}));
    plan.steps.push(told(seen, Step::new(write), Verb::Update, name));
}

/// Makes the pod with this number: of the former template below the part that is updated, and of
/// the new one otherwise.
pub(super) fn make(seen: &Seen, templates: &Templates<'_>, ordinal: i64, plan: &mut Plan) {
    let set = &seen.set;
    let former = match (set.spec.update_strategy.kind, set.spec.update_strategy.rolling_update) {
        (UpdateKind::RollingUpdate, None) => set.status.current_replicas,
        (UpdateKind::OnDelete, None) => 0,
        (UpdateKind::RollingUpdate | UpdateKind::OnDelete, Some(from)) => from.partition,
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
    plan.steps.push(told(seen, Step::new(writes::create::<Pod>(pod)), Verb::Create, &name));
}

/// The volumes of a pod: those it claims, and those of the template that have other names.
fn volumes(set: &StatefulSet, ordinal: i64, others: &Value) -> Vec<Value> {
    let claimed: Vec<&str> = set.spec.volume_claim_templates.iter().map(claims::volume).collect();
    let claims = claims::names(set, ordinal);
    let own = claimed.iter().zip(claims).map(
        |(volume, claim)| json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}),
    );
    let others = others.as_array().into_iter().flatten();
    let others = others.filter(|it| !it["name"].as_str().is_some_and(|it| claimed.contains(&it)));
    own.chain(others.cloned()).collect()
}

/// Removes a pod.
pub(super) fn remove(seen: &Seen, pod: &Pod, plan: &mut Plan) {
    let step = Step::new(writes::delete::<Pod>(&pod.metadata));
    plan.steps.push(told(seen, step, Verb::Delete, &pod.metadata.name));
}

/// What happens to a pod.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Create,
    Update,
    Delete,
}

/// A write about a pod as stateful sets tell it.
fn told(seen: &Seen, step: Step, verb: Verb, name: &str) -> Step {
    let (verb, done, refused) = match verb {
        Verb::Create => ("create", "SuccessfulCreate", "FailedCreate"),
        Verb::Update => ("update", "SuccessfulUpdate", "FailedUpdate"),
        Verb::Delete => ("delete", "SuccessfulDelete", "FailedDelete"),
    };
    let set = &seen.set.metadata.name;
    let message = format!("{verb} Pod {name} in StatefulSet {set} successful");
    let error = format!("{verb} Pod {name} in StatefulSet {set} failed error");
    step.done(Note::normal(seen.about(), done, message)).refused(Note::warning(
        seen.about(),
        refused,
        error,
    ))
}
