//! What the pods of an AppWrapper will request.
//!
//! The demand is counted once, when the AppWrapper is read: as MCAD counts it, and as the scheduler
//! will count it. A setting decides which of the two is used.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use gantry_api::quantity::Quantity;
use gantry_api::queue::PodResources;
use serde::Deserialize as _;
use serde_json::Value;

use crate::amounts::{Amounts, GPU, OtherResources};
use crate::pod_sets;
use gantry_pods::Requests;
use gantry_pods::view::{Container, Pod, PodSpec, Toleration};

/// What pods request, and which taints they tolerate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Demand {
    /// The demand as MCAD counts it: cpu, memory and GPUs.
    pub compat: Amounts,
    /// The demand as the scheduler will count it: every resource, and never less than the templates
    /// request.
    pub full: Amounts,
    /// What the templates request, as the scheduler will count it, beyond what is charged in
    /// [`stated`](Self::stated). It is computed item by item, so that an item that states too much
    /// does not make up for another.
    pub missing: Amounts,
    /// What is charged as MCAD counts it, with every resource: what is declared or, without a
    /// declaration, what MCAD infers.
    pub stated: Amounts,
    /// The taints that the pods tolerate.
    pub tolerations: PodTolerations,
}

impl Demand {
    /// Computes the demand of one item: declared, or inferred from its object.
    #[must_use]
    pub fn of(declared: &[PodResources], object: Option<&Value>) -> Self {
        let sets = object.map(pod_sets::find).unwrap_or_default();
        let templates = object.into_iter().flat_map(|object| {
            sets.iter().filter_map(move |set| object.pointer(&format!("{}/spec", set.path)))
        });
        let reach = PodTolerations::of(templates);
        let templates = total(sets.iter().filter_map(|set| {
            let spec = object?.pointer(&format!("{}/spec", set.path))?;
            Some(effective_request(spec).times(set.replicas))
        }));
        if declared.is_empty() {
            let compat = object.map(compat_demand).unwrap_or_default();
            let mut stated = compat.clone();
            stated.others.clone_from(&templates.others);
            let missing = templates.saturating_sub(&stated);
            return Self { compat, full: templates, missing, stated, tolerations: reach };
        }
        let sum = |rest| total(declared.iter().map(|it| declared_pods_request(it, rest)));
        let stated = sum(OtherResources::Counted);
        let mut full = stated.clone();
        // The declaration and the template have the same author; only the template creates pods.
        full.raise_to(&templates);
        let missing = templates.saturating_sub(&stated);
        Self { compat: sum(OtherResources::Ignored), full, missing, stated, tolerations: reach }
    }

    /// Adds the demand of another item.
    pub fn add(&mut self, other: &Self) {
        self.compat.add(&other.compat);
        self.full.add(&other.full);
        self.missing.add(&other.missing);
        self.stated.add(&other.stated);
        self.tolerations.add(&other.tolerations);
    }

    /// Lists the resources of which less is charged than the templates request: the name of each
    /// resource, how much is charged, and how much is requested.
    #[must_use]
    pub fn understated(&self, inference: Inference) -> Vec<(String, i64, i64)> {
        match inference {
            Inference::Compat => {
                let mut asked = self.stated.clone();
                asked.add(&self.missing);
                let lacks = asked.insufficient(&self.stated);
                lacks.iter().map(|it| (it.name.to_owned(), it.available, it.requested)).collect()
            }
            // Never undercharged: what the templates request is counted in.
            Inference::Full => Vec::new(),
        }
    }

    /// Returns the demand that is charged under this setting.
    #[must_use]
    pub fn for_inference(&self, inference: Inference) -> &Amounts {
        match inference {
            Inference::Compat => &self.compat,
            Inference::Full => &self.full,
        }
    }
}

/// How the demand of an AppWrapper is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Inference {
    /// As MCAD does: what is declared, regardless of what the templates request; otherwise the
    /// containers at the two usual paths, times `spec.replicas`.
    Compat,
    /// As the scheduler will count the pods of every kind that is known to create some, and never
    /// less than what is declared; all resources count.
    #[default]
    Full,
}

/// The taints that the pods of some templates tolerate. Templates that cannot be found are left
/// out.
#[derive(Clone, Debug, Default)]
pub struct PodTolerations {
    /// The tolerations of each distinct template.
    templates: Vec<Vec<Toleration>>,
    /// The same as one string, for comparison.
    comparison_key: String,
}

impl PodTolerations {
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
            self.comparison_key = format!("{}{tolerations:?}", self.comparison_key);
            self.templates.push(tolerations);
        }
    }

    fn add(&mut self, other: &Self) {
        other.templates.iter().for_each(|it| self.insert(it.clone()));
    }

    /// Returns the tolerations of each known template.
    #[must_use]
    pub fn templates(&self) -> &[Vec<Toleration>] {
        &self.templates
    }
}

impl PartialEq for PodTolerations {
    fn eq(&self, other: &Self) -> bool {
        self.comparison_key == other.comparison_key
    }
}

impl Eq for PodTolerations {}

impl Hash for PodTolerations {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.comparison_key.hash(state);
    }
}

fn total(all: impl Iterator<Item = Amounts>) -> Amounts {
    all.fold(Amounts::default(), |mut sum, it| {
        sum.add(&it);
        sum
    })
}

/// Returns what declared pods request.
fn declared_pods_request(declared: &PodResources, rest: OtherResources) -> Amounts {
    declared_pod_request(declared, rest).times(declared.replicas.max(0))
}

/// Returns what one declared pod requests: its requests, or the limits of what is not requested.
pub(crate) fn declared_pod_request(declared: &PodResources, rest: OtherResources) -> Amounts {
    requests_or_limits(&declared.requests, &declared.limits, rest)
}

fn requests_or_limits(
    requests: &BTreeMap<String, Quantity>,
    limits: &BTreeMap<String, Quantity>,
    rest: OtherResources,
) -> Amounts {
    let of = |name: &str| {
        let amount = |it: &BTreeMap<String, Quantity>| {
            it.get(name).map_or(0, |it| rounded_amount(name, *it))
        };
        match amount(requests) {
            0 => amount(limits),
            requested => requested,
        }
    };
    let mut amounts =
        Amounts { cpu: of("cpu"), memory: of("memory"), gpu: of(GPU), ..Amounts::default() };
    match rest {
        OtherResources::Ignored => {}
        OtherResources::Counted => {
            let names: BTreeSet<&String> = requests.keys().chain(limits.keys()).collect();
            let others =
                names.into_iter().filter(|it| !["cpu", "memory", GPU].contains(&it.as_str()));
            let others = others.map(|name| (name.clone(), of(name)));
            amounts.others = others.filter(|(_, amount)| *amount != 0).collect();
        }
    }
    amounts
}

/// Returns an amount in the unit it is counted in, never below zero.
fn rounded_amount(name: &str, amount: Quantity) -> i64 {
    let units = match name {
        "cpu" => i64::try_from(amount.milli_rounded_up()).unwrap_or(i64::MAX),
        // A fraction of a GPU is a mistake that the API server will report.
        GPU => amount.to_int().unwrap_or_default(),
        _ => amount.value_rounded_up(),
    };
    units.max(0)
}

/// Infers the demand as MCAD does: init containers, overhead and the parallelism of a job are
/// ignored.
fn compat_demand(object: &Value) -> Amounts {
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
        requests_or_limits(&amounts("requests"), &amounts("limits"), OtherResources::Ignored)
    });
    total(one).times(pod_sets::count(&object["spec"]["replicas"]))
}

/// Returns what the scheduler will count for a pod with this spec.
pub(crate) fn effective_request(spec: &Value) -> Amounts {
    // A spec that cannot be parsed creates no pods: the API server will reject it.
    let Ok(mut spec) = PodSpec::deserialize(spec) else { return Amounts::default() };
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
        request_limits(container);
    }
    let mut amounts =
        Amounts::of(&Requests::of(&Pod { spec, ..Pod::default() }), OtherResources::Counted);
    amounts.clamp_to_zero();
    amounts
}

/// Sets requests from limits where only limits are given, as the API server does.
fn request_limits(container: &mut Container) {
    let resources = &mut container.resources;
    for (name, limit) in &resources.limits {
        resources.requests.entry(name.clone()).or_insert(*limit);
    }
}

#[cfg(test)]
mod tests;
