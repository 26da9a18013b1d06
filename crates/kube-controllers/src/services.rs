//! The endpoints of services: EndpointSlices, and the older Endpoints.

mod endpoints;
mod slices;

use std::net::IpAddr;

use gantry_reconcile::{Change, Key, World};
use jiff::Timestamp;

use crate::view::{
    Container, EndpointPort, Pod, RestartPolicy, Service, ServicePort, TargetPort, TargetRef,
};

pub use endpoints::{EndpointsController, ObservedEndpoints, plan as plan_endpoints};
pub use slices::{EndpointSliceController, ObservedSlices, plan as plan_slices};

/// The annotation with the time of the change that caused a write.
const TRIGGER_TIME_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The label of the endpoints of a headless service.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Returns the services that a change of a pod may affect: those that select or selected it.
fn services_of_pod(world: &World, change: &Change) -> Vec<Key> {
    let (before, after) = (change.before::<Pod>(), change.after::<Pod>());
    if let (Some(before), Some(after)) = (before, after)
        && !endpoint_changed(before, after)
    {
        return Vec::new();
    }
    let services = world.store::<Service>().in_namespace(change.key.namespace());
    let concerned = services
        .iter()
        .filter(|service| change.both::<Pod>().any(|pod| service.selects(&pod.metadata.labels)));
    concerned.map(|service| service.metadata.key()).collect()
}

/// Returns whether a change of a pod affects its endpoint.
fn endpoint_changed(before: &Pod, after: &Pod) -> bool {
    before.metadata.uid != after.metadata.uid
        || before.metadata.labels != after.metadata.labels
        || before.metadata.is_terminating() != after.metadata.is_terminating()
        || before.is_ready() != after.is_ready()
        || before.is_terminal() != after.is_terminal()
        || before.status.pod_ip != after.status.pod_ip
        || before.status.pod_ips != after.status.pod_ips
        || before.spec.node_name != after.spec.node_name
        || before.spec.hostname != after.spec.hostname
        || before.spec.subdomain != after.spec.subdomain
}

/// Returns whether a pod can have an endpoint at all.
fn is_reachable(pod: &Pod) -> bool {
    let has_address = !pod.status.pod_ip.is_empty() || !pod.status.pod_ips.is_empty();
    has_address && !pod.is_terminal()
}

/// Returns the addresses of a pod, of all families.
fn addresses(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    let only = pod.status.pod_ips.is_empty().then_some(&pod.status.pod_ip);
    let all = pod.status.pod_ips.iter().map(|it| &it.ip).chain(only);
    // A text that is no address is left out.
    all.filter_map(|text| text.parse().ok())
}

/// Returns `IPv4` or `IPv6`.
fn family(address: &IpAddr) -> &'static str {
    if address.is_ipv6() { "IPv6" } else { "IPv4" }
}

/// Returns the hostname of a pod below its service's name, if it has one.
fn hostname<'a>(service: &Service, pod: &'a Pod) -> Option<&'a str> {
    let named = !pod.spec.hostname.is_empty() && pod.spec.subdomain == service.metadata.name;
    named.then_some(pod.spec.hostname.as_str())
}

fn target_ref(pod: &Pod) -> TargetRef {
    TargetRef {
        kind: "Pod".to_owned(),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.as_str().to_owned(),
    }
}

/// Returns when the readiness of a pod last changed.
fn readiness_changed_at(pod: &Pod) -> Option<Timestamp> {
    pod.condition("Ready")?.last_transition_time
}

/// Returns the ports of a service on one of its pods. Those that its containers do not have are
/// left out.
fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let found = service.spec.ports.iter().filter_map(|port| Some((port, find_port(pod, port)?)));
    let endpoint_ports = found.map(|(port, number)| EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: Some(number),
        app_protocol: port.app_protocol.clone(),
    });
    endpoint_ports.collect()
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
