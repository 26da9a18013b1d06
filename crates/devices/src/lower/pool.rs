//! What a pool publishes, as the search sees it.

use std::collections::BTreeMap;

use gantry_api::devices::{
    Attribute, Device as Published, DevicePool, PoolSpec, ResourceCapacity, Shape, Sharing,
};
use gantry_api::finding::{Findings, Source};
use gantry_api::quantity::Quantity;

use crate::problem::{
    Charge, Device, Entry, Grain, Place, Pooled, Symbol, Symbols, Value, ValueSymbol,
};

/// Why a pool cannot be used, if so: the first thing that is wrong with it.
pub(super) fn fault(pool: &DevicePool, source: Source) -> Option<String> {
    let mut findings = Findings::from(source);
    pool.validate(&mut findings);
    let wrong = findings.errors.first().map(|error| format!("{}: {}", error.path, error.text));
    wrong.or_else(|| charge_fault(&pool.spec)).or_else(|| access_fault(&pool.spec))
}

/// Devices that take what the pool does not have.
fn charge_fault(pool: &PoolSpec) -> Option<String> {
    pool.devices.iter().find_map(|device| {
        device.requests.keys().find_map(|name| {
            let mut listed = pool.resources.iter().filter(|resource| resource.name == *name);
            let device = &device.name;
            match (listed.next().map(|resource| &resource.shape), listed.next()) {
                (None, _) => Some(format!(
                    "device \"{device}\" takes \"{name}\", which the pool does not list"
                )),
                (Some(Shape::AccessMode { .. }), _) => {
                    Some(format!("device \"{device}\" takes \"{name}\", which is no amount"))
                }
                (Some(_), Some(_)) => Some(format!(
                    "device \"{device}\" takes \"{name}\", which the pool lists twice"
                )),
                (Some(_), None) => None,
            }
        })
    })
}

/// Devices of which nobody knows who may hold them.
fn access_fault(pool: &PoolSpec) -> Option<String> {
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

/// The amount of a capacity in 10⁻⁹ units and how it is handed out; nothing for access.
fn amount(shape: &Shape) -> Option<(i128, Grain)> {
    match shape {
        Shape::Capacity { capacity, block_size } => {
            let size = block_size.map_or(Grain::UNIT, Quantity::nanos);
            Some((capacity.nanos(), Grain::Block(size)))
        }
        Shape::Counter { counter } => {
            Some((i128::from(counter.capacity) * Grain::UNIT, Grain::Counter))
        }
        Shape::Quantity { quantity } => Some((quantity.capacity.nanos(), Grain::Any)),
        Shape::Block { block } => Some((block.capacity.nanos(), Grain::Block(block.size.nanos()))),
        Shape::AccessMode { .. } => None,
    }
}

/// What the devices of a pool share.
pub(super) fn pooled(pool: &PoolSpec, symbols: &mut Symbols) -> Vec<Pooled> {
    let amounts = pool.resources.iter().filter_map(|resource| {
        let (capacity, _) = amount(&resource.shape)?;
        Some(Pooled { name: symbols.intern(&resource.name), capacity, used: 0 })
    });
    amounts.collect()
}

/// A device without holds.
pub(super) fn device(pool: &PoolSpec, published: &Published, symbols: &mut Symbols) -> Device {
    let entries: Vec<Entry> =
        published.resources.iter().filter_map(|resource| entry(resource, symbols)).collect();
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
        entries,
        sharing,
        taints: published.taints.clone(),
        ..Device::default()
    }
}

fn entry(resource: &ResourceCapacity, symbols: &mut Symbols) -> Option<Entry> {
    let (capacity, grain) = amount(&resource.shape)?;
    let places = resource.topologies.iter().map(|topology| Place {
        kind: symbols.intern(&topology.r#type),
        name: symbols.intern(&topology.name),
    });
    let places = places.collect();
    let name = symbols.intern(&resource.name);
    let splits = resource.topologies.iter().all(|topology| topology.group_in_device);
    Some(Entry { name, grain, capacity, used: 0, places, splits })
}

/// What a device takes of the pool. A pool where that does not add up is not used at all.
fn charges(pool: &PoolSpec, published: &Published) -> Vec<Charge> {
    let amounts = pool.resources.iter().filter_map(|r| Some((&r.name, amount(&r.shape)?)));
    let taken = amounts.enumerate().filter_map(|(resource, (name, (_, grain)))| {
        let asked = published.requests.get(name)?.nanos();
        let size = grain.size();
        Some(Charge { resource, amount: (asked + size - 1) / size * size })
    });
    taken.filter(|charge| charge.amount > 0).collect()
}

/// The attributes of a device over those of its pool, sorted by name.
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
