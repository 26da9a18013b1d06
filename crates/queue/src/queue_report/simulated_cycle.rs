//! Runs one admission cycle without effects, and sorts its decisions by AppWrapper.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gantry_reconcile::{Controller as _, Held, Key, Subresource, View as _, World, Write};
use jiff::Timestamp;
use serde_json::Value;

use super::{Wait, WaitReason, mentions};
use crate::access;
use crate::admission_cycle::Dispatch;
use crate::app_wrapper::AppWrapper;
use crate::charge;
use crate::condition::{self, BackoffReason, QueueCondition as Said, kind};
use crate::listing::PendingAppWrapper;
use crate::order::SchedulingClass;
use crate::queue_cache;
use crate::settings::{LiveSettings, Settings};

/// What the queue would do now.
#[derive(Debug)]
pub(super) struct SimulatedCycle {
    now: Timestamp,
    /// The AppWrappers that are admitted.
    admitted: BTreeSet<Key>,
    /// The AppWrappers that are preempted, and the messages about it.
    preempted: Vec<(Key, String)>,
    /// The AppWrappers that do not fit, and why: the first of each class.
    held: BTreeMap<Key, Held>,
    classes: HashMap<SchedulingClass, Key>,
    trees: BTreeSet<String>,
    /// The AppWrapper that holds the head of the line, and until when.
    head_of_line: Option<(Key, Timestamp)>,
}

impl SimulatedCycle {
    pub(super) fn of(world: &World, settings: &Settings, now: Timestamp) -> Self {
        let dispatch = Dispatch::new(LiveSettings::new(*settings));
        let plan = dispatch.plan(world, &Dispatch::queue_key(), now);
        let mut answer = Self {
            now,
            admitted: BTreeSet::new(),
            preempted: Vec::new(),
            held: BTreeMap::new(),
            classes: HashMap::new(),
            trees: queue_cache::quota_trees(world, settings),
            head_of_line: None,
        };
        for step in &plan.steps {
            let Write::Merge { resource, key, subresource: Subresource::Status, body, .. } =
                &step.write
            else {
                continue;
            };
            if *resource == AppWrapper::RESOURCE {
                answer.record_status(key, &body["status"], settings);
            }
        }
        let store = world.store::<AppWrapper>();
        // A problem of one author says nothing about other AppWrappers of the class.
        let alike = plan.held.into_iter().filter(|it| reason_of(&it.reason) != WaitReason::Access);
        for held in alike {
            let key = held.about.key.clone();
            if let Some(until) = held.until {
                answer.head_of_line = Some((key.clone(), until));
            }
            // Others of its class may use the leaf that it may not.
            let alike = held.reason != condition::reason::LEAF;
            if let Some(wrapper) = store.get(&key).filter(|_| alike) {
                let class = SchedulingClass::of(&wrapper, settings, &answer.trees);
                answer.classes.entry(class).or_insert_with(|| key.clone());
            }
            answer.held.insert(key, held);
        }
        answer
    }

    /// Records a status that would be written.
    fn record_status(&mut self, key: &Key, status: &Value, settings: &Settings) {
        if status["canrun"] == true {
            self.admitted.insert(key.clone());
            return;
        }
        match status["queuejobstate"].as_str() {
            Some("Preempted") => {
                let said = status["message"].as_str().unwrap_or_default().to_owned();
                self.preempted.push((key.clone(), said));
            }
            Some("HeadOfLine") => {
                let until = self.now.checked_add(settings.holding).unwrap_or(Timestamp::MAX);
                self.head_of_line = Some((key.clone(), until));
            }
            Some(_) | None => {}
        }
    }

    /// Returns what an AppWrapper waits for.
    pub(super) fn wait(
        &self,
        entry: &PendingAppWrapper,
        wrapper: &AppWrapper,
        world: &World,
        settings: &Settings,
    ) -> Wait {
        let key = &entry.key;
        if let Some(until) = entry.backoff_until {
            let said = condition::newest(&wrapper.status, kind::BACKOFF);
            let message = said.and_then(|it| it.message.clone()).unwrap_or_default();
            return Wait { reason: WaitReason::Backoff, message, until: Some(until) };
        }
        if self.admitted.contains(key) {
            let message = "there is free capacity for it".to_owned();
            return Wait { reason: WaitReason::NextCycle, message, until: Some(self.now) };
        }
        if settings.user_access.is_checked()
            && let Err(why) = access::may_admit(world, wrapper, settings.user_access, self.now)
        {
            return Wait { reason: WaitReason::Access, message: why.to_string(), until: None };
        }
        let first = self.held.get(key).map(|_| key);
        let class = || SchedulingClass::of(wrapper, settings, &self.trees);
        let first = first.or_else(|| self.classes.get(&class()));
        if let Some(held) = first.and_then(|it| self.held.get(it)) {
            let until =
                self.head_of_line.as_ref().filter(|(holder, _)| holder == key).map(|it| it.1);
            let (reason, message) = (reason_of(&held.reason), held.message.clone());
            return Wait { reason, message, until };
        }
        if let Some((holder, until)) = &self.head_of_line {
            let message = format!("AppWrapper {holder} holds the head of the line");
            return Wait { reason: WaitReason::HeadOfLine, message, until: Some(*until) };
        }
        if settings.quota {
            let missing = charge::missing_labels(world, wrapper);
            if !missing.is_empty() {
                let labels: Vec<String> =
                    missing.iter().map(|(tree, node)| format!("{tree}={node}")).collect();
                let message = format!("it is about to get the labels {}", labels.join(", "));
                return Wait { reason: WaitReason::Labels, message, until: None };
            }
        }
        let victims = self.preempted.iter().filter(|(_, said)| mentions(said, key));
        let victims: Vec<String> = victims.map(|(victim, _)| victim.to_string()).collect();
        if !victims.is_empty() {
            let message = format!("{} must be preempted for it", victims.join(", "));
            return Wait { reason: WaitReason::Victims, message, until: None };
        }
        let message = "AppWrappers ahead of it are evaluated first".to_owned();
        Wait { reason: WaitReason::NextCycle, message, until: None }
    }
}

/// Returns the wait reason for a backoff reason.
pub(super) fn reason_of(text: &str) -> WaitReason {
    let is = |pause: BackoffReason| Said::Backoff(pause).reason() == Some(text);
    match text {
        access::reason::UNSETTLED | access::reason::DENIED => WaitReason::Access,
        _ if is(BackoffReason::Author) => WaitReason::Access,
        _ if is(BackoffReason::Quota) || is(BackoffReason::Leaf) => WaitReason::Quota,
        _ => WaitReason::Resources,
    }
}
