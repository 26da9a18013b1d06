//! The question about the log of an instance that takes long.

use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::inquiry::{InquiryPolicy, WantedQuestions};
use gantry_reconcile::{Change, FactChange, FactKind, Inquiry, Key, Kind, World};
use jiff::Timestamp;

use super::policy;
use crate::facts::{Endpoint, InstanceLog, LauncherState, LogQuestion};
use crate::labels::INSTANCE_ID_ANNOTATION;
use crate::view::ActuationPod;

/// Asks launchers for the end of the log of an instance that takes long to answer or to wake, so
/// that it is known when the instance is given up.
#[derive(Clone, Debug)]
pub struct LogInquiry;

/// After how long such a log is asked for, and how often from then on.
const LOG_INTERVAL: Duration = Duration::from_secs(2);

impl Inquiry for LogInquiry {
    type Fact = InstanceLog;

    fn name(&self) -> &'static str {
        "instance-logs"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ActuationPod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let concerns = change.both::<ActuationPod>().any(ActuationPod::is_launcher);
        concerns.then(|| change.key.clone()).into_iter().collect()
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<LauncherState>()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let change = change.of::<LauncherState>();
        change.map(|it| it.subject.pod.clone()).into_iter().collect()
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        now: Timestamp,
    ) -> WantedQuestions<LogQuestion> {
        let mut wanted = WantedQuestions::default();
        let pod = world.store::<ActuationPod>().get(key);
        let Some((pod, question)) = pod.and_then(|it| Some((Arc::clone(&it), log_question(&it)?)))
        else {
            return wanted;
        };
        let state = world.facts::<LauncherState>().observed(&question.launcher);
        let instance = state.as_ref().and_then(|it| it.value.instance(&question.instance));
        if pod.is_marked_awake() || instance.is_none_or(|it| it.is_stopped) {
            return wanted;
        }
        let due = pod.last_use().checked_add(LOG_INTERVAL).unwrap_or(Timestamp::MAX);
        match now < due {
            true => wanted.requeue_at = Some(due),
            false => drop(wanted.questions.insert(question)),
        }
        wanted
    }

    fn policy(&self, _: &LogQuestion) -> InquiryPolicy {
        policy(LOG_INTERVAL)
    }
}

/// The question about the log of the instance that a launcher is bound for.
#[must_use]
pub fn log_question(launcher: &ActuationPod) -> Option<LogQuestion> {
    let is_asked = launcher.is_launcher()
        && launcher.is_reachable()
        && launcher.binding().is_some()
        && launcher.unbinding_since().is_none();
    let instance = launcher.annotation(INSTANCE_ID_ANNOTATION).filter(|_| is_asked)?.to_owned();
    let counter = launcher.binding_counter();
    Some(LogQuestion { launcher: Endpoint::launcher(launcher), instance, counter })
}
