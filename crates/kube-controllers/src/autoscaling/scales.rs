//! Decides which scales are read.

use std::time::Duration;

use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, WantedQuestions};
use gantry_reconcile::{Change, Inquiry, Key, Kind, World};
use jiff::{SignedDuration, Timestamp};

use crate::view::{AutoscalerTarget, HorizontalPodAutoscaler, TargetScale};

/// The timeout of reading one scale. A custom resource of another version may wait for its
/// conversion webhook.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How many scales are read at once, and how many of one namespace: a slow one delays no other.
const CONCURRENCY: Concurrency = Concurrency { total: 16, per_group: 4 };

/// Requests the scales of autoscaler targets, as often as usage is sampled.
#[derive(Clone, Copy, Debug)]
pub struct ScaleInquiry {
    window: SignedDuration,
}

impl ScaleInquiry {
    /// Creates an inquiry for autoscalers that use this sampling.
    #[must_use]
    pub fn new(window: SignedDuration) -> Self {
        Self { window }
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
        // The status of an autoscaler changes with every decision, its target hardly ever.
        match target(change.before()) == target(change.after()) {
            true => Vec::new(),
            false => vec![change.key.clone()],
        }
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        _: Timestamp,
    ) -> WantedQuestions<AutoscalerTarget> {
        let autoscaler = world.store::<HorizontalPodAutoscaler>().get(key);
        autoscaler.iter().map(|it| AutoscalerTarget::of(it)).collect()
    }

    fn policy(&self, _: &AutoscalerTarget) -> InquiryPolicy {
        InquiryPolicy {
            refresh_interval: self.window.unsigned_abs(),
            // The responder itself reports a read that took too long.
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
    fn a_shared_target_is_read_once_and_again_after_a_change() {
        let inquiry = ScaleInquiry::new(SignedDuration::from_secs(15));
        let world = World::new(inquiry.kinds());
        let shelf = world.single_store_for(&HorizontalPodAutoscaler::RESOURCE).unwrap();
        let see = |object: Value| shelf.observe(&object.to_string()).unwrap().unwrap();
        let key = |name: &str| Key::new("n", name);
        let enqueued = |change: &Change| inquiry.enqueue(&world, change);
        assert_eq!(enqueued(&see(autoscaler("a", "web", "1"))), [key("a")]);
        assert_eq!(enqueued(&see(autoscaler("b", "web", "2"))), [key("b")]);
        let wanted = |name: &str| {
            inquiry.wanted_questions(&world, &key(name), Timestamp::UNIX_EPOCH).questions
        };
        assert_eq!(wanted("a"), wanted("b"));
        assert_eq!(wanted("a").len(), 1);
        let mut counted = autoscaler("a", "web", "3");
        counted["status"] = json!({"currentReplicas": 3});
        assert_eq!(enqueued(&see(counted)), [], "the target is the same");
        assert_eq!(enqueued(&see(autoscaler("a", "other", "4"))), [key("a")]);
        assert_ne!(wanted("a"), wanted("b"));
        let gone =
            shelf.observe_deletion(&autoscaler("a", "other", "5").to_string()).unwrap().unwrap();
        assert_eq!(enqueued(&gone), [key("a")]);
        assert!(wanted("a").is_empty());
    }
}
