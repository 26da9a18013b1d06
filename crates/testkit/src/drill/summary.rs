//! The report of a drill.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::processes::Kills;

/// The result of a drill without violations.
#[derive(Clone, Debug)]
pub struct Report {
    /// AppWrappers that completed: all of them.
    pub completed: u32,
    /// Time from the first submission until the last completion.
    pub took: Duration,
    /// The number of admissions; more than one per AppWrapper if it was preempted.
    pub dispatches: u32,
    /// Why AppWrappers were preempted, and how often.
    pub preemptions: BTreeMap<String, u32>,
    /// For each priority: how many AppWrappers, and how long they were pending and took on average.
    pub priorities: Vec<(i32, (u32, Duration, Duration))>,
    /// The number of kills.
    pub kills: Kills,
    /// Observed changes, after each of which all guarantees were checked.
    pub events: u64,
    /// How often a watch could not resume.
    pub gaps: u32,
    /// The most that was charged to a root or a node that may not borrow, as a percentage of its
    /// CPU quota.
    pub highest_quota: BTreeMap<String, i64>,
    /// The most pods that were on one node.
    pub most_pods: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { completed, took, dispatches, kills, events, gaps, most_pods, .. } = self;
        let Kills { operators, servers, restarts } = kills;
        writeln!(
            f,
            "{completed} completed in {:.1} s, dispatched {dispatches} times",
            took.as_secs_f64()
        )?;
        let preempted: Vec<String> =
            self.preemptions.iter().map(|(why, times)| format!("{times} {why}")).collect();
        let preempted =
            if preempted.is_empty() { "never".to_owned() } else { preempted.join(", ") };
        writeln!(f, "preempted: {preempted}")?;
        for (priority, (count, waited, took)) in &self.priorities {
            let (waited, took) = (waited.as_secs_f64(), took.as_secs_f64());
            writeln!(
                f,
                "priority {priority}: {count} pending {waited:.1} s and done in {took:.1} s on \
                 average"
            )?;
        }
        writeln!(
            f,
            "killed: the operator {operators} times, the server {servers} times; exited by itself: \
             the operator {restarts} times"
        )?;
        let quota: Vec<String> = self
            .highest_quota
            .iter()
            .map(|(node, percent)| format!("{node} {percent} %"))
            .collect();
        writeln!(f, "highest charge: {}", quota.join(", "))?;
        write!(
            f,
            "checked after {events} changes ({gaps} relists); at most {most_pods} pods on a node"
        )
    }
}
