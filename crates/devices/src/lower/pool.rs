//! Converts what a pool publishes to the form of the search.

use std::collections::BTreeMap;

use gantry_api::devices::{
    Attribute, Device as Published, DevicePool, PoolSpec, ResourceCapacity, Shape, Sharing,
};
use gantry_api::finding::{Findings, Source};
use gantry_api::quantity::Quantity;

use crate::problem::{
    Charge, Device, DeviceCapacity, Granularity, PoolResource, Symbol, Symbols, TopologyDomain,
    Value, ValueSymbol,
};

/// Returns why a pool cannot be used, if so: the first problem.
pub(super) fn invalid_reason(pool: &DevicePool, source: Source) -> Option<String> {
    let mut findings = Findings::from(source);
    pool.validate(&mut findings);
    let wrong = findings.errors.first().map(|error| format!("{}: {}", error.path, error.text));
    wrong.or_else(|| charge_problem(&pool.spec)).or_else(|| access_problem(&pool.spec))
}

/// Reports devices that charge resources which the pool does not have.
fn charge_problem(pool: &PoolSpec) -> Option<String> {
    pool.devices.iter().find_map(|device| {
        device.requests.keys().find_map(|name| {
            let mut listed = pool.resources.iter().filter(|resource| resource.name == *name);
            let device = &device.name;
            match (listed.next().map(|resource| &resource.shape), listed.next()) {
                (None, _) => Some(format!(
                    "device \"{device}\" uses \"{name}\", which the pool does not list"
                )),
                (Some(Shape::AccessMode { .. }), _) => {
                    Some(format!("device \"{device}\" uses \"{name}\", which is not an amount"))
                }
                (Some(_), Some(_)) => {
                    Some(format!("device \"{device}\" uses \"{name}\", which the pool lists twice"))
                }
                (Some(_), None) => None,
            }
        })
    })
}

/// Reports devices without a valid access mode.
fn access_problem(pool: &PoolSpec) -> Option<String> {
    let twice = pool.devices.iter().find(|device| access(&device.resources).nth(1).is_some())?;
    Some(format!("device \"{}\" has two capacities of kind accessMode", twice.name))
}

fn access(resources: &[ResourceCapacity]) -> impl Iterator<Item = (&str, &Sharing)> {
    resources.iter().filter_map(|resource| match &resource.shape {
        Shape::AccessMode { access_mode } => Some((resource.name.as_str(), access_mode)),
        Shape::Capacity { .. }
        | Shape::Counter { .. }
        | Shape::Quantity { .. }
        | Shape::Block { .. } => None,
    })
}

/// Returns the amount of a capacity in 10⁻⁹ units and its granularity; `None` for access.
fn amount(shape: &Shape) -> Option<(i128, Granularity)> {
    match shape {
        Shape::Capacity { capacity, block_size } => {
            let size = block_size.map_or(Granularity::UNIT, Quantity::nanos);
            Some((capacity.nanos(), Granularity::Block(size)))
        }
        Shape::Counter { counter } => {
            Some((i128::from(counter.capacity) * Granularity::UNIT, Granularity::Counter))
        }
        Shape::Quantity { quantity } => Some((quantity.capacity.nanos(), Granularity::Any)),
        Shape::Block { block } => {
            Some((block.capacity.nanos(), Granularity::Block(block.size.nanos())))
        }
        Shape::AccessMode { .. } => None,
    }
}

/// Returns the resources that the devices of a pool share.
pub(super) fn pool_resources(pool: &PoolSpec, symbols: &mut Symbols) -> Vec<PoolResource> {
    let amounts = pool.resources.iter().filter_map(|resource| {
        let (capacity, _) = amount(&resource.shape)?;
        Some(PoolResource { name: symbols.intern(&resource.name), capacity, used: 0 })
    });
    amounts.collect()
}

/// Returns a device without holds.
pub(super) fn device(pool: &PoolSpec, published: &Published, symbols: &mut Symbols) -> Device {
    let entries: Vec<DeviceCapacity> = published
        .resources
        .iter()
        .filter_map(|resource| device_capacity(resource, symbols))
        .collect();
    let access = access(&published.resources).next();
    let sharing = match access {
        Some((_, sharing)) => sharing.clone(),
        None => Device::unlisted_sharing(&entries),
    };
    Device {
        name: published.name.clone(),
        attributes: attributes(&pool.attributes, &published.attributes, symbols),
        charges: charges(pool, published),
        access: access.map(|(name, _)| symbols.intern(name)),
        capacities: entries,
        sharing,
        taints: published.taints.clone(),
        ..Device::default()
    }
}

fn device_capacity(resource: &ResourceCapacity, symbols: &mut Symbols) -> Option<DeviceCapacity> {
    let (capacity, grain) = amount(&resource.shape)?;
    let places = resource.topologies.iter().map(|topology| TopologyDomain {
        kind: symbols.intern(&topology.r#type),
        name: symbols.intern(&topology.name),
    });
    let places = places.collect();
    let name = symbols.intern(&resource.name);
    let splits = resource.topologies.iter().all(|topology| topology.group_in_device);
    Some(DeviceCapacity { name, granularity: grain, capacity, used: 0, domains: places, splits })
}

/// Returns what a device charges to the pool. A pool with inconsistent charges is not used at all.
fn charges(pool: &PoolSpec, published: &Published) -> Vec<Charge> {
    let amounts = pool.resources.iter().filter_map(|r| Some((&r.name, amount(&r.shape)?)));
    let taken = amounts.enumerate().filter_map(|(resource, (name, (_, grain)))| {
        let asked = published.requests.get(name)?.nanos();
        let size = grain.size();
        Some(Charge { resource, amount: (asked + size - 1) / size * size })
    });
    taken.filter(|charge| charge.amount > 0).collect()
}

/// Returns the attributes of a device over those of its pool, sorted by name.
pub(super) fn attributes(
    pool: &[Attribute],
    device: &[Attribute],
    symbols: &mut Symbols,
) -> Vec<(Symbol, ValueSymbol)> {
    let all = pool.iter().chain(device);
    let merged: BTreeMap<Symbol, ValueSymbol> = all
        .map(|attribute| {
            let value = symbols.intern_value(&Value::from(&attribute.value));
            (symbols.intern(&attribute.name), value)
        })
        .collect();
    merged.into_iter().collect()
}
