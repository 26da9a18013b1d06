//! What listening counts.

use gantry_process::metrics::{Metrics, RegisterError};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

use crate::status::Refusal;

/// Counts connections, requests and refusals. Register once per process and give every part a clone.
#[derive(Clone, Debug)]
pub struct Counters {
    requests: Gauge,
    pub(crate) open: Gauge,
    pub(crate) ends: Family<End, Counter>,
    refusals: Family<Refused, Counter>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct End {
    pub(crate) how: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refused {
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
                "Requests to which an answer is being made",
                Gauge::default(),
            )?,
            open: metrics.register(
                "server_connections",
                "Connections that are open",
                Gauge::default(),
            )?,
            ends: metrics.counters("server_connection_ends", "Connections that ended, by how")?,
            refusals: metrics.counters("server_refusals", "Requests that were refused, by why")?,
        })
    }

    /// Counts a request until an answer to it has been made, or nobody waits for it any more.
    pub(crate) fn begin(&self) -> Busy {
        self.requests.inc();
        Busy(self.requests.clone())
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refusals.get_or_create(&Refused { why: refusal.label() }).inc();
    }
}

/// A request to which an answer is being made.
pub(crate) struct Busy(Gauge);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.dec();
    }
}
