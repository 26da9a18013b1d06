//! How many replicas the usage of pods calls for.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_api::quantity::Quantity;
use gantry_reconcile::World;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::ratio::Ratio;
use super::selector;
use crate::usage::{Sampling, peers};
use crate::view::{
    Container, HorizontalPodAutoscaler, MetricSpec, Phase, Pod, ResourceMetric, RestartPolicy,
    Scale, Truth,
};

/// For how long after their start pods may use more than they will.
const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_secs(300);
/// How soon after its start a pod that gets ready has never been ready before.
const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// How many replicas a metric calls for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i64,
    /// What it is called.
    pub(super) metric: String,
}

/// A metric that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Whether a condition says first that replicas could not be computed.
    pub(super) prefixed: bool,
}

/// What all metrics together call for.
#[derive(Clone, Debug, Default)]
pub(super) struct Computed {
    /// The most that any calls for.
    pub(super) proposal: Option<Proposal>,
    /// What was measured, as a status has it.
    pub(super) metrics: Vec<Value>,
    pub(super) invalid: Vec<Invalid>,
}

/// How many replicas the metrics of an autoscaler call for.
pub(super) fn compute(
    world: &World,
    hpa: &HorizontalPodAutoscaler,
    scale: &Scale,
    sampling: Sampling,
    now: Timestamp,
) -> Computed {
    let mut computed = Computed::default();
    let invalid = |reason, message: String| Invalid { reason, message, prefixed: false };
    if scale.selector.is_empty() {
        let message = "the HPA target's scale is missing a selector".to_owned();
        computed.invalid.push(invalid("InvalidSelector", message));
        return computed;
    }
    let Some(selector) = selector::read(&scale.selector) else {
        let text = &scale.selector;
        let message = format!(
            "couldn't convert selector into a corresponding internal selector object: unable to parse \"{text}\""
        );
        computed.invalid.push(invalid("InvalidSelector", message));
        return computed;
    };
    let mut pods = world.shelf::<Pod>().within(&hpa.metadata.namespace);
    pods.retain(|it| selector.matches(&it.metadata.labels));
    let seen = Seen { world, pods, current: scale.spec_replicas, sampling, now };
    for spec in &hpa.spec.metrics {
        match seen.propose(spec) {
            Ok((proposal, status)) => {
                computed.metrics.push(status);
                let most = computed.proposal.as_ref().map(|it| it.replicas);
                if most.is_none_or(|most| proposal.replicas > most) {
                    computed.proposal = Some(proposal);
                }
            }
            Err(invalid) => {
                // Its place in the list is kept.
                computed.metrics.push(json!({"type": ""}));
                computed.invalid.push(invalid);
            }
        }
    }
    computed
}

/// The pods of a target.
struct Seen<'a> {
    world: &'a World,
    pods: Vec<Arc<Pod>>,
    current: i64,
    sampling: Sampling,
    now: Timestamp,
}

/// What is used by pod, in thousandths, and which pods count.
#[derive(Debug, Default)]
struct Groups<'a> {
    used: BTreeMap<&'a str, i128>,
    ready: usize,
    unready: Vec<&'a str>,
    missing: Vec<&'a str>,
}

impl Seen<'_> {
    fn propose(&self, spec: &MetricSpec) -> Result<(Proposal, Value), Invalid> {
        let no_such_metric = |reason, message: String| Invalid { reason, message, prefixed: true };
        let no_api = "unable to fetch metrics from custom metrics API: no known available metric versions found";
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
                        let why = "unable to fetch metrics from external metrics API: no known available metric versions found";
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

    /// What a resource metric calls for, and what was measured.
    fn resource(&self, metric: &ResourceMetric, what: &str) -> Result<(Proposal, Value), String> {
        let ResourceMetric { name, target, container } = metric;
        if let Some(value) = target.average_value {
            let failed = |why| format!("failed to get {name} usage: {why}");
            let target = value.nanos() / 1_000_000;
            let (replicas, average) = self.plain(name, container, target).map_err(failed)?;
            let metric = format!("{name} {what}");
            return Ok((Proposal { replicas, metric }, json!({"averageValue": milli(average)})));
        }
        let Some(target) = target.average_utilization else {
            let why =
                "neither an average utilization target nor an average value (usage) target was set";
            return Err(format!("invalid resource metric source: {why}"));
        };
        let failed = |why| format!("failed to get {name} utilization: {why}");
        let (replicas, utilization, average) =
            self.utilization(name, container, target.into()).map_err(failed)?;
        let metric = format!("{name} {what} utilization (percentage of request)");
        let current = json!({"averageUtilization": utilization, "averageValue": milli(average)});
        Ok((Proposal { replicas, metric }, current))
    }

    /// By how much of what is requested is used. Returns the replicas, the percentage, and the average.
    fn utilization(
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
        let ratio = Ratio::new(percent, target);
        let fallback = |pod: &str| {
            let most = target.max(100);
            requests.get(pod).copied().unwrap_or_default() * most / 100
        };
        let replicas = groups.settle(self.current, ratio, fallback, |used| {
            measure(used).map(|(percent, _)| Ratio::new(percent, target))
        });
        Ok((replicas, percent, average))
    }

    /// By how much is used. Returns the replicas, and the average.
    fn plain(&self, resource: &str, container: &str, target: i128) -> Result<(i64, i128), String> {
        let mut groups = self.group(resource, container)?;
        let average = |used: &BTreeMap<&str, i128>| {
            let count = i128::try_from(used.len()).unwrap_or(i128::MAX);
            (count > 0).then(|| used.values().sum::<i128>() / count)
        };
        let now = average(&groups.used).unwrap_or_default();
        let replicas = groups.settle(
            self.current,
            Ratio::new(now, target),
            |_| target,
            |used| average(used).map(|it| Ratio::new(it, target)),
        );
        Ok((replicas, now))
    }

    /// Which pods count, and what they use.
    fn group(&self, resource: &str, container: &str) -> Result<Groups<'_>, String> {
        let none = || {
            format!(
                "unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
            )
        };
        let mut groups = Groups::default();
        let mut any = false;
        for pod in &self.pods {
            let name = pod.metadata.name.as_str();
            let used = self.used(pod, resource, container);
            any |= used.is_some();
            if pod.metadata.is_going() || pod.status.phase == Phase::Failed {
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

    /// What a pod, or one of its containers, uses, in thousandths.
    fn used(&self, pod: &Pod, resource: &str, container: &str) -> Option<i128> {
        let usage = self.sampling.of(pod, peers(self.world, pod), self.now)?;
        let counted = usage.iter().filter(|it| container.is_empty() || it.name == container);
        let counted: Option<Vec<i128>> = counted.map(|it| it.of(resource)).collect();
        let counted = counted.filter(|it| !it.is_empty())?;
        Some(counted.iter().sum::<i128>() / 1_000_000)
    }

    /// Whether what a pod uses of the processor says nothing about what it will use.
    fn is_unready(&self, pod: &Pod) -> bool {
        let (Some(ready), Some(start)) = (pod.condition("Ready"), pod.status.start_time) else {
            return true;
        };
        let after = |from: Timestamp, time| from.checked_add(time).unwrap_or(Timestamp::MAX);
        let since = ready.last_transition_time.unwrap_or(start);
        let is_not = ready.status == Truth::False;
        if after(start, CPU_INITIALIZATION) > self.now {
            is_not || self.sampling.last(self.now) < after(since, self.sampling.window)
        } else {
            is_not && after(start, INITIAL_READINESS) > since
        }
    }

    /// What pods request, in thousandths.
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

impl Groups<'_> {
    /// How many replicas are needed. Pods of which nothing is known count as using `fallback` before
    /// less is wanted, and as using nothing before more is.
    fn settle(
        &mut self,
        current: i64,
        ratio: Ratio,
        fallback: impl Fn(&str) -> i128,
        measure: impl Fn(&BTreeMap<&str, i128>) -> Option<Ratio>,
    ) -> i64 {
        let with_unready = !self.unready.is_empty() && ratio.is_above();
        if !with_unready && self.missing.is_empty() {
            return if ratio.is_tolerable() { current } else { ratio.of(self.ready) };
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
        if next.is_tolerable() || turned {
            return current;
        }
        let replicas = next.of(self.used.len());
        let wrong =
            (next.is_below() && replicas > current) || (next.is_above() && replicas < current);
        if wrong { current } else { replicas }
    }
}

/// Thousandths, as objects spell amounts.
fn milli(thousandths: i128) -> String {
    let text = format!("{thousandths}m");
    Quantity::parse(&text).map_or(text, |it| it.to_string())
}
