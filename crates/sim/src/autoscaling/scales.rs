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

#[cfg(test)]
mod tests {
    use gantry_reconcile::View as _;
    use serde_json::{Value, json};

    use super::*;

    fn autoscaler(name: &str, target: &str, revision: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": revision},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}},
        })
    }

    #[test]
    fn a_target_is_asked_about_once_for_all_its_autoscalers_and_when_it_differs() {
        let inquiry = ScaleInquiry::new(Sampling { window: jiff::SignedDuration::from_secs(15) });
        let world = World::new(inquiry.kinds());
        let shelf = world.find(&HorizontalPodAutoscaler::RESOURCE).unwrap();
        let see = |object: Value| shelf.saw(&object.to_string()).unwrap().unwrap();
        let key = |name: &str| Key::new("n", name);
        let enqueued = |change: &Change| inquiry.enqueue(&world, change);
        assert_eq!(enqueued(&see(autoscaler("a", "web", "1"))), [key("a")]);
        assert_eq!(enqueued(&see(autoscaler("b", "web", "2"))), [key("b")]);
        let wanted =
            |name: &str| inquiry.wanted(&world, &key(name), Timestamp::UNIX_EPOCH).questions;
        assert_eq!(wanted("a"), wanted("b"));
        assert_eq!(wanted("a").len(), 1);
        let mut counted = autoscaler("a", "web", "3");
        counted["status"] = json!({"currentReplicas": 3});
        assert_eq!(enqueued(&see(counted)), [], "the target is the same");
        assert_eq!(enqueued(&see(autoscaler("a", "other", "4"))), [key("a")]);
        assert_ne!(wanted("a"), wanted("b"));
        let gone = shelf.saw_end(&autoscaler("a", "other", "5").to_string()).unwrap().unwrap();
        assert_eq!(enqueued(&gone), [key("a")]);
        assert!(wanted("a").is_empty());
    }
}
