use gantry_api::quantity::Quantity;
use gantry_reconcile::Uid;

use super::behavior::{ReplicaLimits, limit};
use super::*;
use crate::metrics::ContainerUsage;
use crate::test_world::{TestWorld, start_time};
use crate::view::{AutoscalerBehavior, ContainerStatus, Phase, Pod};

/// Says how much of what it requests a pod uses, or how much.
const CPU_USAGE: &str = "cpu-usage";

/// Reads usage from an annotation of pods.
#[derive(Debug)]
struct AnnotatedUsage;

impl PodMetrics for AnnotatedUsage {
    fn usage(&self, _: &World, pod: &Pod, now: Timestamp) -> Option<Vec<ContainerUsage>> {
        let sampled = self.last_sample(now);
        let ran = |it: &ContainerStatus| {
            let since = it.state.running.as_ref().and_then(|it| it.started_at);
            since.is_some_and(|it| it + self.window() <= sampled)
        };
        if pod.status.phase != Phase::Running || !pod.status.container_statuses.iter().all(ran) {
            return None;
        }
        let text = pod.metadata.annotations.get(CPU_USAGE)?;
        let usage = pod.spec.containers.iter().map(|container| {
            let requested = container.resources.requests.get("cpu").map(|it| it.nanos());
            let cpu = match text.strip_suffix('%') {
                Some(percent) => requested.unwrap_or(0) * percent.parse::<i128>().unwrap() / 100,
                None => Quantity::parse(text).unwrap().nanos(),
            };
            ContainerUsage { name: container.name.clone(), cpu, memory: 0 }
        });
        Some(usage.collect())
    }

    fn window(&self) -> SignedDuration {
        SignedDuration::from_secs(15)
    }
}

fn autoscalers() -> AutoscalerController {
    AutoscalerController::new(Duration::from_secs(15), Arc::new(AnnotatedUsage))
}

fn at(seconds: i64) -> Timestamp {
    start_time() + SignedDuration::from_secs(seconds)
}

/// An autoscaler of deployment `web` from two to ten replicas, for half of the CPU.
fn autoscaler(more: &[(&str, Value)]) -> Value {
    let mut hpa = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 10,
            "metrics": [cpu(50)],
        },
    });
    for (field, value) in more {
        hpa["spec"][*field] = value.clone();
    }
    hpa
}

fn cpu(percent: i64) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn average(name: &str, value: &str) -> Value {
    let target = json!({"type": "AverageValue", "averageValue": value});
    json!({"type": "Resource", "resource": {"name": name, "target": target}})
}

fn of_container(percent: i64) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    let metric = json!({"name": "cpu", "container": "c", "target": target});
    json!({"type": "ContainerResource", "containerResource": metric})
}

fn scale(replicas: i64) -> Scale {
    Scale {
        plural: "deployments".to_owned(),
        uid: Uid::new("uid-of-target"),
        spec_replicas: replicas,
        status_replicas: replicas,
        selector: "app=web".to_owned(),
    }
}

fn target() -> AutoscalerTarget {
    AutoscalerTarget::of(&serde_json::from_value(autoscaler(&[])).unwrap())
}

/// Records a scale that was read at this time.
fn record_scale(world: &World, scale: Result<Scale, String>, at: Timestamp) {
    let _ = world.facts::<TargetScale>().record(target(), TargetScale(scale), at);
}

/// A pod that has been ready for an hour and uses this much of half a CPU.
fn pod(number: usize, usage: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("web-{number}"), "namespace": "default", "labels": {"app": "web"},
            "annotations": {CPU_USAGE: usage},
        },
        "spec": {"containers": [{"name": "c",
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
        "status": {
            "phase": "Running", "startTime": at(-3600).to_string(),
            "conditions": [{"type": "Ready", "status": "True",
                "lastTransitionTime": at(-3600).to_string()}],
            "containerStatuses": [{"name": "c",
                "state": {"running": {"startedAt": at(-3600).to_string()}}}],
        },
    })
}

struct AutoscalerTest<'a>(TestWorld<'a>);

impl<'a> AutoscalerTest<'a> {
    fn new(controllers: &[&'a dyn Controller], hpa: Value, replicas: i64, pods: &[Value]) -> Self {
        let mut test_world = TestWorld::new(controllers);
        test_world.put::<HorizontalPodAutoscaler>(hpa);
        record_scale(&test_world.world, Ok(scale(replicas)), start_time());
        pods.iter().for_each(|it| test_world.put::<Pod>(it.clone()));
        Self(test_world)
    }

    fn key() -> Key {
        Key::new("default", "web")
    }

    /// Runs one cycle. Returns how many replicas there are then.
    fn cycle(&mut self) -> i64 {
        let test_world = &mut self.0;
        let facts = test_world.world.facts::<TargetScale>();
        let before = facts.observed(&target()).unwrap().value.0.clone();
        record_scale(&test_world.world, before.clone(), test_world.now);
        test_world.reconcile(0, &Self::key());
        let scaled = test_world.written_scales.pop();
        if let (Some(replicas), Ok(before)) = (scaled, before) {
            let next = Scale { selector: before.selector, ..scale(replicas) };
            record_scale(&test_world.world, Ok(next), test_world.now);
        }
        let after = facts.observed(&target()).unwrap();
        after.value.0.as_ref().map_or(0, |it| it.spec_replicas)
    }

    fn status(&self) -> Value {
        self.0.object::<HorizontalPodAutoscaler>(&Self::key()).unwrap()["status"].clone()
    }

    fn condition(&self, kind: &str) -> (String, String, String) {
        let status = self.status();
        let conditions = status["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|it| it["type"] == kind).unwrap();
        let text = |field: &str| condition[field].as_str().unwrap().to_owned();
        (text("status"), text("reason"), text("message"))
    }
}

fn expected_condition(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), message.to_owned())
}

#[test]
fn replicas_follow_usage() {
    let used = |usage: &str, count: usize| (0..count).map(|it| pod(it, usage)).collect::<Vec<_>>();
    let with = |mut pod: Value, path: &str, value: Value| {
        *pod.pointer_mut(path).unwrap() = value;
        pod
    };
    let new = |usage: &str| {
        let pod = with(pod(9, usage), "/status/startTime", json!(at(-20).to_string()));
        let since = "/status/conditions/0/lastTransitionTime";
        let pod = with(pod, since, json!(at(-10).to_string()));
        let since = "/status/containerStatuses/0/state/running/startedAt";
        with(pod, since, json!(at(-20).to_string()))
    };
    let pending = || with(pod(9, "0%"), "/status/phase", json!("Pending"));
    let silent = || with(pod(9, "0%"), "/status/containerStatuses/0/state", json!({}));
    let more = |mut pods: Vec<Value>, pod: Value| {
        pods.push(pod);
        pods
    };
    let table = vec![
        ("as it should be", cpu(50), used("50%", 3), 3),
        ("a little more is tolerated", cpu(50), used("55%", 3), 3),
        ("more than that is not", cpu(50), used("56%", 3), 4),
        ("twice as much", cpu(50), used("100%", 3), 6),
        ("an amount for each", average("cpu", "170m"), used("50%", 2), 3),
        ("memory", average("memory", "1Gi"), used("50%", 4), 4),
        ("one container", of_container(50), used("100%", 2), 4),
        // 100, 100 and a pod that counts as using nothing.
        ("a new pod may use more than it will", cpu(50), more(used("100%", 2), new("200%")), 4),
        ("pending pods use nothing", cpu(50), more(used("100%", 2), pending()), 4),
        ("pods without samples use nothing", cpu(50), more(used("100%", 2), silent()), 4),
        // 55 and nothing is less than 50: no step in the other direction.
        ("not beyond what is known", cpu(50), more(used("60%", 2), silent()), 3),
    ];
    for (why, metric, pods, expected) in table {
        let controller = autoscalers();
        let controllers: [&dyn Controller; 1] = [&controller];
        let hpa = autoscaler(&[("metrics", json!([metric]))]);
        let count = i64::try_from(pods.len()).unwrap();
        let mut test = AutoscalerTest::new(&controllers, hpa, count, &pods);
        assert_eq!(test.cycle(), expected, "{why}: {:#}", test.status());
    }
}

#[test]
fn decisions_are_reported_as_conditions() {
    let controller = autoscalers();
    let controllers: [&dyn Controller; 1] = [&controller];
    let pods: Vec<Value> = (0..3).map(|it| pod(it, "100%")).collect();
    let mut test = AutoscalerTest::new(&controllers, autoscaler(&[]), 3, &pods);
    assert_eq!(test.cycle(), 6);
    let update = "the HPA controller was able to update the target scale to 6";
    assert_eq!(
        test.condition("AbleToScale"),
        expected_condition("True", "SucceededRescale", update)
    );
    let found = "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)";
    assert_eq!(
        test.condition("ScalingActive"),
        expected_condition("True", "ValidMetricFound", found)
    );
    let within = "the desired count is within the acceptable range";
    assert_eq!(
        test.condition("ScalingLimited"),
        expected_condition("False", "DesiredWithinRange", within)
    );
    let status = test.status();
    assert_eq!(status["currentReplicas"], 3);
    assert_eq!(status["desiredReplicas"], 6);
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["lastScaleTime"], start_time().to_string());
    let current = json!({"averageUtilization": 100, "averageValue": "500m"});
    let metric = json!({"type": "Resource", "resource": {"name": "cpu", "current": current}});
    assert_eq!(status["currentMetrics"], json!([metric]));
    let event = "SuccessfulRescale: New size: 6; reason: cpu resource utilization (percentage of request) above target";
    assert_eq!(test.0.take_events(), [event]);

    // Before the effect of the change was read, nothing is decided.
    record_scale(&test.0.world, Ok(scale(3)), start_time());
    assert!(test.0.plan(0, &AutoscalerTest::key()).steps.is_empty());

    // Scaling down: not before five minutes have passed.
    for number in 0..3 {
        let key = Key::new("default", &format!("web-{number}"));
        test.0.edit::<Pod>(&key, |it| it["metadata"]["annotations"][CPU_USAGE] = json!("10%"));
    }
    record_scale(&test.0.world, Ok(scale(6)), start_time());
    test.0.advance_time(15);
    assert_eq!(test.cycle(), 6);
    let highest = "recent recommendations were higher than current one, applying the highest recent recommendation";
    assert_eq!(
        test.condition("AbleToScale"),
        expected_condition("True", "ScaleDownStabilized", highest)
    );
    for _ in 0..19 {
        test.0.advance_time(15);
        assert_eq!(test.cycle(), 6);
    }
    test.0.advance_time(15);
    assert_eq!(test.cycle(), 2, "{:#}", test.status());
    let few = "the desired replica count is less than the minimum replica count";
    assert_eq!(test.condition("ScalingLimited"), expected_condition("True", "TooFewReplicas", few));
    let event = "SuccessfulRescale: New size: 2; reason: All metrics below target";
    assert_eq!(test.0.take_events(), [event]);
}

#[test]
fn failures_are_reported_as_conditions() {
    let no_request = {
        let mut pod = pod(0, "100m");
        pod["spec"]["containers"][0]["resources"] = json!({});
        vec![pod]
    };
    let unable = "the HPA was unable to compute the replica count: ";
    let custom = json!({"type": "Pods", "pods": {"metric": {"name": "hits"}}});
    let no_api = "unable to get metric hits: unable to fetch metrics from custom metrics API: no known available metric versions found";
    let table = vec![
        (
            cpu(50),
            vec![],
            "FailedGetResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API".to_owned(),
        ),
        (
            cpu(50),
            no_request,
            "FailedGetResourceMetric",
            "failed to get cpu utilization: missing request for cpu in container c of Pod web-0".to_owned(),
        ),
        (custom, vec![pod(0, "1%")], "FailedGetPodsMetric", no_api.to_owned()),
    ];
    for (metric, pods, reason, message) in table {
        let controller = autoscalers();
        let controllers: [&dyn Controller; 1] = [&controller];
        let hpa = autoscaler(&[("metrics", json!([metric]))]);
        let mut test = AutoscalerTest::new(&controllers, hpa, 3, &pods);
        assert_eq!(test.cycle(), 3);
        let expected = expected_condition("False", reason, &format!("{unable}{message}"));
        assert_eq!(test.condition("ScalingActive"), expected);
        let first = "invalid metrics (1 invalid out of 1), first error is: ";
        let events = [
            format!("{reason}: {message}"),
            format!("FailedComputeMetricsReplicas: {first}{message}"),
        ];
        assert_eq!(test.0.take_events(), events);
    }
}

#[test]
fn limits_hold_without_metrics() {
    let table = [
        (
            12,
            10,
            "SuccessfulRescale: New size: 10; reason: Current number of replicas above Spec.MaxReplicas",
        ),
        (
            1,
            2,
            "SuccessfulRescale: New size: 2; reason: Current number of replicas below Spec.MinReplicas",
        ),
        (0, 0, ""),
    ];
    for (has, expected, event) in table {
        let controller = autoscalers();
        let controllers: [&dyn Controller; 1] = [&controller];
        let mut test = AutoscalerTest::new(&controllers, autoscaler(&[]), has, &[]);
        assert_eq!(test.cycle(), expected);
        assert_eq!(test.0.take_events().join(""), event);
        if has == 0 {
            let zero = "scaling is disabled since the replica count of the target is zero";
            assert_eq!(
                test.condition("ScalingActive"),
                expected_condition("False", "ScalingDisabled", zero)
            );
        }
    }
    // A target that cannot be read.
    let controller = autoscalers();
    let controllers: [&dyn Controller; 1] = [&controller];
    let mut test = AutoscalerTest::new(&controllers, autoscaler(&[]), 3, &[]);
    let fault = "deployments/scale.apps \"web\" not found".to_owned();
    record_scale(&test.0.world, Err(fault), start_time());
    test.cycle();
    let why = "the HPA controller was unable to get the target's current scale: deployments/scale.apps \"web\" not found";
    assert_eq!(test.condition("AbleToScale"), expected_condition("False", "FailedGetScale", why));
}

#[test]
fn behavior_limits_the_scaling_rate() {
    let rules = |up: Value, down: Value| -> AutoscalerBehavior {
        serde_json::from_value(json!({"scaleUp": up, "scaleDown": down})).unwrap()
    };
    let policy = |kind: &str, value: i64, seconds: i64| json!({"type": kind, "value": value, "periodSeconds": seconds});
    let up = |select: &str, policies: Vec<Value>| {
        rules(
            json!({"selectPolicy": select, "policies": policies, "stabilizationWindowSeconds": 0}),
            json!({}),
        )
    };
    let down = |select: &str, policies: Vec<Value>| {
        rules(
            json!({}),
            json!({"selectPolicy": select, "policies": policies, "stabilizationWindowSeconds": 0}),
        )
    };
    let both = || vec![policy("Pods", 1, 60), policy("Percent", 50, 60)];
    let table = vec![
        ("no rules: four at once", None, 1, 9, 4, "ScaleUpLimit"),
        ("no rules: twice as many", None, 3, 9, 6, "ScaleUpLimit"),
        ("no rules: the most", None, 8, 30, 10, "TooManyReplicas"),
        ("the larger step up", Some(up("Max", both())), 4, 9, 6, "ScaleUpLimit"),
        ("the smaller step up", Some(up("Min", both())), 4, 9, 5, "ScaleUpLimit"),
        ("half of five, rounded up", Some(up("Max", both())), 5, 9, 8, "ScaleUpLimit"),
        ("never up", Some(up("Disabled", both())), 4, 9, 4, "ScaleUpLimit"),
        ("within", Some(up("Max", both())), 4, 6, 6, "DesiredWithinRange"),
        ("the larger step down", Some(down("Max", both())), 8, 2, 4, "ScaleDownLimit"),
        ("the smaller step down", Some(down("Min", both())), 8, 2, 7, "ScaleDownLimit"),
        ("never down", Some(down("Disabled", both())), 8, 2, 8, "ScaleDownLimit"),
        (
            "not below the least",
            Some(down("Max", vec![policy("Pods", 9, 60)])),
            4,
            1,
            2,
            "TooFewReplicas",
        ),
    ];
    for (why, behavior, current, recommended, expected, reason) in table {
        let limits = ReplicaLimits { current, min: 2, max: 10, now: start_time() };
        let limited = limit(behavior.as_ref(), limits, recommended, &mut History::default());
        assert_eq!((limited.replicas, limited.limited.1), (expected, reason), "{why}");
    }

    // Changes within the period count.
    let behavior = up("Max", vec![policy("Pods", 4, 60)]);
    let mut history = History::default();
    history.record_change(3, start_time());
    let limits = |seconds| ReplicaLimits { current: 5, min: 1, max: 20, now: at(seconds) };
    assert_eq!(limit(Some(&behavior), limits(30), 20, &mut history.clone()).replicas, 6);
    assert_eq!(limit(Some(&behavior), limits(61), 20, &mut history).replicas, 9);
}

#[test]
fn recommendations_are_stabilized_over_their_window() {
    let behavior: AutoscalerBehavior = serde_json::from_value(json!({
        "scaleUp": {"stabilizationWindowSeconds": 60,
            "policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]},
        "scaleDown": {"stabilizationWindowSeconds": 120,
            "policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]},
    }))
    .unwrap();
    let mut history = History::default();
    let mut step = |seconds: i64, current: i64, recommended: i64| {
        history.record_initial(current, at(seconds));
        let limits = ReplicaLimits { current, min: 1, max: 100, now: at(seconds) };
        let limited = limit(Some(&behavior), limits, recommended, &mut history);
        (limited.replicas, limited.stabilized.map(|it| it.0))
    };
    assert_eq!(step(0, 5, 9), (5, Some("ScaleUpStabilized")));
    assert_eq!(step(30, 5, 8), (5, Some("ScaleUpStabilized")));
    assert_eq!(step(90, 5, 8), (8, None), "the lowest of the last minute");
    assert_eq!(step(120, 8, 3), (8, Some("ScaleDownStabilized")));
    assert_eq!(step(245, 8, 3), (3, None), "the highest of the last two minutes");
}

#[test]
fn an_autoscaler_without_status_can_be_read() {
    let mut hpa = autoscaler(&[]);
    hpa["status"] = json!({"currentMetrics": null, "desiredReplicas": 0, "conditions": null});
    let read: HorizontalPodAutoscaler = serde_json::from_value(hpa).unwrap();
    assert!(read.status.conditions.is_empty() && read.status.current_metrics.is_empty());
}

#[test]
fn selectors_are_parsed_from_text() {
    let labels = std::collections::BTreeMap::from(
        [("app", "web"), ("tier", "a")].map(|(k, v)| (k.to_owned(), v.to_owned())),
    );
    let table = [
        ("app=web", Some(true)),
        ("app==web,tier in (a,b)", Some(true)),
        ("tier notin (a, b)", Some(false)),
        ("app!=web", Some(false)),
        ("app,!old", Some(true)),
        ("old", Some(false)),
        ("", None),
        ("a b=c", None),
    ];
    for (text, expected) in table {
        let found = selector::parse_selector(text).map(|it| it.matches(&labels));
        assert_eq!(found, expected, "{text}");
    }
}
