//! The content of a lease.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

/// The content of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The holder's identity; empty when it is not held.
    pub holder: String,
    /// How long it lasts after a renewal.
    pub duration: Duration,
    /// When its holder acquired it.
    pub acquired: Option<Timestamp>,
    /// When its holder last renewed it.
    pub renewed: Option<Timestamp>,
    /// How often it went from one holder to another.
    pub transitions: i64,
}

/// A lease as observed on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLease {
    /// Its content.
    pub record: LeaseRecord,
    /// Its resource version.
    pub revision: String,
}

#[derive(Deserialize)]
struct Lease {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    acquire_time: Option<Timestamp>,
    renew_time: Option<Timestamp>,
    lease_transitions: Option<i64>,
}

impl ObservedLease {
    /// Decodes a lease.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let Lease { metadata, spec } = serde_json::from_slice(body).ok()?;
        let record = LeaseRecord {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into()),
            acquired: spec.acquire_time,
            renewed: spec.renew_time,
            transitions: spec.lease_transitions.unwrap_or_default(),
        };
        Some(Self { record, revision: metadata.resource_version })
    }
}

impl LeaseRecord {
    /// The lease object with this content, for a create.
    pub(super) fn to_object(&self, namespace: &str, name: &str) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": name, "namespace": namespace },
            "spec": self.spec(),
        })
    }

    /// A patch that sets this content, if the lease still has that revision.
    pub(super) fn to_patch(&self, revision: &str) -> Value {
        json!({ "metadata": { "resourceVersion": revision }, "spec": self.spec() })
    }

    fn spec(&self) -> Value {
        json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.duration.as_secs().max(1),
            "acquireTime": self.acquired.map(micro_time),
            "renewTime": self.renewed.map(micro_time),
            "leaseTransitions": self.transitions,
        })
    }
}

/// A time as leases have it: to the microsecond, always with all six digits.
fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
