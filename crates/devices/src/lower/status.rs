//! Converts the allocation of a claim to the form of its status.

use gantry_api::devices::{
    DeviceAllocation, RequestedCapacity, ResourceAllocation, TopologyAssignment,
};
use gantry_api::quantity::{Format, Quantity};

use crate::problem::{
    Alternative, CapacityPart, Claim, ClaimAllocation, Device, Draws, Hold, Inventory, PoolDevices,
};

/// Returns what a claim got: an entry for each device, or for each pool that only counts its
/// devices.
#[must_use]
pub fn allocations(
    inventory: &Inventory,
    claim: &Claim,
    given: &ClaimAllocation,
) -> Vec<DeviceAllocation> {
    let mut all: Vec<DeviceAllocation> = Vec::new();
    for (term, given) in claim.terms.iter().zip(&given.terms) {
        let Some(asked) = term.alternatives.get(given.alternative) else { continue };
        for hold in &given.holds {
            let Some(pool) = inventory.pools().get(hold.pool) else { continue };
            match (&pool.devices, hold.device) {
                (PoolDevices::Listed(devices), Some(at)) => {
                    let Some(device) = devices.get(at) else { continue };
                    all.push(DeviceAllocation {
                        claim_name: Some(term.name.clone()),
                        device_pool_name: pool.name.clone(),
                        device_name: Some(device.name.clone()),
                        device_count: None,
                        access_mode: Some(hold.mode),
                        allocations: parts(inventory, device, asked, hold),
                    });
                }
                (PoolDevices::Counted(_), _) | (PoolDevices::Listed(_), None) => {
                    let same = |entry: &&mut DeviceAllocation| {
                        entry.claim_name.as_ref() == Some(&term.name)
                            && entry.device_pool_name == pool.name
                    };
                    match all.iter_mut().find(same).and_then(|entry| entry.device_count.as_mut()) {
                        Some(count) => *count += 1,
                        None => all.push(DeviceAllocation {
                            claim_name: Some(term.name.clone()),
                            device_pool_name: pool.name.clone(),
                            device_count: Some(1),
                            ..DeviceAllocation::default()
                        }),
                    }
                }
            }
        }
    }
    all
}

fn parts(
    inventory: &Inventory,
    device: &Device,
    asked: &Alternative,
    hold: &Hold,
) -> Vec<ResourceAllocation> {
    let symbols = inventory.symbols();
    let part = |part: &CapacityPart| {
        let entry = device.capacities.get(part.capacity_index)?;
        let name = symbols.name(entry.name);
        let topologies = entry.domains.iter().map(|place| TopologyAssignment {
            r#type: symbols.name(place.kind).to_owned(),
            name: symbols.name(place.name).to_owned(),
        });
        Some(ResourceAllocation {
            name: name.to_owned(),
            allocation: amount_as_asked(asked, name, part.amount),
            topologies: topologies.collect(),
        })
    };
    hold.parts.iter().filter_map(part).collect()
}

/// Returns the suffixes in which an amount was requested.
fn format(asked: &Alternative, name: &str) -> Format {
    let format = match &asked.draws {
        Draws::Together(list) => {
            list.iter().find(|(known, _)| known == name).map(|(_, amount)| amount.format())
        }
        Draws::Each(list) => list.iter().find_map(|request| match request.draw {
            RequestedCapacity::Quantity { request: amount } if request.name == name => {
                Some(amount.format())
            }
            RequestedCapacity::Quantity { .. }
            | RequestedCapacity::Counter { .. }
            | RequestedCapacity::AccessMode { .. } => None,
        }),
    };
    format.unwrap_or(Format::DecimalSi)
}

/// Returns an amount in the suffixes in which it was requested.
pub(crate) fn amount_as_asked(asked: &Alternative, name: &str, nanos: i128) -> Quantity {
    let exact = Quantity::parse(&format!("{nanos}n"));
    exact.expect("a part is no larger than the capacity it is of").with_format(format(asked, name))
}
