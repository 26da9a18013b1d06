//! Publishes the configured objects, and deletes those that are no longer configured.

use std::borrow::Cow;
use std::sync::Arc;

use gantry_api::devices::{PoolSpec, TaintEffect};
use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Fence, Held, Key, Kind, Meta, ObjectReference, Plan,
    Resource, Subresource, View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::PUBLISHED_BY_LABEL;
use super::view::{DeviceDriver, DevicePool, Publication};

/// Publishes objects under its own name, so that several drivers leave each other's objects alone.
#[derive(Clone, Debug)]
pub struct Publisher {
    /// The value of [`PUBLISHED_BY_LABEL`] on published objects.
    pub name: String,
}

impl Controller for Publisher {
    fn name(&self) -> &'static str {
        "device-publisher"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<DevicePool>(), Kind::of::<DeviceDriver>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![Publication::key(&change.resource, change.key.name())]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<Publication>()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        change.of::<Publication>().map(|it| it.subject.clone()).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let wanted = world.facts::<Publication>().observed(key);
        let wanted = wanted.as_deref().map(|it| &it.value);
        let mut plan = Plan::default();
        let Some((plural, name)) = key.name().split_once('/') else { return plan };
        let object = Key::cluster(name);
        if plural == DevicePool::RESOURCE.plural {
            let pool = world.store::<DevicePool>().get(&object);
            self.plan_pool(&object, wanted, pool, now, &mut plan);
        } else if plural == DeviceDriver::RESOURCE.plural {
            let driver = world.store::<DeviceDriver>().get(&object);
            self.plan_driver(&object, wanted, driver.as_deref(), &mut plan);
        }
        plan
    }
}

impl Publisher {
    pub(super) fn plan_driver(
        &self,
        key: &Key,
        wanted: Option<&Publication>,
        found: Option<&DeviceDriver>,
        plan: &mut Plan,
    ) {
        match (wanted, found) {
            (Some(wanted), found) => {
                let types = &wanted.object["deviceTypes"];
                let same = found.is_some_and(|it| {
                    json!(it.device_types) == *types && self.is_published_here(&it.metadata)
                });
                let fields = json!({"deviceTypes": types});
                let meta = found.map(|it| &it.metadata);
                self.publish(&DeviceDriver::RESOURCE, key, meta, (same, fields), plan);
            }
            (None, Some(found)) if self.is_published_here(&found.metadata) => {
                withdraw(&DeviceDriver::RESOURCE, &found.metadata, plan);
            }
            (None, _) => {}
        }
    }

    pub(super) fn plan_pool(
        &self,
        key: &Key,
        wanted: Option<&Publication>,
        found: Option<Arc<DevicePool>>,
        now: Timestamp,
        plan: &mut Plan,
    ) {
        match (wanted, found) {
            (Some(wanted), found) => {
                let spec = &wanted.object["spec"];
                let same = found.as_ref().is_some_and(|it| {
                    is_same_spec(&it.spec, spec) && self.is_published_here(&it.metadata)
                });
                let meta = found.as_ref().map(|it| &it.metadata);
                self.publish(&DevicePool::RESOURCE, key, meta, (same, json!({"spec": spec})), plan);
                let usable = count_available_devices(spec);
                if let Some(found) = found.filter(|it| !it.metadata.is_terminating())
                    && same
                    && found.status.available_devices != Some(usable)
                {
                    plan.write(Write::Apply {
                        resource: DevicePool::RESOURCE,
                        key: key.clone(),
                        subresource: Subresource::Status,
                        fence: Some(uid_fence(&found.metadata)),
                        body: json!({"status": {"availableDevices": usable}}),
                    });
                }
            }
            (None, Some(found)) if self.is_published_here(&found.metadata) => {
                if found.status.allocations.is_empty() {
                    withdraw(&DevicePool::RESOURCE, &found.metadata, plan);
                } else {
                    let held = Held {
                        about: ObjectReference::to(&DevicePool::RESOURCE, &found.metadata),
                        reason: Cow::Borrowed("InUse"),
                        message: "it is not to be published any more, and is kept while its \
                                  devices are held"
                            .to_owned(),
                        until: None,
                    };
                    plan.hold(held, now);
                }
            }
            (None, _) => {}
        }
    }

    /// Creates or updates an object, unless it is up to date or being deleted.
    fn publish(
        &self,
        resource: &Resource,
        key: &Key,
        found: Option<&Meta>,
        (same, fields): (bool, Value),
        plan: &mut Plan,
    ) {
        if same || found.is_some_and(Meta::is_terminating) {
            return;
        }
        let mut body = fields;
        body["metadata"] = json!({"name": key.name(), "labels": {PUBLISHED_BY_LABEL: self.name}});
        plan.write(Write::Apply {
            resource: resource.clone(),
            key: key.clone(),
            subresource: Subresource::Main,
            fence: found.map(uid_fence),
            body,
        });
    }

    pub(super) fn is_published_here(&self, meta: &Meta) -> bool {
        meta.labels.get(PUBLISHED_BY_LABEL) == Some(&self.name)
    }
}

/// A fence on the UID only: changes by others do not matter to fields that the driver owns.
fn uid_fence(meta: &Meta) -> Fence {
    Fence { uid: meta.uid.clone(), revision: None }
}

fn withdraw(resource: &Resource, meta: &Meta, plan: &mut Plan) {
    if !meta.is_terminating() {
        plan.write(Write::Delete {
            resource: resource.clone(),
            key: meta.key(),
            fence: meta.fence(),
            grace: None,
            propagation: None,
        });
    }
}

/// Returns whether two specs are equal, however their quantities are written.
fn is_same_spec(found: &Value, wanted: &Value) -> bool {
    let read = |spec: &Value| serde_json::from_value::<PoolSpec>(spec.clone()).ok();
    found == wanted || read(found).is_some_and(|found| Some(found) == read(wanted))
}

/// Counts the devices of a pool that can be allocated: those without a taint that keeps claims
/// away.
fn count_available_devices(spec: &Value) -> u64 {
    let Ok(spec) = serde_json::from_value::<PoolSpec>(spec.clone()) else { return 0 };
    match spec.devices.is_empty() {
        true => u64::from(spec.device_count.unwrap_or(0)),
        false => {
            let fit = spec.devices.iter().filter(|device| {
                device.taints.iter().all(|taint| match taint.effect {
                    TaintEffect::NoSchedule | TaintEffect::NoExecute => false,
                    TaintEffect::None => true,
                })
            });
            fit.count() as u64
        }
    }
}
