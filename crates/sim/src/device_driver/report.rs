//! Reports every allocated device of a claim as ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, Fence, Key, Kind, Plan, Subresource, View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::view::{Allocation, DeviceClaim, DevicePool};

/// Writes the statuses of the devices of one driver.
#[derive(Clone, Debug)]
pub struct DeviceStatusReporter {
    /// The name of the driver.
    pub driver: String,
}

impl Controller for DeviceStatusReporter {
    fn name(&self) -> &'static str {
        "device-reporter"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<DeviceClaim>(), Kind::of::<DevicePool>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<DeviceClaim>() {
            return vec![change.key.clone()];
        }
        let tag = DeviceClaim::of_pool(change.key.name());
        world.store::<DeviceClaim>().by_index(&tag).iter().map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(claim) = world.store::<DeviceClaim>().get(key) else { return plan };
        if claim.metadata.is_terminating() && claim.status.allocations.is_empty() {
            return plan;
        }
        let pools = world.store::<DevicePool>();
        let pool = |name: &str| -> Option<Arc<DevicePool>> { pools.get(&Key::cluster(name)) };
        let is_own = |name: &str| pool(name).is_some_and(|it| it.driver() == self.driver);
        let recorded: BTreeMap<(String, String), &Value> = claim
            .status
            .device_statuses
            .iter()
            .map(|status| ((text(status, "devicePoolName"), text(status, "deviceName")), status))
            .filter(|((pool, _), _)| is_own(pool))
            .collect();
        let held: BTreeMap<(String, String), &Allocation> = claim
            .status
            .allocations
            .iter()
            .filter(|it| is_own(&it.device_pool_name))
            .filter_map(|it| Some(((it.device_pool_name.clone(), it.device_name.clone()?), it)))
            .collect();
        let statuses: Vec<Value> = held
            .iter()
            .map(|(at, it)| device_status(at, it, recorded.get(at).copied(), now))
            .collect();
        if statuses.iter().collect::<Vec<_>>() != recorded.into_values().collect::<Vec<_>>() {
            plan.write(Write::Apply {
                resource: DeviceClaim::RESOURCE,
                key: key.clone(),
                subresource: Subresource::Status,
                fence: Some(Fence { uid: claim.metadata.uid.clone(), revision: None }),
                body: json!({"status": {"deviceStatuses": statuses}}),
            });
        }
        plan
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

/// Returns the status of a device. An unchanged condition keeps its transition time.
fn device_status(
    (pool, device): &(String, String),
    held: &Allocation,
    recorded: Option<&Value>,
    now: Timestamp,
) -> Value {
    let before = recorded.map(|recorded| &recorded["conditions"][0]);
    let before = before.filter(|it| it["type"] == "Ready" && it["status"] == "True");
    let since = before.and_then(|it| it["lastTransitionTime"].as_str()).map(ToOwned::to_owned);
    let since = since.unwrap_or_else(|| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let mut status = json!({
        "devicePoolName": pool,
        "deviceName": device,
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "Prepared",
            "message": "the device is prepared for its claim",
            "lastTransitionTime": since,
        }],
    });
    if !held.allocations.is_empty() {
        status["allocations"] = json!(held.allocations);
    }
    status
}
