//! Nodes that other schedulers rejected, and until when they are not chosen again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_api::devices::{DevicePool, NodeRefusal};
use gantry_pods::view::Pod;
use gantry_reconcile::{Subresource, Uid, View, Write};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::is_gated;
use crate::condition::truncate_to_second;
use crate::views::DeviceObject;

/// How long a rejected node is not chosen again.
const REFUSAL_TTL: Duration = Duration::from_secs(5 * 60);
/// How many refusals a pool stores; beyond that the oldest are dropped, which costs one more
/// attempt.
const MAX_REFUSALS_PER_POOL: usize = 64;

/// The unexpired refusals of all pools, by the controller of the pods they are about.
#[derive(Debug, Default)]
pub(crate) struct NodeRefusals<'a>(HashMap<&'a str, Vec<&'a NodeRefusal>>);

impl<'a> NodeRefusals<'a> {
    pub(crate) fn new(pools: &'a [Arc<DeviceObject<DevicePool>>], now: Timestamp) -> Self {
        let mut all = HashMap::<&'a str, Vec<&'a NodeRefusal>>::new();
        for refusal in pools.iter().flat_map(|it| &it.status.refusals) {
            if refusal.until.0 > now {
                all.entry(&refusal.owner_uid).or_default().push(refusal);
            }
        }
        Self(all)
    }

    /// Returns the refusals about a pod. Only pods with the gate are rejected by another scheduler.
    pub(crate) fn for_pod(&self, pod: &Pod) -> &[&'a NodeRefusal] {
        let owner = pod.metadata.controller().filter(|_| is_gated(pod));
        owner.and_then(|it| self.0.get(it.uid.as_str())).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Whether the refusal of a node is recorded.
pub(super) fn is_recorded(
    pool: &DeviceObject<DevicePool>,
    owner: &Uid,
    node: &str,
    now: Timestamp,
) -> bool {
    let refusals = &pool.status.refusals;
    refusals.iter().any(|it| matches_owner_and_node(it, owner, node) && it.until.0 > now)
}

fn matches_owner_and_node(refusal: &NodeRefusal, owner: &Uid, node: &str) -> bool {
    refusal.owner_uid == owner.as_str() && refusal.node_name == node
}

/// Records that a node was rejected, if the pool is unchanged.
pub(super) fn record(
    pool: &DeviceObject<DevicePool>,
    owner: &Uid,
    node: &str,
    now: Timestamp,
) -> Write {
    let (mut refusals, _) = unexpired(pool, now);
    refusals.retain(|it| !matches_owner_and_node(it, owner, node));
    let until = truncate_to_second(now).checked_add(REFUSAL_TTL).unwrap_or(now);
    let (owner_uid, node_name) = (owner.as_str().to_owned(), node.to_owned());
    refusals.push(NodeRefusal { owner_uid, node_name, until: Time(until) });
    refusals.drain(..refusals.len().saturating_sub(MAX_REFUSALS_PER_POOL));
    Write::Merge {
        resource: <DeviceObject<DevicePool> as View>::RESOURCE,
        key: pool.metadata.key(),
        subresource: Subresource::Status,
        fence: pool.metadata.fence(),
        body: json!({"status": {"refusals": refusals}}),
    }
}

/// Returns the unexpired refusals of a pool, and when the next of them expires.
pub(crate) fn unexpired(
    pool: &DeviceObject<DevicePool>,
    now: Timestamp,
) -> (Vec<NodeRefusal>, Option<Timestamp>) {
    let left = pool.status.refusals.iter().filter(|it| it.until.0 > now);
    let left: Vec<NodeRefusal> = left.cloned().collect();
    let next = left.iter().map(|it| it.until.0).min();
    (left, next)
}
