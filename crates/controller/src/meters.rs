//! What the shell counts.

use std::time::Duration;

use gantry_process::metrics::{Buckets, Metrics, RegisterError};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Counters of everything the shell does. Register once per process; clones count together.
#[derive(Clone, Debug)]
pub struct Meters {
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

/// How an attempt of a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The target did what was asked for.
    Done,
    /// The target refused.
    Refused,
    /// Whether the target did it is not known.
    Unanswered,
    /// Nobody wants it any more.
    GivenUp,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Everything that was planned took.
    Done,
    /// Something did not; the key is tried again.
    Failed,
    /// The plan panicked.
    Panicked,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It was written.
    Written,
    /// There were too many like it.
    Filtered,
    /// The queue was full.
    Overflowed,
    /// The server did not take it.
    Refused,
}

impl Meters {
    /// Registers the counters.
    ///
    /// # Errors
    /// They were registered before.
    pub fn register(metrics: &Metrics) -> Result<Self, RegisterError> {
        Ok(Self {
            passes: metrics.counters("controller_passes", "Passes, by controller and result")?,
            seconds: metrics.histograms(
                "controller_pass_seconds",
                "Time from taking a key to its last answer",
                Buckets::SECONDS,
            )?,
            waiting: metrics.gauges("controller_queue_length", "Keys whose turn it is")?,
            held: metrics.gauges("controller_held", "What is wanted and held back")?,
            writes: metrics.counters("controller_writes", "Writes, by verb and outcome")?,
            panics: metrics.counters("controller_panics", "Panics of controllers")?,
            lists: metrics.counters("cache_lists", "Times a kind was listed")?,
            breaks: metrics.counters("cache_breaks", "Lists and watches that failed")?,
            objects: metrics.gauges("cache_objects", "Objects in the cache")?,
            unreadable: metrics.counters("cache_unreadable", "Objects that could not be read")?,
            events: metrics.counters("controller_events", "Events, by what became of them")?,
            calls: metrics
                .counters("controller_calls", "Attempts of calls, by purpose and outcome")?,
            call_seconds: metrics.histograms(
                "controller_call_seconds",
                "Time from sending a call to its reply",
                Buckets::SECONDS,
            )?,
            calls_under_way: metrics.register(
                "controller_calls_under_way",
                "Calls that were sent and not replied to yet",
                Gauge::default(),
            )?,
            inquiries: metrics
                .counters("controller_inquiries", "Questions about the outside, by outcome")?,
            leading: metrics.register(
                "controller_leading",
                "Whether this process may write: 1 or 0",
                Gauge::default(),
            )?,
        })
    }

    pub(crate) fn passed(&self, controller: &'static str, how: Passed, took: Duration) {
        let result = match how {
            Passed::Done => "done",
            Passed::Failed => "failed",
            Passed::Panicked => "panicked",
        };
        self.passes.get_or_create(&PassLabels { controller, result }).inc();
        self.seconds.get_or_create(&ControllerLabel { controller }).observe(took.as_secs_f64());
    }

    pub(crate) fn waiting(&self, controller: &'static str, keys: usize) {
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

    pub(crate) fn broke(&self, kind: &str) {
        self.breaks.get_or_create(&KindLabel { kind: kind.to_owned() }).inc();
    }

    pub(crate) fn objects(&self, kind: &str) -> Gauge {
        self.objects.get_or_create_owned(&KindLabel { kind: kind.to_owned() })
    }

    pub(crate) fn unreadable(&self, kind: &str) {
        self.unreadable.get_or_create(&KindLabel { kind: kind.to_owned() }).inc();
    }

    pub(crate) fn told(&self, what: Told) {
        let result = match what {
            Told::Written => "written",
            Told::Filtered => "filtered",
            Told::Overflowed => "overflowed",
            Told::Refused => "refused",
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
            CallOutcome::Unanswered => "unanswered",
            CallOutcome::GivenUp => "given_up",
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
