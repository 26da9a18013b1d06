//! What events say about the failed hooks of driver containers.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_reconcile::inquiry::{InquiryPolicy, WantedQuestions};
use gantry_reconcile::{Change, Fact, Inquiry, Key, Kind, Uid, World};
use jiff::Timestamp;

use crate::driver_failure::wanted_hooks;
use crate::view::{DaemonSet, ModulePod};

/// The question why a hook of a pod failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailedHookQuery {
    /// The namespace.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// Its UID.
    pub uid: Uid,
}

/// Why a hook of a pod failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedHook {
    /// The words of its last event; empty if there is none.
    pub message: String,
}

impl Fact for FailedHook {
    type Subject = FailedHookQuery;
    const NAME: &'static str = "failed-hook";
}

/// How often the events of a pod are read while none tells anything: kubelets send them late.
const MISSING_EVENT_INTERVAL: Duration = Duration::from_secs(10);
/// How often they are read again.
const EVENT_REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// Reads the events about failed hooks of driver containers that say nothing themselves. They are
/// read one pod at a time, and not watched: a cluster has many events.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailedHookInquiry;

impl Inquiry for FailedHookInquiry {
    type Fact = FailedHook;

    fn name(&self) -> &'static str {
        "module-failed-hooks"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ModulePod>(), Kind::of::<DaemonSet>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let keys: BTreeSet<Key> =
            change.both::<ModulePod>().filter_map(ModulePod::module).collect();
        keys.into_iter().collect()
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        _: Timestamp,
    ) -> WantedQuestions<FailedHookQuery> {
        wanted_hooks(world, key).into_iter().collect()
    }

    fn policy(&self, _: &FailedHookQuery) -> InquiryPolicy {
        InquiryPolicy { refresh_interval: EVENT_REFRESH_INTERVAL, ..InquiryPolicy::default() }
    }

    fn refresh_interval(&self, _: &FailedHookQuery, answer: &FailedHook) -> Duration {
        match answer.message.is_empty() {
            true => MISSING_EVENT_INTERVAL,
            false => EVENT_REFRESH_INTERVAL,
        }
    }

    fn group(&self, question: &FailedHookQuery) -> String {
        question.namespace.clone()
    }
}
