//! The free capacity of a node, and whether a pod fits into it.

use std::collections::{BTreeMap, BTreeSet};

use gantry_reconcile::labels::{Operator, Requirement};

use crate::fit;
use crate::requests::Requests;
use crate::view::{Container, Node, Pod, PodSpec, Taint, TaintEffect, Toleration};

mod reason;

pub use reason::{NodeRejection, RejectionReason};

/// A node, and what the pods on it use.
#[derive(Clone, Debug)]
pub struct NodeInfo<'a> {
    /// The node.
    pub node: &'a Node,
    /// Its allocatable resources.
    pub allocatable: Requests,
    /// The sum of the requests of the pods on it.
    pub requested: Requests,
    /// CPU and memory requests as they are counted when nodes are scored.
    pub non_zero_requested: (i64, i64),
    /// How many pods are on it.
    pub pods: i64,
    /// How many pods it may run.
    pub max_pods: i64,
    /// The host ports in use, and how many pods use each.
    pub ports: BTreeMap<HostPort<'a>, i64>,
}

impl<'a> NodeInfo<'a> {
    /// Creates the state of a node without pods.
    #[must_use]
    pub fn new(node: &'a Node) -> Self {
        let most = node.status.allocatable.get("pods");
        Self {
            node,
            allocatable: Requests::from_allocatable(&node.status.allocatable),
            requested: Requests::default(),
            non_zero_requested: (0, 0),
            pods: 0,
            max_pods: most.map_or(0, |it| it.value_rounded_up()),
            ports: BTreeMap::new(),
        }
    }

    /// Returns the value of one of the node's labels.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.node.metadata.labels.get(key).map(String::as_str)
    }

    /// Returns what is used of it, to compare with what is used later.
    #[must_use]
    pub fn usage_snapshot(&self) -> NodeUsageSnapshot {
        let Self {
            node: _,
            allocatable: _,
            requested: used,
            non_zero_requested: compared,
            pods,
            max_pods: _,
            ports,
        } = self;
        let ports = ports.iter().filter(|(_, count)| **count > 0);
        let port =
            |(it, _): (&HostPort<'_>, _)| (it.port, it.protocol.to_owned(), it.address.to_owned());
        let (used, compared, pods) = (used.clone(), *compared, *pods);
        NodeUsageSnapshot {
            requested: used,
            non_zero_requested: compared,
            pods,
            ports: ports.map(port).collect(),
        }
    }

    /// Adds a pod to the node.
    pub fn add_pod(&mut self, pod: &'a Pod) {
        self.update_pod(pod, 1);
    }

    /// Removes a pod from the node.
    pub fn remove_pod(&mut self, pod: &'a Pod) {
        self.update_pod(pod, -1);
    }

    fn update_pod(&mut self, pod: &'a Pod, sign: i64) {
        let (requests, (cpu, memory)) = Requests::with_non_zero(pod);
        if sign > 0 {
            self.requested.add(&requests);
        } else {
            self.requested.subtract(&requests);
        }
        self.non_zero_requested.0 =
            self.non_zero_requested.0.saturating_add(sign.saturating_mul(cpu));
        self.non_zero_requested.1 =
            self.non_zero_requested.1.saturating_add(sign.saturating_mul(memory));
        self.pods += sign;
        for port in HostPort::of(pod) {
            *self.ports.entry(port).or_default() += sign;
        }
    }
}

/// What is used of a node, regardless of which pods use it. It can be stored and compared with what
/// is used later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUsageSnapshot {
    requested: Requests,
    non_zero_requested: (i64, i64),
    pods: i64,
    /// Host ports by number, protocol and address.
    ports: Vec<(i32, String, String)>,
}

/// A host port that a pod uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort<'a> {
    port: i32,
    protocol: &'a str,
    address: &'a str,
}

/// The address that stands for all addresses of a node.
const ANY_ADDRESS: &str = "0.0.0.0";

impl<'a> HostPort<'a> {
    /// Returns the host ports that a pod uses.
    pub fn of(pod: &'a Pod) -> impl Iterator<Item = Self> {
        let sidecars = pod.spec.init_containers.iter().filter(|it| it.restart_policy.is_some());
        let ports = pod.spec.containers.iter().chain(sidecars).flat_map(|it| &it.ports);
        ports.filter(|it| it.host_port > 0).map(|it| Self {
            port: it.host_port,
            protocol: if it.protocol.is_empty() { "TCP" } else { &it.protocol },
            address: if it.host_ip.is_empty() { ANY_ADDRESS } else { &it.host_ip },
        })
    }

    /// Whether two pods cannot use both ports on one node.
    #[must_use]
    pub fn conflicts(self, other: HostPort<'_>) -> bool {
        let same = (self.port, self.protocol) == (other.port, other.protocol);
        same && (self.address == other.address
            || self.address == ANY_ADDRESS
            || other.address == ANY_ADDRESS)
    }
}

/// What a pod requires of its node, regardless of where other pods are.
#[derive(Clone, Debug)]
pub struct PodRequirements<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The resources it requests.
    pub requests: Requests,
    /// CPU and memory requests as they are counted when nodes are scored.
    pub non_zero_requests: (i64, i64),
    /// The only nodes it may be on, if it names them.
    required_node_names: Option<BTreeSet<&'a str>>,
    ports: Vec<HostPort<'a>>,
}

impl<'a> PodRequirements<'a> {
    /// Collects the requirements of a pod.
    #[must_use]
    pub fn new(pod: &'a Pod) -> Self {
        let (requests, compared) = Requests::with_non_zero(pod);
        Self {
            pod,
            requests,
            non_zero_requests: compared,
            required_node_names: required_node_names(pod),
            ports: HostPort::of(pod).collect(),
        }
    }

    /// Returns why a node is rejected: the reasons of the first rule it breaks.
    #[must_use]
    pub fn rejection(&self, site: &NodeInfo<'a>) -> Option<NodeRejection> {
        let (spec, node) = (&self.pod.spec, site.node);
        let named = self.required_node_names.as_ref();
        if named.is_some_and(|it| !it.contains(node.metadata.name.as_str())) {
            return Some(NodeRejection::unresolvable(RejectionReason::NodeNameNotRequired));
        }
        if node.spec.unschedulable && !tolerates_unschedulable(&spec.tolerations) {
            return Some(NodeRejection::unresolvable(RejectionReason::Unschedulable));
        }
        if fit::has_untolerated_taint(&node.spec.taints, &spec.tolerations) {
            return Some(NodeRejection::unresolvable(RejectionReason::Taints));
        }
        if !fit::matches_node_affinity(&spec.node_selector, &spec.affinity, node) {
            return Some(NodeRejection::unresolvable(RejectionReason::NodeAffinity));
        }
        let taken = |port: &HostPort<'a>| {
            site.ports.iter().any(|(other, count)| *count > 0 && port.conflicts(*other))
        };
        if self.ports.iter().any(taken) {
            return Some(NodeRejection::resolvable(RejectionReason::Ports));
        }
        self.insufficient_resources(site)
    }

    fn insufficient_resources(&self, site: &NodeInfo<'a>) -> Option<NodeRejection> {
        let full = site.pods + 1 > site.max_pods;
        let lacking = self.requests.insufficient(&site.requested, &site.allocatable);
        if !full && lacking.is_empty() {
            return None;
        }
        let lasting = lacking.iter().any(|it| it.requested > it.capacity);
        let names = lacking.iter().map(|it| RejectionReason::Insufficient(it.name.to_owned()));
        let reasons =
            full.then_some(RejectionReason::TooManyPods).into_iter().chain(names).collect();
        Some(NodeRejection { reasons, unresolvable: lasting })
    }
}

/// Whether two pods require the same of nodes: each node is feasible for both or for neither, for
/// the same reasons, and is equally full with either.
#[must_use]
pub fn same_node_requirements(one: &PodSpec, other: &PodSpec) -> bool {
    let PodSpec {
        node_name,
        containers,
        init_containers,
        tolerations,
        node_selector,
        affinity,
        overhead,
        resources,
        // Fields that no rule about nodes reads.
        scheduling_gates: _,
        scheduler_name: _,
        priority: _,
        preemption_policy: _,
        restart_policy: _,
        host_network: _,
        termination_grace_period_seconds: _,
        active_deadline_seconds: _,
        readiness_gates: _,
        topology_spread_constraints: _,
        hostname: _,
        subdomain: _,
        // Their requirements on nodes are in other objects.
        volumes: _,
        resource_claims: _,
        service_account_name: _,
    } = one;
    *node_name == other.node_name
        && same_container_requirements(containers, &other.containers)
        && same_container_requirements(init_containers, &other.init_containers)
        && *tolerations == other.tolerations
        && *node_selector == other.node_selector
        && affinity.node_affinity == other.affinity.node_affinity
        && *overhead == other.overhead
        && *resources == other.resources
}

fn same_container_requirements(one: &[Container], other: &[Container]) -> bool {
    let same = |(one, other): (&Container, &Container)| {
        one.resources == other.resources
            && one.ports == other.ports
            && one.restart_policy == other.restart_policy
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// Returns the only nodes a pod may be on, if every term of its required node affinity names some.
fn required_node_names(pod: &Pod) -> Option<BTreeSet<&str>> {
    let mut all = BTreeSet::new();
    for term in &pod.spec.affinity.node_affinity.required.as_ref()?.node_selector_terms {
        let by_name = |it: &&Requirement| it.key == "metadata.name" && it.operator == Operator::In;
        let field = term.match_fields.iter().find(by_name)?;
        all.extend(field.values.iter().map(String::as_str));
    }
    Some(all)
}

fn tolerates_unschedulable(tolerations: &[Toleration]) -> bool {
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: TaintEffect::NoSchedule,
        ..Taint::default()
    };
    fit::tolerates(tolerations, &cordon)
}

#[cfg(test)]
mod tests;
