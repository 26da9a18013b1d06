//! Builds the pods of a job.

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{View, names};
use serde_json::{Map, Value, json};

use super::job_pods::failure_effect;
use super::pods::{
    COMPLETION_INDEX, INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT, index_failures,
};
use super::policy::FailureEffect;
use crate::view::{Job, Pod};

/// Builds a pod of a job; `number` is its index and `former` the failed pod of that index.
pub(super) fn pod(job: &Job, name: &str, number: Option<u32>, former: Option<&Pod>) -> Value {
    let meta = &job.metadata;
    let template = &job.spec.template;
    let map = |field: &str| -> Map<String, Value> {
        template["metadata"][field].as_object().cloned().unwrap_or_default()
    };
    let (mut labels, mut annotations) = (map("labels"), map("annotations"));
    let mut spec = template["spec"].clone();
    let mut prefix = format!("{}-", meta.name);
    if let Some(number) = number {
        labels.insert(COMPLETION_INDEX.to_owned(), json!(number.to_string()));
        annotations.insert(COMPLETION_INDEX.to_owned(), json!(number.to_string()));
        if job.spec.backoff_limit_per_index.is_some() {
            add_failure_counts(job, former, &mut annotations);
        }
        prefix = format!("{prefix}{number}-");
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("hostname".to_owned(), json!(format!("{}-{number}", meta.name)));
        }
        for containers in ["initContainers", "containers"] {
            let list = spec.get_mut(containers).and_then(Value::as_array_mut);
            list.into_iter().flatten().for_each(set_index_variable);
        }
    }
    let mut finalizers = template["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|it| it == Job::TRACKING_FINALIZER) {
        finalizers.push(json!(Job::TRACKING_FINALIZER));
    }
    let mut metadata = json!({
        "name": name, "generateName": prefix, "namespace": meta.namespace,
        "labels": labels, "finalizers": finalizers,
        "ownerReferences": [controller_reference(&Job::RESOURCE, meta)],
    });
    if !annotations.is_empty() {
        metadata["annotations"] = Value::Object(annotations);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Generates names for the pods of a job, each different from those of existing pods.
///
/// A name follows from the job and the position of the pod, and from nothing that the job's own
/// status changes: a pod that was created and is not yet observed gets the same name again, and its
/// create finds that it exists.
pub(super) struct JobPodNames<'a> {
    job: &'a Job,
    taken: std::collections::BTreeSet<&'a str>,
}

impl<'a> JobPodNames<'a> {
    pub(super) fn new(job: &'a Job, taken: impl Iterator<Item = &'a Pod>) -> Self {
        Self { job, taken: taken.map(|pod| pod.metadata.name.as_str()).collect() }
    }

    /// Returns the names for pods with these indexes, in the same order.
    pub(super) fn of(&self, numbers: &[Option<u32>]) -> Vec<String> {
        let mut names: Vec<String> = Vec::with_capacity(numbers.len());
        let mut chosen = std::collections::BTreeSet::new();
        let mut next = 0_u64;
        for number in numbers {
            // Each index has its own sequence of names; pods without an index share one.
            let mut ordinal = if number.is_some() { 0 } else { next };
            let name = loop {
                let name = self.name(*number, ordinal);
                ordinal += 1;
                if !self.taken.contains(name.as_str()) && !chosen.contains(&name) {
                    break name;
                }
            };
            next = ordinal;
            chosen.insert(name.clone());
            names.push(name);
        }
        names
    }

    fn name(&self, number: Option<u32>, ordinal: u64) -> String {
        let meta = &self.job.metadata;
        let (uid, ordinal) = (meta.uid.as_str(), ordinal.to_string());
        match number {
            None => names::join(&meta.name, &names::suffix(&[uid, &ordinal])),
            Some(number) => {
                let suffix = names::suffix(&[uid, &number.to_string(), &ordinal]);
                names::join(&meta.name, &format!("{number}-{suffix}"))
            }
        }
    }
}

/// Carries over the failure counts of an index.
fn add_failure_counts(job: &Job, former: Option<&Pod>, annotations: &mut Map<String, Value>) {
    let (mut counted, mut ignored) = former.map_or((0, 0), index_failures);
    if let Some(former) = former {
        match failure_effect(job, former) {
            FailureEffect::Ignored => ignored += 1,
            FailureEffect::Counts | FailureEffect::FailsIndex | FailureEffect::FailsJob(_) => {
                counted += 1;
            }
        }
    }
    annotations.insert(INDEX_FAILURE_COUNT.to_owned(), json!(counted.to_string()));
    if ignored > 0 {
        annotations.insert(INDEX_IGNORED_FAILURE_COUNT.to_owned(), json!(ignored.to_string()));
    }
}

/// Adds the completion index to the environment of a container, unless it has a variable of that
/// name.
fn set_index_variable(container: &mut Value) {
    const VARIABLE: &str = "JOB_COMPLETION_INDEX";
    let Some(container) = container.as_object_mut() else { return };
    let variables = container.entry("env").or_insert_with(|| json!([]));
    if variables.is_null() {
        *variables = json!([]);
    }
    let Some(variables) = variables.as_array_mut() else { return };
    if variables.iter().all(|it| it["name"] != VARIABLE) {
        let path = format!("metadata.labels['{COMPLETION_INDEX}']");
        variables.push(json!({"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
    }
}
