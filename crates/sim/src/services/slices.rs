//! Endpoint slices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{Change, Controller, Key, Kind, Part, Plan, View, World, Write, names};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{HEADLESS, TRIGGER};
use crate::view::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Node, Pod, Service};

/// Who keeps a slice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The most places in one slice: small enough that telling everybody about one change is cheap.
const FULL: usize = 100;

/// Tells where services are served, in slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointSlices;

impl EndpointSlices {
    /// The account it acts as.
    pub const ACCOUNT: &str = "endpointslice-controller";
}

impl Controller for EndpointSlices {
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
        let names = slices.filter_map(|it| it.metadata.labels.get(EndpointSlice::SERVICE));
        let names: BTreeSet<&String> = names.collect();
        names.into_iter().map(|name| change.key.beside(name)).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        observe(world, key).map(|seen| plan(&seen)).unwrap_or_default()
    }
}

/// The services with pods on a node, when it comes, goes or moves to another zone.
fn services_of_node(world: &World, change: &Change) -> Vec<Key> {
    let (before, after) = (change.before::<Node>(), change.after::<Node>());
    if before.is_some() == after.is_some() && before.and_then(zone) == after.and_then(zone) {
        return Vec::new();
    }
    let mut keys = BTreeSet::new();
    for pod in world.shelf::<Pod>().tagged(&Pod::on_node(change.key.name())) {
        let services = world.shelf::<Service>().within(&pod.metadata.namespace);
        let of_pod = services.iter().filter(|it| it.selects(&pod.metadata.labels));
        keys.extend(of_pod.map(|service| service.metadata.key()));
    }
    keys.into_iter().collect()
}

fn zone(node: &Node) -> Option<&String> {
    let zone = node.metadata.labels.get("topology.kubernetes.io/zone");
    zone.filter(|name| !name.is_empty())
}

/// What decides about the slices of one service.
#[derive(Clone, Debug, Default)]
pub struct SlicesSeen {
    /// The service.
    pub service: Arc<Service>,
    /// The pods it selects.
    pub pods: Vec<Arc<Pod>>,
    /// Its slices, whoever keeps them.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// The nodes of the pods, as far as they are there, with their zones.
    pub zones: BTreeMap<String, Option<String>>,
}

/// Nothing for a service whose places somebody else tells.
fn observe(world: &World, key: &Key) -> Option<SlicesSeen> {
    let service = world.shelf::<Service>().get(key).filter(|it| it.is_selecting())?;
    let mut pods = world.shelf::<Pod>().within(key.namespace());
    pods.retain(|pod| service.selects(&pod.metadata.labels));
    let mut zones = BTreeMap::new();
    for pod in &pods {
        if let Some(node) = world.shelf::<Node>().get(&Key::cluster(&pod.spec.node_name)) {
            zones.insert(node.metadata.name.clone(), zone(&node).cloned());
        }
    }
    let tag = EndpointSlice::of_service(key.namespace(), key.name());
    Some(SlicesSeen { service, pods, slices: world.shelf::<EndpointSlice>().tagged(&tag), zones })
}

/// What a slice should hold.
#[derive(Clone, Debug)]
struct Draft {
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

/// What to do with the slices of one family.
#[derive(Default)]
struct Changes {
    create: Vec<Draft>,
    update: Vec<(Arc<EndpointSlice>, Draft)>,
    delete: Vec<Arc<EndpointSlice>>,
}

/// Makes the slices of a service show its pods.
#[must_use]
pub fn plan(seen: &SlicesSeen) -> Plan {
    let mut plan = Plan::default();
    let families = families(&seen.service);
    let ours = |it: &&Arc<EndpointSlice>| {
        !it.metadata.is_going()
            && it.metadata.labels.get(MANAGED_BY).is_some_and(|name| name == MANAGER)
    };
    let (kept, mut stray): (Vec<_>, Vec<_>) = seen
        .slices
        .iter()
        .filter(ours)
        .cloned()
        .partition(|slice| families.contains(&slice.address_type.as_str()));
    let mut names = seen.slices.iter().map(|it| it.metadata.name.clone()).collect();
    for family in families {
        let slices: Vec<_> = kept.iter().filter(|it| it.address_type == family).cloned().collect();
        let changes = changes(seen, family, &slices);
        stray.extend(changes.delete);
        for (slice, draft) in changes.update {
            plan.write(update(seen, &slice, &draft));
        }
        if !seen.service.metadata.is_going() {
            for draft in changes.create {
                plan.write(create(seen, family, &draft, &mut names));
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

/// `IPv4`, `IPv6` or both.
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

fn changes(seen: &SlicesSeen, family: &str, slices: &[Arc<EndpointSlice>]) -> Changes {
    let mut changes = Changes::default();
    let mut by_ports: BTreeMap<Vec<EndpointPort>, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in slices {
        if is_owned(slice, &seen.service) {
            by_ports.entry(sorted(&slice.ports)).or_default().push(Arc::clone(slice));
        } else {
            changes.delete.push(Arc::clone(slice));
        }
    }
    for (ports, group) in desired(seen, family) {
        let existing = by_ports.remove(&ports).unwrap_or_default();
        fill(&seen.service, &existing, group, &mut changes);
    }
    changes.delete.extend(by_ports.into_values().flatten());
    // A service without places has a slice that says so.
    if changes.delete.len() == slices.len() && changes.create.is_empty() {
        let nothing = Draft { ports: Vec::new(), endpoints: Vec::new() };
        let says_so = |it: &Arc<EndpointSlice>| {
            it.ports.is_empty()
                && it.endpoints.is_empty()
                && is_owned(it, &seen.service)
                && it.metadata.labels == labels(&seen.service)
        };
        match changes.delete.as_slice() {
            [one] if says_so(one) => changes.delete.clear(),
            _ => changes.create.push(nothing),
        }
    }
    reuse(&seen.service, &mut changes);
    changes
}

/// Turns what would be made anew into changes of what would go.
fn reuse(service: &Service, changes: &mut Changes) {
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

/// What tells two places apart; the rest of a place may change.
type Identity = (String, String, Vec<String>);

fn identity(endpoint: &Endpoint) -> Identity {
    let mut addresses = endpoint.addresses.clone();
    addresses.sort();
    let name = endpoint.target_ref.as_ref().map(|it| it.name.clone());
    (name.unwrap_or_default(), endpoint.hostname.clone().unwrap_or_default(), addresses)
}

/// Places with the same ports.
struct Group {
    ports: Vec<EndpointPort>,
    endpoints: BTreeMap<Identity, Endpoint>,
}

/// The places that should be told, by their ports.
fn desired(seen: &SlicesSeen, family: &str) -> BTreeMap<Vec<EndpointPort>, Group> {
    let mut groups: BTreeMap<Vec<EndpointPort>, Group> = BTreeMap::new();
    for pod in seen.pods.iter().filter(|pod| super::is_reachable(pod)) {
        // A node that is not there cannot be reached, but its pods may be asked for nonetheless.
        let known = seen.zones.contains_key(&pod.spec.node_name);
        if !known && !seen.service.spec.publish_not_ready_addresses {
            continue;
        }
        let ports = super::ports(&seen.service, pod);
        let group = groups
            .entry(sorted(&ports))
            .or_insert_with(|| Group { ports, endpoints: BTreeMap::new() });
        let endpoint = endpoint(seen, pod, family);
        if !endpoint.addresses.is_empty() {
            group.endpoints.insert(identity(&endpoint), endpoint);
        }
    }
    groups
}

fn endpoint(seen: &SlicesSeen, pod: &Pod, family: &str) -> Endpoint {
    let (serving, terminating) = (pod.is_ready(), pod.metadata.is_going());
    let ready = seen.service.spec.publish_not_ready_addresses || (serving && !terminating);
    let addresses = super::addresses(pod).filter(|it| super::family(it) == family);
    let node = Some(&pod.spec.node_name).filter(|name| !name.is_empty());
    let mut endpoint = Endpoint {
        addresses: addresses.map(|it| it.to_string()).collect(),
        conditions: EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        },
        hostname: super::hostname(&seen.service, pod).map(str::to_owned),
        target_ref: Some(super::target(pod)),
        node_name: node.cloned(),
        zone: seen.zones.get(&pod.spec.node_name).cloned().flatten(),
        hints: None,
    };
    endpoint.hints = hints(&seen.service, &endpoint);
    endpoint
}

/// Who should prefer a place, where the service wants that.
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

/// Puts places into slices so that as few slices change as possible.
fn fill(service: &Service, slices: &[Arc<EndpointSlice>], group: Group, changes: &mut Changes) {
    let Group { ports, endpoints: mut left } = group;
    let labels = labels(service);
    let mut changed: Vec<(Arc<EndpointSlice>, Draft)> = Vec::new();
    let mut unchanged: Vec<&Arc<EndpointSlice>> = Vec::new();
    for slice in slices {
        let keep: Vec<Endpoint> =
            slice.endpoints.iter().filter_map(|it| left.remove(&identity(it))).collect();
        if keep == slice.endpoints && slice.metadata.labels == labels {
            unchanged.push(slice);
        } else if keep.is_empty() {
            changes.delete.push(Arc::clone(slice));
        } else {
            changed.push((Arc::clone(slice), Draft { ports: ports.clone(), endpoints: keep }));
        }
    }
    let mut left: Vec<Endpoint> = left.into_values().rev().collect();
    // Those that are written anyway come first, the fullest of them before the others.
    changed.sort_by_key(|(_, draft)| std::cmp::Reverse(draft.endpoints.len()));
    for (_, draft) in &mut changed {
        top_up(&mut draft.endpoints, &mut left);
    }
    // What is left goes into one more slice if it fits, or into new ones.
    let room = |it: &&Arc<EndpointSlice>| FULL.checked_sub(it.endpoints.len() + left.len());
    let fitting = unchanged.into_iter().filter(|it| room(it).is_some()).min_by_key(room);
    if let Some(slice) = fitting.filter(|_| !left.is_empty()) {
        let mut endpoints = slice.endpoints.clone();
        top_up(&mut endpoints, &mut left);
        changed.push((Arc::clone(slice), Draft { ports: ports.clone(), endpoints }));
    }
    while !left.is_empty() {
        let mut endpoints = Vec::new();
        top_up(&mut endpoints, &mut left);
        changes.create.push(Draft { ports: ports.clone(), endpoints });
    }
    changes.update.extend(changed);
}

fn top_up(endpoints: &mut Vec<Endpoint>, left: &mut Vec<Endpoint>) {
    while endpoints.len() < FULL
        && let Some(endpoint) = left.pop()
    {
        endpoints.push(endpoint);
    }
}

/// The labels of a service's slices: its own, and whose they are.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let reserved = [EndpointSlice::SERVICE, MANAGED_BY, HEADLESS];
    let mut labels = service.metadata.labels.clone();
    labels.retain(|key, _| !reserved.contains(&key.as_str()));
    labels.insert(EndpointSlice::SERVICE.to_owned(), service.metadata.name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if service.is_headless() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

fn create(seen: &SlicesSeen, family: &str, draft: &Draft, taken: &mut BTreeSet<String>) -> Write {
    let meta = &seen.service.metadata;
    let revision = meta.resource_version.to_string();
    let name = (0..).map(|ordinal: u32| {
        let suffix = names::suffix(&[meta.uid.as_str(), &revision, family, &ordinal.to_string()]);
        names::join(&meta.name, &suffix)
    });
    let name = name.into_iter().find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(name.clone());
    let mut metadata = json!({
        "name": name, "generateName": format!("{}-", meta.name), "namespace": meta.namespace,
        "labels": labels(&seen.service),
        "ownerReferences": [controlled_by(&Service::RESOURCE, meta)],
    });
    let trigger = trigger(seen, &draft.endpoints, &[]).or(meta.creation_timestamp);
    if let Some(trigger) = trigger {
        metadata["annotations"] = json!({TRIGGER: trigger.to_string()});
    }
    let body = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": family, "endpoints": draft.endpoints, "ports": draft.ports,
    });
    Write::Create { resource: EndpointSlice::RESOURCE, body }
}

fn update(seen: &SlicesSeen, slice: &EndpointSlice, draft: &Draft) -> Write {
    let wanted = labels(&seen.service);
    let gone = slice.metadata.labels.keys().filter(|key| !wanted.contains_key(*key));
    let mut labels: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    labels.extend(wanted.into_iter().map(|(key, value)| (key, Value::String(value))));
    let trigger = trigger(seen, &draft.endpoints, &slice.endpoints);
    let trigger = trigger.map_or(Value::Null, |it| Value::String(it.to_string()));
    Write::Merge {
        resource: EndpointSlice::RESOURCE,
        key: slice.metadata.key(),
        part: Part::Main,
        fence: slice.metadata.fence(),
        body: json!({
            "metadata": {"labels": labels, "annotations": {TRIGGER: trigger}},
            "endpoints": draft.endpoints, "ports": draft.ports,
        }),
    }
}

/// When the first of the changes came about that a write tells of.
fn trigger(seen: &SlicesSeen, told: &[Endpoint], before: &[Endpoint]) -> Option<Timestamp> {
    let news = told.iter().filter(|it| !before.contains(it));
    let names: BTreeSet<&str> =
        news.filter_map(|it| it.target_ref.as_ref()).map(|it| it.name.as_str()).collect();
    let pods = seen.pods.iter().filter(|pod| names.contains(pod.metadata.name.as_str()));
    pods.filter_map(|pod| super::turned(pod)).min()
}
