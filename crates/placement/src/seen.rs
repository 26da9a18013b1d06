//! What the controllers here read of each kind.
//!
//! Objects of every era are read, as everywhere. One that a server has and that cannot be understood is
//! still an object: it says what is wrong with it, and what its status says counts.

use std::collections::BTreeMap;
use std::fmt;

use gantry_api::decode;
use gantry_api::devices::{
    ClaimStatus, ClassStatus, DeviceClaim, DeviceClaimTemplate, DeviceClass, DeviceDriver,
    DevicePool, DevicePrivilegedClaim, DriverStatus, PodDevices, PoolStatus, PrivilegedClaimStatus,
};
use gantry_api::finding::Finding;
use gantry_api::object::Object;
use gantry_api::quantity::Quantity;
use gantry_reconcile::world::Tag;
use gantry_reconcile::{Meta, Resource, View};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{claim, ledger};

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

published!(DeviceClaim, "deviceclaims", ClaimStatus, as_it_is, claim::tags);
published!(
    DevicePrivilegedClaim,
    "deviceprivilegedclaims",
    PrivilegedClaimStatus,
    as_it_is,
    claim::privileged_tags
);
published!(DevicePool, "devicepools", PoolStatus, Resource::cluster_wide, ledger::tags);
published!(DeviceClass, "deviceclasses", ClassStatus, Resource::cluster_wide);
published!(DeviceDriver, "devicedrivers", DriverStatus, Resource::cluster_wide);
published!(DeviceClaimTemplate, "deviceclaimtemplates", NoStatus, Resource::without_status);
published!(PodDevices, "poddevices", NoStatus, Resource::without_status);

/// What a namespace may have at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: QuotaSpec,
}

/// The limits of a quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct QuotaSpec {
    /// By the name of what is limited.
    pub hard: BTreeMap<String, Quantity>,
}

impl View for Quota {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "resourcequotas", "ResourceQuota");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
