//! What a pod requests of a node.
//!
//! The requests of containers add up. Init containers run one after the other, beside the sidecars
//! that were started before them: the pod requests the most it ever needs at once.

use std::collections::BTreeMap;

use crate::view::{Container, Pod, ResourceList, RestartPolicy};

/// Amounts in the units of node capacity: millicores, bytes, pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requests {
    /// Millicores of CPU.
    pub cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of ephemeral storage.
    pub storage: i64,
    /// All other resources by name.
    pub others: BTreeMap<String, i64>,
}

/// The CPU request that is assumed for containers without one when nodes are scored, so that pods
/// without requests spread as well.
const DEFAULT_MILLI_CPU_REQUEST: i64 = 100;
/// The memory request that is assumed for containers without one when nodes are scored, in bytes.
const DEFAULT_MEMORY_REQUEST: i64 = 200 << 20;

/// Nano-units in a unit.
const NANOS: i128 = 1_000_000_000;
/// Nano-units in a thousandth.
const MILLI: i128 = NANOS / 1000;

/// Nano-units by name.
type Sum<'a> = BTreeMap<&'a str, i128>;

impl Requests {
    /// Returns what a pod requests.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self::from(pod, UnsetRequest::Zero)
    }

    /// Returns what a pod requests, and CPU and memory as they are counted when nodes are scored.
    #[must_use]
    pub fn with_non_zero(pod: &Pod) -> (Self, (i64, i64)) {
        let spec = &pod.spec;
        let all = [&spec.resources.requests, &spec.overhead];
        if !spec.init_containers.is_empty() || all.iter().any(|it| !it.is_empty()) {
            let compared = Self::from(pod, UnsetRequest::Defaulted);
            return (Self::of(pod), (compared.cpu, compared.memory));
        }
        // Most pods are as simple as this, and every plan adds up all of them.
        let (mut cpu, mut memory, mut storage) = (0, 0, 0);
        let (mut no_cpu, mut no_memory) = (0, 0);
        let mut others = BTreeMap::<&str, i128>::new();
        for container in &spec.containers {
            let (mut has_cpu, mut has_memory) = (false, false);
            for (name, amount) in &container.resources.requests {
                match name.as_str() {
                    "cpu" => (cpu, has_cpu) = (cpu + amount.nanos(), true),
                    "memory" => (memory, has_memory) = (memory + amount.nanos(), true),
                    "ephemeral-storage" => storage += amount.nanos(),
                    "pods" => {}
                    other => *others.entry(other).or_default() += amount.nanos(),
                }
            }
            no_cpu += i128::from(!has_cpu);
            no_memory += i128::from(!has_memory);
        }
        let whole = |(name, nanos): (&str, i128)| (name.to_owned(), ceil_to_unit(nanos, NANOS));
        let requests = Self {
            cpu: ceil_to_unit(cpu, MILLI),
            memory: ceil_to_unit(memory, NANOS),
            storage: ceil_to_unit(storage, NANOS),
            others: others.into_iter().map(whole).collect(),
        };
        let compared = (
            ceil_to_unit(cpu + no_cpu * i128::from(DEFAULT_MILLI_CPU_REQUEST) * MILLI, MILLI),
            ceil_to_unit(memory + no_memory * i128::from(DEFAULT_MEMORY_REQUEST) * NANOS, NANOS),
        );
        (requests, compared)
    }

    /// Returns the allocatable resources of a node.
    #[must_use]
    pub fn from_allocatable(amounts: &ResourceList) -> Self {
        Self::rounded_up(&amounts.iter().map(|(name, it)| (name.as_str(), it.nanos())).collect())
    }

    fn from(pod: &Pod, unsaid: UnsetRequest) -> Self {
        let spec = &pod.spec;
        let mut sum = Sum::new();
        for container in &spec.containers {
            add(&mut sum, unsaid.requests(container));
        }
        let (mut sidecars, mut most) = (Sum::new(), Sum::new());
        for container in &spec.init_containers {
            let requests = unsaid.requests(container);
            if container.restart_policy == Some(RestartPolicy::Always) {
                add(&mut sum, requests.clone());
                add(&mut sidecars, requests);
                raise_to(&mut most, &sidecars);
            } else {
                let mut now = sidecars.clone();
                add(&mut now, requests);
                raise_to(&mut most, &now);
            }
        }
        raise_to(&mut sum, &most);
        for (name, amount) in &spec.resources.requests {
            if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
                sum.insert(name, amount.nanos());
            }
        }
        add(&mut sum, spec.overhead.iter().map(|(name, it)| (name.as_str(), it.nanos())).collect());
        Self::rounded_up(&sum)
    }

    fn rounded_up(sum: &Sum<'_>) -> Self {
        let mut whole = Self::default();
        for (name, nanos) in sum {
            match *name {
                "cpu" => whole.cpu = ceil_to_unit(*nanos, MILLI),
                "memory" => whole.memory = ceil_to_unit(*nanos, NANOS),
                "ephemeral-storage" => whole.storage = ceil_to_unit(*nanos, NANOS),
                // Counted separately.
                "pods" => {}
                other => {
                    whole.others.insert(other.to_owned(), ceil_to_unit(*nanos, NANOS));
                }
            }
        }
        whole
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.storage = self.storage.saturating_add(other.storage);
        for (name, amount) in &other.others {
            let have = self.others.entry(name.clone()).or_default();
            *have = have.saturating_add(*amount);
        }
    }

    /// Subtracts `other`.
    pub fn subtract(&mut self, other: &Self) {
        self.cpu = self.cpu.saturating_sub(other.cpu);
        self.memory = self.memory.saturating_sub(other.memory);
        self.storage = self.storage.saturating_sub(other.storage);
        for (name, amount) in &other.others {
            let have = self.others.entry(name.clone()).or_default();
            *have = have.saturating_sub(*amount);
        }
    }

    /// Lists the resources of which this does not fit beside `used` into `capacity`, in the order
    /// in which they are reported.
    #[must_use]
    pub fn insufficient<'a>(
        &'a self,
        used: &'a Self,
        capacity: &'a Self,
    ) -> Vec<InsufficientResource<'a>> {
        let named = [
            ("cpu", self.cpu, used.cpu, capacity.cpu),
            ("memory", self.memory, used.memory, capacity.memory),
            ("ephemeral-storage", self.storage, used.storage, capacity.storage),
        ];
        let other = |(name, wanted): (&'a String, &'a i64)| {
            let of = |amounts: &Self| amounts.others.get(name).copied().unwrap_or_default();
            (name.as_str(), *wanted, of(used), of(capacity))
        };
        let all = named.into_iter().chain(self.others.iter().map(other));
        all.filter(|(_, wanted, used, capacity)| {
            *wanted > 0 && *wanted > capacity.saturating_sub(*used)
        })
        .map(|(name, wanted, used, capacity)| InsufficientResource {
            name,
            requested: wanted,
            used,
            capacity,
        })
        .collect()
    }
}

/// A resource of which too little is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsufficientResource<'a> {
    /// The resource.
    pub name: &'a str,
    /// The requested amount.
    pub requested: i64,
    /// The amount that other pods use.
    pub used: i64,
    /// The amount that the node has in all.
    pub capacity: i64,
}

/// Which default replaces a missing request.
#[derive(Clone, Copy)]
enum UnsetRequest {
    Zero,
    Defaulted,
}

impl UnsetRequest {
    fn requests(self, container: &Container) -> Sum<'_> {
        let said = container.resources.requests.iter();
        let mut sum: Sum<'_> = said.map(|(name, it)| (name.as_str(), it.nanos())).collect();
        match self {
            Self::Zero => {}
            Self::Defaulted => {
                sum.entry("cpu").or_insert_with(|| i128::from(DEFAULT_MILLI_CPU_REQUEST) * MILLI);
                sum.entry("memory").or_insert_with(|| i128::from(DEFAULT_MEMORY_REQUEST) * NANOS);
            }
        }
        sum
    }
}

fn add<'a>(sum: &mut Sum<'a>, more: Sum<'a>) {
    for (name, amount) in more {
        *sum.entry(name).or_default() += amount;
    }
}

fn raise_to<'a>(sum: &mut Sum<'a>, other: &Sum<'a>) {
    for (name, amount) in other {
        let have = sum.entry(name).or_default();
        *have = (*have).max(*amount);
    }
}

/// Rounds up to whole units, as sums of requests are.
fn ceil_to_unit(nanos: i128, unit: i128) -> i64 {
    let whole = nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0);
    i64::try_from(whole).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        let mut it = container(cpu);
        it["restartPolicy"] = json!("Always");
        it
    }

    #[test]
    fn a_pod_requests_its_peak_demand() {
        let table = [
            ("containers add up", json!({"containers": [container("1"), container("500m")]}), 1500),
            (
                "the largest init container counts alone",
                json!({"containers": [container("1")], "initContainers": [container("3"), container("2")]}),
                3000,
            ),
            (
                "smaller init containers cost nothing",
                json!({"containers": [container("4")], "initContainers": [container("3")]}),
                4000,
            ),
            (
                "sidecars stay",
                json!({"containers": [container("1")], "initContainers": [sidecar("2")]}),
                3000,
            ),
            (
                "an init container runs beside the sidecars before it",
                json!({"containers": [container("1")],
                       "initContainers": [sidecar("2"), container("4"), sidecar("1")]}),
                6000,
            ),
            (
                "but not beside those after it",
                json!({"containers": [container("1")],
                       "initContainers": [container("4"), sidecar("2")]}),
                4000,
            ),
            (
                "overhead comes on top",
                json!({"containers": [container("1")], "overhead": {"cpu": "250m"}}),
                1250,
            ),
            (
                "what the pod says as a whole counts",
                json!({"containers": [container("1")], "resources": {"requests": {"cpu": "7"}},
                       "overhead": {"cpu": "1"}}),
                8000,
            ),
            ("fractions are rounded up", json!({"containers": [container("1u")]}), 1),
        ];
        for (why, spec, expected) in table {
            assert_eq!(Requests::of(&pod(&spec)).cpu, expected, "{why}");
        }
    }

    #[test]
    fn unset_requests_are_defaulted_for_scoring_only() {
        let pod = pod(&json!({"containers": [{"name": "a"}, container("1")]}));
        assert_eq!(Requests::of(&pod), Requests { cpu: 1000, ..Requests::default() });
        assert_eq!(Requests::with_non_zero(&pod), (Requests::of(&pod), (1100, 200 << 21)));
    }

    #[test]
    fn fast_path_equals_general_path() {
        let requests = |it: Value| json!({"name": "c", "resources": {"requests": it}});
        let table = [
            json!({"containers": []}),
            json!({"containers": [container("1"), {"name": "b"}]}),
            json!({"containers": [
                requests(json!({"cpu": "1u", "memory": "1500m", "example.com/gpu": "2"})),
                requests(json!({"cpu": "1u", "ephemeral-storage": "1Ki", "example.com/gpu": "1"})),
            ]}),
            json!({"containers": [container("1")], "initContainers": [container("3")]}),
            json!({"containers": [container("1")], "overhead": {"cpu": "1"}}),
        ];
        for spec in table {
            let pod = pod(&spec);
            let long = Requests::from(&pod, UnsetRequest::Defaulted);
            assert_eq!(
                Requests::with_non_zero(&pod),
                (Requests::of(&pod), (long.cpu, long.memory)),
                "{spec}"
            );
        }
    }

    #[test]
    fn insufficient_resources_are_named() {
        let amounts = |it: Value| Requests::from_allocatable(&serde_json::from_value(it).unwrap());
        let capacity =
            amounts(json!({"cpu": "2", "memory": "1Gi", "pods": "5", "example.com/gpu": "2"}));
        let used = amounts(json!({"cpu": "1", "example.com/gpu": "1"}));
        let table = [
            (json!({"cpu": "1", "memory": "1Gi"}), vec![]),
            (json!({"cpu": "1001m"}), vec!["cpu"]),
            (
                json!({"cpu": "2", "memory": "2Gi", "ephemeral-storage": "1"}),
                vec!["cpu", "memory", "ephemeral-storage"],
            ),
            (json!({"example.com/gpu": "2"}), vec!["example.com/gpu"]),
            (json!({"example.com/tpu": "1"}), vec!["example.com/tpu"]),
            (json!({"example.com/tpu": "0"}), vec![]),
        ];
        for (wanted, expected) in table {
            let asked = amounts(wanted.clone());
            let names: Vec<&str> =
                asked.insufficient(&used, &capacity).iter().map(|it| it.name).collect();
            assert_eq!(names, expected, "{wanted}");
        }
    }
}
