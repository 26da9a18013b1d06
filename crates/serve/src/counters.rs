//! Metrics of the listener.

use gantry_process::metrics::{Metrics, RegisterError};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

use crate::status::RequestRejection;

/// Counts connections, requests and refusals. Register once per process and give every part a
/// clone.
#[derive(Clone, Debug)]
pub struct Counters {
    requests: Gauge,
    pub(crate) open: Gauge,
    pub(crate) ends: Family<EndLabels, Counter>,
    refusals: Family<RejectionLabels, Counter>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct EndLabels {
    pub(crate) how: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabels {
    why: &'static str,
}

impl Counters {
    /// Registers the counters.
    ///
    /// # Errors
    /// They were registered before.
    pub fn register(metrics: &Metrics) -> Result<Self, RegisterError> {
        Ok(Self {
            requests: metrics.register(
                "server_requests",
                "Requests in progress",
                Gauge::default(),
            )?,
            open: metrics.register("server_connections", "Open connections", Gauge::default())?,
            ends: metrics
                .counters("server_connection_ends", "Ended connections, by how they ended")?,
            refusals: metrics.counters("server_refusals", "Refused requests, by reason")?,
        })
    }

    /// Counts a request as in progress until its response is built or the request is dropped.
    pub(crate) fn request_started(&self) -> InFlightRequest {
        self.requests.inc();
        InFlightRequest(self.requests.clone())
    }

    pub(crate) fn request_rejected(&self, refusal: RequestRejection) {
        self.refusals.get_or_create(&RejectionLabels { why: refusal.label() }).inc();
    }
}

/// A request whose response is being built.
pub(crate) struct InFlightRequest(Gauge);

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.dec();
    }
}
