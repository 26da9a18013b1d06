//! Which scales are to be read.

use std::time::Duration;

use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, Wanted};
use gantry_reconcile::{Change, Inquiry, Key, Kind, World};
use jiff::Timestamp;

use crate::usage::Sampling;
use crate::view::{AutoscalerTarget, HorizontalPodAutoscaler, TargetScale};

/// How long one scale may take to be read. A kind of another version may wait for its converter.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How many scales are read at once, and how many of one namespace: one that is slow delays no other.
const CONCURRENCY: Concurrency = Concurrency { total: 16, per_group: 4 };

/// Asks for the scales of what autoscalers move, as often as usage is sampled.
#[derive(Clone, Copy, Debug)]
pub struct ScaleInquiry {
    sampling: Sampling,
}

impl ScaleInquiry {
    /// An inquiry about autoscalers that decide by such samples.
    #[must_use]
    pub fn new(sampling: Sampling) -> Self {
        Self { sampling }
    }
}

impl Inquiry for ScaleInquiry {
    type Fact = TargetScale;

    fn name(&self) -> &'static str {
        "target-scales"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<HorizontalPodAutoscaler>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let target = |it: Option<&HorizontalPodAutoscaler>| it.map(AutoscalerTarget::of);
        // The status of an autoscaler changes with every decision, and what it moves hardly ever.
        match target(change.before()) == target(change.after()) {
            true => Vec::new(),
            false => vec![change.key.clone()],
        }
    }

    fn wanted(&self, world: &World, key: &Key, _: Timestamp) -> Wanted<AutoscalerTarget> {
        let autoscaler = world.shelf::<HorizontalPodAutoscaler>().get(key);
        autoscaler.iter().map(|it| AutoscalerTarget::of(it)).collect()
    }

    fn policy(&self, _: &AutoscalerTarget) -> InquiryPolicy {
        InquiryPolicy {
            refresh_interval: self.sampling.window.unsigned_abs(),
            // The responder itself says that a read took too long.
            timeout: READ_TIMEOUT.saturating_mul(2),
            ..InquiryPolicy::default()
        }
    }

    fn concurrency(&self) -> Concurrency {
        CONCURRENCY
    }

    fn group(&self, target: &AutoscalerTarget) -> String {
        target.namespace.clone()
    }
}
