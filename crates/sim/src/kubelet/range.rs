//! Addresses: each pretended node has a range of its own inside 127.0.0.0/8, and each of its pods an
//! address in it, so that what really listens can be reached from this machine and from nowhere else.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, Part, Plan, Reference, View, World, Write,
};
use jiff::Timestamp;
use serde_json::json;

use super::Settings;
use crate::lot;
use crate::view::{Node, Pod};

/// Addresses of one node, as a power of two: more pods than any node has, and ranges for more nodes
/// than fit one machine.
const WIDTH: u32 = 12;
/// Ranges below this are for what else listens on this machine's own addresses: 127.0.0.0/12.
const FIRST: u32 = 1 << (20 - WIDTH);
/// Ranges up to here are inside 127.0.0.0/8.
const END: u32 = 1 << (24 - WIDTH);
/// Where the network 127.0.0.0/8 begins.
const LOOPBACK: u32 = 0x7f00_0000;

/// The addresses of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    base: u32,
    width: u32,
}

impl Range {
    /// Reads `127.16.0.0/20`. A node may come with a range of another network: its pods have addresses
    /// there, at which nobody listens.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (base, prefix) = text.split_once('/')?;
        let base = u32::from(base.parse::<Ipv4Addr>().ok()?);
        let width = 32_u32.checked_sub(prefix.parse().ok()?)?;
        let fits = (2..=24).contains(&width) && base.is_multiple_of(1 << width);
        fits.then_some(Self { base, width })
    }

    fn nth(index: u32) -> Self {
        Self { base: LOOPBACK | (index << WIDTH), width: WIDTH }
    }

    /// The node's own address.
    pub(crate) fn host(self) -> Ipv4Addr {
        Ipv4Addr::from(self.base + 1)
    }

    fn overlaps(self, other: Self) -> bool {
        let width = self.width.max(other.width);
        self.base >> width == other.base >> width
    }

    /// How many pods can have an address.
    fn room(self) -> u32 {
        // All but those of the network, of the node, and the last.
        (1 << self.width) - 3
    }

    /// The address of a pod, given all pods on its node; `None` when there is none left.
    ///
    /// It follows from the pod's identity where it can. Two pods that draw the same are told apart by
    /// who was written first: each of them finds the same order, whichever is planned first.
    pub(crate) fn address(self, pod: &Pod, on_node: &[std::sync::Arc<Pod>]) -> Option<Ipv4Addr> {
        let holds = |it: &Pod| !it.is_over() && !it.status.pod_ip.is_empty();
        let taken = on_node.iter().filter(|it| holds(it) && !is_same(it, pod));
        let mut taken: BTreeSet<u32> = taken
            .filter_map(|it| it.status.pod_ip.parse::<Ipv4Addr>().ok())
            .map(u32::from)
            .collect();
        let waits = |it: &Pod| {
            !it.is_over()
                && it.status.pod_ip.is_empty()
                && !it.spec.host_network
                && !is_same(it, pod)
        };
        let order = |it: &Pod| (it.metadata.resource_version, it.metadata.uid.clone());
        let before = |it: &&std::sync::Arc<Pod>| waits(it) && order(it) < order(pod);
        let mut ahead: Vec<_> = on_node.iter().filter(before).collect();
        ahead.sort_by_key(|it| order(it));
        for other in ahead {
            if let Some(address) = self.free(other.metadata.uid.as_str(), &taken) {
                taken.insert(address);
            }
        }
        self.free(pod.metadata.uid.as_str(), &taken).map(Ipv4Addr::from)
    }

    fn free(self, uid: &str, taken: &BTreeSet<u32>) -> Option<u32> {
        let room = self.room();
        let start = u32::try_from(lot::below(room.into(), &[uid, "address"])).unwrap_or_default();
        let mut tries = (0..room).map(|step| self.base + 2 + (start + step) % room);
        tries.find(|it| !taken.contains(it))
    }
}

/// Where the programs of a pod listen, by [`pod_address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// The pod's own address.
    pub address: Ipv4Addr,
    /// An address of the same node that no pod is ever given. What answers there listens on all
    /// addresses of this machine, and is no program of a pod.
    pub never_assigned: Ipv4Addr,
}

/// The address of a pod, if what its status says can be true; `pod_cidr` is the range of its node.
///
/// Whoever may write statuses or nodes could name any address of this machine. So the range must be
/// one of those that are given to simulated nodes, and the address one that a pod can have in it.
#[must_use]
pub fn pod_address(pod_ip: &str, host_network: bool, pod_cidr: &str) -> Option<PodAddress> {
    let range = Range::read(pod_cidr)?;
    let last = range.base + ((1 << range.width) - 1);
    let pool = (LOOPBACK | (FIRST << WIDTH))..=(LOOPBACK | ((1 << 24) - 1));
    if !pool.contains(&range.base) || !pool.contains(&last) {
        return None;
    }
    let address = u32::from(pod_ip.parse::<Ipv4Addr>().ok()?);
    let host = u32::from(range.host());
    let is_own = match host_network {
        true => address == host,
        false => (host + 1..last).contains(&address),
    };
    let [address, never_assigned] = [address, last].map(Ipv4Addr::from);
    is_own.then_some(PodAddress { address, never_assigned })
}

fn is_same(one: &Pod, other: &Pod) -> bool {
    one.metadata.uid == other.metadata.uid
}

/// Gives each pretended node its range. One plan does it for all nodes, because ranges must differ.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    settings: Settings,
}

impl Ranges {
    /// For the nodes that these settings pretend.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Controller for Ranges {
    fn name(&self) -> &'static str {
        "node-ranges"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let lacks = |it: &Node| it.spec.pod_cidr.is_empty() && self.settings.pretends(it);
        match change.after::<Node>() {
            Some(node) if lacks(node) => vec![Key::cluster("ranges")],
            Some(_) | None => Vec::new(),
        }
    }

    fn plan(&self, world: &World, _: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let nodes = world.shelf::<Node>().all();
        let mut taken: BTreeSet<Range> =
            nodes.iter().filter_map(|it| Range::read(&it.spec.pod_cidr)).collect();
        let lacks = |it: &Node| it.spec.pod_cidr.is_empty() && !it.metadata.is_going();
        let mut from = FIRST;
        for node in nodes.iter().filter(|it| lacks(it) && self.settings.pretends(it)) {
            let free = |index: &u32| !taken.iter().any(|it| it.overlaps(Range::nth(*index)));
            let Some(index) = (from..END).find(free) else {
                let about = Reference::to(&Node::RESOURCE, &node.metadata);
                plan.hold(none_left(about), now);
                continue;
            };
            from = index + 1;
            let range = Range::nth(index);
            taken.insert(range);
            let text = format!("{}/{}", Ipv4Addr::from(range.base), 32 - range.width);
            plan.write(Write::Merge {
                resource: Node::RESOURCE,
                key: node.metadata.key(),
                part: Part::Main,
                fence: node.metadata.fence(),
                body: json!({"spec": {"podCIDR": text, "podCIDRs": [text]}}),
            });
        }
        plan
    }
}

fn none_left(about: Reference) -> Held {
    Held {
        about,
        reason: "NoAddressRange".into(),
        message: "all ranges inside 127.0.0.0/8 are given to other nodes; remove some".to_owned(),
        until: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_believed_only_in_the_range_of_its_node() {
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
