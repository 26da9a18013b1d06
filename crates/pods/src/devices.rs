//! Typed views of device objects: pools, classes, drivers, and the claims of pods.
//!
//! Objects of every supported API generation are read. An object that cannot be parsed is still an
//! object: it carries the error, and its status still counts.

use std::fmt;

use gantry_api::decode;
use gantry_api::devices::{
    ClaimStatus, ClassStatus, Consumer, DeviceAllocation, DeviceClaim, DeviceClaimTemplate,
    DeviceClass, DeviceDriver, DevicePool, DevicePrivilegedClaim, DriverStatus, PodDevices,
    PoolStatus, PrivilegedClaimStatus,
};
use gantry_api::finding::Finding;
use gantry_api::object::Object;
use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Meta, Resource, Uid, View};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The finalizer that keeps a claim until its devices are released.
pub const FINALIZER: &str = "devmgmtproto.k8s.io/delete-protection";

/// A kind of the device API group.
pub trait DeviceKind: Clone + fmt::Debug + Send + Sync + 'static {
    /// The kind as the API addresses it.
    const RESOURCE: Resource;
    /// The type of its status subresource.
    type Status: DeserializeOwned + Default + Clone + fmt::Debug + PartialEq + Send + Sync;

    /// Converts a parsed object, if it is of this kind.
    fn of(object: Object) -> Option<Self>;

    /// Returns the index values of the object beside its key and its owner.
    fn tags(meta: &Meta, status: &Self::Status) -> Vec<IndexValue> {
        let _ = (meta, status);
        Vec::new()
    }
}

/// An object of the device API group as it was last observed.
#[derive(Clone, Debug)]
pub struct DeviceObject<T: DeviceKind> {
    /// Metadata.
    pub metadata: Meta,
    /// The parsed object without its status, or the error.
    pub object: Result<T, String>,
    /// Warnings about fields that were understood and should be written differently.
    pub warnings: Vec<String>,
    /// Its status.
    pub status: T::Status,
}

impl DeviceObject<DevicePool> {
    /// Returns the pool with its ledger; `None` if it cannot be parsed.
    #[must_use]
    pub fn with_ledger(&self) -> Option<DevicePool> {
        let object = self.object.as_ref().ok()?;
        Some(DevicePool { status: Some(self.status.clone()), ..object.clone() })
    }
}

impl<T: DeviceKind> View for DeviceObject<T> {
    const RESOURCE: Resource = T::RESOURCE;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let owner = self.metadata.controller().map(|owner| IndexValue::owner(&owner.uid));
        owner.into_iter().chain(T::tags(&self.metadata, &self.status)).collect()
    }
}

impl<'de, T: DeviceKind> Deserialize<'de> for DeviceObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(from)?;
        let metadata = Meta::deserialize(&value["metadata"]).map_err(D::Error::custom)?;
        let status = match value.as_object_mut().and_then(|fields| fields.shift_remove("status")) {
            None | Some(Value::Null) => T::Status::default(),
            Some(status) => serde_json::from_value(status).map_err(D::Error::custom)?,
        };
        // No schema describes `managedFields`.
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.shift_remove("managedFields");
        }
        // Lists of some servers leave out the type of their items.
        value["apiVersion"] = T::RESOURCE.api_version().into();
        value["kind"] = T::RESOURCE.kind.as_ref().into();
        let spell = |it: &Finding| format!("{}: {}", it.path, it.text);
        let (object, remarks) = match decode::object(&value) {
            Ok((object, findings)) => {
                let object = T::of(object).ok_or_else(|| "another kind of object".to_owned());
                (object, findings.warnings.iter().map(spell).collect())
            }
            Err(findings) => {
                let texts: Vec<String> = findings.errors.iter().map(spell).collect();
                (Err(texts.join("; ")), Vec::new())
            }
        };
        Ok(Self { metadata, object, warnings: remarks, status })
    }
}

const GROUP: &str = "devmgmtproto.k8s.io";
const VERSION: &str = "v1alpha1";

macro_rules! published {
    ($kind:ident, $plural:literal, $status:ty, $resource:expr $(, $tags:expr)?) => {
        impl DeviceKind for $kind {
            const RESOURCE: Resource = {
                let resource = Resource::namespaced(GROUP, VERSION, $plural, stringify!($kind));
                $resource(resource)
            };
            type Status = $status;

            fn of(object: Object) -> Option<Self> {
                let Object::$kind(object) = object else { return None };
                Some(*object)
            }

            $(
                fn tags(meta: &Meta, status: &Self::Status) -> Vec<IndexValue> {
                    $tags(meta, status)
                }
            )?
        }
    };
}

const fn namespaced_with_status(resource: Resource) -> Resource {
    resource
}

/// The status of a kind that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NoStatus {}

published!(DeviceClaim, "deviceclaims", ClaimStatus, namespaced_with_status, claim_tags);
published!(
    DevicePrivilegedClaim,
    "deviceprivilegedclaims",
    PrivilegedClaimStatus,
    namespaced_with_status,
    privileged_tags
);
published!(DevicePool, "devicepools", PoolStatus, Resource::cluster_scoped, pool_tags);
published!(DeviceClass, "deviceclasses", ClassStatus, Resource::cluster_scoped);
published!(DeviceDriver, "devicedrivers", DriverStatus, Resource::cluster_scoped);
published!(DeviceClaimTemplate, "deviceclaimtemplates", NoStatus, Resource::without_status);
published!(PodDevices, "poddevices", NoStatus, Resource::without_status);

/// Whether an allocation holds its device. Claims with administrator access only observe and hold
/// nothing.
#[must_use]
pub fn is_hold(allocation: &DeviceAllocation) -> bool {
    allocation.access_mode.is_some()
}

/// Returns the index value of the claims that a pod uses.
#[must_use]
pub fn reserved_for_pod_tag(pod: &Uid) -> IndexValue {
    IndexValue { index: "consumer", value: pod.as_str().to_owned() }
}

/// Returns the index value of the claims of a namespace that have the finalizer and no devices.
#[must_use]
pub fn unallocated_claims_tag(namespace: &str) -> IndexValue {
    IndexValue { index: "idle", value: namespace.to_owned() }
}

/// Returns the index value of the claims that hold a device.
#[must_use]
pub fn holds_device_tag(pool: &str, device: &str) -> IndexValue {
    IndexValue { index: "device", value: format!("{pool}/{device}") }
}

/// Returns the index value of the claims that have devices of a pool.
#[must_use]
pub fn allocated_from_pool_tag(pool: &str) -> IndexValue {
    IndexValue { index: "pool", value: pool.to_owned() }
}

/// Returns the index value of the pools in whose ledgers a claim is.
#[must_use]
pub fn ledger_claim_tag(claim: &Uid) -> IndexValue {
    IndexValue { index: "claim", value: claim.as_str().to_owned() }
}

fn claim_tags(meta: &Meta, status: &ClaimStatus) -> Vec<IndexValue> {
    allocation_tags(meta, &status.allocations, &status.reserved_for)
}

fn privileged_tags(meta: &Meta, status: &PrivilegedClaimStatus) -> Vec<IndexValue> {
    allocation_tags(meta, &status.allocations, &status.reserved_for)
}

fn allocation_tags(
    meta: &Meta,
    allocations: &[DeviceAllocation],
    consumers: &[Consumer],
) -> Vec<IndexValue> {
    let mut tags: Vec<IndexValue> =
        consumers.iter().map(|it| reserved_for_pod_tag(&Uid::new(&it.uid))).collect();
    if allocations.is_empty() && meta.finalizers.iter().any(|it| it == FINALIZER) {
        tags.push(unallocated_claims_tag(&meta.namespace));
    }
    for allocation in allocations {
        tags.push(allocated_from_pool_tag(&allocation.device_pool_name));
        if let Some(device) = allocation.device_name.as_deref().filter(|_| is_hold(allocation)) {
            tags.push(holds_device_tag(&allocation.device_pool_name, device));
        }
    }
    tags.sort();
    tags.dedup();
    tags
}

fn pool_tags(_: &Meta, status: &PoolStatus) -> Vec<IndexValue> {
    let mut tags: Vec<IndexValue> = status
        .allocations
        .iter()
        .map(|it| ledger_claim_tag(&Uid::new(&it.claim_ref.uid)))
        .collect();
    tags.sort();
    tags.dedup();
    tags
}
