//! Computes what is left of a capacity after something was taken from it.

use gantry_api::devices::{
    Block, Counter, NodePool, QuantityCapacity, RequestedCapacity, ResourceCapacity, Shape,
    TopologyAssignment,
};
use gantry_api::quantity::Quantity;

use super::{CapacityError, allows_holder};

/// Something that was taken from a device.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityResult {
    /// Name of the capacity.
    pub name: String,
    /// The amount, in whole portions.
    pub draw: RequestedCapacity,
    /// The topology domains it was taken from, one for each kind.
    pub topologies: Vec<TopologyAssignment>,
}

impl CapacityResult {
    /// Returns the name and topology domains of the capacity, as [`ResourceCapacity::key`] writes
    /// them.
    #[must_use]
    pub fn key(&self) -> String {
        let places = self.topologies.iter();
        let mut places: Vec<_> =
            places.map(|place| format!(";{}={}", place.r#type, place.name)).collect();
        places.sort_unstable();
        format!("{}{}", self.name, places.concat())
    }
}

/// What a pool gives to a request that one of its devices serves.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolResult {
    /// Name of the pool.
    pub pool: String,
    /// The device that serves, if there is one.
    pub best: Option<usize>,
    /// What would be taken from each device, in listed order.
    pub devices: Vec<Vec<CapacityResult>>,
}

/// Returns what is left of one capacity. What is taken is in whole portions already and not rounded
/// again.
///
/// # Errors
/// If it was taken from another capacity or kind, or is more than there is.
pub fn reduce(
    capacity: &ResourceCapacity,
    taken: &CapacityResult,
) -> Result<ResourceCapacity, CapacityError> {
    if capacity.name != taken.name {
        return Err(CapacityError::OtherCapacity {
            capacity: capacity.name.clone(),
            request: taken.name.clone(),
        });
    }
    let less = |there: Quantity, amount: Quantity| {
        if amount > there || amount.is_negative() {
            return Err(overdrawn(capacity, &amount.to_string(), &there.to_string()));
        }
        Ok(there.checked_sub(amount)?.with_format(there.format()))
    };
    let shape = match (&capacity.shape, &taken.draw) {
        (Shape::Counter { counter }, RequestedCapacity::Counter { request }) => {
            if *request > counter.capacity || *request < 0 {
                let (amount, left) = (request.to_string(), counter.capacity.to_string());
                return Err(overdrawn(capacity, &amount, &left));
            }
            Shape::Counter { counter: Counter { capacity: counter.capacity - request } }
        }
        (Shape::Quantity { quantity }, RequestedCapacity::Quantity { request }) => {
            let capacity = less(quantity.capacity, *request)?;
            Shape::Quantity { quantity: QuantityCapacity { capacity } }
        }
        (Shape::Block { block }, RequestedCapacity::Quantity { request }) => {
            let capacity = less(block.capacity, *request)?;
            Shape::Block { block: Block { capacity, size: block.size } }
        }
        (Shape::Capacity { capacity, block_size }, RequestedCapacity::Quantity { request }) => {
            Shape::Capacity { capacity: less(*capacity, *request)?, block_size: *block_size }
        }
        (Shape::AccessMode { access_mode }, RequestedCapacity::AccessMode { request }) => {
            let mut access_mode = access_mode.clone();
            let held = crate::problem::holders(&mut access_mode, *request);
            *held = held.saturating_add(1);
            Shape::AccessMode { access_mode }
        }
        (
            Shape::Counter { .. }
            | Shape::Quantity { .. }
            | Shape::Block { .. }
            | Shape::Capacity { .. }
            | Shape::AccessMode { .. },
            RequestedCapacity::Counter { .. }
            | RequestedCapacity::Quantity { .. }
            | RequestedCapacity::AccessMode { .. },
        ) => return Err(CapacityError::Mismatch),
    };
    if let (Shape::AccessMode { access_mode }, RequestedCapacity::AccessMode { request }) =
        (&capacity.shape, &taken.draw)
        && !allows_holder(access_mode, *request)
    {
        return Err(overdrawn(capacity, request.as_str(), "what other holders allow"));
    }
    Ok(ResourceCapacity { shape, ..capacity.clone() })
}

/// Returns what is left of a device's capacities.
///
/// # Errors
/// If one that was taken is not among them, or cannot be reduced.
pub fn reduce_device(
    capacities: &[ResourceCapacity],
    taken: &[CapacityResult],
) -> Result<Vec<ResourceCapacity>, CapacityError> {
    let mut left = capacities.to_vec();
    for result in taken {
        let key = result.key();
        match left.iter_mut().find(|capacity| capacity.key() == key) {
            Some(capacity) => *capacity = reduce(capacity, result)?,
            None => return Err(CapacityError::NotFound { key }),
        }
    }
    Ok(left)
}

/// Returns what is left of a pool after its best device served.
///
/// # Errors
/// If the result is of another pool or satisfies nothing, or the device cannot be reduced.
pub fn reduce_pool(pool: &NodePool, result: &PoolResult) -> Result<NodePool, CapacityError> {
    if pool.name != result.pool {
        let (pool, other) = (pool.name.clone(), result.pool.clone());
        return Err(CapacityError::OtherPool { pool, other });
    }
    let Some(best) = result.best else {
        return Err(CapacityError::Unsatisfied { pool: pool.name.clone() });
    };
    if pool.devices.len() != result.devices.len() || best >= pool.devices.len() {
        return Err(CapacityError::Length { pool: pool.name.clone() });
    }
    let mut left = pool.clone();
    let device = &mut left.devices[best];
    device.capacities = reduce_device(&device.capacities, &result.devices[best])?;
    Ok(left)
}

fn overdrawn(capacity: &ResourceCapacity, amount: &str, left: &str) -> CapacityError {
    CapacityError::Overdrawn {
        key: capacity.key(),
        amount: amount.to_owned(),
        left: left.to_owned(),
    }
}
