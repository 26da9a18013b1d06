//! What a pod takes of a node.
//!
//! Containers add up. Init containers run one after the other, beside the sidecars that were started
//! before them: the pod takes the most it ever needs at once.

use std::collections::BTreeMap;

use crate::view::{Amounts, Container, Pod, RestartPolicy};

/// Amounts in the units nodes are filled by: thousandths of a processor, bytes, pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requests {
    /// Thousandths of a processor.
    pub cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of disk.
    pub storage: i64,
    /// Everything else by name.
    pub others: BTreeMap<String, i64>,
}

/// What is wanted of a processor by who does not say: it is counted when nodes are compared, so that
/// pods that say nothing spread as well.
const UNSAID_CPU: i64 = 100;
/// What is wanted of memory by who does not say, in bytes.
const UNSAID_MEMORY: i64 = 200 << 20;

/// Nano-units in a unit.
const NANOS: i128 = 1_000_000_000;
/// Nano-units in a thousandth.
const MILLI: i128 = NANOS / 1000;

/// Nano-units by name.
type Sum<'a> = BTreeMap<&'a str, i128>;

impl Requests {
    /// What a pod asks for.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self::from(pod, Unsaid::Nothing)
    }

    /// What a pod asks for; and processor and memory as they are counted when nodes are compared.
    #[must_use]
    pub fn both(pod: &Pod) -> (Self, (i64, i64)) {
        let spec = &pod.spec;
        let all = [&spec.resources.requests, &spec.overhead];
        if !spec.init_containers.is_empty() || all.iter().any(|it| !it.is_empty()) {
            let compared = Self::from(pod, Unsaid::Assumed);
            return (Self::of(pod), (compared.cpu, compared.memory));
        }
        // Most pods are as plain as this, and every plan adds up all of them.
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
        let whole = |(name, nanos): (&str, i128)| (name.to_owned(), up(nanos, NANOS));
        let requests = Self {
            cpu: up(cpu, MILLI),
            memory: up(memory, NANOS),
            storage: up(storage, NANOS),
            others: others.into_iter().map(whole).collect(),
        };
        let compared = (
            up(cpu + no_cpu * i128::from(UNSAID_CPU) * MILLI, MILLI),
            up(memory + no_memory * i128::from(UNSAID_MEMORY) * NANOS, NANOS),
        );
        (requests, compared)
    }

    /// What a node has to give.
    #[must_use]
    pub fn available(amounts: &Amounts) -> Self {
        Self::whole(&amounts.iter().map(|(name, it)| (name.as_str(), it.nanos())).collect())
    }

    fn from(pod: &Pod, unsaid: Unsaid) -> Self {
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
                at_least(&mut most, &sidecars);
            } else {
                let mut now = sidecars.clone();
                add(&mut now, requests);
                at_least(&mut most, &now);
            }
        }
        at_least(&mut sum, &most);
        for (name, amount) in &spec.resources.requests {
            if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
                sum.insert(name, amount.nanos());
            }
        }
        add(&mut sum, spec.overhead.iter().map(|(name, it)| (name.as_str(), it.nanos())).collect());
        Self::whole(&sum)
    }

    fn whole(sum: &Sum<'_>) -> Self {
        let mut whole = Self::default();
        for (name, nanos) in sum {
            match *name {
                "cpu" => whole.cpu = up(*nanos, MILLI),
                "memory" => whole.memory = up(*nanos, NANOS),
                "ephemeral-storage" => whole.storage = up(*nanos, NANOS),
                // Counted by themselves.
                "pods" => {}
                other => {
                    whole.others.insert(other.to_owned(), up(*nanos, NANOS));
                }
            }
        }
        whole
    }

    /// Counts `other` in.
    pub fn add(&mut self, other: &Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.storage = self.storage.saturating_add(other.storage);
        for (name, amount) in &other.others {
            let have = self.others.entry(name.clone()).or_default();
            *have = have.saturating_add(*amount);
        }
    }

    /// Counts `other` out.
    pub fn take(&mut self, other: &Self) {
        self.cpu = self.cpu.saturating_sub(other.cpu);
        self.memory = self.memory.saturating_sub(other.memory);
        self.storage = self.storage.saturating_sub(other.storage);
        for (name, amount) in &other.others {
            let have = self.others.entry(name.clone()).or_default();
            *have = have.saturating_sub(*amount);
        }
    }

    /// What of this does not fit beside `used` into `room`, in the order it is told.
    #[must_use]
    pub fn lacking<'a>(&'a self, used: &'a Self, room: &'a Self) -> Vec<Lack<'a>> {
        let named = [
            ("cpu", self.cpu, used.cpu, room.cpu),
            ("memory", self.memory, used.memory, room.memory),
            ("ephemeral-storage", self.storage, used.storage, room.storage),
        ];
        let other = |(name, wanted): (&'a String, &'a i64)| {
            let of = |amounts: &Self| amounts.others.get(name).copied().unwrap_or_default();
            (name.as_str(), *wanted, of(used), of(room))
        };
        let all = named.into_iter().chain(self.others.iter().map(other));
        all.filter(|(_, wanted, used, room)| *wanted > 0 && *wanted > room.saturating_sub(*used))
            .map(|(name, wanted, used, room)| Lack { name, wanted, used, room })
            .collect()
    }
}

/// Something of which too little is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack<'a> {
    /// What.
    pub name: &'a str,
    /// How much is wanted.
    pub wanted: i64,
    /// How much others have.
    pub used: i64,
    /// How much there is in all.
    pub room: i64,
}

/// What is taken for a request that is not made.
#[derive(Clone, Copy)]
enum Unsaid {
    Nothing,
    Assumed,
}

impl Unsaid {
    fn requests(self, container: &Container) -> Sum<'_> {
        let said = container.resources.requests.iter();
        let mut sum: Sum<'_> = said.map(|(name, it)| (name.as_str(), it.nanos())).collect();
        match self {
            Self::Nothing => {}
            Self::Assumed => {
                sum.entry("cpu").or_insert_with(|| i128::from(UNSAID_CPU) * MILLI);
                sum.entry("memory").or_insert_with(|| i128::from(UNSAID_MEMORY) * NANOS);
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

fn at_least<'a>(sum: &mut Sum<'a>, other: &Sum<'a>) {
    for (name, amount) in other {
        let have = sum.entry(name).or_default();
        *have = (*have).max(*amount);
    }
}

/// Rounds up to whole units, as sums of requests are.
fn up(nanos: i128, unit: i128) -> i64 {
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
    fn a_pod_takes_the_most_it_needs_at_once() {
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
    fn what_is_not_said_is_assumed_for_comparing_only() {
        let pod = pod(&json!({"containers": [{"name": "a"}, container("1")]}));
        assert_eq!(Requests::of(&pod), Requests { cpu: 1000, ..Requests::default() });
        assert_eq!(Requests::both(&pod), (Requests::of(&pod), (1100, 200 << 21)));
    }

    #[test]
    fn the_short_way_is_no_other_way() {
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
            let long = Requests::from(&pod, Unsaid::Assumed);
            assert_eq!(
                Requests::both(&pod),
                (Requests::of(&pod), (long.cpu, long.memory)),
                "{spec}"
            );
        }
    }

    #[test]
    fn what_lacks_is_named() {
        let amounts = |it: Value| Requests::available(&serde_json::from_value(it).unwrap());
        let room =
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
            let names: Vec<&str> = asked.lacking(&used, &room).iter().map(|it| it.name).collect();
            assert_eq!(names, expected, "{wanted}");
        }
    }
}
