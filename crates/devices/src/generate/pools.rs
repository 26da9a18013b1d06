//! Pools: those that count their devices, and those that list them.

use gantry_api::devices::{Attribute, Device, DevicePool, PoolSpec};
use gantry_api::meta::ObjectMeta;

use super::{Extent, text, version};

/// The shapes whose pools only count their devices, by name.
pub(super) const COUNTED: [&str; 5] = ["zero", "one", "two", "three", "foozer-barzer"];

/// The properties of pools of one model.
struct Model {
    /// The suffix of the names of pools after that of the node.
    base: &'static str,
    driver: &'static str,
    model: &'static str,
    firmware: &'static str,
    driver_version: &'static str,
    count: u32,
}

/// The firmware of foozers.
const FIRMWARE: &str = "1.8.2";

const fn foozers(model: &'static str, driver_version: &'static str, count: u32) -> Model {
    Model {
        base: "foozer",
        driver: "example.com-foozer",
        model,
        firmware: FIRMWARE,
        driver_version,
        count,
    }
}

const fn barzers(count: u32) -> Model {
    Model {
        base: "barzer",
        driver: "example.com-barzer",
        model: "barzer-1000",
        firmware: "1.1.1",
        driver_version: "1.1.1",
        count,
    }
}

/// Returns the pools of a shape, one of each model for each half of a node; `None` if there is no
/// such shape.
pub(super) fn counted(name: &str, extent: Extent) -> Option<Vec<DevicePool>> {
    let (numas, models): (u32, &[Model]) = match name {
        "zero" => (1, &[foozers("foozer-1000", "4.2.1-gen3", 2)]),
        "one" => (2, &[foozers("foozer-1000", "4.2.1-gen3", 2)]),
        "two" => (4, &[foozers("foozer-4000", "4.2.1-gen7", 4)]),
        "three" => (4, &[barzers(4)]),
        "foozer-barzer" => (4, &[foozers("foozer-1000", "4.2.1-gen3", 2), barzers(2)]),
        _ => return None,
    };
    let mut pools = Vec::new();
    for node in 0..extent.nodes.unwrap_or(2) {
        let node = format!("shape-{name}-{node:02}");
        for model in models {
            for numa in 0..numas {
                let mut attributes = common(model.model, model.firmware, model.driver_version);
                attributes.push(text("numa", &numa.to_string()));
                let spec = PoolSpec {
                    node_name: Some(node.clone()),
                    driver: model.driver.to_owned(),
                    attributes,
                    device_count: Some(model.count),
                    ..PoolSpec::default()
                };
                pools.push(pool(format!("{node}-{}-{numa:02}", model.base), spec));
            }
        }
    }
    Some(pools)
}

const MODELS: [&str; 2] = ["foozer-1000", "foozer-4000"];

/// Sizes: how many halves a node has, and how many devices each of them.
const SIZES: [(&str, u32, u32); 4] =
    [("tiny", 1, 2), ("small", 1, 4), ("medium", 2, 4), ("large", 4, 4)];

/// Returns the shapes whose pools list their devices, by name.
pub(super) fn listed_shapes() -> impl Iterator<Item = String> {
    MODELS
        .into_iter()
        .flat_map(|model| SIZES.into_iter().map(move |(size, ..)| format!("{model}-{size}")))
}

/// Returns the pools of a shape, one for each node; `None` if there is no such shape.
pub(super) fn listed(name: &str, extent: Extent) -> Option<Vec<DevicePool>> {
    let (model, size) = name.rsplit_once('-').filter(|(model, _)| MODELS.contains(model))?;
    let (_, numas, each) = SIZES.into_iter().find(|(known, ..)| *known == size)?;
    let nodes = (0..extent.nodes.unwrap_or(2)).map(|node| {
        let node = format!("{name}-{node:02}");
        let devices = (0..numas * each).map(|at| Device {
            name: format!("dev-{at:02}"),
            attributes: vec![text("numa", &(at / each).to_string())],
            ..Device::default()
        });
        let spec = PoolSpec {
            node_name: Some(node.clone()),
            driver: "example.com-foozer".to_owned(),
            attributes: common(model, FIRMWARE, "4.2.1-gen3"),
            devices: devices.collect(),
            ..PoolSpec::default()
        };
        pool(format!("{node}-pool-foozer"), spec)
    });
    Some(nodes.collect())
}

fn common(model: &str, firmware: &str, driver: &str) -> Vec<Attribute> {
    vec![
        text("vendor", "example.com"),
        text("model", model),
        version("firmwareVersion", firmware),
        version("driverVersion", driver),
    ]
}

fn pool(name: String, spec: PoolSpec) -> DevicePool {
    let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
    DevicePool { metadata, spec, ..DevicePool::default() }
}
