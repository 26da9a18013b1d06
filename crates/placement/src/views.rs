//! Typed views of the kinds that the controllers of this crate read.

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;
pub use gantry_pods::devices::{DeviceKind, DeviceObject};
use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;

/// A ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceQuota {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: ResourceQuotaSpec,
}

/// The limits of a quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceQuotaSpec {
    /// Limits by resource name.
    pub hard: BTreeMap<String, Quantity>,
}

impl View for ResourceQuota {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "resourcequotas", "ResourceQuota");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
