//! Results of a load test, from the statuses that were written.

use std::collections::{BTreeMap, BTreeSet};

use gantry_reconcile::View as _;
use jiff::Timestamp;
use serde_json::Value;

use super::{LoadSimulation, Micros, START_SECONDS};
use crate::app_wrapper::AppWrapper;

/// The results of a load test.
#[derive(Debug)]
pub(super) struct LoadResults {
    pub(super) wall: Micros,
    pub(super) completed: usize,
    /// How often each preempted AppWrapper was preempted.
    pub(super) preemptions: BTreeMap<String, usize>,
    /// How often statuses of AppWrappers were written.
    pub(super) statuses: usize,
    /// Requests by controller.
    pub(super) writes: BTreeMap<&'static str, usize>,
    /// The total time that jobs of each size waited until they were admitted.
    pub(super) waits: BTreeMap<String, Micros>,
    /// The states of AppWrappers that have not completed.
    pub(super) unfinished: BTreeMap<String, String>,
}

impl LoadResults {
    pub(super) fn total_preemptions(&self) -> usize {
        self.preemptions.values().sum()
    }
}

impl LoadSimulation<'_> {
    /// Returns the results.
    pub(super) fn results(self) -> LoadResults {
        let mut figures = LoadResults {
            wall: 0,
            completed: 0,
            preemptions: BTreeMap::new(),
            statuses: 0,
            writes: self.controllers.iter().map(|it| (it.controller.name(), it.writes)).collect(),
            waits: BTreeMap::new(),
            unfinished: BTreeMap::new(),
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
                *figures.preemptions.entry(name.clone()).or_default() += 1;
            }
            if object["status"]["canrun"] == true && passed.insert(name.clone()) {
                let class = meta["labels"]["class"].as_str().unwrap_or_default().to_owned();
                *figures.waits.entry(class).or_default() += waited(&object);
            }
            let said = object["status"]["message"].as_str().unwrap_or_default();
            figures.unfinished.insert(name.clone(), format!("{step}: {said}"));
            if step == "Completed" && steps.get(&name) != Some(&step) {
                figures.completed += 1;
                let list = object["status"]["conditions"].as_array().unwrap();
                let last = list.iter().find(|it| it["type"] == "Completed").unwrap();
                let when: Timestamp =
                    last["lastTransitionMicroTime"].as_str().unwrap().parse().unwrap();
                let passed = when.duration_since(Timestamp::from_second(START_SECONDS).unwrap());
                let passed = u64::try_from(passed.as_micros()).unwrap();
                figures.wall = figures.wall.max(passed);
            }
            steps.insert(name, step);
        }
        figures.unfinished.retain(|name, _| steps.get(name).is_none_or(|it| it != "Completed"));
        figures
    }
}

/// Returns how long a newly admitted AppWrapper has waited, by its own status.
fn waited(wrapper: &Value) -> Micros {
    let list = wrapper["status"]["conditions"].as_array().unwrap();
    let passed = list.iter().find(|it| it["type"] == "HeadOfLine").unwrap();
    let at = |it: &Value| it.as_str().unwrap().parse::<Timestamp>().unwrap();
    let passed = at(&passed["lastTransitionMicroTime"]);
    let waited = passed.duration_since(at(&wrapper["metadata"]["creationTimestamp"]));
    u64::try_from(waited.as_micros()).unwrap_or_default()
}
