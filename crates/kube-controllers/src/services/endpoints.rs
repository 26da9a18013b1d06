//! The Endpoints controller, for clients that do not read slices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, Event, Key, Kind, ObjectReference, Plan, Step, Subresource, View, World,
    Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{HEADLESS_LABEL, TRIGGER_TIME_ANNOTATION};
use crate::view::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// The most addresses in one object; clients that need more read slices.
const MAX_ADDRESSES: usize = 1000;

/// Maintains the Endpoints object of each service.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointsController;

impl EndpointsController {
    /// The service account the controller acts as.
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
        let service = world.store::<Service>().get(key);
        if world.store::<Service>().is_unreadable(key) {
            // The service exists but cannot be read: its endpoints stay.
            return Plan::default();
        }
        let mut pods = Vec::new();
        if let Some(service) = &service {
            pods = world.store::<Pod>().in_namespace(key.namespace());
            pods.retain(|pod| service.selects(&pod.metadata.labels));
        }
        plan(&ObservedEndpoints { service, pods, endpoints: world.store::<Endpoints>().get(key) })
    }
}

/// The inputs of the decision about the endpoints of one service.
#[derive(Clone, Debug, Default)]
pub struct ObservedEndpoints {
    /// The service.
    pub service: Option<Arc<Service>>,
    /// The pods it selects.
    pub pods: Vec<Arc<Pod>>,
    /// The existing Endpoints object.
    pub endpoints: Option<Arc<Endpoints>>,
}

/// Updates the endpoints of a service from its pods, and deletes them with the service.
#[must_use]
pub fn plan(observed: &ObservedEndpoints) -> Plan {
    let mut plan = Plan::default();
    let Some(service) = &observed.service else {
        if let Some(write) = observed.endpoints.as_ref().and_then(|it| remove(it)) {
            plan.write(write);
        }
        return plan;
    };
    if !service.has_selector() || service.metadata.is_terminating() {
        return plan;
    }
    let mut subsets = subsets(service, &observed.pods);
    let cut = truncate(&mut subsets);
    let labels = labels(service);
    let step = match &observed.endpoints {
        None => Some(create(observed, service, &subsets, &labels, cut)),
        Some(old) => {
            let marked = old.metadata.annotations.contains_key(OVER_CAPACITY);
            let same = old.subsets == subsets && old.metadata.labels == labels && marked == cut;
            (!same).then(|| update(observed, service, old, &subsets, &labels, cut))
        }
    };
    plan.steps.extend(step);
    plan
}

/// Deletes only endpoints that this controller created: the others are their authors' to clean up,
/// and may be for a service that is yet to be created.
fn remove(endpoints: &Endpoints) -> Option<Write> {
    let ours = endpoints.metadata.labels.get(MANAGED_BY).is_some_and(|name| name == MANAGER);
    (ours && !endpoints.metadata.is_terminating()).then(|| Write::Delete {
        resource: Endpoints::RESOURCE,
        key: endpoints.metadata.key(),
        fence: endpoints.metadata.fence(),
        grace: None,
        propagation: None,
    })
}

fn create(
    observed: &ObservedEndpoints,
    service: &Service,
    subsets: &[EndpointSubset],
    labels: &BTreeMap<String, String>,
    cut: bool,
) -> Step {
    let meta = &service.metadata;
    let mut annotations = Map::new();
    if let Some(trigger) = trigger_time(observed, &[]).or(meta.creation_timestamp) {
        annotations.insert(TRIGGER_TIME_ANNOTATION.to_owned(), json!(trigger.to_string()));
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
    let message = format!("Failed to create endpoint for service {}/{}", meta.namespace, meta.name);
    let about = ObjectReference::to(&Service::RESOURCE, meta);
    Step::new(Write::Create { resource: Endpoints::RESOURCE, body }).on_refusal(Event::warning(
        about,
        "FailedToCreateEndpoint",
        message,
    ))
}

fn update(
    observed: &ObservedEndpoints,
    service: &Service,
    old: &Endpoints,
    subsets: &[EndpointSubset],
    wanted: &BTreeMap<String, String>,
    cut: bool,
) -> Step {
    let gone = old.metadata.labels.keys().filter(|key| !wanted.contains_key(*key));
    let mut labels: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    labels.extend(wanted.iter().map(|(key, value)| (key.clone(), json!(value))));
    let trigger = trigger_time(observed, &old.subsets).map(|it| it.to_string());
    let message = format!(
        "Failed to update endpoint {}/{}",
        service.metadata.namespace, service.metadata.name
    );
    let about = ObjectReference::to(&Endpoints::RESOURCE, &old.metadata);
    let write = Write::Merge {
        resource: Endpoints::RESOURCE,
        key: old.metadata.key(),
        subresource: Subresource::Main,
        fence: old.metadata.fence(),
        body: json!({
            "metadata": {
                "labels": labels,
                "annotations": {
                    TRIGGER_TIME_ANNOTATION: trigger, OVER_CAPACITY: cut.then_some("truncated"),
                },
            },
            "subsets": subsets,
        }),
    };
    Step::new(write).on_refusal(Event::warning(about, "FailedToUpdateEndpoint", message))
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone();
    labels.remove(HEADLESS_LABEL);
    if service.is_headless() {
        labels.insert(HEADLESS_LABEL.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// An address and whether it is ready.
type AddressReadiness = (EndpointAddress, bool);

/// Returns the subsets of a service: addresses with the same ports share one.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    // `None` stands for a service without ports.
    let mut by_port: BTreeMap<Option<EndpointPort>, BTreeSet<AddressReadiness>> = BTreeMap::new();
    let all = service.spec.publish_not_ready_addresses;
    let shown =
        |pod: &&Arc<Pod>| super::is_reachable(pod) && (all || !pod.metadata.is_terminating());
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
    let mut by_places: BTreeMap<BTreeSet<AddressReadiness>, Vec<EndpointPort>> = BTreeMap::new();
    for (port, places) in by_port {
        by_places.entry(places).or_default().extend(port);
    }
    let subset = |(places, ports): (BTreeSet<AddressReadiness>, Vec<EndpointPort>)| {
        let (ready, not_ready): (Vec<_>, Vec<_>) = places.into_iter().partition(|(_, it)| *it);
        EndpointSubset {
            addresses: ready.into_iter().map(|(it, _)| it).collect(),
            not_ready_addresses: not_ready.into_iter().map(|(it, _)| it).collect(),
            ports,
        }
    };
    by_places.into_iter().map(subset).collect()
}

fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let cluster: Option<IpAddr> = service.spec.cluster_ip.parse().ok();
    let stated = service.spec.ip_families.first().map(String::as_str);
    let own = || super::addresses(pod).next();
    let family = stated.or_else(|| cluster.or_else(own).map(|it| super::family(&it)))?;
    let address = super::addresses(pod).find(|it| super::family(it) == family)?;
    Some(EndpointAddress {
        ip: address.to_string(),
        hostname: super::hostname(service, pod).unwrap_or_default().to_owned(),
        node_name: Some(pod.spec.node_name.clone()).filter(|name| !name.is_empty()),
        target_ref: Some(super::target_ref(pod)),
    })
}

/// Removes the addresses beyond the limit, in proportion: those that are not ready first.
fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let ready: usize = subsets.iter().map(|it| it.addresses.len()).sum();
    let not_ready: usize = subsets.iter().map(|it| it.not_ready_addresses.len()).sum();
    if ready + not_ready <= MAX_ADDRESSES {
        return false;
    }
    let only_ready = ready > MAX_ADDRESSES;
    let (most, total) =
        if only_ready { (MAX_ADDRESSES, ready) } else { (MAX_ADDRESSES - ready, not_ready) };
    let mut remaining = most;
    for subset in subsets {
        if only_ready {
            subset.not_ready_addresses.clear();
        }
        let cut = if only_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        cut.truncate((cut.len() * most).div_ceil(total).min(remaining));
        remaining -= cut.len();
    }
    true
}

/// Returns the time of the first change that a write includes.
fn trigger_time(observed: &ObservedEndpoints, before: &[EndpointSubset]) -> Option<Timestamp> {
    let published = |pod: &Pod| {
        let is = |it: &EndpointAddress| {
            it.target_ref.as_ref().is_some_and(|it| it.uid == pod.metadata.uid.as_str())
        };
        let list = |it: &EndpointSubset| {
            it.addresses.iter().any(is) == pod.is_ready()
                && it.not_ready_addresses.iter().any(is) != pod.is_ready()
        };
        before.iter().any(list)
    };
    let news = observed.pods.iter().filter(|pod| super::is_reachable(pod) && !published(pod));
    news.filter_map(|pod| super::readiness_changed_at(pod)).min()
}
