//! Metrics of the runtime.

use std::time::Duration;

use gantry_process::metrics::{Buckets, Metrics, RegisterError};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Counters of everything the runtime does. Register once per process; clones share the counters.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    passes: Family<PassLabels, Counter>,
    seconds: Family<ControllerLabel, Histogram, Buckets>,
    waiting: Family<ControllerLabel, Gauge>,
    held: Family<ControllerLabel, Gauge>,
    writes: Family<WriteLabels, Counter>,
    panics: Family<ControllerLabel, Counter>,
    lists: Family<KindLabel, Counter>,
    breaks: Family<KindLabel, Counter>,
    objects: Family<KindLabel, Gauge>,
    unreadable: Family<KindLabel, Counter>,
    events: Family<EventLabels, Counter>,
    calls: Family<CallLabels, Counter>,
    call_seconds: Family<PurposeLabels, Histogram, Buckets>,
    calls_under_way: Gauge,
    inquiries: Family<InquiryLabels, Counter>,
    leading: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PassLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    controller: &'static str,
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    protocol: &'static str,
    purpose: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PurposeLabels {
    protocol: &'static str,
    purpose: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InquiryLabels {
    inquiry: &'static str,
    outcome: &'static str,
}

/// The result of an attempt of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The target did what was requested.
    Done,
    /// The target refused.
    Refused,
    /// It is unknown whether the target did it.
    Unknown,
    /// The call is no longer wanted.
    Cancelled,
}

/// The result of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileResult {
    /// All planned writes succeeded.
    Done,
    /// A write failed; the key is retried.
    Failed,
    /// The plan panicked.
    Panicked,
}

/// The result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventResult {
    /// It was written.
    Written,
    /// There were too many similar ones.
    Filtered,
    /// The queue was full.
    Overflowed,
    /// The server refused it.
    Refused,
}

impl ControllerMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// They are already registered.
    pub fn register(metrics: &Metrics) -> Result<Self, RegisterError> {
        Ok(Self {
            passes: metrics
                .counters("controller_passes", "Reconciles, by controller and result")?,
            seconds: metrics.histograms(
                "controller_pass_seconds",
                "Time from taking a key to the last response",
                Buckets::SECONDS,
            )?,
            waiting: metrics.gauges("controller_queue_length", "Keys that are due")?,
            held: metrics.gauges("controller_held", "Held reasons, by controller")?,
            writes: metrics
                .counters("controller_writes", "Writes, by controller, verb and outcome")?,
            panics: metrics.counters("controller_panics", "Panics of controllers")?,
            lists: metrics.counters("cache_lists", "Times a kind was listed")?,
            breaks: metrics.counters("cache_breaks", "Lists and watches that failed")?,
            objects: metrics.gauges("cache_objects", "Objects in the cache")?,
            unreadable: metrics.counters("cache_unreadable", "Objects that could not be read")?,
            events: metrics.counters("controller_events", "Events, by result")?,
            calls: metrics
                .counters("controller_calls", "Attempts of calls, by purpose and outcome")?,
            call_seconds: metrics.histograms(
                "controller_call_seconds",
                "Time from sending a call to its reply",
                Buckets::SECONDS,
            )?,
            calls_under_way: metrics.register(
                "controller_calls_under_way",
                "Calls in flight",
                Gauge::default(),
            )?,
            inquiries: metrics
                .counters("controller_inquiries", "Questions to external systems, by outcome")?,
            leading: metrics.register(
                "controller_leading",
                "Whether this process may write: 1 or 0",
                Gauge::default(),
            )?,
        })
    }

    pub(crate) fn reconciled(
        &self,
        controller: &'static str,
        how: ReconcileResult,
        took: Duration,
    ) {
        let result = match how {
            ReconcileResult::Done => "done",
            ReconcileResult::Failed => "failed",
            ReconcileResult::Panicked => "panicked",
        };
        self.passes.get_or_create(&PassLabels { controller, result }).inc();
        self.seconds.get_or_create(&ControllerLabel { controller }).observe(took.as_secs_f64());
    }

    pub(crate) fn queue_length(&self, controller: &'static str, keys: usize) {
        let keys = i64::try_from(keys).unwrap_or(i64::MAX);
        self.waiting.get_or_create(&ControllerLabel { controller }).set(keys);
    }

    pub(crate) fn held(&self, controller: &'static str, by: i64) {
        self.held.get_or_create(&ControllerLabel { controller }).inc_by(by);
    }

    pub(crate) fn wrote(
        &self,
        controller: &'static str,
        verb: &'static str,
        outcome: &'static str,
    ) {
        self.writes.get_or_create(&WriteLabels { controller, verb, outcome }).inc();
    }

    pub(crate) fn panicked(&self, controller: &'static str) {
        self.panics.get_or_create(&ControllerLabel { controller }).inc();
    }

    pub(crate) fn listed(&self, kind: &str) {
        self.lists.get_or_create(&KindLabel { kind: kind.to_owned() }).inc();
    }

    pub(crate) fn list_watch_failed(&self, kind: &str) {
        self.breaks.get_or_create(&KindLabel { kind: kind.to_owned() }).inc();
    }

    pub(crate) fn objects(&self, kind: &str) -> Gauge {
        self.objects.get_or_create_owned(&KindLabel { kind: kind.to_owned() })
    }

    pub(crate) fn unreadable(&self, kind: &str) {
        self.unreadable.get_or_create(&KindLabel { kind: kind.to_owned() }).inc();
    }

    pub(crate) fn event_recorded(&self, what: EventResult) {
        let result = match what {
            EventResult::Written => "written",
            EventResult::Filtered => "filtered",
            EventResult::Overflowed => "overflowed",
            EventResult::Refused => "refused",
        };
        self.events.get_or_create(&EventLabels { result }).inc();
    }

    pub(crate) fn called(
        &self,
        protocol: &'static str,
        purpose: &'static str,
        how: CallOutcome,
        took: Duration,
    ) {
        let outcome = match how {
            CallOutcome::Done => "done",
            CallOutcome::Refused => "refused",
            CallOutcome::Unknown => "unknown",
            CallOutcome::Cancelled => "given_up",
        };
        self.calls.get_or_create(&CallLabels { protocol, purpose, outcome }).inc();
        let labels = PurposeLabels { protocol, purpose };
        self.call_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn calls_under_way(&self, count: usize) {
        self.calls_under_way.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn inquired(&self, inquiry: &'static str, outcome: &'static str) {
        self.inquiries.get_or_create(&InquiryLabels { inquiry, outcome }).inc();
    }

    pub(crate) fn leading(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }
}
