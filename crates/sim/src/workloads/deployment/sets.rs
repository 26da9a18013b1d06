//! The replica sets of a deployment, and what is to become of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{Note, Plan, Reference, Step, View};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::limits::Limits;
use crate::view::{Deployment, ReplicaSet};
use crate::workloads::{template, writes};

/// The number of a template in the order they were used.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The numbers it had before.
pub(super) const REVISIONS: &str = "deployment.kubernetes.io/revision-history";
/// The size of the deployment when the set was last sized.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The most pods the deployment could have then.
pub(super) const MOST: &str = "deployment.kubernetes.io/max-replicas";

/// One replica set and what it is to be.
#[derive(Clone, Debug)]
pub(super) struct Set<'a> {
    /// As it was seen.
    pub(super) view: &'a ReplicaSet,
    /// The size it is to have.
    pub(super) size: i64,
    /// Annotations it is to have beside those it has.
    pub(super) annotations: BTreeMap<String, String>,
    /// How long its pods are to be ready to be available, if that changes.
    pub(super) min_ready: Option<i64>,
}

impl Set<'_> {
    /// How many pods are available and will still be when it has the size it was given.
    ///
    /// A set that was made smaller reports pods for a while that are about to go.
    pub(super) fn available(&self) -> i64 {
        self.view.status.available_replicas.min(self.size)
    }

    /// An annotation as it is to be.
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        let has = self.annotations.get(name).or_else(|| self.view.metadata.annotations.get(name));
        has.map(String::as_str)
    }

    /// Gives it an annotation.
    pub(super) fn annotate(&mut self, name: &str, value: String) {
        if self.annotation(name) != Some(&value) {
            self.annotations.insert(name.to_owned(), value);
        }
    }
}

/// The replica sets of a deployment.
#[derive(Debug)]
pub(super) struct Sets<'a> {
    deployment: &'a Deployment,
    pub(super) limits: Limits,
    /// The one with the template as it is now.
    pub(super) new: Option<Set<'a>>,
    /// The others, those made first before.
    pub(super) old: Vec<Set<'a>>,
}

impl<'a> Sets<'a> {
    /// The sets of a deployment, given in order of age. Of several with the same template, the
    /// oldest counts.
    pub(super) fn of(deployment: &'a Deployment, sets: &'a [Arc<ReplicaSet>]) -> Self {
        let mut all = Self { deployment, limits: Limits::of(deployment), new: None, old: vec![] };
        for view in sets {
            let set = Set {
                view,
                size: view.spec.replicas,
                annotations: BTreeMap::new(),
                min_ready: None,
            };
            let fits = || template::same(&view.spec.template, &deployment.spec.template);
            if all.new.is_none() && fits() {
                all.new = Some(set);
            } else {
                all.old.push(set);
            }
        }
        all
    }

    /// All of them, the new one last.
    pub(super) fn all(&self) -> impl Iterator<Item = &Set<'a>> {
        self.old.iter().chain(self.new.as_ref())
    }

    /// All of them, the new one last.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Set<'a>> {
        self.old.iter_mut().chain(self.new.as_mut())
    }

    /// How many pods all of them are to have.
    pub(super) fn size(&self) -> i64 {
        self.all().map(|it| it.size).sum()
    }

    /// The most pods all of them may have.
    pub(super) fn most(&self) -> i64 {
        self.deployment.spec.replicas + self.limits.surge
    }

    /// The size the set of the present template may have now, if it has `size`.
    pub(super) fn room_for_new(&self, size: i64) -> i64 {
        let room = (self.most() - self.size()).max(0);
        size + room.min(self.deployment.spec.replicas - size)
    }

    /// Writes what was decided about each.
    pub(super) fn write(&self, plan: &mut Plan) {
        let about = Reference::to(&Deployment::RESOURCE, &self.deployment.metadata);
        for set in self.all() {
            let before = set.view.spec.replicas;
            let mut annotations = set.annotations.clone();
            if set.size != before {
                let counts = [(DESIRED, self.deployment.spec.replicas), (MOST, self.most())];
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
            let mut step = Step::new(writes::change::<ReplicaSet>(&set.view.metadata, body));
            if set.size != before {
                let way = if set.size > before { "up" } else { "down" };
                step = step.done(scaled(&about, way, &set.view.metadata.name, before, set.size));
            }
            plan.steps.push(step);
        }
    }

    /// Makes the set of the present template, with `size` pods.
    pub(super) fn make(&self, hash: &str, size: i64, annotations: &Value, plan: &mut Plan) {
        let deployment = self.deployment;
        let about = Reference::to(&Deployment::RESOURCE, &deployment.metadata);
        let name = name(deployment, hash);
        let mut template = deployment.spec.template.clone();
        let labels = template["metadata"].get("labels");
        let labels = template::with_label(labels, template::HASH_LABEL, hash);
        if !template["metadata"].is_object() {
            template["metadata"] = json!({});
        }
        template["metadata"]["labels"] = labels.clone();
        let mut selector = deployment.spec.selector.text.clone();
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
                "ownerReferences": [controlled_by(&Deployment::RESOURCE, &deployment.metadata)],
            },
            "spec": spec,
        });
        let failed = format!("Failed to create new replica set {name:?}");
        let mut step = Step::new(writes::create::<ReplicaSet>(body)).refused(Note::warning(
            about.clone(),
            "ReplicaSetCreateError",
            failed,
        ));
        if size > 0 {
            step = step.done(scaled(&about, "up", &name, 0, size));
        }
        plan.steps.push(step);
    }
}

fn scaled(about: &Reference, way: &str, name: &str, from: i64, to: i64) -> Note {
    let message = format!("Scaled {way} replica set {name} from {from} to {to}");
    Note::normal(about.clone(), "ScalingReplicaSet", message)
}

/// The name of a deployment's set for the template with this hash.
pub(super) fn name(deployment: &Deployment, hash: &str) -> String {
    /// The longest name an object may have.
    const LONGEST: usize = 253;
    let room = LONGEST.saturating_sub(hash.len() + 1);
    // Names are ASCII; should one not be, all of it is better than half a letter.
    let base = deployment.metadata.name.get(..room).unwrap_or(&deployment.metadata.name);
    format!("{base}-{hash}")
}

/// What sorts sets by age, the oldest first.
pub(super) fn age(set: &ReplicaSet) -> (Option<Timestamp>, String) {
    (set.metadata.creation_timestamp, set.metadata.name.clone())
}
