//! Addresses: each simulated node has its own pod CIDR inside 127.0.0.0/8, and each of its pods an
//! address in it, so that real listeners can be reached from this machine and from nowhere else.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, ObjectReference, Plan, Subresource, View, World, Write,
};
use jiff::Timestamp;
use serde_json::json;

use super::Settings;
use crate::view::{Node, Pod};
use gantry_kube_controllers::deterministic_random;

/// The host bits of a node's pod CIDR: more addresses than any node has pods, and CIDRs for more
/// nodes than fit one machine.
const HOST_BITS: u32 = 12;
/// Ranges below this one are left to other listeners on this machine's loopback addresses:
/// 127.0.0.0/12.
const FIRST_INDEX: u32 = 1 << (20 - HOST_BITS);
/// Ranges below this one are inside 127.0.0.0/8.
const END_INDEX: u32 = 1 << (24 - HOST_BITS);
/// The first address of the network 127.0.0.0/8.
const LOOPBACK: u32 = 0x7f00_0000;

/// The pod CIDR of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodCidr {
    base: u32,
    width: u32,
}

impl PodCidr {
    /// Parses `127.16.0.0/20`. A node may come with a CIDR of another network: its pods have
    /// addresses there, on which nothing listens.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (base, prefix) = text.split_once('/')?;
        let base = u32::from(base.parse::<Ipv4Addr>().ok()?);
        let width = 32_u32.checked_sub(prefix.parse().ok()?)?;
        let fits = (2..=24).contains(&width) && base.is_multiple_of(1 << width);
        fits.then_some(Self { base, width })
    }

    fn from_index(index: u32) -> Self {
        Self { base: LOOPBACK | (index << HOST_BITS), width: HOST_BITS }
    }

    /// Returns the node's own address.
    pub(crate) fn node_address(self) -> Ipv4Addr {
        Ipv4Addr::from(self.base + 1)
    }

    fn overlaps(self, other: Self) -> bool {
        let width = self.width.max(other.width);
        self.base >> width == other.base >> width
    }

    /// Returns how many pods can have an address.
    fn pod_capacity(self) -> u32 {
        // All but those of the network, of the node, and the last.
        (1 << self.width) - 3
    }

    /// Returns the address of a pod, given all pods on its node; `None` when none is left.
    ///
    /// It follows from the pod's UID where possible. When two pods draw the same address, the pod
    /// that was created first keeps it: both plans find the same order, whichever is made first.
    pub(crate) fn assign_address(
        self,
        pod: &Pod,
        on_node: &[std::sync::Arc<Pod>],
    ) -> Option<Ipv4Addr> {
        let holds = |it: &Pod| !it.is_terminal() && !it.status.pod_ip.is_empty();
        let taken = on_node.iter().filter(|it| holds(it) && !is_same_pod(it, pod));
        let mut taken: BTreeSet<u32> = taken
            .filter_map(|it| it.status.pod_ip.parse::<Ipv4Addr>().ok())
            .map(u32::from)
            .collect();
        let waits = |it: &Pod| {
            !it.is_terminal()
                && it.status.pod_ip.is_empty()
                && !it.spec.host_network
                && !is_same_pod(it, pod)
        };
        let order = |it: &Pod| (it.metadata.resource_version, it.metadata.uid.clone());
        let before = |it: &&std::sync::Arc<Pod>| waits(it) && order(it) < order(pod);
        let mut ahead: Vec<_> = on_node.iter().filter(before).collect();
        ahead.sort_by_key(|it| order(it));
        for other in ahead {
            if let Some(address) = self.free_offset(other.metadata.uid.as_str(), &taken) {
                taken.insert(address);
            }
        }
        self.free_offset(pod.metadata.uid.as_str(), &taken).map(Ipv4Addr::from)
    }

    fn free_offset(self, uid: &str, taken: &BTreeSet<u32>) -> Option<u32> {
        let capacity = self.pod_capacity();
        let start =
            u32::try_from(deterministic_random::draw_below(capacity.into(), &[uid, "address"]))
                .unwrap_or_default();
        let mut tries = (0..capacity).map(|step| self.base + 2 + (start + step) % capacity);
        tries.find(|it| !taken.contains(it))
    }
}

/// Where the programs of a pod listen, as returned by [`pod_address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// The pod's own address.
    pub address: Ipv4Addr,
    /// An address of the same node that no pod is ever assigned. A listener that answers there
    /// listens on all addresses of this machine, and is no program of a pod.
    pub never_assigned: Ipv4Addr,
}

/// Returns the address of a pod, if that in its status is valid; `pod_cidr` is the CIDR of its
/// node.
///
/// A user who may write statuses or nodes could name any address of this machine. So the CIDR must
/// be one of those that are assigned to simulated nodes, and the address one that a pod can have in
/// it.
#[must_use]
pub fn pod_address(pod_ip: &str, host_network: bool, pod_cidr: &str) -> Option<PodAddress> {
    let range = PodCidr::parse(pod_cidr)?;
    let last = range.base + ((1 << range.width) - 1);
    let pool = (LOOPBACK | (FIRST_INDEX << HOST_BITS))..=(LOOPBACK | ((1 << 24) - 1));
    if !pool.contains(&range.base) || !pool.contains(&last) {
        return None;
    }
    let address = u32::from(pod_ip.parse::<Ipv4Addr>().ok()?);
    let host = u32::from(range.node_address());
    let is_own = match host_network {
        true => address == host,
        false => (host + 1..last).contains(&address),
    };
    let [address, never_assigned] = [address, last].map(Ipv4Addr::from);
    is_own.then_some(PodAddress { address, never_assigned })
}

fn is_same_pod(one: &Pod, other: &Pod) -> bool {
    one.metadata.uid == other.metadata.uid
}

/// Assigns each simulated node its pod CIDR. One plan does it for all nodes, because CIDRs must not
/// overlap.
#[derive(Clone, Debug, Default)]
pub struct PodCidrAllocator {
    settings: Settings,
}

impl PodCidrAllocator {
    /// Creates an allocator for the nodes that these settings simulate.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Controller for PodCidrAllocator {
    fn name(&self) -> &'static str {
        "node-ranges"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let lacks = |it: &Node| it.spec.pod_cidr.is_empty() && self.settings.simulates(it);
        match change.after::<Node>() {
            Some(node) if lacks(node) => vec![Key::cluster("ranges")],
            Some(_) | None => Vec::new(),
        }
    }

    fn plan(&self, world: &World, _: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let nodes = world.store::<Node>().list();
        let mut taken: BTreeSet<PodCidr> =
            nodes.iter().filter_map(|it| PodCidr::parse(&it.spec.pod_cidr)).collect();
        let lacks = |it: &Node| it.spec.pod_cidr.is_empty() && !it.metadata.is_terminating();
        let mut from = FIRST_INDEX;
        for node in nodes.iter().filter(|it| lacks(it) && self.settings.simulates(it)) {
            let free =
                |index: &u32| !taken.iter().any(|it| it.overlaps(PodCidr::from_index(*index)));
            let Some(index) = (from..END_INDEX).find(free) else {
                let about = ObjectReference::to(&Node::RESOURCE, &node.metadata);
                plan.hold(held_without_cidr(about), now);
                continue;
            };
            from = index + 1;
            let range = PodCidr::from_index(index);
            taken.insert(range);
            let text = format!("{}/{}", Ipv4Addr::from(range.base), 32 - range.width);
            plan.write(Write::Merge {
                resource: Node::RESOURCE,
                key: node.metadata.key(),
                subresource: Subresource::Main,
                fence: node.metadata.fence(),
                body: json!({"spec": {"podCIDR": text, "podCIDRs": [text]}}),
            });
        }
        plan
    }
}

fn held_without_cidr(about: ObjectReference) -> Held {
    Held {
        about,
        reason: "NoAddressRange".into(),
        message: "no free pod CIDR in 127.0.0.0/8: all are assigned to nodes; delete some"
            .to_owned(),
        until: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_addresses_outside_the_node_cidr_are_rejected() {
        let range = "127.16.16.0/20";
        let table = [
            ("a pod's", "127.16.16.2", false, range, true),
            ("the last of a pod", "127.16.31.254", false, range, true),
            ("one that no pod has", "127.16.31.255", false, range, false),
            ("the network", "127.16.16.0", false, range, false),
            ("the node's", "127.16.16.1", false, range, false),
            ("the node's, of a pod in its network", "127.16.16.1", true, range, true),
            ("another, of a pod in the node's network", "127.16.16.2", true, range, false),
            ("of another node", "127.16.32.2", false, range, false),
            ("of this machine", "127.0.0.1", false, range, false),
            ("of this machine, with its range", "127.0.0.1", true, "127.0.0.0/20", false),
            ("of this machine, with a range of all", "127.16.16.2", false, "127.0.0.0/8", false),
            ("elsewhere", "10.0.0.2", false, "10.0.0.0/20", false),
            ("next to the network", "128.0.0.2", false, "128.0.0.0/20", false),
            ("none", "", false, range, false),
            ("without a range", "127.16.16.2", false, "", false),
            ("of the newer kind", "::1", false, range, false),
        ];
        for (why, address, host_network, range, expected) in table {
            let found = pod_address(address, host_network, range);
            let expected = expected.then(|| PodAddress {
                address: address.parse().unwrap(),
                never_assigned: Ipv4Addr::new(127, 16, 31, 255),
            });
            assert_eq!(found, expected, "{why}");
        }
    }
}
