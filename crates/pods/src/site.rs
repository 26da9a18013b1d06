//! What is left of a node, and whether a pod finds room there.

use std::collections::{BTreeMap, BTreeSet};

use gantry_reconcile::labels::{Operator, Requirement};

use crate::fit;
use crate::requests::Requests;
use crate::view::{Container, Node, Pod, PodSpec, Taint, TaintEffect, Toleration};

mod reason;

pub use reason::{Misfit, Reason};

/// A node, and what is taken of it.
#[derive(Clone, Debug)]
pub struct Site<'a> {
    /// The node.
    pub node: &'a Node,
    /// What it has for pods.
    pub room: Requests,
    /// What the pods on it ask for.
    pub used: Requests,
    /// Processor and memory as they are counted when nodes are compared.
    pub compared: (i64, i64),
    /// How many pods are on it.
    pub pods: i64,
    /// How many there may be.
    pub most_pods: i64,
    /// The ports that are taken, and by how many.
    pub ports: BTreeMap<HostPort<'a>, i64>,
}

impl<'a> Site<'a> {
    /// An empty node.
    #[must_use]
    pub fn new(node: &'a Node) -> Self {
        let most = node.status.allocatable.get("pods");
        Self {
            node,
            room: Requests::available(&node.status.allocatable),
            used: Requests::default(),
            compared: (0, 0),
            pods: 0,
            most_pods: most.map_or(0, |it| it.value_rounded_up()),
            ports: BTreeMap::new(),
        }
    }

    /// The value of one of the node's labels.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.node.metadata.labels.get(key).map(String::as_str)
    }

    /// What is taken of it.
    #[must_use]
    pub fn taken(&self) -> Taken {
        let Self { node: _, room: _, used, compared, pods, most_pods: _, ports } = self;
        let ports = ports.iter().filter(|(_, count)| **count > 0);
        let port =
            |(it, _): (&HostPort<'_>, _)| (it.port, it.protocol.to_owned(), it.address.to_owned());
        let (used, compared, pods) = (used.clone(), *compared, *pods);
        Taken { used, compared, pods, ports: ports.map(port).collect() }
    }

    /// Counts a pod in.
    pub fn put(&mut self, pod: &'a Pod) {
        self.account(pod, 1);
    }

    /// Counts a pod out.
    pub fn lift(&mut self, pod: &'a Pod) {
        self.account(pod, -1);
    }

    fn account(&mut self, pod: &'a Pod, sign: i64) {
        let (requests, (cpu, memory)) = Requests::both(pod);
        if sign > 0 {
            self.used.add(&requests);
        } else {
            self.used.take(&requests);
        }
        self.compared.0 = self.compared.0.saturating_add(sign.saturating_mul(cpu));
        self.compared.1 = self.compared.1.saturating_add(sign.saturating_mul(memory));
        self.pods += sign;
        for port in HostPort::of(pod) {
            *self.ports.entry(port).or_default() += sign;
        }
    }
}

/// What is taken of a node, whoever takes it: to be kept and compared with what is taken later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    used: Requests,
    compared: (i64, i64),
    pods: i64,
    /// By number, protocol and address.
    ports: Vec<(i32, String, String)>,
}

/// A port of a node that a pod takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort<'a> {
    port: i32,
    protocol: &'a str,
    address: &'a str,
}

/// All addresses of a node.
const ANY: &str = "0.0.0.0";

impl<'a> HostPort<'a> {
    /// The ports of its node that a pod takes.
    pub fn of(pod: &'a Pod) -> impl Iterator<Item = Self> {
        let sidecars = pod.spec.init_containers.iter().filter(|it| it.restart_policy.is_some());
        let ports = pod.spec.containers.iter().chain(sidecars).flat_map(|it| &it.ports);
        ports.filter(|it| it.host_port > 0).map(|it| Self {
            port: it.host_port,
            protocol: if it.protocol.is_empty() { "TCP" } else { &it.protocol },
            address: if it.host_ip.is_empty() { ANY } else { &it.host_ip },
        })
    }

    /// Whether two pods cannot have both.
    #[must_use]
    pub fn conflicts(self, other: HostPort<'_>) -> bool {
        let same = (self.port, self.protocol) == (other.port, other.protocol);
        same && (self.address == other.address || self.address == ANY || other.address == ANY)
    }
}

/// What a pod wants of its node, whoever else is where.
#[derive(Clone, Debug)]
pub struct Need<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What it takes.
    pub requests: Requests,
    /// Processor and memory as they are counted when nodes are compared.
    pub compared: (i64, i64),
    /// The only nodes it may be on, when it names them.
    named: Option<BTreeSet<&'a str>>,
    ports: Vec<HostPort<'a>>,
}

impl<'a> Need<'a> {
    /// What a pod wants.
    #[must_use]
    pub fn new(pod: &'a Pod) -> Self {
        let (requests, compared) = Requests::both(pod);
        Self { pod, requests, compared, named: named(pod), ports: HostPort::of(pod).collect() }
    }

    /// Why a node will not do, by the first rule it breaks.
    #[must_use]
    pub fn misfit(&self, site: &Site<'a>) -> Option<Misfit> {
        let (spec, node) = (&self.pod.spec, site.node);
        let named = self.named.as_ref();
        if named.is_some_and(|it| !it.contains(node.metadata.name.as_str())) {
            return Some(Misfit::lasting(Reason::NotNamed));
        }
        if node.spec.unschedulable && !puts_up_with_cordons(&spec.tolerations) {
            return Some(Misfit::lasting(Reason::Unschedulable));
        }
        if fit::keeps_away(&node.spec.taints, &spec.tolerations) {
            return Some(Misfit::lasting(Reason::Taints));
        }
        if !fit::wants_node(&spec.node_selector, &spec.affinity, node) {
            return Some(Misfit::lasting(Reason::NodeAffinity));
        }
        let taken = |port: &HostPort<'a>| {
            site.ports.iter().any(|(other, count)| *count > 0 && port.conflicts(*other))
        };
        if self.ports.iter().any(taken) {
            return Some(Misfit::passing(Reason::Ports));
        }
        self.lacks(site)
    }

    fn lacks(&self, site: &Site<'a>) -> Option<Misfit> {
        let full = site.pods + 1 > site.most_pods;
        let lacking = self.requests.lacking(&site.used, &site.room);
        if !full && lacking.is_empty() {
            return None;
        }
        let lasting = lacking.iter().any(|it| it.wanted > it.room);
        let names = lacking.iter().map(|it| Reason::Lacking(it.name.to_owned()));
        let reasons = full.then_some(Reason::TooManyPods).into_iter().chain(names).collect();
        Some(Misfit { reasons, lasting })
    }
}

/// Whether two pods want the same of nodes: each will do for both or for neither, for the same reasons,
/// and is as full with either.
#[must_use]
pub fn alike(one: &PodSpec, other: &PodSpec) -> bool {
    let PodSpec {
        node_name,
        containers,
        init_containers,
        tolerations,
        node_selector,
        affinity,
        overhead,
        resources,
        // What no rule about nodes looks at.
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
        // What they ask of nodes is in other objects.
        volumes: _,
        resource_claims: _,
        service_account_name: _,
    } = one;
    *node_name == other.node_name
        && containers_alike(containers, &other.containers)
        && containers_alike(init_containers, &other.init_containers)
        && *tolerations == other.tolerations
        && *node_selector == other.node_selector
        && affinity.node_affinity == other.affinity.node_affinity
        && *overhead == other.overhead
        && *resources == other.resources
}

fn containers_alike(one: &[Container], other: &[Container]) -> bool {
    let same = |(one, other): (&Container, &Container)| {
        one.resources == other.resources
            && one.ports == other.ports
            && one.restart_policy == other.restart_policy
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// The only nodes a pod may be on, when every way to fulfil its wishes names some.
fn named(pod: &Pod) -> Option<BTreeSet<&str>> {
    let mut all = BTreeSet::new();
    for term in &pod.spec.affinity.node_affinity.required.as_ref()?.node_selector_terms {
        let by_name = |it: &&Requirement| it.key == "metadata.name" && it.operator == Operator::In;
        let field = term.match_fields.iter().find(by_name)?;
        all.extend(field.values.iter().map(String::as_str));
    }
    Some(all)
}

fn puts_up_with_cordons(tolerations: &[Toleration]) -> bool {
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: TaintEffect::NoSchedule,
        ..Taint::default()
    };
    fit::tolerates(tolerations, &cordon)
}

#[cfg(test)]
mod tests;
