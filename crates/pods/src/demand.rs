//! What the pods of an AppWrapper will ask for.
//!
//! Counted once, when the AppWrapper is read: in the way of MCAD, and as the scheduler will count.
//! Which of the two decides is a setting.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use gantry_api::quantity::Quantity;
use gantry_api::queue::PodResources;
use serde::Deserialize as _;
use serde_json::Value;

use crate::Requests;
use crate::amounts::{Amounts, GPU, Rest};
use crate::pod_sets;
use crate::view::{Container, Pod, PodSpec, Toleration};

/// What pods ask for, and where they may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Demand {
    /// As MCAD counts it: cpu, memory and GPUs.
    pub compat: Amounts,
    /// As the scheduler will count it: everything, and never less than the templates ask for.
    pub full: Amounts,
    /// What the templates ask for, as the scheduler will count it, beyond what is stated; item by item, so
    /// that one which states too much does not make up for another.
    pub missing: Amounts,
    /// What is charged as MCAD counts it, with every resource: what is declared or, without a declaration,
    /// what MCAD finds.
    pub stated: Amounts,
    /// Which taints the pods put up with.
    pub reach: Reach,
}

impl Demand {
    /// The demand of one item: declared, or inferred from its object.
    #[must_use]
    pub fn of(declared: &[PodResources], object: Option<&Value>) -> Self {
        let sets = object.map(pod_sets::find).unwrap_or_default();
        let templates = object.into_iter().flat_map(|object| {
            sets.iter().filter_map(move |set| object.pointer(&format!("{}/spec", set.place)))
        });
        let reach = Reach::of(templates);
        let templates = total(sets.iter().filter_map(|set| {
            let spec = object?.pointer(&format!("{}/spec", set.place))?;
            Some(as_scheduled(spec).times(set.replicas))
        }));
        if declared.is_empty() {
            let compat = object.map(compat).unwrap_or_default();
            let mut stated = compat.clone();
            stated.others.clone_from(&templates.others);
            let missing = templates.without(&stated);
            return Self { compat, full: templates, missing, stated, reach };
        }
        let sum = |rest| total(declared.iter().map(|it| pods(it, rest)));
        let stated = sum(Rest::Counted);
        let mut full = stated.clone();
        // Whoever writes the declaration writes the template too; only the template makes pods.
        full.raise_to(&templates);
        let missing = templates.without(&stated);
        Self { compat: sum(Rest::Ignored), full, missing, stated, reach }
    }

    /// Counts another item in.
    pub fn add(&mut self, other: &Self) {
        self.compat.add(&other.compat);
        self.full.add(&other.full);
        self.missing.add(&other.missing);
        self.stated.add(&other.stated);
        self.reach.add(&other.reach);
    }

    /// What is charged of what the templates ask for, where that is less: the name of each resource, and how
    /// much is charged and asked for.
    #[must_use]
    pub fn understated(&self, inference: Inference) -> Vec<(String, i64, i64)> {
        match inference {
            Inference::Compat => {
                let mut asked = self.stated.clone();
                asked.add(&self.missing);
                let lacks = asked.lacking(&self.stated);
                lacks.iter().map(|it| (it.name.to_owned(), it.available, it.wanted)).collect()
            }
            // Never: it is counted in.
            Inference::Full => Vec::new(),
        }
    }

    /// What counts.
    #[must_use]
    pub fn by(&self, inference: Inference) -> &Amounts {
        match inference {
            Inference::Compat => &self.compat,
            Inference::Full => &self.full,
        }
    }
}

/// How demand is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Inference {
    /// As MCAD does: what is declared, whatever the templates ask for; else containers at the two usual
    /// places, times `spec.replicas`.
    Compat,
    /// As the scheduler will count the pods of every kind that is known to have some, and never less than
    /// what is declared; all resources count.
    #[default]
    Full,
}

/// Which taints the pods of some templates put up with; templates that cannot be found are not there.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The tolerations of each template that differs from the others.
    templates: Vec<Vec<Toleration>>,
    /// The same as one word, to compare.
    word: String,
}

impl Reach {
    fn of<'a>(specs: impl Iterator<Item = &'a Value>) -> Self {
        let mut reach = Self::default();
        for spec in specs {
            let tolerations = Vec::<Toleration>::deserialize(&spec["tolerations"]);
            reach.insert(tolerations.unwrap_or_default());
        }
        reach
    }

    fn insert(&mut self, tolerations: Vec<Toleration>) {
        if !self.templates.contains(&tolerations) {
            self.word = format!("{}{tolerations:?}", self.word);
            self.templates.push(tolerations);
        }
    }

    fn add(&mut self, other: &Self) {
        other.templates.iter().for_each(|it| self.insert(it.clone()));
    }

    /// The tolerations of each template that is known.
    #[must_use]
    pub fn templates(&self) -> &[Vec<Toleration>] {
        &self.templates
    }
}

impl PartialEq for Reach {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl Eq for Reach {}

impl Hash for Reach {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.word.hash(state);
    }
}

fn total(all: impl Iterator<Item = Amounts>) -> Amounts {
    all.fold(Amounts::default(), |mut sum, it| {
        sum.add(&it);
        sum
    })
}

/// What declared pods ask for.
fn pods(declared: &PodResources, rest: Rest) -> Amounts {
    one(declared, rest).times(declared.replicas.max(0))
}

/// What one declared pod asks for: requests, or limits of what is not requested.
pub(crate) fn one(declared: &PodResources, rest: Rest) -> Amounts {
    either(&declared.requests, &declared.limits, rest)
}

fn either(
    requests: &BTreeMap<String, Quantity>,
    limits: &BTreeMap<String, Quantity>,
    rest: Rest,
) -> Amounts {
    let of = |name: &str| {
        let amount =
            |it: &BTreeMap<String, Quantity>| it.get(name).map_or(0, |it| whole(name, *it));
        match amount(requests) {
            0 => amount(limits),
            requested => requested,
        }
    };
    let mut amounts =
        Amounts { cpu: of("cpu"), memory: of("memory"), gpu: of(GPU), ..Amounts::default() };
    match rest {
        Rest::Ignored => {}
        Rest::Counted => {
            let names: BTreeSet<&String> = requests.keys().chain(limits.keys()).collect();
            let others =
                names.into_iter().filter(|it| !["cpu", "memory", GPU].contains(&it.as_str()));
            let others = others.map(|name| (name.clone(), of(name)));
            amounts.others = others.filter(|(_, amount)| *amount != 0).collect();
        }
    }
    amounts
}

/// An amount in the unit it is counted in, never less than nothing.
fn whole(name: &str, amount: Quantity) -> i64 {
    let units = match name {
        "cpu" => i64::try_from(amount.milli_rounded_up()).unwrap_or(i64::MAX),
        // Half a GPU is a mistake that the server will tell of.
        GPU => amount.to_int().unwrap_or_default(),
        _ => amount.value_rounded_up(),
    };
    units.max(0)
}

/// As MCAD infers demand: init containers, overhead and how many pods a job runs are not looked at.
fn compat(object: &Value) -> Amounts {
    let place = match object.pointer("/spec/template") {
        Some(_) => "/spec/template/spec/containers",
        None => "/spec/containers",
    };
    let containers = object.pointer(place).and_then(Value::as_array);
    let containers = containers.map(Vec::as_slice).unwrap_or_default();
    let one = containers.iter().map(|container| {
        let amounts = |name: &str| -> BTreeMap<String, Quantity> {
            let list = container["resources"][name].as_object();
            let read = |(name, it): (&String, &Value)| {
                Some((name.clone(), Quantity::deserialize(it).ok()?))
            };
            list.into_iter().flatten().filter_map(read).collect()
        };
        either(&amounts("requests"), &amounts("limits"), Rest::Ignored)
    });
    total(one).times(pod_sets::count(&object["spec"]["replicas"]))
}

/// What the scheduler will count for a pod with this spec.
pub(crate) fn as_scheduled(spec: &Value) -> Amounts {
    // A spec that cannot be read makes no pods: the server will refuse it.
    let Ok(mut spec) = PodSpec::deserialize(spec) else { return Amounts::default() };
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
        request_limits(container);
    }
    let mut amounts = Amounts::of(&Requests::of(&Pod { spec, ..Pod::default() }), Rest::Counted);
    amounts.at_least_nothing();
    amounts
}

/// The server requests what is limited and not requested.
fn request_limits(container: &mut Container) {
    let resources = &mut container.resources;
    for (name, limit) in &resources.limits {
        resources.requests.entry(name.clone()).or_insert(*limit);
    }
}

#[cfg(test)]
mod tests;
