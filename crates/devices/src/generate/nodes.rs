//! Nodes in the form of the oldest files.

use gantry_api::devices::{
    Attribute, AttributeValue, Block, Counter, NodeDevice, NodeDevices, NodePool, QuantityCapacity,
    ResourceCapacity, Shape, Topology,
};
use gantry_api::quantity::Quantity;

use super::{Extent, text, version};

/// The shapes, by name.
pub(super) const SHAPES: [&str; 4] = ["0", "1", "2", "3"];

/// Returns the nodes of a shape; `None` if there is no such shape.
pub(super) fn shape(name: &str, extent: Extent) -> Option<Vec<NodeDevices>> {
    let count = extent.nodes.unwrap_or(1);
    let nets = extent.nets.unwrap_or(1).max(1);
    let node: fn(u32, u32) -> NodeDevices = match name {
        "0" => |at, _| node("zero", at, vec![primary(8, 64)]),
        "1" => |at, _| {
            let net = format!("foonet-one-{at:03}");
            let small = cards(SMALL, 0..4, "7.8.1-gen6", &net);
            node("one", at, vec![primary(4, 32), small])
        },
        "2" => |at, nets| {
            let net = format!("foonet-two-{:02}", at % nets);
            let large = cards(LARGE, 0..8, "7.8.2-gen8", &net);
            node("two", at, vec![primary(4, 32), large])
        },
        "3" => |at, nets| {
            let net = format!("foonet-three-{:02}", at % nets);
            let small = cards(SMALL, 0..4, "7.8.2-gen8", &net);
            let large = cards(LARGE, 4..8, "7.8.2-gen8", &net);
            node("three", at, vec![primary(4, 32), small, large])
        },
        _ => return None,
    };
    Some((0..count).map(|at| node(at, nets)).collect())
}

fn node(word: &str, at: u32, pools: Vec<NodePool>) -> NodeDevices {
    NodeDevices { name: format!("shape-{word}-{at:03}"), pools }
}

/// Returns what every node has: a pod limit, and in each of two halves so many cores and so much
/// memory.
fn primary(cores: u32, gigabytes: u32) -> NodePool {
    let mut capacities = vec![counter("pods", 100, vec![]), counter("containers", 1000, vec![])];
    for (name, capacity, size) in
        [("cpu", cores.to_string(), "10m"), ("memory", format!("{gigabytes}Gi"), "1Mi")]
    {
        let half = |half: u32| block(name, &capacity, size, vec![place("numa", half)]);
        capacities.extend([half(0), half(1)]);
    }
    NodePool {
        name: "primary".to_owned(),
        driver: "kubelet".to_owned(),
        attributes: vec![
            text("os", "linux"),
            version("kernel-release", "5.15.0-1046-gcp"),
            text("hardware-platform", "x86_64"),
        ],
        devices: vec![NodeDevice {
            name: "primary".to_owned(),
            attributes: Vec::new(),
            capacities,
        }],
    }
}

/// A model of card.
struct Card {
    model: &'static str,
    firmware: &'static str,
    speed: &'static str,
    cores: &'static str,
    memory: &'static str,
    interfaces: i64,
}

const SMALL: &Card = &Card {
    model: "foozer-1000",
    firmware: "1.3.8",
    speed: "10G",
    cores: "8",
    memory: "64Gi",
    interfaces: 16,
};

const LARGE: &Card = &Card {
    model: "foozer-4000",
    firmware: "1.8.8",
    speed: "40G",
    cores: "16",
    memory: "256Gi",
    interfaces: 64,
};

fn cards(card: &Card, indices: std::ops::Range<u32>, driver: &str, net: &str) -> NodePool {
    let device = |at: u32| {
        let slot = || vec![place("numa", at / 2), place("pci", at % 2)];
        let mut wired = slot();
        wired.push(topology("foo-net", net.to_owned()));
        NodeDevice {
            name: format!("dev-foo-{at}"),
            attributes: vec![
                text("model", card.model),
                version("firmware-version", card.firmware),
                Attribute {
                    name: "net-speed".to_owned(),
                    value: AttributeValue::Quantity(amount(card.speed)),
                },
            ],
            capacities: vec![
                capacity(
                    "cores",
                    Shape::Quantity { quantity: QuantityCapacity { capacity: amount(card.cores) } },
                    slot(),
                ),
                block("memory", card.memory, "256Mi", slot()),
                counter("interfaces", card.interfaces, wired),
            ],
        }
    };
    NodePool {
        name: format!("{}-01", card.model),
        driver: "example.com/foozer".to_owned(),
        attributes: vec![version("driver-version", driver)],
        devices: indices.map(device).collect(),
    }
}

fn counter(name: &str, count: i64, topologies: Vec<Topology>) -> ResourceCapacity {
    capacity(name, Shape::Counter { counter: Counter { capacity: count } }, topologies)
}

fn block(name: &str, most: &str, size: &str, topologies: Vec<Topology>) -> ResourceCapacity {
    let block = Block { capacity: amount(most), size: amount(size) };
    capacity(name, Shape::Block { block }, topologies)
}

fn capacity(name: &str, shape: Shape, topologies: Vec<Topology>) -> ResourceCapacity {
    ResourceCapacity { name: name.to_owned(), shape, topologies }
}

fn place(kind: &str, at: u32) -> Topology {
    topology(kind, format!("{kind}-{at}"))
}

fn topology(kind: &str, name: String) -> Topology {
    Topology { r#type: kind.to_owned(), name, group_in_device: true }
}

fn amount(text: &str) -> Quantity {
    Quantity::parse(text).expect("only called with quantities that are written here")
}
