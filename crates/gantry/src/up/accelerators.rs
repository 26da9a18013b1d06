//! Devices for the samples: a driver without hardware for the accelerators of simulated nodes.

use anyhow::Context as _;
use gantry_api::decode::Decoded;
use gantry_api::devices::{Attribute, AttributeValue, Device, DevicePool, PoolSpec};
use gantry_api::meta::ObjectMeta;
use gantry_api::object::Object;
use gantry_apiserver::Api;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::Tasks;
use gantry_sim::device_driver::driver_config;
use gantry_sim::view::Node;

use super::{Cluster, accounts};
use crate::sample_driver;
use crate::version::VERSION;

/// The driver of the accelerators of simulated nodes.
pub const DRIVER: &str = "gpu.gantry.dev";

/// The resource name of the accelerators on nodes.
const RESOURCE: &str = "nvidia.com/gpu";

impl Cluster {
    /// Starts a driver that publishes the accelerators of all nodes. Returns the number of devices.
    ///
    /// # Errors
    /// A mistake in the wiring.
    pub fn publish_devices(&self, api: &Api, tasks: &mut Tasks) -> anyhow::Result<usize> {
        let nodes = self.handle.world().store::<Node>().list();
        let pools: Vec<DevicePool> = nodes.iter().filter_map(|node| pool(node)).collect();
        let count = pools.iter().map(|pool| pool.spec.devices.len()).sum();
        if pools.is_empty() {
            return Ok(0);
        }
        let documents = pools.into_iter().map(|pool| {
            let object = Decoded::Object(Object::DevicePool(Box::new(pool)));
            ("DevicePool".to_owned(), object)
        });
        let config =
            driver_config(documents, Some(DRIVER)).context("could not publish accelerators")?;
        // A registry of its own: the metrics of a controller manager exist already in that of the
        // process.
        let metrics =
            Metrics::new(&BuildInfo { version: VERSION.version, revision: VERSION.commit });
        let client = accounts::sample_driver(api).kube_client();
        sample_driver::start(client, "gantry-up", &config, tasks, &metrics)?;
        Ok(count)
    }
}

/// Returns the accelerators of a node: four for each half of it.
fn pool(node: &Node) -> Option<DevicePool> {
    let count = node.status.capacity.get(RESOURCE)?.to_int()?;
    let name = &node.metadata.name;
    let model = node.metadata.labels.get(&format!("{RESOURCE}.product"));
    let text = |name: &str, value: &str| Attribute {
        name: name.to_owned(),
        value: AttributeValue::String(value.to_owned()),
    };
    let devices = (0..count).map(|at| Device {
        name: format!("gpu-{at}"),
        attributes: vec![text("numa", &(at / 4).to_string())],
        ..Device::default()
    });
    let spec = PoolSpec {
        node_name: Some(name.clone()),
        driver: DRIVER.to_owned(),
        device_type: Some("gpu".to_owned()),
        attributes: model.iter().map(|model| text("model", model)).collect(),
        devices: devices.collect(),
        ..PoolSpec::default()
    };
    let metadata = ObjectMeta { name: Some(format!("{name}-gpus")), ..ObjectMeta::default() };
    Some(DevicePool { metadata, spec, ..DevicePool::default() })
}
