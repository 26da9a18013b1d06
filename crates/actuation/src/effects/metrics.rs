//! The metrics of actuation, with the names of the original.
//!
//! What happened is counted where it happens; the current state is counted again when something has
//! changed, once a second at most.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gantry_process::metrics::{Buckets, Metrics, RegisterError};
use gantry_reconcile::World;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

mod state;

pub use state::{CountedState, StateMetrics};

use super::responders::config_of;
use crate::actuation_record::ActuationRecord;
use crate::view::{ActuationPod, bound_to};

/// From a request on this machine to one that runs into the longest time-out.
const HTTP_BUCKETS: Buckets =
    Buckets(&[0.001, 0.01, 0.1, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 90.0, 270.0, 810.0]);

/// From a sleeping engine that is woken to a large one that is loaded.
const ACTUATION_BUCKETS: Buckets =
    Buckets(&[0.0, 1.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0]);

/// From a request to an idle API server to one that runs into a time-out.
const CREATE_BUCKETS: Buckets = Buckets(&[0.001, 0.01, 0.1, 1.0, 2.0, 3.0, 4.0, 5.0]);

/// How many requesters are remembered, so that each is measured once.
const MAX_MEASURED: usize = 4096;

/// The labels of a request to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HttpLabels {
    /// What it was sent for.
    pub purpose: &'static str,
    /// Its method.
    pub method: String,
    /// The namespace of the pod.
    pub exported_namespace: String,
    /// The InferenceServerConfig it was sent for; empty if there is none.
    pub isc_name: String,
    /// The status of the response; 0 without one.
    pub status_code: u16,
}

/// The metrics of requests to pods.
#[derive(Debug)]
pub struct PeerMetrics {
    latency: Family<HttpLabels, Histogram, Buckets>,
}

impl PeerMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn register(metrics: &Metrics) -> Result<Self, RegisterError> {
        let latency = metrics.without_prefix().histograms(
            "fma_http_latency_seconds",
            "Time of requests to requesters, launchers and engines",
            HTTP_BUCKETS,
        )?;
        Ok(Self { latency })
    }

    pub(super) fn sent(&self, labels: &HttpLabels, took: Duration) {
        self.latency.get_or_create(labels).observe(took.as_secs_f64());
    }
}

/// The labels of the creation of a launcher for a requester.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CreateLabels {
    pub(super) exported_namespace: String,
    pub(super) lcfg_name: String,
    pub(super) success: &'static str,
}

/// The times of requests to the API server that create launchers for requesters.
#[derive(Debug)]
pub struct LauncherMetrics {
    seconds: Family<CreateLabels, Histogram, Buckets>,
}

impl LauncherMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn register(metrics: &Metrics) -> Result<Self, RegisterError> {
        let seconds = metrics.without_prefix().histograms(
            "fma_launcher_create_seconds",
            "Time of requests to the API server that create launchers for requesters",
            CREATE_BUCKETS,
        )?;
        Ok(Self { seconds })
    }

    pub(super) fn created(&self, labels: &CreateLabels, took: Duration) {
        self.seconds.get_or_create(labels).observe(took.as_secs_f64());
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(non_snake_case, reason = "the label has the name of the original")]
struct ActuationLabels {
    exported_namespace: String,
    path: &'static str,
    instancesDeleted: u64,
    isc_name: String,
}

/// The times from the start of requesters to their readiness.
#[derive(Debug)]
pub struct ActuationMetrics {
    seconds: Family<ActuationLabels, Histogram, Buckets>,
    measured: Mutex<Measured>,
}

/// The starts of requesters that were measured, the oldest first.
#[derive(Debug, Default)]
struct Measured {
    known: BTreeSet<String>,
    order: VecDeque<String>,
}

impl ActuationMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn register(metrics: &Metrics) -> Result<Self, RegisterError> {
        let seconds = metrics.without_prefix().histograms(
            "fma_actuation_seconds",
            "Time from the start of a requester's container to the relay of its first readiness",
            ACTUATION_BUCKETS,
        )?;
        Ok(Self { seconds, measured: Mutex::default() })
    }

    /// Measures a requester that was made ready at this time, if it is for the first time.
    pub(super) fn relayed(&self, world: &World, requester: &ActuationPod, now: Timestamp) {
        let Some(started) = requester.server.started_at else { return };
        let uid = &requester.metadata.uid;
        let providers = world.store::<ActuationPod>().by_index(&bound_to(uid));
        let record = providers.iter().find_map(|it| ActuationRecord::read(it, uid));
        // Providers of an older release have no record; nobody knows their path.
        let Some(record) = record else { return };
        if !self.is_first(format!("{uid}/{}", requester.server.restarts)) {
            return;
        }
        let labels = ActuationLabels {
            exported_namespace: requester.metadata.namespace.clone(),
            path: record.path.as_str(),
            instancesDeleted: u64::try_from(record.instances_deleted).unwrap_or(u64::MAX),
            isc_name: config_of(requester),
        };
        let took = Duration::try_from(now.duration_since(started)).unwrap_or_default();
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    fn is_first(&self, start: String) -> bool {
        // A panic while the lock is held leaves at most one start too many.
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if !measured.known.insert(start.clone()) {
            return false;
        }
        measured.order.push_back(start);
        if measured.order.len() > MAX_MEASURED
            && let Some(oldest) = measured.order.pop_front()
        {
            measured.known.remove(&oldest);
        }
        true
    }
}
