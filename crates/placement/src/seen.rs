//! What the controllers here read of each kind.

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;
pub use gantry_pods::devices::{Published, Seen};
use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;

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
