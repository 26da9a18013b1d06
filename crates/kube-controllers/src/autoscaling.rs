//! Scales workloads by the resource usage of their pods, as the HorizontalPodAutoscaler of
//! Kubernetes does.
//!
//! Recent recommendations and changes decide how fast an autoscaler may scale. They are kept in an
//! annotation of the autoscaler ([`history`]), so that a restarted process decides the same.

mod behavior;
mod history;
mod ratio;
mod replica_calculator;
mod scales;
mod selector;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::{
    Change, Controller, Event, FactChange, FactKind, Fence, Held, Key, Kind, ObjectReference,
    Observed, Plan, Resource, Step, Subresource, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::metrics::PodMetrics;
use crate::status::truncate_to_seconds;
use crate::view::{AutoscalerTarget, HorizontalPodAutoscaler, Pod, Scale, TargetScale};

use behavior::LimitedReplicas;
use history::History;
use replica_calculator::{ComputedReplicas, InvalidMetric};
pub(crate) use scales::READ_TIMEOUT;
pub use scales::ScaleInquiry;
use status::AutoscalerStatusUpdate;

/// Scales workloads by the resource usage of their pods.
#[derive(Clone, Debug)]
pub struct AutoscalerController {
    /// How often the controller decides about an autoscaler.
    sync_period: Duration,
    metrics: Arc<dyn PodMetrics>,
}

impl AutoscalerController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "horizontal-pod-autoscaler";

    /// Creates a controller that decides every `sync`, by samples of usage.
    #[must_use]
    pub fn new(sync: Duration, metrics: Arc<dyn PodMetrics>) -> Self {
        Self { sync_period: sync, metrics }
    }
}

impl Controller for AutoscalerController {
    fn name(&self) -> &'static str {
        "horizontal-pod-autoscaler"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<HorizontalPodAutoscaler>(), Kind::of::<Pod>()]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<TargetScale>()]
    }

    /// Returns the autoscalers of the target, also when the scale was read again and is unchanged:
    /// an autoscaler waits for a scale that was read after its last change.
    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        let Some(change) = change.of::<TargetScale>() else { return Vec::new() };
        let AutoscalerTarget { namespace, target } = change.subject;
        let all = world.store::<HorizontalPodAutoscaler>().in_namespace(namespace);
        let concerned = all.iter().filter(|it| it.spec.scale_target_ref == *target);
        concerned.map(|it| it.metadata.key()).collect()
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        // Pod usage is sampled periodically, so pod changes enqueue nothing.
        if change.is::<Pod>() { Vec::new() } else { vec![change.key.clone()] }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(hpa) = world.store::<HorizontalPodAutoscaler>().get(key) else { return plan };
        let scale = world.facts::<TargetScale>().observed(&AutoscalerTarget::of(&hpa));
        let Some(scale) = scale.filter(|it| !is_older_than_last_change(it, &hpa)) else {
            // The scale is read soon.
            return plan;
        };
        plan.requeue_after(self.sync_period);
        let unknown = Scale::default();
        let mut cycle = AutoscalingCycle {
            world,
            hpa: &hpa,
            scale: &unknown,
            metrics: self.metrics.as_ref(),
            now,
        };
        match &scale.value.0 {
            Ok(scale) => AutoscalingCycle { scale, ..cycle }.decide(&mut plan),
            Err(why) => cycle.report_scale_error(why, &mut plan),
        }
        plan
    }

    fn min_plan_interval(&self) -> Duration {
        self.sync_period
    }
}

/// Returns whether a scale may have been read before the autoscaler changed it last.
fn is_older_than_last_change(scale: &Observed<TargetScale>, hpa: &HorizontalPodAutoscaler) -> bool {
    let changed = hpa.status.last_scale_time;
    // The status has whole seconds.
    let changed = changed.and_then(|it| it.checked_add(SignedDuration::from_secs(1)).ok());
    changed.is_some_and(|changed| scale.at < changed)
}

/// One decision about one autoscaler.
struct AutoscalingCycle<'a> {
    world: &'a World,
    hpa: &'a HorizontalPodAutoscaler,
    scale: &'a Scale,
    metrics: &'a dyn PodMetrics,
    now: Timestamp,
}

/// The decision about a scale.
enum Decision {
    /// The scale stays as it is.
    Keep,
    /// The scale is changed.
    Change(Rescale),
    /// The desired replicas are unknown, so nothing is changed.
    Unknown,
}

/// A change of a scale, and its reason.
struct Rescale {
    replicas: i64,
    reason: String,
}

impl AutoscalingCycle<'_> {
    /// Reports in the status that the scale could not be read.
    fn report_scale_error(&mut self, why: &str, plan: &mut Plan) {
        let mut status = AutoscalerStatusUpdate::of(self.hpa, self.now);
        let history = History::read(&self.hpa.metadata.annotations);
        let message =
            format!("the HPA controller was unable to get the target's current scale: {why}");
        status.set("AbleToScale", false, "FailedGetScale", message);
        self.warn("FailedGetScale", why.to_owned(), plan);
        self.write(&status, &history, plan);
    }

    fn decide(&mut self, plan: &mut Plan) {
        let (hpa, scale) = (self.hpa, self.scale);
        let mut status = AutoscalerStatusUpdate::of(hpa, self.now);
        let mut history = History::read(&hpa.metadata.annotations);
        let message = "the HPA controller was able to get the target's current scale";
        status.set("AbleToScale", true, "SucceededGetScale", message);
        let current = scale.spec_replicas;
        history.record_initial(current, self.now);
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

    /// Computes the desired number of replicas.
    fn desired(
        &self,
        status: &mut AutoscalerStatusUpdate,
        history: &mut History,
        plan: &mut Plan,
    ) -> Decision {
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
        let computed =
            replica_calculator::compute(self.world, self.hpa, self.scale, self.metrics, self.now);
        let ComputedReplicas { proposal, metrics, invalid } = computed;
        status.current_metrics = metrics;
        let total = self.hpa.spec.metrics.len();
        if let Some(InvalidMetric { reason, message, .. }) = invalid.first() {
            self.warn(reason, message.clone(), plan);
            let count = invalid.len();
            let words = format!(
                "invalid metrics ({count} invalid out of {total}), first error is: {message}"
            );
            self.warn("FailedComputeMetricsReplicas", words, plan);
        }
        let usable = match (proposal, invalid.first()) {
            (Some(proposal), None) => Some(proposal),
            // An unknown metric may be high: the known ones alone do not scale down.
            (Some(proposal), Some(_)) if proposal.replicas >= current => Some(proposal),
            (_, _) => None,
        };
        let Some(proposal) = usable else {
            if let Some(InvalidMetric { reason, message, prefixed }) = invalid.first() {
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
        let limits = behavior::ReplicaLimits { current, min: least, max: most, now: self.now };
        let LimitedReplicas { replicas, stabilized, limited } =
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

    /// Changes the scale, and then records an event about it.
    fn rescale(
        &self,
        to: &Rescale,
        mut status: AutoscalerStatusUpdate,
        mut history: History,
        plan: &mut Plan,
    ) {
        let (hpa, scale) = (self.hpa, self.scale);
        let Rescale { replicas, reason } = to;
        let refused = self.world.refused_writes("horizontal-pod-autoscaler", &hpa.metadata.key());
        let refused = refused.iter().find(|it| it.resource != HorizontalPodAutoscaler::RESOURCE);
        if let Some(refused) = refused {
            let why = &refused.refusal;
            let mut before = AutoscalerStatusUpdate::of(hpa, self.now);
            let message =
                format!("the HPA controller was unable to update the target scale: {why}");
            before.set("AbleToScale", false, "FailedUpdateScale", message);
            before.current_replicas = status.current_replicas;
            self.write(&before, &history, plan);
        }
        let message =
            format!("the HPA controller was able to update the target scale to {replicas}");
        status.set("AbleToScale", true, "SucceededRescale", message);
        status.last_scale_time = Some(truncate_to_seconds(self.now));
        history.record_change(replicas - scale.spec_replicas, self.now);
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
            subresource: Subresource::Scale,
            // Whatever else has changed since the scale was read, this is the desired number of
            // replicas.
            fence: Fence { uid: scale.uid.clone(), revision: None },
            body: json!({"spec": {"replicas": replicas}}),
        };
        let said = format!("New size: {replicas}; reason: {reason}");
        let failed = format!("{said}; error");
        let mut step = Step::new(write)
            .on_success(Event::normal(self.about(), "SuccessfulRescale", said))
            .on_refusal(Event::warning(self.about(), "FailedRescale", failed));
        if refused.is_none() {
            step = step.then(Step::new(self.autoscaler_patch(&status, &history)));
        }
        plan.steps.push(step);
    }

    /// Writes the changed status and history of the autoscaler.
    fn write(&self, status: &AutoscalerStatusUpdate, history: &History, plan: &mut Plan) {
        if status.differs_from(self.hpa) || !history.is_recorded_in(&self.hpa.metadata.annotations)
        {
            plan.write(self.autoscaler_patch(status, history));
        }
    }

    fn autoscaler_patch(&self, status: &AutoscalerStatusUpdate, history: &History) -> Write {
        let meta = &self.hpa.metadata;
        let mut body: Value = status.body();
        body["metadata"]["annotations"] = json!({history::ANNOTATION: history.text()});
        Write::Merge {
            resource: HorizontalPodAutoscaler::RESOURCE,
            key: meta.key(),
            subresource: Subresource::Status,
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
        plan.events.push(Event::warning(self.about(), reason, message));
    }

    fn about(&self) -> ObjectReference {
        ObjectReference::to(&HorizontalPodAutoscaler::RESOURCE, &self.hpa.metadata)
    }
}
