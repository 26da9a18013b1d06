//! Writes the statuses of classes and drivers.

use gantry_api::devices::{ClassSpec, DeviceClass, DeviceDriver, DevicePool};
use gantry_devices::constraint::Constraints;
use gantry_reconcile::{Change, Controller, Key, Kind, Plan, Subresource, View, World, Write};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};

use crate::condition::{self, ConditionUpdate};
use crate::scheduler::cycle_state::catalog;
use crate::views::{DeviceKind, DeviceObject};

/// Writes whether a driver serves a class, which drivers do, and whether its constraints can be
/// parsed.
#[derive(Debug, Default)]
pub struct ClassStatusController {
    constraints: Constraints,
}

/// Writes whether a driver has published any devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriverStatusController;

type ClassObject = DeviceObject<DeviceClass>;
type DriverObject = DeviceObject<DeviceDriver>;
type PoolObject = DeviceObject<DevicePool>;

impl Controller for ClassStatusController {
    fn name(&self) -> &'static str {
        "device-classes"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ClassObject>(), Kind::of::<DriverObject>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        match change.is::<ClassObject>() {
            true => vec![change.key.clone()],
            false => {
                world.store::<ClassObject>().list().iter().map(|it| it.metadata.key()).collect()
            }
        }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(class) = world.store::<ClassObject>().get(key) else { return plan };
        let mut more = Map::new();
        let mut says = match &class.object {
            Err(why) => vec![ConditionUpdate::new_false("Ready", "Invalid", why.clone())],
            Ok(object) => {
                let catalog = catalog(world);
                let drivers = catalog.drivers_of(&object.spec);
                if drivers != class.status.drivers {
                    more.insert("drivers".to_owned(), json!(drivers));
                }
                vec![ready_condition(&object.spec, &drivers), self.valid_condition(&object.spec)]
            }
        };
        says.extend(condition::spec_normalized(&class.warnings, &class.status.conditions));
        plan.steps.extend(
            status_write(&class, &class.status.conditions, says, more, now)
                .map(gantry_reconcile::Step::new),
        );
        plan
    }
}

fn ready_condition(spec: &ClassSpec, drivers: &[&str]) -> ConditionUpdate {
    if !drivers.is_empty() {
        return ConditionUpdate::new_true("Ready", "Served");
    }
    let message = match &spec.driver {
        Some(driver) => {
            format!("driver {driver} is not registered for type {}", spec.device_type)
        }
        None => format!("no driver is registered for type {}", spec.device_type),
    };
    ConditionUpdate::new_false("Ready", "NoDriver", message)
}

impl ClassStatusController {
    fn valid_condition(&self, spec: &ClassSpec) -> ConditionUpdate {
        let constraint = self.constraints.get(spec.constraints.as_deref());
        match constraint.as_ref().and_then(|it| it.compile_error()) {
            Some(why) => {
                ConditionUpdate::new_false("ConstraintsValid", "DoesNotCompile", why.to_owned())
            }
            None => ConditionUpdate::new_true("ConstraintsValid", "Compiles"),
        }
    }
}

impl Controller for DriverStatusController {
    fn name(&self) -> &'static str {
        "device-drivers"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<DriverObject>(), Kind::of::<PoolObject>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        if change.is::<DriverObject>() {
            return vec![change.key.clone()];
        }
        let driver =
            |it: &PoolObject| it.object.as_ref().ok().map(|it| Key::cluster(&it.spec.driver));
        let (before, after) = (change.before().and_then(driver), change.after().and_then(driver));
        // No other change of a pool matters here.
        if before == after { Vec::new() } else { before.into_iter().chain(after).collect() }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(driver) = world.store::<DriverObject>().get(key) else { return plan };
        let names =
            |it: &PoolObject| it.object.as_ref().is_ok_and(|it| it.spec.driver == key.name());
        let says = match &driver.object {
            Err(why) => ConditionUpdate::new_false("Ready", "Invalid", why.clone()),
            Ok(_) if world.store::<PoolObject>().list().iter().any(|it| names(it)) => {
                ConditionUpdate::new_true("Ready", "Published")
            }
            Ok(_) => ConditionUpdate::new_false(
                "Ready",
                "NoPools",
                "no pool names the driver".to_owned(),
            ),
        };
        let conditions = &driver.status.conditions;
        let normalized = condition::spec_normalized(&driver.warnings, conditions);
        let says = [says].into_iter().chain(normalized).collect();
        let write = status_write(&driver, conditions, says, Map::new(), now);
        plan.steps.extend(write.map(gantry_reconcile::Step::new));
        plan
    }
}

/// Writes the conditions of an object that have changed.
fn status_write<T: DeviceKind>(
    seen: &DeviceObject<T>,
    before: &[Condition],
    mut says: Vec<ConditionUpdate>,
    mut status: Map<String, Value>,
    now: Timestamp,
) -> Option<Write> {
    says.retain(|it| !it.is_current(before));
    if !says.is_empty() {
        let conditions = condition::merge(before, &says, seen.metadata.generation, now);
        status.insert("conditions".to_owned(), condition::to_json(&conditions));
    }
    (!status.is_empty()).then(|| Write::Merge {
        resource: <DeviceObject<T> as View>::RESOURCE,
        key: seen.metadata.key(),
        subresource: Subresource::Status,
        fence: seen.metadata.fence(),
        body: json!({"status": Value::Object(status)}),
    })
}
