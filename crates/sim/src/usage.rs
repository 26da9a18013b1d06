//! The CPU and memory usage of simulated containers.
//!
//! Usage follows from the pod alone, so that every reader gets the same value. Annotations of pods:
//!
//! | annotation | meaning |
//! |---|---|
//! | `gantry.dev/sim-cpu-usage: 80%` | each container uses this much of its request |
//! | `gantry.dev/sim-cpu-usage: 250m` | each container uses this much |
//! | `gantry.dev/sim-cpu-usage: app=80%,proxy=10m` | as above, by container |
//! | `gantry.dev/sim-memory-usage` | the same for memory |
//! | `gantry.dev/sim-cpu-load: "4"` | all running pods of the same owner use this much together |
//!
//! Without them a container uses a part of its request that follows from its pod: 20 to 40 % of the
//! CPU, 40 to 60 % of the memory; one without requests uses 5m and 20Mi.

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;
use gantry_kube_controllers::deterministic_random;
use gantry_kube_controllers::metrics::{ContainerUsage, PodMetrics};
use gantry_reconcile::World;
use jiff::{SignedDuration, Timestamp};

use crate::kubelet::Profile;
use crate::view::{Container, ContainerStatus, Phase, Pod, RestartPolicy};

/// The CPU usage of containers.
pub const CPU_USAGE: &str = "gantry.dev/sim-cpu-usage";
/// The memory usage of containers.
pub const MEMORY_USAGE: &str = "gantry.dev/sim-memory-usage";
/// The CPU usage of all running pods of one owner together.
pub const CPU_LOAD: &str = "gantry.dev/sim-cpu-load";

/// Nano-units in a unit.
const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// The CPU usage of a container without a CPU request.
const IDLE_CPU: i128 = NANOS_PER_UNIT / 200;
/// The memory usage of a container without a memory request.
const IDLE_MEMORY: i128 = (20 << 20) * NANOS_PER_UNIT;

/// How usage is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The length of a sample, and the interval between samples.
    pub window: SignedDuration,
}

impl Sampling {
    /// Returns the interval of metrics-server, or a second where pods start immediately.
    #[must_use]
    pub fn of_profile(profile: Profile) -> Self {
        let seconds = match profile {
            Profile::Fast => 1,
            Profile::General => 15,
        };
        Self { window: SignedDuration::from_secs(seconds) }
    }

    /// Returns the usage of a pod's containers at the last sample; `None` if not all of them ran
    /// for a whole sample. `peers` is the number of running pods of the same owner.
    #[must_use]
    pub fn usage(self, pod: &Pod, peers: usize, now: Timestamp) -> Option<Vec<ContainerUsage>> {
        if pod.status.phase != Phase::Running {
            return None;
        }
        let sidecars = pod.spec.init_containers.iter();
        let sidecars = sidecars.filter(|it| it.restart_policy == Some(RestartPolicy::Always));
        let statuses =
            || pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        let last = self.last_sample(now);
        let ran = |it: &Container| {
            let status = statuses().find(|status| status.name == it.name);
            let since = status.and_then(started_at);
            since.is_some_and(|it| it.checked_add(self.window).is_ok_and(|full| full <= last))
        };
        let containers: Vec<&Container> = pod.spec.containers.iter().chain(sidecars).collect();
        if !containers.iter().all(|it| ran(it)) {
            return None;
        }
        Some(containers.iter().map(|it| container_usage(pod, it, peers)).collect())
    }
}

impl PodMetrics for Sampling {
    fn usage(&self, world: &World, pod: &Pod, now: Timestamp) -> Option<Vec<ContainerUsage>> {
        Sampling::usage(*self, pod, count_peers(world, pod), now)
    }

    fn window(&self) -> SignedDuration {
        self.window
    }
}

fn started_at(status: &ContainerStatus) -> Option<Timestamp> {
    status.state.running.as_ref().and_then(|it| it.started_at)
}

/// Returns the errors in the annotations of a pod.
#[must_use]
pub fn annotation_errors(annotations: &BTreeMap<String, String>) -> Vec<String> {
    let mut faults = Vec::new();
    let names = [CPU_USAGE, MEMORY_USAGE, CPU_LOAD];
    for (name, value) in names.iter().filter_map(|it| Some((it, annotations.get(*it)?))) {
        let good = match *name {
            CPU_LOAD => positive(value).is_some(),
            _ => value
                .split(',')
                .all(|it| amount(it.split_once('=').map_or(it, |it| it.1)).is_some()),
        };
        if !good {
            let form = if *name == CPU_LOAD { "4" } else { "80%, 250m or app=80%,proxy=10m" };
            faults.push(format!("annotation {name}: \"{value}\" is not an amount such as {form}"));
        }
    }
    faults
}

/// An amount of usage.
enum UsageAmount {
    /// A percentage of the request.
    Percent(i128),
    /// Nano-units.
    Nanos(i128),
}

fn amount(text: &str) -> Option<UsageAmount> {
    let text = text.trim();
    match text.strip_suffix('%') {
        Some(number) => number.parse::<u32>().ok().map(|it| UsageAmount::Percent(it.into())),
        None => positive(text).map(UsageAmount::Nanos),
    }
}

fn positive(text: &str) -> Option<i128> {
    let amount = Quantity::parse(text.trim()).ok()?;
    (amount.sign() >= 0).then(|| amount.nanos())
}

/// Returns the usage of a container that an annotation sets.
fn annotated_usage(annotation: Option<&String>, container: &str) -> Option<UsageAmount> {
    let text = annotation?;
    let mut entries = text.split(',');
    let entry = entries.find_map(|it| match it.split_once('=') {
        Some((name, value)) => (name.trim() == container).then_some(value),
        None => Some(it),
    });
    amount(entry?)
}

fn container_usage(pod: &Pod, container: &Container, peers: usize) -> ContainerUsage {
    let annotations = &pod.metadata.annotations;
    let resources = &container.resources;
    let requested = |name: &str| {
        let amount = resources.requests.get(name).or_else(|| resources.limits.get(name));
        amount.map(|it| it.nanos())
    };
    let drawn = |name: &str| {
        let drawn_number =
            deterministic_random::draw(&[pod.metadata.uid.as_str(), &container.name, name]);
        i128::from(drawn_number % 21)
    };
    let used = |name: &str, annotation: &str, least: i128, idle: i128| {
        let requested = requested(name);
        match (annotated_usage(annotations.get(annotation), &container.name), requested) {
            (Some(UsageAmount::Nanos(nanos)), _) => nanos,
            (Some(UsageAmount::Percent(percent)), Some(requested)) => requested * percent / 100,
            (None, Some(requested)) => requested * (least + drawn(name)) / 100,
            (Some(UsageAmount::Percent(_)) | None, None) => idle,
        }
    };
    let memory = used("memory", MEMORY_USAGE, 40, IDLE_MEMORY);
    let load = annotations.get(CPU_LOAD).and_then(|it| positive(it));
    let cpu = match load {
        // Divided by the pods, and then by the containers of each.
        Some(load) => {
            let parts = peers.max(1) * pod.spec.containers.len().max(1);
            load / i128::try_from(parts).unwrap_or(1)
        }
        None => used("cpu", CPU_USAGE, 20, IDLE_CPU),
    };
    ContainerUsage { name: container.name.clone(), cpu, memory }
}

/// Returns how many pods of the same owner run.
#[must_use]
pub fn count_peers(world: &World, pod: &Pod) -> usize {
    let Some(owner) = pod.metadata.controller() else { return 1 };
    let pods = world.store::<Pod>().owned_by(&owner.uid);
    let runs = |it: &&std::sync::Arc<Pod>| {
        it.status.phase == Phase::Running && !it.metadata.is_terminating()
    };
    pods.iter().filter(runs).count().max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(annotations: &serde_json::Value, started: &str) -> Pod {
        let running =
            |name: &str| json!({"name": name, "state": {"running": {"startedAt": started}}});
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u", "annotations": annotations},
            "spec": {"containers": [
                {"name": "app", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
                {"name": "side", "resources": {}},
            ]},
            "status": {"phase": "Running", "containerStatuses": [running("app"), running("side")]},
        }))
        .unwrap()
    }

    const NOW: &str = "2026-01-01T00:01:07Z";

    fn sample(annotations: &serde_json::Value, peers: usize) -> Vec<(i128, i128)> {
        let sampling = Sampling { window: SignedDuration::from_secs(15) };
        let pod = pod(annotations, "2026-01-01T00:00:00Z");
        let usage = sampling.usage(&pod, peers, NOW.parse().unwrap()).unwrap();
        // In thousandths of a CPU, and in Mi.
        usage
            .iter()
            .map(|it| (it.cpu / 1_000_000, it.memory / NANOS_PER_UNIT / (1 << 20)))
            .collect()
    }

    #[test]
    fn usage_is_what_annotations_say() {
        let table = [
            (json!({CPU_USAGE: "80%"}), 1, (400, 5)),
            (json!({CPU_USAGE: "1"}), 1, (1000, 1000)),
            (json!({CPU_USAGE: "app=10%,side=7m"}), 1, (50, 7)),
            (json!({CPU_LOAD: "4"}), 4, (500, 500)),
        ];
        for (annotations, peers, (app, side)) in table {
            let cpu: Vec<i128> = sample(&annotations, peers).iter().map(|it| it.0).collect();
            assert_eq!(cpu, [app, side], "{annotations}");
        }
        let memory: Vec<i128> =
            sample(&json!({MEMORY_USAGE: "50%"}), 1).iter().map(|it| it.1).collect();
        assert_eq!(memory, [512, 20]);
    }

    #[test]
    fn usage_without_annotations_follows_from_the_pod() {
        let first = sample(&json!({}), 1);
        assert_eq!(first, sample(&json!({}), 7));
        let [(cpu, memory), idle] = first.as_slice() else { panic!("two containers") };
        assert!((100..=200).contains(cpu) && (409..=615).contains(memory), "{first:?}");
        assert_eq!(*idle, (5, 20));
    }

    #[test]
    fn samples_are_taken_of_containers_that_ran_for_all_of_one() {
        let sampling = Sampling { window: SignedDuration::from_secs(15) };
        let now: Timestamp = NOW.parse().unwrap();
        assert_eq!(sampling.last_sample(now).to_string(), "2026-01-01T00:01:00Z");
        let table = [("2026-01-01T00:00:45Z", true), ("2026-01-01T00:00:46Z", false), (NOW, false)];
        for (started, expected) in table {
            let found = sampling.usage(&pod(&json!({}), started), 1, now);
            assert_eq!(found.is_some(), expected, "{started}");
        }
    }

    #[test]
    fn invalid_amounts_are_reported() {
        let table = [
            (CPU_USAGE, "80%", true),
            (CPU_USAGE, "much", false),
            (MEMORY_USAGE, "app=1Gi,other=-1", false),
            (CPU_USAGE, "-5%", false),
            (CPU_LOAD, "80%", false),
            (CPU_LOAD, "1500m", true),
        ];
        for (name, value, good) in table {
            let annotations = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            assert_eq!(annotation_errors(&annotations).is_empty(), good, "{name} {value}");
        }
    }
}
