//! Endpoints, as clients read them before there were slices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, Key, Kind, Note, Part, Plan, Reference, Step, View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{HEADLESS, TRIGGER};
use crate::view::{EndpointPort, Endpoints, Pod, Service, Subset, SubsetAddress};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// The most addresses in one object; clients that need more read slices.
const MOST: usize = 1000;

/// Tells where services are served, in one object each.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointsController;

impl EndpointsController {
    /// The account it acts as.
    pub const ACCOUNT: &str = "endpoint-controller";
}

impl Controller for EndpointsController {
    fn name(&self) -> &'static str {
        "endpoints"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Service>(), Kind::of::<Pod>(), Kind::of::<Endpoints>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Pod>() {
            return super::services_of_pod(world, change);
        }
        vec![change.key.clone()]
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let service = world.shelf::<Service>().get(key);
        if world.shelf::<Service>().is_unreadable(key) {
            // It is there, whatever it wants: what was told of it stays.
            return Plan::default();
        }
        let mut pods = Vec::new();
        if let Some(service) = &service {
            pods = world.shelf::<Pod>().within(key.namespace());
            pods.retain(|pod| service.selects(&pod.metadata.labels));
        }
        plan(&EndpointsSeen { service, pods, endpoints: world.shelf::<Endpoints>().get(key) })
    }
}

/// What decides about the endpoints of one service.
#[derive(Clone, Debug, Default)]
pub struct EndpointsSeen {
    /// The service.
    pub service: Option<Arc<Service>>,
    /// The pods it selects.
    pub pods: Vec<Arc<Pod>>,
    /// What is told of it.
    pub endpoints: Option<Arc<Endpoints>>,
}

/// Makes the endpoints of a service show its pods, and go with it.
#[must_use]
pub fn plan(seen: &EndpointsSeen) -> Plan {
    let mut plan = Plan::default();
    let Some(service) = &seen.service else {
        if let Some(write) = seen.endpoints.as_ref().and_then(|it| remove(it)) {
            plan.write(write);
        }
        return plan;
    };
    if !service.is_selecting() || service.metadata.is_going() {
        return plan;
    }
    let mut subsets = subsets(service, &seen.pods);
    let cut = truncate(&mut subsets);
    let labels = labels(service);
    let step = match &seen.endpoints {
        None => Some(create(seen, service, &subsets, &labels, cut)),
        Some(old) => {
            let marked = old.metadata.annotations.contains_key(OVER_CAPACITY);
            let same = old.subsets == subsets && old.metadata.labels == labels && marked == cut;
            (!same).then(|| update(seen, service, old, &subsets, &labels, cut))
        }
    };
    plan.steps.extend(step);
    plan
}

/// Only what was made here goes with its service: the rest is somebody else's to clean up, and may
/// wait for a service that is yet to come.
fn remove(endpoints: &Endpoints) -> Option<Write> {
    let ours = endpoints.metadata.labels.get(MANAGED_BY).is_some_and(|name| name == MANAGER);
    (ours && !endpoints.metadata.is_going()).then(|| Write::Delete {
        resource: Endpoints::RESOURCE,
        key: endpoints.metadata.key(),
        fence: endpoints.metadata.fence(),
        grace: None,
        propagation: None,
    })
}

fn create(
    seen: &EndpointsSeen,
    service: &Service,
    subsets: &[Subset],
    labels: &BTreeMap<String, String>,
    cut: bool,
) -> Step {
    let meta = &service.metadata;
    let mut annotations = Map::new();
    if let Some(trigger) = trigger(seen, &[]).or(meta.creation_timestamp) {
        annotations.insert(TRIGGER.to_owned(), json!(trigger.to_string()));
    }
    if cut {
        annotations.insert(OVER_CAPACITY.to_owned(), json!("truncated"));
    }
    let body = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {
            "name": meta.name, "namespace": meta.namespace, "labels": labels,
            "annotations": annotations,
        },
        "subsets": subsets,
    });
    let words = format!("Failed to create endpoint for service {}/{}", meta.namespace, meta.name);
    let about = Reference::to(&Service::RESOURCE, meta);
    Step::new(Write::Create { resource: Endpoints::RESOURCE, body }).refused(Note::warning(
        about,
        "FailedToCreateEndpoint",
        words,
    ))
}

fn update(
    seen: &EndpointsSeen,
    service: &Service,
    old: &Endpoints,
    subsets: &[Subset],
    wanted: &BTreeMap<String, String>,
    cut: bool,
) -> Step {
    let gone = old.metadata.labels.keys().filter(|key| !wanted.contains_key(*key));
    let mut labels: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    labels.extend(wanted.iter().map(|(key, value)| (key.clone(), json!(value))));
    let trigger = trigger(seen, &old.subsets).map(|it| it.to_string());
    let words = format!(
        "Failed to update endpoint {}/{}",
        service.metadata.namespace, service.metadata.name
    );
    let about = Reference::to(&Endpoints::RESOURCE, &old.metadata);
    let write = Write::Merge {
        resource: Endpoints::RESOURCE,
        key: old.metadata.key(),
        part: Part::Main,
        fence: old.metadata.fence(),
        body: json!({
            "metadata": {
                "labels": labels,
                "annotations": {TRIGGER: trigger, OVER_CAPACITY: cut.then_some("truncated")},
            },
            "subsets": subsets,
        }),
    };
    Step::new(write).refused(Note::warning(about, "FailedToUpdateEndpoint", words))
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone();
    labels.remove(HEADLESS);
    if service.is_headless() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// An address and whether it should get requests.
type Place = (SubsetAddress, bool);

/// The pods of a service by the ports they have: places that have the same ports stand together.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<Subset> {
    // A port that is absent stands for a service without ports.
    let mut by_port: BTreeMap<Option<EndpointPort>, BTreeSet<Place>> = BTreeMap::new();
    let all = service.spec.publish_not_ready_addresses;
    let shown = |pod: &&Arc<Pod>| super::is_reachable(pod) && (all || !pod.metadata.is_going());
    for pod in pods.iter().filter(shown) {
        let Some(address) = address(service, pod) else { continue };
        let place = (address, all || pod.is_ready());
        if service.spec.ports.is_empty() {
            if service.spec.cluster_ip == "None" {
                by_port.entry(None).or_default().insert(place);
            }
            continue;
        }
        for port in super::ports(service, pod) {
            let port = EndpointPort { name: port.name.filter(|it| !it.is_empty()), ..port };
            by_port.entry(Some(port)).or_default().insert(place.clone());
        }
    }
    let mut by_places: BTreeMap<BTreeSet<Place>, Vec<EndpointPort>> = BTreeMap::new();
    for (port, places) in by_port {
        by_places.entry(places).or_default().extend(port);
    }
    let subset = |(places, ports): (BTreeSet<Place>, Vec<EndpointPort>)| {
        let (ready, not_ready): (Vec<_>, Vec<_>) = places.into_iter().partition(|(_, it)| *it);
        Subset {
            addresses: ready.into_iter().map(|(it, _)| it).collect(),
            not_ready_addresses: not_ready.into_iter().map(|(it, _)| it).collect(),
            ports,
        }
    };
    by_places.into_iter().map(subset).collect()
}

fn address(service: &Service, pod: &Pod) -> Option<SubsetAddress> {
    let cluster: Option<IpAddr> = service.spec.cluster_ip.parse().ok();
    let stated = service.spec.ip_families.first().map(String::as_str);
    let own = || super::addresses(pod).next();
    let family = stated.or_else(|| cluster.or_else(own).map(|it| super::family(&it)))?;
    let address = super::addresses(pod).find(|it| super::family(it) == family)?;
    Some(SubsetAddress {
        ip: address.to_string(),
        hostname: super::hostname(service, pod).unwrap_or_default().to_owned(),
        node_name: Some(pod.spec.node_name.clone()).filter(|name| !name.is_empty()),
        target_ref: Some(super::target(pod)),
    })
}

/// Leaves out what is too much, in proportion: those that are not ready first.
fn truncate(subsets: &mut [Subset]) -> bool {
    let ready: usize = subsets.iter().map(|it| it.addresses.len()).sum();
    let not_ready: usize = subsets.iter().map(|it| it.not_ready_addresses.len()).sum();
    if ready + not_ready <= MOST {
        return false;
    }
    let only_ready = ready > MOST;
    let (most, total) = if only_ready { (MOST, ready) } else { (MOST - ready, not_ready) };
    let mut room = most;
    for subset in subsets {
        if only_ready {
            subset.not_ready_addresses.clear();
        }
        let cut = if only_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        cut.truncate((cut.len() * most).div_ceil(total).min(room));
        room -= cut.len();
    }
    true
}

/// When the first of the changes came about that a write tells of.
fn trigger(seen: &EndpointsSeen, before: &[Subset]) -> Option<Timestamp> {
    let told = |pod: &Pod| {
        let is = |it: &SubsetAddress| {
            it.target_ref.as_ref().is_some_and(|it| it.uid == pod.metadata.uid.as_str())
        };
        let list = |it: &Subset| {
            it.addresses.iter().any(is) == pod.is_ready()
                && it.not_ready_addresses.iter().any(is) != pod.is_ready()
        };
        before.iter().any(list)
    };
    let news = seen.pods.iter().filter(|pod| super::is_reachable(pod) && !told(pod));
    news.filter_map(|pod| super::turned(pod)).min()
}
