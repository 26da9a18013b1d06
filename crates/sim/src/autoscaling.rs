//! Moves workloads by what their pods use, as the HorizontalPodAutoscaler of Kubernetes does.
//!
//! What was recommended and changed lately decides how fast an autoscaler may go. It is kept in an
//! annotation of the autoscaler ([`history`]), so that a process that starts anew decides the same.

mod behavior;
mod history;
mod pods;
mod ratio;
mod scales;
mod selector;
mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Fence, Held, Key, Kind, Note, Observed, Part, Plan,
    Reference, Resource, Step, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::kubelet::second;
use crate::usage::Sampling;
use crate::view::{AutoscalerTarget, HorizontalPodAutoscaler, Pod, Scale, TargetScale};

use behavior::Limited;
use history::History;
use pods::{Computed, Invalid};
pub(crate) use scales::READ_TIMEOUT;
pub use scales::ScaleInquiry;
use status::Status;

/// Moves workloads by what their pods use.
#[derive(Clone, Copy, Debug)]
pub struct Autoscalers {
    /// How often it is decided.
    sync: Duration,
    sampling: Sampling,
}

impl Autoscalers {
    /// The account it acts as.
    pub const ACCOUNT: &str = "horizontal-pod-autoscaler";

    /// Decides every `sync`, by samples of usage.
    #[must_use]
    pub fn new(sync: Duration, sampling: Sampling) -> Self {
        Self { sync, sampling }
    }
}

impl Controller for Autoscalers {
    fn name(&self) -> &'static str {
        "horizontal-pod-autoscaler"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<HorizontalPodAutoscaler>(), Kind::of::<Pod>()]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<TargetScale>()]
    }

    /// The autoscalers of the target. Also when it was read once more and is the same: an autoscaler waits
    /// for a scale that was read after it was changed.
    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        let Some(change) = change.of::<TargetScale>() else { return Vec::new() };
        let AutoscalerTarget { namespace, target } = change.subject;
        let all = world.shelf::<HorizontalPodAutoscaler>().within(namespace);
        let concerned = all.iter().filter(|it| it.spec.scale_target_ref == *target);
        concerned.map(|it| it.metadata.key()).collect()
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        // What pods use is looked at now and then.
        if change.is::<Pod>() { Vec::new() } else { vec![change.key.clone()] }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(hpa) = world.shelf::<HorizontalPodAutoscaler>().get(key) else { return plan };
        let scale = world.facts::<TargetScale>().observed(&AutoscalerTarget::of(&hpa));
        let Some(scale) = scale.filter(|it| !is_older_than_last_change(it, &hpa)) else {
            // It is read soon.
            return plan;
        };
        plan.look_within(self.sync);
        let unknown = Scale::default();
        let mut cycle = Cycle { world, hpa: &hpa, scale: &unknown, sampling: self.sampling, now };
        match &scale.value.0 {
            Ok(scale) => Cycle { scale, ..cycle }.decide(&mut plan),
            Err(why) => cycle.fail(why, &mut plan),
        }
        plan
    }

    fn pace(&self) -> Duration {
        self.sync
    }
}

/// Whether a scale may have been read before the autoscaler changed it last.
fn is_older_than_last_change(scale: &Observed<TargetScale>, hpa: &HorizontalPodAutoscaler) -> bool {
    let changed = hpa.status.last_scale_time;
    // Status has whole seconds.
    let changed = changed.and_then(|it| it.checked_add(SignedDuration::from_secs(1)).ok());
    changed.is_some_and(|changed| scale.at < changed)
}

/// One decision about one autoscaler.
struct Cycle<'a> {
    world: &'a World,
    hpa: &'a HorizontalPodAutoscaler,
    scale: &'a Scale,
    sampling: Sampling,
    now: Timestamp,
}

/// What is decided about a scale.
enum Decision {
    /// It stays as it is.
    Keep,
    /// It is changed.
    Change(Rescale),
    /// What should be is not known, so nothing is done.
    Unknown,
}

/// A change of a scale, and why.
struct Rescale {
    replicas: i64,
    reason: String,
}

impl Cycle<'_> {
    /// Says that the scale could not be read.
    fn fail(&mut self, why: &str, plan: &mut Plan) {
        let mut status = Status::of(self.hpa, self.now);
        let history = History::read(&self.hpa.metadata.annotations);
        let message =
            format!("the HPA controller was unable to get the target's current scale: {why}");
        status.set("AbleToScale", false, "FailedGetScale", message);
        self.warn("FailedGetScale", why.to_owned(), plan);
        self.write(&status, &history, plan);
    }

    fn decide(&mut self, plan: &mut Plan) {
        let (hpa, scale) = (self.hpa, self.scale);
        let mut status = Status::of(hpa, self.now);
        let mut history = History::read(&hpa.metadata.annotations);
        let message = "the HPA controller was able to get the target's current scale";
        status.set("AbleToScale", true, "SucceededGetScale", message);
        let current = scale.spec_replicas;
        history.begin(current, self.now);
        status.current_replicas = Some(current);
        match self.desired(&mut status, &mut history, plan) {
            Decision::Change(rescale) => {
                status.desired_replicas = rescale.replicas;
                self.rescale(&rescale, status, history, plan);
            }
            Decision::Keep => {
                status.desired_replicas = current;
                self.write(&status, &history, plan);
            }
            Decision::Unknown => self.write(&status, &history, plan),
        }
    }

    /// How many there should be.
    fn desired(&self, status: &mut Status, history: &mut History, plan: &mut Plan) -> Decision {
        let spec = &self.hpa.spec;
        let (least, most) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
        let current = self.scale.spec_replicas;
        let to = |replicas, reason: &str| {
            Decision::Change(Rescale { replicas, reason: reason.to_owned() })
        };
        if current == 0 && least != 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            status.set("ScalingActive", false, "ScalingDisabled", message);
            return Decision::Keep;
        }
        if current > most {
            return to(most, "Current number of replicas above Spec.MaxReplicas");
        }
        if current < least {
            return to(least, "Current number of replicas below Spec.MinReplicas");
        }
        let computed = pods::compute(self.world, self.hpa, self.scale, self.sampling, self.now);
        let Computed { proposal, metrics, invalid } = computed;
        status.current_metrics = metrics;
        let total = self.hpa.spec.metrics.len();
        if let Some(Invalid { reason, message, .. }) = invalid.first() {
            self.warn(reason, message.clone(), plan);
            let count = invalid.len();
            let words = format!(
                "invalid metrics ({count} invalid out of {total}), first error is: {message}"
            );
            self.warn("FailedComputeMetricsReplicas", words, plan);
        }
        let usable = match (proposal, invalid.first()) {
            (Some(proposal), None) => Some(proposal),
            // What is not known may be high: nothing is taken away for what is.
            (Some(proposal), Some(_)) if proposal.replicas >= current => Some(proposal),
            (_, _) => None,
        };
        let Some(proposal) = usable else {
            if let Some(Invalid { reason, message, prefixed }) = invalid.first() {
                let message = match prefixed {
                    true => format!("the HPA was unable to compute the replica count: {message}"),
                    false => message.clone(),
                };
                status.set("ScalingActive", false, reason, message);
            }
            return Decision::Unknown;
        };
        let metric = &proposal.metric;
        let message =
            format!("the HPA was able to successfully calculate a replica count from {metric}");
        status.set("ScalingActive", true, "ValidMetricFound", message);
        let reason = match proposal.replicas > current {
            true => format!("{metric} above target"),
            false => "All metrics below target".to_owned(),
        };
        let limits = behavior::Limits { current, least, most, now: self.now };
        let Limited { replicas, stabilized, limited } =
            behavior::limit(spec.behavior.as_ref(), limits, proposal.replicas, history);
        let ready = ("ReadyForNewScale", "recommended size matches current size");
        let (reason_of, message) = stabilized.unwrap_or(ready);
        status.set("AbleToScale", true, reason_of, message);
        let (is_limited, reason_of, message) = limited;
        status.set("ScalingLimited", is_limited, reason_of, message);
        match replicas == current {
            true => Decision::Keep,
            false => Decision::Change(Rescale { replicas, reason }),
        }
    }

    /// Changes the scale, and then says so.
    fn rescale(&self, to: &Rescale, mut status: Status, mut history: History, plan: &mut Plan) {
        let (hpa, scale) = (self.hpa, self.scale);
        let Rescale { replicas, reason } = to;
        let refused = self.world.refused("horizontal-pod-autoscaler", &hpa.metadata.key());
        let refused = refused.iter().find(|it| it.resource != HorizontalPodAutoscaler::RESOURCE);
        if let Some(refused) = refused {
            let why = &refused.refusal;
            let mut before = Status::of(hpa, self.now);
            let message =
                format!("the HPA controller was unable to update the target scale: {why}");
            before.set("AbleToScale", false, "FailedUpdateScale", message);
            before.current_replicas = status.current_replicas;
            self.write(&before, &history, plan);
        }
        let message =
            format!("the HPA controller was able to update the target scale to {replicas}");
        status.set("AbleToScale", true, "SucceededRescale", message);
        status.last_scale_time = Some(second(self.now));
        history.changed(replicas - scale.spec_replicas, self.now);
        let target = &hpa.spec.scale_target_ref;
        let (group, version) =
            target.api_version.split_once('/').unwrap_or(("", &target.api_version));
        let write = Write::Merge {
            resource: Resource {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                plural: scale.plural.clone().into(),
                kind: target.kind.clone().into(),
                ..HorizontalPodAutoscaler::RESOURCE
            },
            key: Key::new(&hpa.metadata.namespace, &target.name),
            part: Part::Scale,
            // Whatever else has changed since it was read, this is how many there should be.
            fence: Fence { uid: scale.uid.clone(), revision: None },
            body: json!({"spec": {"replicas": replicas}}),
        };
        let said = format!("New size: {replicas}; reason: {reason}");
        let failed = format!("{said}; error");
        let mut step = Step::new(write)
            .done(Note::normal(self.about(), "SuccessfulRescale", said))
            .refused(Note::warning(self.about(), "FailedRescale", failed));
        if refused.is_none() {
            step = step.then(Step::new(self.body(&status, &history)));
        }
        plan.steps.push(step);
    }

    /// Writes what is new about the autoscaler.
    fn write(&self, status: &Status, history: &History, plan: &mut Plan) {
        if status.is_news(self.hpa) || !history.is_in(&self.hpa.metadata.annotations) {
            plan.write(self.body(status, history));
        }
    }

    fn body(&self, status: &Status, history: &History) -> Write {
        let meta = &self.hpa.metadata;
        let mut body: Value = status.body();
        body["metadata"]["annotations"] = json!({history::ANNOTATION: history.text()});
        Write::Merge {
            resource: HorizontalPodAutoscaler::RESOURCE,
            key: meta.key(),
            part: Part::Status,
            fence: Fence { uid: meta.uid.clone(), revision: Some(meta.resource_version) },
            body,
        }
    }

    fn warn(&self, reason: &'static str, message: String, plan: &mut Plan) {
        let reason_of = reason.into();
        plan.held.push(Held {
            about: self.about(),
            reason: reason_of,
            message: message.clone(),
            until: None,
        });
        plan.notes.push(Note::warning(self.about(), reason, message));
    }

    fn about(&self) -> Reference {
        Reference::to(&HorizontalPodAutoscaler::RESOURCE, &self.hpa.metadata)
    }
}
