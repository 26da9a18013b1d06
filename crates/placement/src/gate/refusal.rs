//! Nodes that schedulers refused, and until when they are not chosen again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_api::devices::{DevicePool, NodeRefusal};
use gantry_pods::view::Pod;
use gantry_reconcile::{Part, Uid, View, Write};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::is_gated;
use crate::condition::second;
use crate::seen::Seen;

/// How long a node is not chosen again.
const LASTS: Duration = Duration::from_secs(5 * 60);
/// Refusals that a pool keeps; of more than that the oldest are forgotten, which costs a try.
const MOST: usize = 64;

/// The refusals of all pools that still count, by who controls the pods they are about.
#[derive(Debug, Default)]
pub(crate) struct Refusals<'a>(HashMap<&'a str, Vec<&'a NodeRefusal>>);

impl<'a> Refusals<'a> {
    pub(crate) fn new(pools: &'a [Arc<Seen<DevicePool>>], now: Timestamp) -> Self {
        let mut all = HashMap::<&'a str, Vec<&'a NodeRefusal>>::new();
        for refusal in pools.iter().flat_map(|it| &it.status.refusals) {
            if refusal.until.0 > now {
                all.entry(&refusal.owner_uid).or_default().push(refusal);
            }
        }
        Self(all)
    }

    /// Those that are about a pod. Only who has the gate is refused by somebody else.
    pub(crate) fn of(&self, pod: &Pod) -> &[&'a NodeRefusal] {
        let owner = pod.metadata.controller().filter(|_| is_gated(pod));
        owner.and_then(|it| self.0.get(it.uid.as_str())).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Whether it is written that a node was refused.
pub(super) fn is_known(pool: &Seen<DevicePool>, owner: &Uid, node: &str, now: Timestamp) -> bool {
    let refusals = &pool.status.refusals;
    refusals.iter().any(|it| is_about(it, owner, node) && it.until.0 > now)
}

fn is_about(refusal: &NodeRefusal, owner: &Uid, node: &str) -> bool {
    refusal.owner_uid == owner.as_str() && refusal.node_name == node
}

/// Writes down that a node was refused, if the pool is as it was seen.
pub(super) fn write(pool: &Seen<DevicePool>, owner: &Uid, node: &str, now: Timestamp) -> Write {
    let (mut refusals, _) = left(pool, now);
    refusals.retain(|it| !is_about(it, owner, node));
    let until = second(now).checked_add(LASTS).unwrap_or(now);
    let (owner_uid, node_name) = (owner.as_str().to_owned(), node.to_owned());
    refusals.push(NodeRefusal { owner_uid, node_name, until: Time(until) });
    refusals.drain(..refusals.len().saturating_sub(MOST));
    Write::Merge {
        resource: <Seen<DevicePool> as View>::RESOURCE,
        key: pool.metadata.key(),
        part: Part::Status,
        fence: pool.metadata.fence(),
        body: json!({"status": {"refusals": refusals}}),
    }
}

/// The refusals of a pool that still count, and when the next of them will not.
pub(crate) fn left(
    pool: &Seen<DevicePool>,
    now: Timestamp,
) -> (Vec<NodeRefusal>, Option<Timestamp>) {
    let left = pool.status.refusals.iter().filter(|it| it.until.0 > now);
    let left: Vec<NodeRefusal> = left.cloned().collect();
    let next = left.iter().map(|it| it.until.0).min();
    (left, next)
}
