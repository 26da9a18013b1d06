//! Rules that span variables and hosts.

use std::collections::HashMap;

use super::{Backend, Cluster, HostFacts, Role};
use crate::finding::{FileId, Finding, Place};
use crate::inventory::Inventory;
use crate::tree::{ALL, HostId};
use crate::value::{Node, Value};
use crate::variables::VARIABLES;

/// Two names of the group of one role in one file.
pub(super) fn aliases(inventory: &Inventory) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut first: HashMap<(FileId, Role), &str> = HashMap::new();
    for (group, place) in &inventory.group_uses {
        let name = inventory.tree.group(*group).name.as_str();
        let role = Role::ALL.into_iter().find(|role| role.group_names().contains(&name));
        let Some(role) = role else { continue };
        let known = *first.entry((place.file, role)).or_insert(name);
        if known != name {
            let message = format!("groups `{known}` and `{name}` are the same role");
            let width = name.chars().count();
            findings.push(Finding::error(*place, width, message, format!("use `{known}` only")));
        }
    }
    findings
}

/// The rules of a cluster.
pub(super) fn check(
    inventory: &Inventory,
    facts: &HostFacts,
    cluster: &Cluster,
    findings: &mut Vec<Finding>,
) {
    let Cluster { name, backend, roles: _, hosts } = cluster;
    let Some(first) = hosts.first().copied() else { return };
    let declared = |host: HostId| inventory.tree.host(host).declared;
    let host_name = |host: HostId| inventory.tree.host(host).name.as_str();
    let width = |host: HostId| host_name(host).chars().count();
    let masters = cluster.with_role(Role::Master);
    let is_made = !matches!(backend, Backend::Existing | Backend::Embedded);
    if masters.is_empty() && is_made {
        let message = format!("cluster `{name}` has no master");
        let remedy = "put a host into group `master`";
        findings.push(Finding::error(declared(first), width(first), message, remedy));
    }
    if *backend == Backend::Kind {
        for minion in cluster.with_role(Role::Minion) {
            let message = format!("kind cannot add the minion `{}`", host_name(*minion));
            let remedy = "recreate the cluster from a backup with another back end, or: \
                          gantry_backend: kubeadm";
            findings.push(Finding::error(declared(*minion), width(*minion), message, remedy));
        }
        for host in masters {
            if facts.text(*host, "gantry_environment") == Some("prod")
                && !has_item(facts.get(*host, "gantry_acknowledge"), "kind-in-prod")
            {
                let at = facts.place(*host, "gantry_environment");
                let at = at.unwrap_or_else(|| declared(*host));
                let message = format!("host `{}` is a kind cluster in `prod`", host_name(*host));
                let remedy = "use kubeadm, or accept it: gantry_acknowledge: [kind-in-prod]";
                findings.push(Finding::error(at, 4, message, remedy));
            }
        }
    } else if masters.len() > 1 && is_made && facts.get(first, "gantry_api_endpoint").is_none() {
        let second = masters[1];
        let message = format!("cluster `{name}` has several masters and no API endpoint");
        let remedy = "set gantry_api_endpoint to host:port of a balancer before the masters";
        findings.push(Finding::error(declared(second), width(second), message, remedy));
    }
    etcd_members(inventory, cluster, findings);
    one_value(inventory, facts, cluster, findings);
    networks(inventory, facts, cluster, findings);
}

fn etcd_members(inventory: &Inventory, cluster: &Cluster, findings: &mut Vec<Finding>) {
    if !matches!(cluster.backend, Backend::Kubeadm | Backend::K3s | Backend::Bare) {
        return;
    }
    let members = cluster.with_role(Role::Etcd);
    let (Some(last), 0) = (members.last(), members.len() % 2) else { return };
    let host = inventory.tree.host(*last);
    let width = host.name.chars().count();
    let count = members.len();
    let message = format!("cluster `{}` has {count} members of etcd", cluster.name);
    findings.push(if count == 2 {
        let remedy = "use 1 or 3: with 2, the loss of either one stops the cluster";
        Finding::error(host.declared, width, message, remedy)
    } else {
        let remedy = "use an odd number: one member less survives as many losses";
        Finding::warning(host.declared, width, message, remedy)
    });
}

/// Variables that have one value in a cluster.
fn one_value(
    inventory: &Inventory,
    facts: &HostFacts,
    cluster: &Cluster,
    findings: &mut Vec<Finding>,
) {
    for variable in VARIABLES.iter().filter(|variable| variable.per_cluster) {
        let values = cluster.hosts.iter();
        let mut values = values.filter_map(|host| Some((host, facts.get(*host, variable.name)?)));
        let Some((first, value)) = values.next() else { continue };
        for (host, other) in values {
            if other.to_json() == value.to_json() {
                continue;
            }
            let (name, cluster) = (variable.name, &cluster.name);
            let hosts = [first, host].map(|it| inventory.tree.host(*it).name.as_str());
            let message = format!(
                "`{name}` differs in cluster `{cluster}` between `{}` and `{}`",
                hosts[0], hosts[1]
            );
            let origin = inventory.files.origin(value.at);
            let remedy = format!("expected the value of {origin}: set it for the whole cluster");
            findings.push(Finding::error(other.at, other.width(), message, remedy));
        }
    }
}

const POD_NETWORK: (u32, u64) = (0x0af4_0000, 1 << 16);
const SERVICE_NETWORK: (u32, u64) = (0x0a60_0000, 1 << 16);

fn networks(
    inventory: &Inventory,
    facts: &HostFacts,
    cluster: &Cluster,
    findings: &mut Vec<Finding>,
) {
    let network = |name: &'static str, default: (u32, u64)| {
        let node = cluster.hosts.iter().find_map(|host| facts.get(*host, name));
        let given = node.and_then(Node::text).map(crate::variables::network);
        match (node, given) {
            (Some(node), Some(network)) => network.map(|network| (Some(node), network)),
            (Some(_), None) => None,
            (None, _) => Some((None, default)),
        }
    };
    let pods = network("gantry_pod_cidr", POD_NETWORK);
    let services = network("gantry_service_cidr", SERVICE_NETWORK);
    // What is not a network was reported with its value.
    let (Some((pod_node, pods)), Some((service_node, services))) = (pods, services) else {
        return;
    };
    if let (true, Some(node)) = (overlap(pods, services), service_node.or(pod_node)) {
        let message = format!("pods and services of cluster `{}` overlap", cluster.name);
        let remedy = "expected two networks without a common address";
        findings.push(Finding::error(node.at, node.width(), message, remedy));
    }
    for host in &cluster.hosts {
        let Some(address) = facts.address(inventory, *host) else { continue };
        let address = (u32::from(address), 1);
        for (name, network) in [("pods", pods), ("services", services)] {
            if overlap(network, address) {
                let place = facts.place(*host, "ansible_host");
                let declared = inventory.tree.host(*host);
                let place = place.unwrap_or(declared.declared);
                let message =
                    format!("the address of `{}` is in the network of {name}", declared.name);
                let remedy = "set gantry_pod_cidr and gantry_service_cidr to networks of their own";
                findings.push(Finding::error(place, 1, message, remedy));
            }
        }
    }
}

fn overlap(left: (u32, u64), right: (u32, u64)) -> bool {
    let end = |network: (u32, u64)| u64::from(network.0) + network.1;
    u64::from(left.0) < end(right) && u64::from(right.0) < end(left)
}

/// Rules of hosts, whatever their cluster is.
pub(super) fn check_hosts(inventory: &Inventory, facts: &HostFacts, findings: &mut Vec<Finding>) {
    let with_role: Vec<HostId> = Role::ALL
        .iter()
        .flat_map(|role| role.group_names())
        .filter_map(|name| inventory.tree.group_named(name))
        .flat_map(|group| inventory.tree.members(group))
        .collect();
    let with_role: std::collections::HashSet<HostId> = with_role.into_iter().collect();
    let mut endpoints: HashMap<(String, i64), HostId> = HashMap::new();
    for host in inventory.tree.members(ALL) {
        let declared = inventory.tree.host(host);
        let width = declared.name.chars().count();
        let is_listed = inventory.files.is_host_list(declared.declared.file);
        if !with_role.contains(&host) && !is_listed {
            let message = format!("host `{}` has no role", declared.name);
            let remedy = "put it into group `master` or `minion`, or remove it";
            findings.push(Finding::warning(declared.declared, width, message, remedy));
        }
        let is_local = facts.text(host, "ansible_connection") == Some("local");
        let address = facts.text(host, "ansible_host").unwrap_or(&declared.name);
        let port = facts.integer(host, "ansible_port");
        let port = port.or_else(|| facts.integer(host, "ansible_ssh_port")).unwrap_or(22);
        if !is_local && !matches!(address, "localhost" | "local") {
            let first = *endpoints.entry((address.to_owned(), port)).or_insert(host);
            if first != host {
                let first = &inventory.tree.host(first).name;
                let message =
                    format!("`{}` and `{first}` are both {address}:{port}", declared.name);
                let place = facts.place(host, "ansible_host").unwrap_or(declared.declared);
                let width = address.chars().count();
                findings.push(Finding::error(place, width, message, "expected another address"));
            }
        }
        port_mappings(facts, host, findings);
    }
}

fn port_mappings(facts: &HostFacts, host: HostId, findings: &mut Vec<Finding>) {
    let Some(items) = facts.get(host, "gantry_port_mappings").and_then(Node::items) else {
        return;
    };
    let mut used: HashMap<(i64, String, String), Place> = HashMap::new();
    for item in items {
        let number = |node: &Node| match &node.value {
            Value::Number(number) => number.as_i64(),
            Value::Text(text) => text.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Vault(_) | Value::List(_) | Value::Map(_) => None,
        };
        let text = |name: &str, default: &str| {
            item.get(name).and_then(Node::text).unwrap_or(default).to_owned()
        };
        let port_node = item.get("host").or_else(|| item.get("container")).unwrap_or(item);
        let Some(port) = number(port_node) else { continue };
        let key = (port, text("protocol", "TCP"), text("listen", "0.0.0.0"));
        if let Some(first) = used.insert(key, port_node.at) {
            let message = format!("port {port} of the host is mapped twice");
            let remedy = format!("expected each port once; the first is on line {}", first.at.line);
            findings.push(Finding::error(port_node.at, port_node.width(), message, remedy));
        }
    }
}

fn has_item(node: Option<&Node>, wanted: &str) -> bool {
    let items = node.and_then(Node::items).unwrap_or_default();
    items.iter().any(|item| item.text() == Some(wanted))
}
