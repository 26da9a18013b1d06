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
