//! Leases: the heartbeats of their holders.

use gantry_reconcile::{Meta, Resource, View};
use jiff::Timestamp;
use serde::Deserialize;

/// A lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Metadata.
    pub metadata: Meta,
    /// The spec.
    pub spec: LeaseSpec,
}

impl View for Lease {
    const RESOURCE: Resource =
        Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The spec of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// The holder.
    pub holder_identity: String,
    /// How long it is valid after each renewal, in seconds.
    pub lease_duration_seconds: i64,
    /// When it was last renewed.
    pub renew_time: Option<Timestamp>,
}
