//! The EndpointSlice controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Change, Controller, Key, Kind, Plan, Subresource, View, World, Write, names,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{HEADLESS_LABEL, TRIGGER_TIME_ANNOTATION};
use crate::view::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Node, Pod, Service};

/// The label that names the controller of a slice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The most endpoints in one slice: small enough that sending one change to all watchers is cheap.
const MAX_ENDPOINTS_PER_SLICE: usize = 100;

/// Maintains the EndpointSlices of services.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointSliceController;

impl EndpointSliceController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "endpointslice-controller";
}

impl Controller for EndpointSliceController {
    fn name(&self) -> &'static str {
        "endpoint-slice"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Service>(),
            Kind::of::<Pod>(),
            Kind::of::<EndpointSlice>(),
            Kind::of::<Node>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Service>() {
            return vec![change.key.clone()];
        }
        if change.is::<Pod>() {
            return super::services_of_pod(world, change);
        }
        if change.is::<Node>() {
            return services_of_node(world, change);
        }
        let slices = change.both::<EndpointSlice>();
        let names =
            slices.filter_map(|it| it.metadata.labels.get(EndpointSlice::SERVICE_NAME_LABEL));
        let names: BTreeSet<&String> = names.collect();
        names.into_iter().map(|name| change.key.in_same_namespace(name)).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        observe(world, key).map(|observed| plan(&observed)).unwrap_or_default()
    }
}

/// Returns the services with pods on a node, when it is added, deleted or moves to another zone.
fn services_of_node(world: &World, change: &Change) -> Vec<Key> {
    let (before, after) = (change.before::<Node>(), change.after::<Node>());
    if before.is_some() == after.is_some() && before.and_then(zone) == after.and_then(zone) {
        return Vec::new();
    }
    let mut keys = BTreeSet::new();
    for pod in world.store::<Pod>().by_index(&Pod::node_tag(change.key.name())) {
        let services = world.store::<Service>().in_namespace(&pod.metadata.namespace);
        let of_pod = services.iter().filter(|it| it.selects(&pod.metadata.labels));
        keys.extend(of_pod.map(|service| service.metadata.key()));
    }
    keys.into_iter().collect()
}

fn zone(node: &Node) -> Option<&String> {
    let zone = node.metadata.labels.get("topology.kubernetes.io/zone");
    zone.filter(|name| !name.is_empty())
}

/// The inputs of the decision about the slices of one service.
#[derive(Clone, Debug, Default)]
pub struct ObservedSlices {
    /// The service.
    pub service: Arc<Service>,
    /// The pods it selects.
    pub pods: Vec<Arc<Pod>>,
    /// Its slices, whichever controller manages them.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// The existing nodes of the pods, with their zones.
    pub zones: BTreeMap<String, Option<String>>,
}

/// Returns `None` for a service whose endpoints are managed elsewhere.
fn observe(world: &World, key: &Key) -> Option<ObservedSlices> {
    let service = world.store::<Service>().get(key).filter(|it| it.has_selector())?;
    let mut pods = world.store::<Pod>().in_namespace(key.namespace());
    pods.retain(|pod| service.selects(&pod.metadata.labels));
    let mut zones = BTreeMap::new();
    for pod in &pods {
        if let Some(node) = world.store::<Node>().get(&Key::cluster(&pod.spec.node_name)) {
            zones.insert(node.metadata.name.clone(), zone(&node).cloned());
        }
    }
    let tag = EndpointSlice::of_service(key.namespace(), key.name());
    Some(ObservedSlices {
        service,
        pods,
        slices: world.store::<EndpointSlice>().by_index(&tag),
        zones,
    })
}

/// The desired content of a slice.
#[derive(Clone, Debug)]
struct DesiredSlice {
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

/// The changes to the slices of one address family.
#[derive(Default)]
struct SliceChanges {
    create: Vec<DesiredSlice>,
    update: Vec<(Arc<EndpointSlice>, DesiredSlice)>,
    delete: Vec<Arc<EndpointSlice>>,
}

/// Updates the slices of a service from its pods.
#[must_use]
pub fn plan(observed: &ObservedSlices) -> Plan {
    let mut plan = Plan::default();
    let families = families(&observed.service);
    let ours = |it: &&Arc<EndpointSlice>| {
        !it.metadata.is_terminating()
            && it.metadata.labels.get(MANAGED_BY).is_some_and(|name| name == MANAGER)
    };
    let (kept, mut stray): (Vec<_>, Vec<_>) = observed
        .slices
        .iter()
        .filter(ours)
        .cloned()
        .partition(|slice| families.contains(&slice.address_type.as_str()));
    let mut names = observed.slices.iter().map(|it| it.metadata.name.clone()).collect();
    for family in families {
        let slices: Vec<_> = kept.iter().filter(|it| it.address_type == family).cloned().collect();
        let changes = slice_changes(observed, family, &slices);
        stray.extend(changes.delete);
        for (slice, draft) in changes.update {
            plan.write(update(observed, &slice, &draft));
        }
        if !observed.service.metadata.is_terminating() {
            for draft in changes.create {
                plan.write(create(observed, family, &draft, &mut names));
            }
        }
    }
    for slice in stray {
        plan.write(Write::Delete {
            resource: EndpointSlice::RESOURCE,
            key: slice.metadata.key(),
            fence: slice.metadata.fence(),
            grace: None,
            propagation: None,
        });
    }
    plan
}

/// Returns `IPv4`, `IPv6` or both.
fn families(service: &Service) -> Vec<&'static str> {
    let stated = |family: &'static str| {
        let has = service.spec.ip_families.iter().any(|it| it == family);
        has.then_some(family)
    };
    let stated: Vec<_> = ["IPv4", "IPv6"].into_iter().filter_map(stated).collect();
    match service.spec.cluster_ip.parse() {
        _ if !stated.is_empty() => stated,
        Ok(address) => vec![super::family(&address)],
        Err(_) => vec!["IPv4", "IPv6"],
    }
}

fn slice_changes(
    observed: &ObservedSlices,
    family: &str,
    slices: &[Arc<EndpointSlice>],
) -> SliceChanges {
    let mut changes = SliceChanges::default();
    let mut by_ports: BTreeMap<Vec<EndpointPort>, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in slices {
        if is_owned(slice, &observed.service) {
            by_ports.entry(sorted(&slice.ports)).or_default().push(Arc::clone(slice));
        } else {
            changes.delete.push(Arc::clone(slice));
        }
    }
    for (ports, group) in desired_endpoints(observed, family) {
        let existing = by_ports.remove(&ports).unwrap_or_default();
        assign_to_slices(&observed.service, &existing, group, &mut changes);
    }
    changes.delete.extend(by_ports.into_values().flatten());
    // A service without endpoints has one empty slice.
    if changes.delete.len() == slices.len() && changes.create.is_empty() {
        let nothing = DesiredSlice { ports: Vec::new(), endpoints: Vec::new() };
        let says_so = |it: &Arc<EndpointSlice>| {
            it.ports.is_empty()
                && it.endpoints.is_empty()
                && is_owned(it, &observed.service)
                && it.metadata.labels == labels(&observed.service)
        };
        match changes.delete.as_slice() {
            [one] if says_so(one) => changes.delete.clear(),
            _ => changes.create.push(nothing),
        }
    }
    reuse(&observed.service, &mut changes);
    changes
}

/// Reuses slices that would be deleted for those that would be created.
fn reuse(service: &Service, changes: &mut SliceChanges) {
    let (reusable, rest): (Vec<_>, Vec<_>) =
        changes.delete.drain(..).partition(|it| is_owned(it, service));
    changes.delete = rest;
    for slice in reusable {
        match changes.create.pop() {
            Some(draft) => changes.update.push((slice, draft)),
            None => changes.delete.push(slice),
        }
    }
}

fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    slice.metadata.owner_references.iter().any(|it| it.uid == service.metadata.uid)
}

fn sorted(ports: &[EndpointPort]) -> Vec<EndpointPort> {
    let mut ports = ports.to_vec();
    ports.sort();
    ports
}

/// The identity of an endpoint; its other fields may change.
type EndpointIdentity = (String, String, Vec<String>);

fn identity(endpoint: &Endpoint) -> EndpointIdentity {
    let mut addresses = endpoint.addresses.clone();
    addresses.sort();
    let name = endpoint.target_ref.as_ref().map(|it| it.name.clone());
    (name.unwrap_or_default(), endpoint.hostname.clone().unwrap_or_default(), addresses)
}

/// Endpoints with the same ports.
struct PortGroup {
    ports: Vec<EndpointPort>,
    endpoints: BTreeMap<EndpointIdentity, Endpoint>,
}

/// Returns the desired endpoints, by their ports.
fn desired_endpoints(
    observed: &ObservedSlices,
    family: &str,
) -> BTreeMap<Vec<EndpointPort>, PortGroup> {
    let mut groups: BTreeMap<Vec<EndpointPort>, PortGroup> = BTreeMap::new();
    for pod in observed.pods.iter().filter(|pod| super::is_reachable(pod)) {
        // The node of an endpoint must exist, unless the service publishes unready addresses.
        let known = observed.zones.contains_key(&pod.spec.node_name);
        if !known && !observed.service.spec.publish_not_ready_addresses {
            continue;
        }
        let ports = super::ports(&observed.service, pod);
        let group = groups
            .entry(sorted(&ports))
            .or_insert_with(|| PortGroup { ports, endpoints: BTreeMap::new() });
        let endpoint = endpoint(observed, pod, family);
        if !endpoint.addresses.is_empty() {
            group.endpoints.insert(identity(&endpoint), endpoint);
        }
    }
    groups
}

fn endpoint(observed: &ObservedSlices, pod: &Pod, family: &str) -> Endpoint {
    let (serving, terminating) = (pod.is_ready(), pod.metadata.is_terminating());
    let ready = observed.service.spec.publish_not_ready_addresses || (serving && !terminating);
    let addresses = super::addresses(pod).filter(|it| super::family(it) == family);
    let node = Some(&pod.spec.node_name).filter(|name| !name.is_empty());
    let mut endpoint = Endpoint {
        addresses: addresses.map(|it| it.to_string()).collect(),
        conditions: EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        },
        hostname: super::hostname(&observed.service, pod).map(str::to_owned),
        target_ref: Some(super::target_ref(pod)),
        node_name: node.cloned(),
        zone: observed.zones.get(&pod.spec.node_name).cloned().flatten(),
        hints: None,
    };
    endpoint.hints = hints(&observed.service, &endpoint);
    endpoint
}

/// Returns the topology hints of an endpoint, where the service wants them.
fn hints(service: &Service, endpoint: &Endpoint) -> Option<Value> {
    let (by_zone, by_node) = match service.spec.traffic_distribution.as_deref() {
        Some("PreferClose" | "PreferSameZone") => (true, false),
        Some("PreferSameNode") => (true, true),
        Some(_) | None => (false, false),
    };
    let mut hints = Map::new();
    let ready = endpoint.conditions.ready == Some(true);
    if let Some(zone) = endpoint.zone.as_ref().filter(|_| ready && by_zone) {
        hints.insert("forZones".to_owned(), json!([{"name": zone}]));
    }
    if let Some(node) = endpoint.node_name.as_ref().filter(|_| ready && by_node) {
        hints.insert("forNodes".to_owned(), json!([{"name": node}]));
    }
    (!hints.is_empty()).then_some(Value::Object(hints))
}

/// Assigns endpoints to slices so that as few slices change as possible.
fn assign_to_slices(
    service: &Service,
    slices: &[Arc<EndpointSlice>],
    group: PortGroup,
    changes: &mut SliceChanges,
) {
    let PortGroup { ports, endpoints: mut left } = group;
    let labels = labels(service);
    let mut changed: Vec<(Arc<EndpointSlice>, DesiredSlice)> = Vec::new();
    let mut unchanged: Vec<&Arc<EndpointSlice>> = Vec::new();
    for slice in slices {
        let keep: Vec<Endpoint> =
            slice.endpoints.iter().filter_map(|it| left.remove(&identity(it))).collect();
        if keep == slice.endpoints && slice.metadata.labels == labels {
            unchanged.push(slice);
        } else if keep.is_empty() {
            changes.delete.push(Arc::clone(slice));
        } else {
            changed
                .push((Arc::clone(slice), DesiredSlice { ports: ports.clone(), endpoints: keep }));
        }
    }
    let mut left: Vec<Endpoint> = left.into_values().rev().collect();
    // Slices that are written anyway are filled first, the fullest of them before the others.
    changed.sort_by_key(|(_, draft)| std::cmp::Reverse(draft.endpoints.len()));
    for (_, draft) in &mut changed {
        top_up(&mut draft.endpoints, &mut left);
    }
    // The rest goes into one more slice if it fits, or into new ones.
    let free = |it: &&Arc<EndpointSlice>| {
        MAX_ENDPOINTS_PER_SLICE.checked_sub(it.endpoints.len() + left.len())
    };
    let fitting = unchanged.into_iter().filter(|it| free(it).is_some()).min_by_key(free);
    if let Some(slice) = fitting.filter(|_| !left.is_empty()) {
        let mut endpoints = slice.endpoints.clone();
        top_up(&mut endpoints, &mut left);
        changed.push((Arc::clone(slice), DesiredSlice { ports: ports.clone(), endpoints }));
    }
    while !left.is_empty() {
        let mut endpoints = Vec::new();
        top_up(&mut endpoints, &mut left);
        changes.create.push(DesiredSlice { ports: ports.clone(), endpoints });
    }
    changes.update.extend(changed);
}

fn top_up(endpoints: &mut Vec<Endpoint>, left: &mut Vec<Endpoint>) {
    while endpoints.len() < MAX_ENDPOINTS_PER_SLICE
        && let Some(endpoint) = left.pop()
    {
        endpoints.push(endpoint);
    }
}

/// Returns the labels of a service's slices: its own, and those that identify service and
/// controller.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let reserved = [EndpointSlice::SERVICE_NAME_LABEL, MANAGED_BY, HEADLESS_LABEL];
    let mut labels = service.metadata.labels.clone();
    labels.retain(|key, _| !reserved.contains(&key.as_str()));
    labels.insert(EndpointSlice::SERVICE_NAME_LABEL.to_owned(), service.metadata.name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if service.is_headless() {
        labels.insert(HEADLESS_LABEL.to_owned(), String::new());
    }
    labels
}

fn create(
    observed: &ObservedSlices,
    family: &str,
    draft: &DesiredSlice,
    taken: &mut BTreeSet<String>,
) -> Write {
    let meta = &observed.service.metadata;
    let revision = meta.resource_version.to_string();
    let name = (0..).map(|ordinal: u32| {
        let suffix = names::suffix(&[meta.uid.as_str(), &revision, family, &ordinal.to_string()]);
        names::join(&meta.name, &suffix)
    });
    let name = name.into_iter().find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(name.clone());
    let mut metadata = json!({
        "name": name, "generateName": format!("{}-", meta.name), "namespace": meta.namespace,
        "labels": labels(&observed.service),
        "ownerReferences": [controller_reference(&Service::RESOURCE, meta)],
    });
    let trigger = trigger_time(observed, &draft.endpoints, &[]).or(meta.creation_timestamp);
    if let Some(trigger) = trigger {
        metadata["annotations"] = json!({TRIGGER_TIME_ANNOTATION: trigger.to_string()});
    }
    let body = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": family, "endpoints": draft.endpoints, "ports": draft.ports,
    });
    Write::Create { resource: EndpointSlice::RESOURCE, body }
}

fn update(observed: &ObservedSlices, slice: &EndpointSlice, draft: &DesiredSlice) -> Write {
    let wanted = labels(&observed.service);
    let gone = slice.metadata.labels.keys().filter(|key| !wanted.contains_key(*key));
    let mut labels: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    labels.extend(wanted.into_iter().map(|(key, value)| (key, Value::String(value))));
    let trigger = trigger_time(observed, &draft.endpoints, &slice.endpoints);
    let trigger = trigger.map_or(Value::Null, |it| Value::String(it.to_string()));
    Write::Merge {
        resource: EndpointSlice::RESOURCE,
        key: slice.metadata.key(),
        subresource: Subresource::Main,
        fence: slice.metadata.fence(),
        body: json!({
            "metadata": {"labels": labels, "annotations": {TRIGGER_TIME_ANNOTATION: trigger}},
            "endpoints": draft.endpoints, "ports": draft.ports,
        }),
    }
}

/// Returns the time of the first change that a write includes.
fn trigger_time(
    observed: &ObservedSlices,
    desired: &[Endpoint],
    before: &[Endpoint],
) -> Option<Timestamp> {
    let news = desired.iter().filter(|it| !before.contains(it));
    let names: BTreeSet<&str> =
        news.filter_map(|it| it.target_ref.as_ref()).map(|it| it.name.as_str()).collect();
    let pods = observed.pods.iter().filter(|pod| names.contains(pod.metadata.name.as_str()));
    pods.filter_map(|pod| super::readiness_changed_at(pod)).min()
}
