//! The replica sets of a deployment, and the changes to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{Event, ObjectReference, Plan, Step, View};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::limits::RolloutLimits;
use crate::view::{Deployment, ReplicaSet};
use crate::workloads::{template, writes};

/// The annotation with the revision: the number of a template in the order they were used.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The annotation with former revisions.
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The annotation with the size of the deployment when the set was last scaled.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The annotation with the most pods the deployment could have then.
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// One replica set and its desired state.
#[derive(Clone, Debug)]
pub(super) struct DeploymentSet<'a> {
    /// The observed set.
    pub(super) view: &'a ReplicaSet,
    /// The desired size.
    pub(super) size: i64,
    /// Annotations to add or change.
    pub(super) annotations: BTreeMap<String, String>,
    /// The new `minReadySeconds`, if it changes.
    pub(super) min_ready: Option<i64>,
}

impl DeploymentSet<'_> {
    /// Returns how many pods are available and will still be at the desired size.
    ///
    /// A set that was scaled down reports pods for a while that are about to be deleted.
    pub(super) fn available(&self) -> i64 {
        self.view.status.available_replicas.min(self.size)
    }

    /// Returns the desired value of an annotation.
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        let has = self.annotations.get(name).or_else(|| self.view.metadata.annotations.get(name));
        has.map(String::as_str)
    }

    /// Sets an annotation.
    pub(super) fn annotate(&mut self, name: &str, value: String) {
        if self.annotation(name) != Some(&value) {
            self.annotations.insert(name.to_owned(), value);
        }
    }
}

/// The replica sets of a deployment.
#[derive(Debug)]
pub(super) struct DeploymentSets<'a> {
    deployment: &'a Deployment,
    pub(super) limits: RolloutLimits,
    /// The set with the current template.
    pub(super) new: Option<DeploymentSet<'a>>,
    /// The others, the oldest first.
    pub(super) old: Vec<DeploymentSet<'a>>,
}

impl<'a> DeploymentSets<'a> {
    /// Sorts the sets of a deployment, given in order of age. Of several with the same template,
    /// the oldest counts.
    pub(super) fn of(deployment: &'a Deployment, sets: &'a [Arc<ReplicaSet>]) -> Self {
        let mut all =
            Self { deployment, limits: RolloutLimits::of(deployment), new: None, old: vec![] };
        for view in sets {
            let set = DeploymentSet {
                view,
                size: view.spec.replicas,
                annotations: BTreeMap::new(),
                min_ready: None,
            };
            let fits =
                || template::is_same_template(&view.spec.template, &deployment.spec.template);
            if all.new.is_none() && fits() {
                all.new = Some(set);
            } else {
                all.old.push(set);
            }
        }
        all
    }

    /// Returns all sets, the new one last.
    pub(super) fn all(&self) -> impl Iterator<Item = &DeploymentSet<'a>> {
        self.old.iter().chain(self.new.as_ref())
    }

    /// Returns all sets, the new one last.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut DeploymentSet<'a>> {
        self.old.iter_mut().chain(self.new.as_mut())
    }

    /// Returns the desired size of all sets together.
    pub(super) fn size(&self) -> i64 {
        self.all().map(|it| it.size).sum()
    }

    /// Returns the most pods all of them may have.
    pub(super) fn max_size(&self) -> i64 {
        self.deployment.spec.replicas + self.limits.surge
    }

    /// Returns the size the set of the current template may have now, if it has `size`.
    pub(super) fn max_new_size(&self, size: i64) -> i64 {
        let free = (self.max_size() - self.size()).max(0);
        size + free.min(self.deployment.spec.replicas - size)
    }

    /// Writes the changes of each set.
    pub(super) fn write(&self, plan: &mut Plan) {
        let about = ObjectReference::to(&Deployment::RESOURCE, &self.deployment.metadata);
        for set in self.all() {
            let before = set.view.spec.replicas;
            let mut annotations = set.annotations.clone();
            if set.size != before {
                let counts = [
                    (DESIRED_REPLICAS, self.deployment.spec.replicas),
                    (MAX_REPLICAS, self.max_size()),
                ];
                annotations.extend(counts.map(|(name, it)| (name.to_owned(), it.to_string())));
            }
            if set.size == before && annotations.is_empty() && set.min_ready.is_none() {
                continue;
            }
            let mut body = json!({});
            if !annotations.is_empty() {
                body["metadata"]["annotations"] = json!(annotations);
            }
            if set.size != before {
                body["spec"]["replicas"] = json!(set.size);
            }
            if let Some(seconds) = set.min_ready {
                body["spec"]["minReadySeconds"] = json!(seconds);
            }
            let mut step = Step::new(writes::patch::<ReplicaSet>(&set.view.metadata, body));
            if set.size != before {
                let way = if set.size > before { "up" } else { "down" };
                step = step.on_success(scaling_event(
                    &about,
                    way,
                    &set.view.metadata.name,
                    before,
                    set.size,
                ));
            }
            plan.steps.push(step);
        }
    }

    /// Creates the set of the current template, with `size` pods.
    pub(super) fn create_set(&self, hash: &str, size: i64, annotations: &Value, plan: &mut Plan) {
        let deployment = self.deployment;
        let about = ObjectReference::to(&Deployment::RESOURCE, &deployment.metadata);
        let name = set_name(deployment, hash);
        let mut template = deployment.spec.template.clone();
        let labels = template["metadata"].get("labels");
        let labels = template::with_label(labels, template::HASH_LABEL, hash);
        if !template["metadata"].is_object() {
            template["metadata"] = json!({});
        }
        template["metadata"]["labels"] = labels.clone();
        let mut selector = deployment.spec.selector.raw.clone();
        selector["matchLabels"] =
            template::with_label(selector.get("matchLabels"), template::HASH_LABEL, hash);
        let mut spec = json!({"replicas": size, "selector": selector, "template": template});
        if deployment.spec.min_ready_seconds > 0 {
            spec["minReadySeconds"] = json!(deployment.spec.min_ready_seconds);
        }
        let body = json!({
            "apiVersion": ReplicaSet::RESOURCE.api_version(),
            "kind": ReplicaSet::RESOURCE.kind,
            "metadata": {
                "name": name,
                "namespace": deployment.metadata.namespace,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [
                    controller_reference(&Deployment::RESOURCE, &deployment.metadata),
                ],
            },
            "spec": spec,
        });
        let failed = format!("Failed to create new replica set {name:?}");
        let mut step = Step::new(writes::create::<ReplicaSet>(body)).on_refusal(Event::warning(
            about.clone(),
            "ReplicaSetCreateError",
            failed,
        ));
        if size > 0 {
            step = step.on_success(scaling_event(&about, "up", &name, 0, size));
        }
        plan.steps.push(step);
    }
}

fn scaling_event(about: &ObjectReference, way: &str, name: &str, from: i64, to: i64) -> Event {
    let message = format!("Scaled {way} replica set {name} from {from} to {to}");
    Event::normal(about.clone(), "ScalingReplicaSet", message)
}

/// Returns the name of a deployment's set for the template with this hash.
pub(super) fn set_name(deployment: &Deployment, hash: &str) -> String {
    /// The longest name of an object.
    const LONGEST: usize = 253;
    let free = LONGEST.saturating_sub(hash.len() + 1);
    // Names are ASCII; should one not be, the whole name is better than half a character.
    let base = deployment.metadata.name.get(..free).unwrap_or(&deployment.metadata.name);
    format!("{base}-{hash}")
}

/// Returns the sort key of sets by age, the oldest first.
pub(super) fn age_order(set: &ReplicaSet) -> (Option<Timestamp>, String) {
    (set.metadata.creation_timestamp, set.metadata.name.clone())
}
