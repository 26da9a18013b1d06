//! What is kept is what would be made.

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
        Kind::of::<Seen<DevicePool>>(),
        Kind::of::<Seen<DeviceClass>>(),
        Kind::of::<Seen<DeviceDriver>>(),
    ];
    World::new(kinds)
}

fn show<V: View>(world: &World, object: Value) {
    let _ = world.shelf::<V>().set(serde_json::from_value(object).unwrap());
}

/// Something that happens to the objects a stock follows from.
#[derive(Clone, Debug)]
enum Event {
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
    /// A pool cannot be read any more.
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

fn event() -> impl Strategy<Value = Event> {
    let ledger = (0..POOLS, prop::collection::vec(0..=DEVICES, 0..4));
    prop_oneof![
        6 => ledger.prop_map(|(pool, devices)| Event::Ledger { pool, devices }),
        1 => (0..POOLS, 0..=DEVICES).prop_map(|(pool, count)| Event::Devices { pool, count }),
        1 => (0..POOLS).prop_map(|pool| Event::Broken { pool }),
        1 => (0..POOLS, 0..2_usize).prop_map(|(node, zone)| Event::Labels { node, zone }),
        1 => (0..POOLS).prop_map(|node| Event::NodeGone { node }),
        1 => (1..3_usize).prop_map(|count| Event::Class { count }),
    ]
}

/// A pool of the first so many devices; the last pool is the zone's.
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

/// Everything that a search sees.
fn seen(stock: &Stock) -> String {
    let Stock { snapshot, catalog, .. } = stock;
    let inventory = &snapshot.inventory;
    format!("{:?} {:?} {:?} {catalog:?}", inventory.pools(), inventory.nodes(), snapshot.lost)
}

proptest! {
    #[test]
    fn what_is_kept_is_what_would_be_made(events in prop::collection::vec(event(), 1..30)) {
        let world = world();
        let mut held = vec![Vec::new(); POOLS];
        let mut counts = [DEVICES; POOLS];
        for at in 0..POOLS {
            show::<Seen<DevicePool>>(&world, pool(at, DEVICES, &[]));
            show::<Node>(&world, node(at, 0));
        }
        let kept = Kept::default();
        for event in events {
            match event {
                Event::Ledger { pool: at, devices } => {
                    held[at] = devices;
                    show::<Seen<DevicePool>>(&world, pool(at, counts[at], &held[at]));
                }
                Event::Devices { pool: at, count } => {
                    counts[at] = count;
                    show::<Seen<DevicePool>>(&world, pool(at, counts[at], &held[at]));
                }
                Event::Broken { pool: at } => {
                    let mut object = pool(at, 1, &held[at]);
                    object["spec"]["devices"] = json!("none");
                    show::<Seen<DevicePool>>(&world, object);
                }
                Event::Labels { node: at, zone } => show::<Node>(&world, node(at, zone)),
                Event::NodeGone { node: at } => {
                    let _ = world.shelf::<Node>().unset(&Key::cluster(&format!("n{at}")));
                }
                Event::Class { count } => {
                    let spec = json!({"deviceType": "gpu", "maxDeviceCount": count});
                    let class = json!({"metadata": {"name": "gpu"}, "spec": spec});
                    show::<Seen<DeviceClass>>(&world, class);
                }
            }
            let objects = Objects::new(&world);
            let stock = kept.take(&objects);
            prop_assert_eq!(seen(&stock), seen(&Stock::new(&objects)));
            kept.bring_back(stock);
        }
    }
}
