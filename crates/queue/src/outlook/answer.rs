//! One decision about the whole queue, taken apart by whom it is about.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gantry_reconcile::{Controller as _, Held, Key, Part, View as _, World, Write};
use jiff::Timestamp;
use serde_json::Value;

use super::{Reason, Wait, mentions};
use crate::access;
use crate::app_wrapper::AppWrapper;
use crate::books;
use crate::charge;
use crate::condition::{self, Entry as Said, Pause, kind};
use crate::decide::Dispatch;
use crate::listing::Entry;
use crate::order::Class;
use crate::settings::{Live, Settings};

/// What the queue would do now.
#[derive(Debug)]
pub(super) struct Answer {
    now: Timestamp,
    /// Who passes.
    passes: BTreeSet<Key>,
    /// Who makes room, and what is said about it.
    yields: Vec<(Key, String)>,
    /// Who does not fit, and why: the first of each class.
    held: BTreeMap<Key, Held>,
    classes: HashMap<Class, Key>,
    trees: BTreeSet<String>,
    /// Who holds the line, and until when.
    line: Option<(Key, Timestamp)>,
}

impl Answer {
    pub(super) fn of(world: &World, settings: &Settings, now: Timestamp) -> Self {
        let dispatch = Dispatch::new(Live::new(*settings));
        let plan = dispatch.plan(world, &Dispatch::queue(), now);
        let mut answer = Self {
            now,
            passes: BTreeSet::new(),
            yields: Vec::new(),
            held: BTreeMap::new(),
            classes: HashMap::new(),
            trees: books::trees(world, settings),
            line: None,
        };
        for step in &plan.steps {
            let Write::Merge { resource, key, part: Part::Status, body, .. } = &step.write else {
                continue;
            };
            if *resource == AppWrapper::RESOURCE {
                answer.note(key, &body["status"], settings);
            }
        }
        let shelf = world.shelf::<AppWrapper>();
        // What is said of one whose author may not have it is no word about those that are like it.
        let alike = plan.held.into_iter().filter(|it| reason_of(&it.reason) != Reason::Access);
        for held in alike {
            let key = held.about.key.clone();
            if let Some(until) = held.until {
                answer.line = Some((key.clone(), until));
            }
            // Others that are like it may use the leaf that it may not.
            let alike = held.reason != condition::reason::LEAF;
            if let Some(wrapper) = shelf.get(&key).filter(|_| alike) {
                let class = Class::of(&wrapper, settings, &answer.trees);
                answer.classes.entry(class).or_insert_with(|| key.clone());
            }
            answer.held.insert(key, held);
        }
        answer
    }

    /// Takes note of a status that would be written.
    fn note(&mut self, key: &Key, status: &Value, settings: &Settings) {
        if status["canrun"] == true {
            self.passes.insert(key.clone());
            return;
        }
        match status["queuejobstate"].as_str() {
            Some("Preempted") => {
                let said = status["message"].as_str().unwrap_or_default().to_owned();
                self.yields.push((key.clone(), said));
            }
            Some("HeadOfLine") => {
                let until = self.now.checked_add(settings.holding).unwrap_or(Timestamp::MAX);
                self.line = Some((key.clone(), until));
            }
            Some(_) | None => {}
        }
    }

    /// What one waits for.
    pub(super) fn wait(
        &self,
        entry: &Entry,
        wrapper: &AppWrapper,
        world: &World,
        settings: &Settings,
    ) -> Wait {
        let key = &entry.key;
        if let Some(until) = entry.rests_until {
            let said = condition::newest(&wrapper.status, kind::BACKOFF);
            let message = said.and_then(|it| it.message.clone()).unwrap_or_default();
            return Wait { reason: Reason::Backoff, message, until: Some(until) };
        }
        if self.passes.contains(key) {
            let message = "there is room for it".to_owned();
            return Wait { reason: Reason::Turn, message, until: Some(self.now) };
        }
        if settings.check_user_access
            && let Err(why) = access::may_pass(world, wrapper, self.now)
        {
            return Wait { reason: Reason::Access, message: why.to_string(), until: None };
        }
        let first = self.held.get(key).map(|_| key);
        let class = || Class::of(wrapper, settings, &self.trees);
        let first = first.or_else(|| self.classes.get(&class()));
        if let Some(held) = first.and_then(|it| self.held.get(it)) {
            let until = self.line.as_ref().filter(|(holder, _)| holder == key).map(|it| it.1);
            let (reason, message) = (reason_of(&held.reason), held.message.clone());
            return Wait { reason, message, until };
        }
        if let Some((holder, until)) = &self.line {
            let message = format!("AppWrapper {holder} holds the line");
            return Wait { reason: Reason::HeadOfLine, message, until: Some(*until) };
        }
        if settings.quota {
            let missing = charge::missing_labels(world, wrapper);
            if !missing.is_empty() {
                let labels: Vec<String> =
                    missing.iter().map(|(tree, node)| format!("{tree}={node}")).collect();
                let message = format!("it is about to get the labels {}", labels.join(", "));
                return Wait { reason: Reason::Labels, message, until: None };
            }
        }
        let victims = self.yields.iter().filter(|(_, said)| mentions(said, key));
        let victims: Vec<String> = victims.map(|(victim, _)| victim.to_string()).collect();
        if !victims.is_empty() {
            let message = format!("{} must make room for it", victims.join(", "));
            return Wait { reason: Reason::Victims, message, until: None };
        }
        let message = "those before it are looked at first".to_owned();
        Wait { reason: Reason::Turn, message, until: None }
    }
}

/// What the reason of a pause means.
pub(super) fn reason_of(text: &str) -> Reason {
    let is = |pause: Pause| Said::Backoff(pause).reason() == Some(text);
    match text {
        access::reason::OPEN | access::reason::DENIED => Reason::Access,
        _ if is(Pause::Author) => Reason::Access,
        _ if is(Pause::Quota) || is(Pause::Leaf) => Reason::Quota,
        _ => Reason::Resources,
    }
}
