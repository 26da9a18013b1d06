//! Computes the number of replicas from the usage of pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_api::quantity::Quantity;
use gantry_reconcile::World;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::ratio::UsageRatio;
use super::selector;
use crate::metrics::PodMetrics;
use crate::view::{
    ConditionStatus, Container, HorizontalPodAutoscaler, MetricSpec, Phase, Pod, ResourceMetric,
    RestartPolicy, Scale,
};

/// How long after its start a pod may use more CPU than it will later.
const CPU_INITIALIZATION_PERIOD: SignedDuration = SignedDuration::from_secs(300);
/// Readiness changes this soon after the start of a pod count as its initial readiness.
const INITIAL_READINESS_DELAY: SignedDuration = SignedDuration::from_secs(30);

/// The number of replicas that a metric proposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplicaProposal {
    pub(super) replicas: i64,
    /// The description of the metric.
    pub(super) metric: String,
}

/// A metric whose value is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidMetric {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Whether the condition's message begins with the failure to compute replicas.
    pub(super) prefixed: bool,
}

/// The result of all metrics together.
#[derive(Clone, Debug, Default)]
pub(super) struct ComputedReplicas {
    /// The highest proposal of all metrics.
    pub(super) proposal: Option<ReplicaProposal>,
    /// The measured values, as the status has them.
    pub(super) metrics: Vec<Value>,
    pub(super) invalid: Vec<InvalidMetric>,
}

/// Computes the number of replicas from the metrics of an autoscaler.
pub(super) fn compute(
    world: &World,
    hpa: &HorizontalPodAutoscaler,
    scale: &Scale,
    metrics: &dyn PodMetrics,
    now: Timestamp,
) -> ComputedReplicas {
    let mut computed = ComputedReplicas::default();
    let invalid = |reason, message: String| InvalidMetric { reason, message, prefixed: false };
    if scale.selector.is_empty() {
        let message = "the HPA target's scale is missing a selector".to_owned();
        computed.invalid.push(invalid("InvalidSelector", message));
        return computed;
    }
    let Some(selector) = selector::parse_selector(&scale.selector) else {
        let text = &scale.selector;
        let message = format!(
            "couldn't convert selector into a corresponding internal selector object: unable to \
             parse \"{text}\""
        );
        computed.invalid.push(invalid("InvalidSelector", message));
        return computed;
    };
    let mut pods = world.store::<Pod>().in_namespace(&hpa.metadata.namespace);
    pods.retain(|it| selector.matches(&it.metadata.labels));
    let observed = TargetPods { world, pods, current: scale.spec_replicas, metrics, now };
    for spec in &hpa.spec.metrics {
        match observed.propose(spec) {
            Ok((proposal, status)) => {
                computed.metrics.push(status);
                let most = computed.proposal.as_ref().map(|it| it.replicas);
                if most.is_none_or(|most| proposal.replicas > most) {
                    computed.proposal = Some(proposal);
                }
            }
            Err(invalid) => {
                // Its position in the list is preserved.
                computed.metrics.push(json!({"type": ""}));
                computed.invalid.push(invalid);
            }
        }
    }
    computed
}

/// The pods of a scale target.
struct TargetPods<'a> {
    world: &'a World,
    pods: Vec<Arc<Pod>>,
    current: i64,
    metrics: &'a dyn PodMetrics,
    now: Timestamp,
}

/// The usage by pod, in thousandths, and which pods count.
#[derive(Debug, Default)]
struct PodGroups<'a> {
    used: BTreeMap<&'a str, i128>,
    ready: usize,
    unready: Vec<&'a str>,
    missing: Vec<&'a str>,
}

impl TargetPods<'_> {
    fn propose(&self, spec: &MetricSpec) -> Result<(ReplicaProposal, Value), InvalidMetric> {
        let no_such_metric =
            |reason, message: String| InvalidMetric { reason, message, prefixed: true };
        let no_api = "unable to fetch metrics from custom metrics API: no known available metric \
                      versions found";
        match (&spec.resource, &spec.container_resource) {
            (Some(metric), _) if spec.kind == "Resource" => {
                let failed = |message| no_such_metric("FailedGetResourceMetric", message);
                let (proposal, current) = self.resource(metric, "resource").map_err(failed)?;
                let status = json!({"name": metric.name, "current": current});
                Ok((proposal, json!({"type": "Resource", "resource": status})))
            }
            (_, Some(metric)) if spec.kind == "ContainerResource" => {
                let failed = |message| no_such_metric("FailedGetContainerResourceMetric", message);
                let (proposal, current) =
                    self.resource(metric, "container resource").map_err(failed)?;
                let status =
                    json!({"name": metric.name, "container": metric.container, "current": current});
                let status = json!({"type": "ContainerResource", "containerResource": status});
                Ok((proposal, status))
            }
            _ => {
                let name = |it: &Option<Value>| {
                    let metric = it.as_ref().map(|it| it["metric"]["name"].clone());
                    metric.and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
                };
                Err(match spec.kind.as_str() {
                    "Pods" => {
                        let why = format!("unable to get metric {}: {no_api}", name(&spec.pods));
                        no_such_metric("FailedGetPodsMetric", why)
                    }
                    "Object" => {
                        let why = format!("unable to get metric {}: {no_api}", name(&spec.object));
                        no_such_metric("FailedGetObjectMetric", why)
                    }
                    "External" => {
                        let why = "unable to fetch metrics from external metrics API: no known \
                                   available metric versions found";
                        let why = format!(
                            "unable to get external metric {}: {why}",
                            name(&spec.external)
                        );
                        no_such_metric("FailedGetExternalMetric", why)
                    }
                    other => {
                        let why = format!("unknown metric source type \"{other}\"");
                        no_such_metric("InvalidMetricSourceType", why)
                    }
                })
            }
        }
    }

    /// Computes the proposal of a resource metric, and the measured value.
    fn resource(
        &self,
        metric: &ResourceMetric,
        what: &str,
    ) -> Result<(ReplicaProposal, Value), String> {
        let ResourceMetric { name, target, container } = metric;
        if let Some(value) = target.average_value {
            let failed = |why| format!("failed to get {name} usage: {why}");
            let target = value.nanos() / 1_000_000;
            let (replicas, average) = self.raw_replicas(name, container, target).map_err(failed)?;
            let metric = format!("{name} {what}");
            return Ok((
                ReplicaProposal { replicas, metric },
                json!({"averageValue": milli(average)}),
            ));
        }
        let Some(target) = target.average_utilization else {
            let why =
                "neither an average utilization target nor an average value (usage) target was set";
            return Err(format!("invalid resource metric source: {why}"));
        };
        let failed = |why| format!("failed to get {name} utilization: {why}");
        let (replicas, utilization, average) =
            self.utilization_replicas(name, container, target.into()).map_err(failed)?;
        let metric = format!("{name} {what} utilization (percentage of request)");
        let current = json!({"averageUtilization": utilization, "averageValue": milli(average)});
        Ok((ReplicaProposal { replicas, metric }, current))
    }

    /// Computes the replicas by utilization (usage in relation to requests). Returns the replicas,
    /// the percentage, and the average.
    fn utilization_replicas(
        &self,
        resource: &str,
        container: &str,
        target: i128,
    ) -> Result<(i64, i128, i128), String> {
        let mut groups = self.group(resource, container)?;
        let requests = self.requests(resource, container)?;
        let measure = |used: &BTreeMap<&str, i128>| {
            let known = used.iter().filter_map(|(pod, used)| Some((*used, *requests.get(pod)?)));
            let sums = known.fold((0, 0, 0), |(count, used, requested), it| {
                (count + 1, used + it.0, requested + it.1)
            });
            match sums {
                (count, used, requested) if requested > 0 => {
                    Some((used * 100 / requested, used / count))
                }
                _ => None,
            }
        };
        let none = "no metrics returned matched known pods";
        let (percent, average) = measure(&groups.used).ok_or(none)?;
        let ratio = UsageRatio::new(percent, target);
        let fallback = |pod: &str| {
            let most = target.max(100);
            requests.get(pod).copied().unwrap_or_default() * most / 100
        };
        let replicas = groups.desired_replicas(self.current, ratio, fallback, |used| {
            measure(used).map(|(percent, _)| UsageRatio::new(percent, target))
        });
        Ok((replicas, percent, average))
    }

    /// Computes the replicas by raw usage. Returns the replicas, and the average.
    fn raw_replicas(
        &self,
        resource: &str,
        container: &str,
        target: i128,
    ) -> Result<(i64, i128), String> {
        let mut groups = self.group(resource, container)?;
        let average = |used: &BTreeMap<&str, i128>| {
            let count = i128::try_from(used.len()).unwrap_or(i128::MAX);
            (count > 0).then(|| used.values().sum::<i128>() / count)
        };
        let now = average(&groups.used).unwrap_or_default();
        let replicas = groups.desired_replicas(
            self.current,
            UsageRatio::new(now, target),
            |_| target,
            |used| average(used).map(|it| UsageRatio::new(it, target)),
        );
        Ok((replicas, now))
    }

    /// Groups pods by whether their usage counts, and collects the usage.
    fn group(&self, resource: &str, container: &str) -> Result<PodGroups<'_>, String> {
        let none = || {
            format!(
                "unable to get metrics for resource {resource}: no metrics returned from resource \
                 metrics API"
            )
        };
        let mut groups = PodGroups::default();
        let mut any = false;
        for pod in &self.pods {
            let name = pod.metadata.name.as_str();
            let used = self.used(pod, resource, container);
            any |= used.is_some();
            if pod.metadata.is_terminating() || pod.status.phase == Phase::Failed {
                continue;
            }
            match used {
                _ if pod.status.phase == Phase::Pending => groups.unready.push(name),
                None => groups.missing.push(name),
                Some(_) if resource == "cpu" && self.is_unready(pod) => groups.unready.push(name),
                Some(used) => {
                    groups.ready += 1;
                    groups.used.insert(name, used);
                }
            }
        }
        if !any {
            return Err(none());
        }
        if groups.used.is_empty() {
            return Err(
                "did not receive metrics for targeted pods (pods might be unready)".to_owned()
            );
        }
        Ok(groups)
    }

    /// Returns the usage of a pod, or of one of its containers, in thousandths.
    fn used(&self, pod: &Pod, resource: &str, container: &str) -> Option<i128> {
        let usage = self.metrics.usage(self.world, pod, self.now)?;
        let counted = usage.iter().filter(|it| container.is_empty() || it.name == container);
        let counted: Option<Vec<i128>> = counted.map(|it| it.resource(resource)).collect();
        let counted = counted.filter(|it| !it.is_empty())?;
        Some(counted.iter().sum::<i128>() / 1_000_000)
    }

    /// Returns whether the CPU usage of a pod is not yet representative.
    fn is_unready(&self, pod: &Pod) -> bool {
        let (Some(ready), Some(start)) = (pod.condition("Ready"), pod.status.start_time) else {
            return true;
        };
        let after = |from: Timestamp, time| from.checked_add(time).unwrap_or(Timestamp::MAX);
        let since = ready.last_transition_time.unwrap_or(start);
        let is_not = ready.status == ConditionStatus::False;
        if after(start, CPU_INITIALIZATION_PERIOD) > self.now {
            is_not || self.metrics.last_sample(self.now) < after(since, self.metrics.window())
        } else {
            is_not && after(start, INITIAL_READINESS_DELAY) > since
        }
    }

    /// Returns the resource requests of pods, in thousandths.
    fn requests(&self, resource: &str, container: &str) -> Result<BTreeMap<&str, i128>, String> {
        let mut requests = BTreeMap::new();
        for pod in &self.pods {
            let name = pod.metadata.name.as_str();
            let sidecars = pod.spec.init_containers.iter();
            let sidecars = sidecars.filter(|it| it.restart_policy == Some(RestartPolicy::Always));
            let counts = |it: &&Container| container.is_empty() || it.name == container;
            let mut sum = 0;
            for one in pod.spec.containers.iter().chain(sidecars).filter(counts) {
                let request = one.resources.requests.get(resource).ok_or_else(|| {
                    format!(
                        "missing request for {resource} in container {} of Pod {name}",
                        one.name
                    )
                })?;
                sum += request.nanos() / 1_000_000;
            }
            requests.insert(name, sum);
        }
        Ok(requests)
    }
}

impl PodGroups<'_> {
    /// Computes how many replicas are needed. Pods without a known usage count as using `fallback`
    /// before scaling down, and as using nothing before scaling up.
    fn desired_replicas(
        &mut self,
        current: i64,
        ratio: UsageRatio,
        fallback: impl Fn(&str) -> i128,
        measure: impl Fn(&BTreeMap<&str, i128>) -> Option<UsageRatio>,
    ) -> i64 {
        let with_unready = !self.unready.is_empty() && ratio.is_above();
        if !with_unready && self.missing.is_empty() {
            return if ratio.is_within_tolerance() { current } else { ratio.of(self.ready) };
        }
        for pod in &self.missing {
            if ratio.is_below() {
                self.used.insert(pod, fallback(pod));
            } else if ratio.is_above() {
                self.used.insert(pod, 0);
            }
        }
        if with_unready {
            self.used.extend(self.unready.iter().map(|pod| (*pod, 0)));
        }
        let Some(next) = measure(&self.used) else { return current };
        let turned = (ratio.is_below() && next.is_above()) || (ratio.is_above() && next.is_below());
        if next.is_within_tolerance() || turned {
            return current;
        }
        let replicas = next.of(self.used.len());
        let wrong =
            (next.is_below() && replicas > current) || (next.is_above() && replicas < current);
        if wrong { current } else { replicas }
    }
}

/// Formats thousandths as a quantity.
fn milli(thousandths: i128) -> String {
    let text = format!("{thousandths}m");
    Quantity::parse(&text).map_or(text, |it| it.to_string())
}
