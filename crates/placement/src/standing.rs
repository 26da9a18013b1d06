//! What classes and drivers are worth at present.

use gantry_api::devices::{ClassSpec, DeviceClass, DeviceDriver, DevicePool};
use gantry_devices::constraint::Constraints;
use gantry_reconcile::{Change, Controller, Key, Kind, Part, Plan, View, World, Write};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};

use crate::condition::{self, Says};
use crate::scheduler::scene::catalog;
use crate::seen::{Published, Seen};

/// Says whether a driver serves a class, which ones do, and whether its constraints can be read.
#[derive(Debug, Default)]
pub struct ClassStanding {
    constraints: Constraints,
}

/// Says whether a driver has published anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriverStanding;

type Classes = Seen<DeviceClass>;
type Drivers = Seen<DeviceDriver>;
type Pools = Seen<DevicePool>;

impl Controller for ClassStanding {
    fn name(&self) -> &'static str {
        "device-classes"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Classes>(), Kind::of::<Drivers>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        match change.is::<Classes>() {
            true => vec![change.key.clone()],
            false => world.shelf::<Classes>().all().iter().map(|it| it.metadata.key()).collect(),
        }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(class) = world.shelf::<Classes>().get(key) else { return plan };
        let mut more = Map::new();
        let mut says = match &class.object {
            Err(why) => vec![Says::no("Ready", "Invalid", why.clone())],
            Ok(object) => {
                let catalog = catalog(world);
                let drivers = catalog.drivers_of(&object.spec);
                if drivers != class.status.drivers {
                    more.insert("drivers".to_owned(), json!(drivers));
                }
                vec![ready(&object.spec, &drivers), self.valid(&object.spec)]
            }
        };
        says.extend(condition::normalized(&class.remarks, &class.status.conditions));
        plan.steps.extend(
            written(&class, &class.status.conditions, says, more, now)
                .map(gantry_reconcile::Step::new),
        );
        plan
    }
}

fn ready(spec: &ClassSpec, drivers: &[&str]) -> Says {
    if !drivers.is_empty() {
        return Says::yes("Ready", "Served");
    }
    let message = match &spec.driver {
        Some(driver) => {
            format!("driver {driver} is not registered for type {}", spec.device_type)
        }
        None => format!("no driver is registered for type {}", spec.device_type),
    };
    Says::no("Ready", "NoDriver", message)
}

impl ClassStanding {
    fn valid(&self, spec: &ClassSpec) -> Says {
        let constraint = self.constraints.get(spec.constraints.as_deref());
        match constraint.as_ref().and_then(|it| it.fault()) {
            Some(why) => Says::no("ConstraintsValid", "DoesNotCompile", why.to_owned()),
            None => Says::yes("ConstraintsValid", "Compiles"),
        }
    }
}

impl Controller for DriverStanding {
    fn name(&self) -> &'static str {
        "device-drivers"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Drivers>(), Kind::of::<Pools>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        if change.is::<Drivers>() {
            return vec![change.key.clone()];
        }
        let driver = |it: &Pools| it.object.as_ref().ok().map(|it| Key::cluster(&it.spec.driver));
        let (before, after) = (change.before().and_then(driver), change.after().and_then(driver));
        // What else changes in a pool is of no interest here.
        if before == after { Vec::new() } else { before.into_iter().chain(after).collect() }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(driver) = world.shelf::<Drivers>().get(key) else { return plan };
        let names = |it: &Pools| it.object.as_ref().is_ok_and(|it| it.spec.driver == key.name());
        let says = match &driver.object {
            Err(why) => Says::no("Ready", "Invalid", why.clone()),
            Ok(_) if world.shelf::<Pools>().all().iter().any(|it| names(it)) => {
                Says::yes("Ready", "Published")
            }
            Ok(_) => Says::no("Ready", "NoPools", "no pool names the driver".to_owned()),
        };
        let conditions = &driver.status.conditions;
        let normalized = condition::normalized(&driver.remarks, conditions);
        let says = [says].into_iter().chain(normalized).collect();
        let write = written(&driver, conditions, says, Map::new(), now);
        plan.steps.extend(write.map(gantry_reconcile::Step::new));
        plan
    }
}

/// Writes what is news of an object.
fn written<T: Published>(
    seen: &Seen<T>,
    before: &[Condition],
    mut says: Vec<Says>,
    mut status: Map<String, Value>,
    now: Timestamp,
) -> Option<Write> {
    says.retain(|it| !it.is_said(before));
    if !says.is_empty() {
        let conditions = condition::with(before, &says, seen.metadata.generation, now);
        status.insert("conditions".to_owned(), condition::spell(&conditions));
    }
    (!status.is_empty()).then(|| Write::Merge {
        resource: <Seen<T> as View>::RESOURCE,
        key: seen.metadata.key(),
        part: Part::Status,
        fence: seen.metadata.fence(),
        body: json!({"status": Value::Object(status)}),
    })
}
