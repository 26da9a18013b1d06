//! Where services are served: endpoint slices, and the older endpoints.

mod endpoints;
mod slices;

use std::net::IpAddr;

use gantry_reconcile::{Change, Key, World};
use jiff::Timestamp;

use crate::view::{
    Container, EndpointPort, Pod, RestartPolicy, Service, ServicePort, TargetPort, TargetRef,
};

pub use endpoints::{EndpointsController, EndpointsSeen, plan as plan_endpoints};
pub use slices::{EndpointSlices, SlicesSeen, plan as plan_slices};

/// Says when what a write shows came about.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// On what tells about a service without an address of its own.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// The services a change of a pod may matter to: those it belongs or belonged to.
fn services_of_pod(world: &World, change: &Change) -> Vec<Key> {
    let (before, after) = (change.before::<Pod>(), change.after::<Pod>());
    if let (Some(before), Some(after)) = (before, after)
        && !shows_differently(before, after)
    {
        return Vec::new();
    }
    let services = world.shelf::<Service>().within(change.key.namespace());
    let concerned = services
        .iter()
        .filter(|service| change.both::<Pod>().any(|pod| service.selects(&pod.metadata.labels)));
    concerned.map(|service| service.metadata.key()).collect()
}

/// Whether anything of a pod changed that is told about it.
fn shows_differently(before: &Pod, after: &Pod) -> bool {
    before.metadata.uid != after.metadata.uid
        || before.metadata.labels != after.metadata.labels
        || before.metadata.is_going() != after.metadata.is_going()
        || before.is_ready() != after.is_ready()
        || before.is_over() != after.is_over()
        || before.status.pod_ip != after.status.pod_ip
        || before.status.pod_ips != after.status.pod_ips
        || before.spec.node_name != after.spec.node_name
        || before.spec.hostname != after.spec.hostname
        || before.spec.subdomain != after.spec.subdomain
}

/// Whether a pod can be reached at all.
fn is_reachable(pod: &Pod) -> bool {
    let has_address = !pod.status.pod_ip.is_empty() || !pod.status.pod_ips.is_empty();
    has_address && !pod.is_over()
}

/// The addresses of a pod, all of them or of one family.
fn addresses(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    let only = pod.status.pod_ips.is_empty().then_some(&pod.status.pod_ip);
    let all = pod.status.pod_ips.iter().map(|it| &it.ip).chain(only);
    // What is no address cannot be called, so it is not told to anybody.
    all.filter_map(|text| text.parse().ok())
}

/// `IPv4` or `IPv6`.
fn family(address: &IpAddr) -> &'static str {
    if address.is_ipv6() { "IPv6" } else { "IPv4" }
}

/// The name of a pod below its service's, if it has one.
fn hostname<'a>(service: &Service, pod: &'a Pod) -> Option<&'a str> {
    let named = !pod.spec.hostname.is_empty() && pod.spec.subdomain == service.metadata.name;
    named.then_some(pod.spec.hostname.as_str())
}

fn target(pod: &Pod) -> TargetRef {
    TargetRef {
        kind: "Pod".to_owned(),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.as_str().to_owned(),
    }
}

/// Since when a pod is as ready, or not, as it is.
fn turned(pod: &Pod) -> Option<Timestamp> {
    pod.condition("Ready")?.last_transition_time
}

/// The ports of a service at one of its pods. Those its containers do not have are left out.
fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let found = service.spec.ports.iter().filter_map(|port| Some((port, find_port(pod, port)?)));
    let told = found.map(|(port, number)| EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: Some(number),
        app_protocol: port.app_protocol.clone(),
    });
    told.collect()
}

fn find_port(pod: &Pod, wanted: &ServicePort) -> Option<i32> {
    let name = match &wanted.target_port {
        TargetPort::Number(number) => return Some(*number),
        TargetPort::Name(name) => name,
    };
    let beside = |it: &&Container| it.restart_policy == Some(RestartPolicy::Always);
    let containers =
        pod.spec.containers.iter().chain(pod.spec.init_containers.iter().filter(beside));
    let mut ports = containers.flat_map(|container| &container.ports);
    let found = ports.find(|port| port.name == *name && port.protocol == wanted.protocol);
    found.map(|port| port.container_port)
}

#[cfg(test)]
mod tests;
