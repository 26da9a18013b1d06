//! Node resources that devices use beside what pods request.
//!
//! A driver declares them by the attributes `overhead.cpu` and `overhead.memory` of a pool or a
//! device, as quantities. They are used for as long as a claim has the device.

use gantry_api::devices::{Attribute, AttributeValue, DeviceAllocation, DevicePool};
use gantry_pods::Requests;
use gantry_pods::view::Pod;
use gantry_reconcile::World;

use crate::claim::{Claim, is_hold};
use crate::views::DeviceObject;

const CPU_ATTRIBUTE: &str = "overhead.cpu";
const MEMORY_ATTRIBUTE: &str = "overhead.memory";

/// Whether any device of a pool has overhead.
fn has_overhead(pool: &DevicePool) -> bool {
    let named = |it: &Attribute| matches!(it.name.as_str(), CPU_ATTRIBUTE | MEMORY_ATTRIBUTE);
    let spec = &pool.spec;
    spec.attributes.iter().any(named)
        || spec.devices.iter().any(|it| it.attributes.iter().any(named))
}

/// The overhead of the devices of these pools.
#[derive(Debug, Default)]
pub(super) struct DeviceOverheads<'a>(
    /// The pools with such devices, by name; in most clusters there are none.
    Vec<&'a DevicePool>,
);

impl<'a> DeviceOverheads<'a> {
    /// Collects the overhead of these pools, which are sorted by name.
    pub(super) fn new(pools: impl Iterator<Item = &'a DeviceObject<DevicePool>>) -> Self {
        Self(pools.filter_map(|it| it.object.as_ref().ok()).filter(|it| has_overhead(it)).collect())
    }

    /// Returns what an allocation uses of its node.
    pub(super) fn total_for(&self, allocations: &[DeviceAllocation]) -> Requests {
        let mut sum = Requests::default();
        if self.0.is_empty() {
            return sum;
        }
        for got in allocations.iter().filter(|it| is_hold(it)) {
            let name = Some(&got.device_pool_name);
            let Ok(at) = self.0.binary_search_by(|it| it.metadata.name.as_ref().cmp(&name)) else {
                continue;
            };
            let spec = &self.0[at].spec;
            let device = got.device_name.as_ref();
            let device = device.and_then(|name| spec.devices.iter().find(|it| it.name == *name));
            let own = device.map_or(&[] as &[Attribute], |it| &it.attributes);
            let count = i64::from(got.device_count.unwrap_or(1));
            let amount = |name: &str| {
                let mut all = own.iter().chain(&spec.attributes).filter(|it| it.name == name);
                all.find_map(|it| match it.value {
                    AttributeValue::Quantity(amount) => Some(amount),
                    AttributeValue::String(_)
                    | AttributeValue::Int(_)
                    | AttributeValue::SemVer(_)
                    | AttributeValue::Bool(_) => None,
                })
            };
            let cpu =
                amount(CPU_ATTRIBUTE).and_then(|it| i64::try_from(it.milli_rounded_up()).ok());
            let memory = amount(MEMORY_ATTRIBUTE).map(|it| it.value_rounded_up());
            let times = |each: Option<i64>| each.unwrap_or_default().max(0).saturating_mul(count);
            sum.cpu = sum.cpu.saturating_add(times(cpu));
            sum.memory = sum.memory.saturating_add(times(memory));
        }
        sum
    }
}

/// Whether there is no overhead at all.
pub(super) fn is_zero(requests: &Requests) -> bool {
    (requests.cpu, requests.memory) == (0, 0)
}

/// Returns the nodes on which a claim's devices use resources: the one they are on, or those of its
/// pods.
pub(super) fn charged_nodes(world: &World, claim: &Claim) -> Vec<String> {
    if let Some(node) = claim.node_name() {
        return vec![node.to_owned()];
    }
    let pods = claim.consumers().iter().filter_map(|it| {
        let pod = world.store::<Pod>().get(&claim.meta().key().in_same_namespace(&it.name))?;
        (!pod.spec.node_name.is_empty() && pod.metadata.uid.as_str() == it.uid)
            .then(|| pod.spec.node_name.clone())
    });
    let mut nodes: Vec<String> = pods.collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
