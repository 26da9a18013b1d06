//! The cached inventory equals a rebuilt one.

use gantry_pods::view::Node;
use gantry_reconcile::{Key, Kind, View};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const POOLS: usize = 4;
const DEVICES: usize = 3;

fn world() -> World {
    let kinds = [
        Kind::of::<Node>(),
        Kind::of::<DeviceObject<DevicePool>>(),
        Kind::of::<DeviceObject<DeviceClass>>(),
        Kind::of::<DeviceObject<DeviceDriver>>(),
    ];
    World::new(kinds)
}

fn observe<V: View>(world: &World, object: Value) {
    let _ = world.store::<V>().set(serde_json::from_value(object).unwrap());
}

/// A change of the objects that an inventory is built from.
#[derive(Clone, Debug)]
enum ObjectChange {
    /// A ledger names these devices. One of them is not published.
    Ledger {
        pool: usize,
        devices: Vec<usize>,
    },
    /// A driver publishes so many devices.
    Devices {
        pool: usize,
        count: usize,
    },
    /// A pool cannot be parsed any more.
    Broken {
        pool: usize,
    },
    Labels {
        node: usize,
        zone: usize,
    },
    NodeGone {
        node: usize,
    },
    Class {
        count: usize,
    },
}

fn any_object_change() -> impl Strategy<Value = ObjectChange> {
    let ledger = (0..POOLS, prop::collection::vec(0..=DEVICES, 0..4));
    prop_oneof![
        6 => ledger.prop_map(|(pool, devices)| ObjectChange::Ledger { pool, devices }),
        1 => (0..POOLS, 0..=DEVICES).prop_map(|(pool, count)| ObjectChange::Devices { pool, count }),
        1 => (0..POOLS).prop_map(|pool| ObjectChange::Broken { pool }),
        1 => (0..POOLS, 0..2_usize).prop_map(|(node, zone)| ObjectChange::Labels { node, zone }),
        1 => (0..POOLS).prop_map(|node| ObjectChange::NodeGone { node }),
        1 => (1..3_usize).prop_map(|count| ObjectChange::Class { count }),
    ]
}

/// Returns a pool of the first so many devices; the last pool is the zone's.
fn pool(at: usize, count: usize, held: &[usize]) -> Value {
    let devices: Vec<Value> = (0..count)
        .map(|at| json!({"name": format!("d{at}"), "resources": [{"name": "memory", "quantity": {"value": "8"}}]}))
        .collect();
    let entry = |device: &usize| {
        json!({
            "claimRef": {"namespace": "default", "name": "c", "uid": format!("{at}/{device}")},
            "term": "main", "deviceName": format!("d{device}"), "accessMode": "ReadWriteExclusive",
            "allocations": [], "state": "Reserved", "since": "2026-01-01T00:00:00Z",
        })
    };
    let mut pool = json!({
        "metadata": {"name": format!("p{at}")},
        "spec": {"driver": "gpu.example.com", "deviceType": "gpu", "devices": devices},
        "status": {"allocations": held.iter().map(entry).collect::<Vec<_>>()},
    });
    match at + 1 == POOLS {
        true => {
            let zone = json!({"key": "zone", "operator": "In", "values": ["z1"]});
            pool["spec"]["nodeSelector"] =
                json!({"nodeSelectorTerms": [{"matchExpressions": [zone]}]});
        }
        false => pool["spec"]["nodeName"] = json!(format!("n{at}")),
    }
    pool
}

fn node(at: usize, zone: usize) -> Value {
    json!({"metadata": {"name": format!("n{at}"), "labels": {"zone": format!("z{zone}")}}})
}

/// Returns everything that a search reads.
fn search_view(stock: &SchedulingInventory) -> String {
    let SchedulingInventory { snapshot, catalog, .. } = stock;
    let inventory = &snapshot.inventory;
    format!("{:?} {:?} {:?} {catalog:?}", inventory.pools(), inventory.nodes(), snapshot.lost_holds)
}

proptest! {
    #[test]
    fn cached_inventory_equals_rebuilt_inventory(events in prop::collection::vec(any_object_change(), 1..30)) {
        let world = world();
        let mut held = vec![Vec::new(); POOLS];
        let mut counts = [DEVICES; POOLS];
        for at in 0..POOLS {
            observe::<DeviceObject<DevicePool>>(&world, pool(at, DEVICES, &[]));
            observe::<Node>(&world, node(at, 0));
        }
        let kept = InventoryCache::default();
        for event in events {
            match event {
                ObjectChange::Ledger { pool: at, devices } => {
                    held[at] = devices;
                    observe::<DeviceObject<DevicePool>>(&world, pool(at, counts[at], &held[at]));
                }
                ObjectChange::Devices { pool: at, count } => {
                    counts[at] = count;
                    observe::<DeviceObject<DevicePool>>(&world, pool(at, counts[at], &held[at]));
                }
                ObjectChange::Broken { pool: at } => {
                    let mut object = pool(at, 1, &held[at]);
                    object["spec"]["devices"] = json!("none");
                    observe::<DeviceObject<DevicePool>>(&world, object);
                }
                ObjectChange::Labels { node: at, zone } => observe::<Node>(&world, node(at, zone)),
                ObjectChange::NodeGone { node: at } => {
                    let _ = world.store::<Node>().unset(&Key::cluster(&format!("n{at}")));
                }
                ObjectChange::Class { count } => {
                    let spec = json!({"deviceType": "gpu", "maxDeviceCount": count});
                    let class = json!({"metadata": {"name": "gpu"}, "spec": spec});
                    observe::<DeviceObject<DeviceClass>>(&world, class);
                }
            }
            let objects = SourceObjects::new(&world);
            let stock = kept.take(&objects);
            prop_assert_eq!(search_view(&stock), search_view(&SchedulingInventory::new(&objects)));
            kept.store(stock);
        }
    }
}
