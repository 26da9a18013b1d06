//! The clusters of an inventory: which hosts have which role, and rules that span hosts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

use crate::expression::Evaluation;
use crate::finding::{Finding, Place};
use crate::inventory::{self, Inventory};
use crate::tree::HostId;
use crate::value::{Node, Value};
use crate::variables::VARIABLES;

mod rules;

/// What a host does in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs the control plane.
    Master,
    /// Runs pods only.
    Minion,
    /// Runs etcd; by default the masters do.
    Etcd,
    /// Serves NFS.
    Nfs,
    /// Runs the balancer; by default the first master does.
    Front,
    /// Is where recovery is rehearsed.
    Drill,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 6] =
        [Self::Master, Self::Minion, Self::Etcd, Self::Nfs, Self::Front, Self::Drill];

    /// The names of groups whose hosts have the role; the first is that of this project.
    #[must_use]
    pub const fn group_names(self) -> &'static [&'static str] {
        match self {
            Self::Master => &[
                "master",
                "masters",
                "control_plane",
                "kube_control_plane",
                "kube-master",
                "server",
            ],
            Self::Minion => &[
                "minion",
                "minions",
                "worker",
                "workers",
                "node",
                "nodes",
                "kube_node",
                "kube-node",
            ],
            Self::Etcd => &["etcd"],
            Self::Nfs => &["nfs"],
            Self::Front => &["front", "loadbalancer", "lb"],
            Self::Drill => &["drill"],
        }
    }
}

/// How a cluster is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// In a container of one host.
    Kind,
    /// With kubeadm.
    Kubeadm,
    /// With k3s.
    K3s,
    /// From the programs of Kubernetes.
    Bare,
    /// It runs already.
    Existing,
    /// `gantry up`.
    Embedded,
}

impl Backend {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "kind" => Self::Kind,
            "kubeadm" => Self::Kubeadm,
            "k3s" => Self::K3s,
            "bare" => Self::Bare,
            "existing" => Self::Existing,
            "embedded" => Self::Embedded,
            _ => return None,
        })
    }
}

/// A cluster of an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The name.
    pub name: String,
    /// How it is made.
    pub backend: Backend,
    /// Its hosts by role. Without a group for etcd it is on the masters, and without one for the
    /// front on the first master.
    pub roles: BTreeMap<Role, Vec<HostId>>,
    /// Its hosts, also those without a role.
    pub hosts: Vec<HostId>,
}

impl Cluster {
    /// The hosts with a role.
    #[must_use]
    pub fn with_role(&self, role: Role) -> &[HostId] {
        self.roles.get(&role).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Partitions an inventory into clusters by `gantry_cluster_name`, and checks the rules that span
/// variables and hosts.
#[must_use]
pub fn clusters(inventory: &Inventory) -> (Vec<Cluster>, Vec<Finding>) {
    let facts = HostFacts::all(inventory);
    let mut findings = rules::aliases(inventory);
    let mut by_name: BTreeMap<String, Vec<HostId>> = BTreeMap::new();
    for (id, _) in inventory.tree.hosts() {
        let name = facts.text(id, "gantry_cluster_name");
        by_name.entry(name.unwrap_or("gantry").to_owned()).or_default().push(id);
    }
    let mut clusters = Vec::new();
    for (name, hosts) in by_name {
        let whole = assemble(inventory, &facts, name, hosts);
        rules::check(inventory, &facts, &whole, &mut findings);
        clusters.extend(split_kind(inventory, whole));
    }
    rules::check_hosts(inventory, &facts, &mut findings);
    inventory::sort(&mut findings);
    (clusters, findings)
}

fn assemble(inventory: &Inventory, facts: &HostFacts, name: String, hosts: Vec<HostId>) -> Cluster {
    let mut roles: BTreeMap<Role, Vec<HostId>> = BTreeMap::new();
    for role in Role::ALL {
        let members: BTreeSet<HostId> = role
            .group_names()
            .iter()
            .filter_map(|name| inventory.tree.group_named(name))
            .flat_map(|group| inventory.tree.members(group))
            .collect();
        // Hosts of `-i local,` have no groups; they are masters.
        let is_member = |host: &&HostId| {
            let declared = inventory.tree.host(**host).declared.file;
            members.contains(host) || role == Role::Master && inventory.files.is_host_list(declared)
        };
        let members: Vec<HostId> = hosts.iter().filter(is_member).copied().collect();
        if !members.is_empty() {
            roles.insert(role, members);
        }
    }
    if let Some(masters) = roles.get(&Role::Master).cloned() {
        let first = masters.first().copied();
        roles.entry(Role::Etcd).or_insert(masters);
        roles.entry(Role::Front).or_insert_with(|| first.into_iter().collect());
    }
    let count = |role: Role| roles.get(&role).map_or(0, Vec::len);
    let is_single = count(Role::Master) == 1 && count(Role::Minion) == 0;
    let default = if is_single { Backend::Kind } else { Backend::Kubeadm };
    let named = hosts.iter().find_map(|host| facts.text(*host, "gantry_backend"));
    let backend = named.and_then(Backend::named).unwrap_or(default);
    Cluster { name, backend, roles, hosts }
}

/// With kind, each master is a cluster of its own.
fn split_kind(inventory: &Inventory, cluster: Cluster) -> Vec<Cluster> {
    let masters = cluster.with_role(Role::Master);
    if cluster.backend != Backend::Kind || masters.len() < 2 {
        return vec![cluster];
    }
    masters
        .iter()
        .map(|master| {
            let role = |role: Role| {
                let own = role == Role::Master || role == Role::Etcd || role == Role::Front;
                if own { vec![*master] } else { cluster.with_role(role).to_vec() }
            };
            Cluster {
                name: format!("{}-{}", cluster.name, inventory.tree.host(*master).name),
                backend: Backend::Kind,
                roles: cluster.roles.keys().map(|it| (*it, role(*it))).collect(),
                hosts: vec![*master],
            }
        })
        .collect()
}

/// The values of the variables that rules read, with their expressions replaced.
struct HostFacts {
    values: HashMap<(HostId, &'static str), Node>,
}

/// Variables of connections that rules read.
const READ_CONNECTION: [&str; 4] =
    ["ansible_host", "ansible_port", "ansible_ssh_port", "ansible_connection"];

impl HostFacts {
    fn all(inventory: &Inventory) -> Self {
        let mut values = HashMap::new();
        let names = VARIABLES.iter().map(|it| it.name).chain(READ_CONNECTION);
        let names: Vec<&'static str> = names.collect();
        for (host, _) in inventory.tree.hosts() {
            let variables = inventory.variables(host);
            let evaluation = Evaluation::new(inventory, host, &variables);
            for name in &names {
                let winner = variables.get(*name).and_then(|candidates| candidates.last());
                // What has no value was reported when the inventory was read.
                let value = winner.and_then(|winner| evaluation.value(winner.value).ok());
                if let Some(value) = value.filter(|value| value.value != Value::Null) {
                    values.insert((host, *name), value);
                }
            }
        }
        Self { values }
    }

    fn get(&self, host: HostId, name: &'static str) -> Option<&Node> {
        self.values.get(&(host, name))
    }

    fn text(&self, host: HostId, name: &'static str) -> Option<&str> {
        self.get(host, name).and_then(Node::text)
    }

    fn integer(&self, host: HostId, name: &'static str) -> Option<i64> {
        match &self.get(host, name)?.value {
            Value::Number(number) => number.as_i64(),
            Value::Text(text) => text.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Vault(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    fn place(&self, host: HostId, name: &'static str) -> Option<Place> {
        self.get(host, name).map(|node| node.at)
    }

    /// The IPv4 address of a host, if it is written as one.
    fn address(&self, inventory: &Inventory, host: HostId) -> Option<Ipv4Addr> {
        let name = || inventory.tree.host(host).name.as_str();
        self.text(host, "ansible_host").unwrap_or_else(name).parse().ok()
    }
}
