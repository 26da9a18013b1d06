//! What controllers see of devices: pools, classes, drivers, and the claims of pods.
//!
//! Objects of every era are read, as everywhere. One that a server has and that cannot be understood is
//! still an object: it says what is wrong with it, and what its status says counts.

use std::fmt;

use gantry_api::decode;
use gantry_api::devices::{
    ClaimStatus, ClassStatus, Consumer, DeviceAllocation, DeviceClaim, DeviceClaimTemplate,
    DeviceClass, DeviceDriver, DevicePool, DevicePrivilegedClaim, DriverStatus, PodDevices,
    PoolStatus, PrivilegedClaimStatus,
};
use gantry_api::finding::Finding;
use gantry_api::object::Object;
use gantry_reconcile::world::Tag;
use gantry_reconcile::{Meta, Resource, Uid, View};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What keeps a claim until its devices are given back.
pub const FINALIZER: &str = "devmgmtproto.k8s.io/delete-protection";

/// A kind of this group.
pub trait Published: Clone + fmt::Debug + Send + Sync + 'static {
    /// The kind as the API addresses it.
    const RESOURCE: Resource;
    /// What is written apart from the rest.
    type Status: DeserializeOwned + Default + Clone + fmt::Debug + PartialEq + Send + Sync;

    /// The object, if it is one of these.
    fn of(object: Object) -> Option<Self>;

    /// What the object is filed under beside its key and its owner.
    fn tags(meta: &Meta, status: &Self::Status) -> Vec<Tag> {
        let _ = (meta, status);
        Vec::new()
    }
}

/// An object of this group as it was last seen.
#[derive(Clone, Debug)]
pub struct Seen<T: Published> {
    /// Metadata.
    pub metadata: Meta,
    /// What it says, or what is wrong with it. Its own status is left out.
    pub object: Result<T, String>,
    /// What was understood and should be written differently.
    pub remarks: Vec<String>,
    /// Its status.
    pub status: T::Status,
}

impl Seen<DevicePool> {
    /// The pool with its ledger; nothing for one that cannot be understood.
    #[must_use]
    pub fn whole(&self) -> Option<DevicePool> {
        let object = self.object.as_ref().ok()?;
        Some(DevicePool { status: Some(self.status.clone()), ..object.clone() })
    }
}

impl<T: Published> View for Seen<T> {
    const RESOURCE: Resource = T::RESOURCE;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn tags(&self) -> Vec<Tag> {
        let owner = self.metadata.controller().map(|owner| Tag::owner(&owner.uid));
        owner.into_iter().chain(T::tags(&self.metadata, &self.status)).collect()
    }
}

impl<'de, T: Published> Deserialize<'de> for Seen<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(from)?;
        let metadata = Meta::deserialize(&value["metadata"]).map_err(D::Error::custom)?;
        let status = match value.as_object_mut().and_then(|fields| fields.shift_remove("status")) {
            None | Some(Value::Null) => T::Status::default(),
            Some(status) => serde_json::from_value(status).map_err(D::Error::custom)?,
        };
        // Whose field is whose is a tree of names that no schema describes.
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.shift_remove("managedFields");
        }
        // Lists of some servers leave out what all of their items are.
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
        Ok(Self { metadata, object, remarks, status })
    }
}

const GROUP: &str = "devmgmtproto.k8s.io";
const VERSION: &str = "v1alpha1";

macro_rules! published {
    ($kind:ident, $plural:literal, $status:ty, $resource:expr $(, $tags:expr)?) => {
        impl Published for $kind {
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
                fn tags(meta: &Meta, status: &Self::Status) -> Vec<Tag> {
                    $tags(meta, status)
                }
            )?
        }
    };
}

const fn as_it_is(resource: Resource) -> Resource {
    resource
}

/// No status at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NoStatus {}

published!(DeviceClaim, "deviceclaims", ClaimStatus, as_it_is, claim_tags);
published!(
    DevicePrivilegedClaim,
    "deviceprivilegedclaims",
    PrivilegedClaimStatus,
    as_it_is,
    privileged_tags
);
published!(DevicePool, "devicepools", PoolStatus, Resource::cluster_wide, pool_tags);
published!(DeviceClass, "deviceclasses", ClassStatus, Resource::cluster_wide);
published!(DeviceDriver, "devicedrivers", DriverStatus, Resource::cluster_wide);
published!(DeviceClaimTemplate, "deviceclaimtemplates", NoStatus, Resource::without_status);
published!(PodDevices, "poddevices", NoStatus, Resource::without_status);

/// Whether an allocation holds its device. Administrators look on and hold nothing.
#[must_use]
pub fn is_hold(allocation: &DeviceAllocation) -> bool {
    allocation.access_mode.is_some()
}

/// What the claims are filed under that a pod uses.
#[must_use]
pub fn used_by(pod: &Uid) -> Tag {
    Tag { index: "consumer", value: pod.as_str().to_owned() }
}

/// What the claims of a namespace are filed under that are kept from going and have no devices.
#[must_use]
pub fn idle_in(namespace: &str) -> Tag {
    Tag { index: "idle", value: namespace.to_owned() }
}

/// What the claims are filed under that hold a device.
#[must_use]
pub fn holder_of(pool: &str, device: &str) -> Tag {
    Tag { index: "device", value: format!("{pool}/{device}") }
}

/// What the claims are filed under that have something of a pool.
#[must_use]
pub fn has_of(pool: &str) -> Tag {
    Tag { index: "pool", value: pool.to_owned() }
}

/// What the pools are filed under in whose ledgers a claim is.
#[must_use]
pub fn names(claim: &Uid) -> Tag {
    Tag { index: "claim", value: claim.as_str().to_owned() }
}

fn claim_tags(meta: &Meta, status: &ClaimStatus) -> Vec<Tag> {
    filed(meta, &status.allocations, &status.reserved_for)
}

fn privileged_tags(meta: &Meta, status: &PrivilegedClaimStatus) -> Vec<Tag> {
    filed(meta, &status.allocations, &status.reserved_for)
}

fn filed(meta: &Meta, allocations: &[DeviceAllocation], consumers: &[Consumer]) -> Vec<Tag> {
    let mut tags: Vec<Tag> = consumers.iter().map(|it| used_by(&Uid::new(&it.uid))).collect();
    if allocations.is_empty() && meta.finalizers.iter().any(|it| it == FINALIZER) {
        tags.push(idle_in(&meta.namespace));
    }
    for allocation in allocations {
        tags.push(has_of(&allocation.device_pool_name));
        if let Some(device) = allocation.device_name.as_deref().filter(|_| is_hold(allocation)) {
            tags.push(holder_of(&allocation.device_pool_name, device));
        }
    }
    tags.sort();
    tags.dedup();
    tags
}

fn pool_tags(_: &Meta, status: &PoolStatus) -> Vec<Tag> {
    let mut tags: Vec<Tag> =
        status.allocations.iter().map(|it| names(&Uid::new(&it.claim_ref.uid))).collect();
    tags.sort();
    tags.dedup();
    tags
}
