//! What came of a crowd, by the statuses that were written.

use std::collections::{BTreeMap, BTreeSet};

use gantry_reconcile::View as _;
use jiff::Timestamp;
use serde_json::Value;

use super::{BEGIN, Crowd, Micros};
use crate::app_wrapper::AppWrapper;

/// What came of it.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) wall: Micros,
    pub(super) completed: usize,
    /// How often each AppWrapper was taken back that was.
    pub(super) taken_back: BTreeMap<String, usize>,
    /// How often statuses of AppWrappers were written.
    pub(super) statuses: usize,
    /// Requests by controller.
    pub(super) writes: BTreeMap<&'static str, usize>,
    /// How long jobs of each size waited until they passed, in all.
    pub(super) waits: BTreeMap<String, Micros>,
    /// Where those are that have not completed.
    pub(super) open: BTreeMap<String, String>,
}

impl Figures {
    pub(super) fn taken_back(&self) -> usize {
        self.taken_back.values().sum()
    }
}

impl Crowd<'_> {
    /// What came of it.
    pub(super) fn figures(self) -> Figures {
        let mut figures = Figures {
            wall: 0,
            completed: 0,
            taken_back: BTreeMap::new(),
            statuses: 0,
            writes: self.desks.iter().map(|it| (it.controller.name(), it.writes)).collect(),
            waits: BTreeMap::new(),
            open: BTreeMap::new(),
        };
        let mut passed: BTreeSet<String> = BTreeSet::new();
        let mut steps: BTreeMap<String, String> = BTreeMap::new();
        for (text, _) in self.server.history(&AppWrapper::RESOURCE) {
            let object: Value = serde_json::from_str(text).unwrap();
            let meta = &object["metadata"];
            let name = format!("{}/{}", meta["namespace"], meta["name"]);
            let step = object["status"]["queuejobstate"].as_str().unwrap_or_default().to_owned();
            figures.statuses += usize::from(!object["status"].is_null());
            if step == "Preempted" && steps.get(&name) != Some(&step) {
                *figures.taken_back.entry(name.clone()).or_default() += 1;
            }
            if object["status"]["canrun"] == true && passed.insert(name.clone()) {
                let class = meta["labels"]["class"].as_str().unwrap_or_default().to_owned();
                *figures.waits.entry(class).or_default() += waited(&object);
            }
            let said = object["status"]["message"].as_str().unwrap_or_default();
            figures.open.insert(name.clone(), format!("{step}: {said}"));
            if step == "Completed" && steps.get(&name) != Some(&step) {
                figures.completed += 1;
                let list = object["status"]["conditions"].as_array().unwrap();
                let last = list.iter().find(|it| it["type"] == "Completed").unwrap();
                let when: Timestamp =
                    last["lastTransitionMicroTime"].as_str().unwrap().parse().unwrap();
                let passed = when.duration_since(Timestamp::from_second(BEGIN).unwrap());
                let passed = u64::try_from(passed.as_micros()).unwrap();
                figures.wall = figures.wall.max(passed);
            }
            steps.insert(name, step);
        }
        figures.open.retain(|name, _| steps.get(name).is_none_or(|it| it != "Completed"));
        figures
    }
}

/// How long one that has just passed has waited, by its own status.
fn waited(wrapper: &Value) -> Micros {
    let list = wrapper["status"]["conditions"].as_array().unwrap();
    let passed = list.iter().find(|it| it["type"] == "HeadOfLine").unwrap();
    let at = |it: &Value| it.as_str().unwrap().parse::<Timestamp>().unwrap();
    let passed = at(&passed["lastTransitionMicroTime"]);
    let waited = passed.duration_since(at(&wrapper["metadata"]["creationTimestamp"]));
    u64::try_from(waited.as_micros()).unwrap_or_default()
}
