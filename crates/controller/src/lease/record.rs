//! What a lease says.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

/// The content of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty for nobody.
    pub holder: String,
    /// How long it lasts after it was written.
    pub duration: Duration,
    /// When its holder took it.
    pub acquired: Option<Timestamp>,
    /// When its holder last wrote it.
    pub renewed: Option<Timestamp>,
    /// How often it went from one holder to another.
    pub transitions: i64,
}

/// A lease as the server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it says.
    pub record: Record,
    /// Which writing of it this is.
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

impl Seen {
    /// Reads a lease.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let Lease { metadata, spec } = serde_json::from_slice(body).ok()?;
        let record = Record {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into()),
            acquired: spec.acquire_time,
            renewed: spec.renew_time,
            transitions: spec.lease_transitions.unwrap_or_default(),
        };
        Some(Self { record, revision: metadata.resource_version })
    }
}

impl Record {
    /// The lease that says this, to be made.
    pub(super) fn to_object(&self, namespace: &str, name: &str) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": name, "namespace": namespace },
            "spec": self.spec(),
        })
    }

    /// A patch that makes a lease say this, if it is still the one with that revision.
    pub(super) fn to_patch(&self, revision: &str) -> Value {
        json!({ "metadata": { "resourceVersion": revision }, "spec": self.spec() })
    }

    fn spec(&self) -> Value {
        json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.duration.as_secs().max(1),
            "acquireTime": self.acquired.map(micro),
            "renewTime": self.renewed.map(micro),
            "leaseTransitions": self.transitions,
        })
    }
}

/// A time as leases have it: to the microsecond, always with all six digits.
fn micro(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
