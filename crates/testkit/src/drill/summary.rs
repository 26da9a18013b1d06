//! What came of a drill.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::processes::Kills;

/// What came of it, when every promise was kept.
#[derive(Clone, Debug)]
pub struct Report {
    /// AppWrappers that completed: all of them.
    pub completed: u32,
    /// From the first that was submitted until the last was completed.
    pub took: Duration,
    /// How often one passed; more than once if it was taken back.
    pub dispatches: u32,
    /// Why they were taken back, and how often.
    pub taken_back: BTreeMap<String, u32>,
    /// For each priority: how many, and how long they waited and took on average.
    pub priorities: Vec<(i32, (u32, Duration, Duration))>,
    /// Who was killed.
    pub kills: Kills,
    /// Changes that were seen, after each of which everything was judged.
    pub events: u64,
    /// How often a watch could not go on where it was.
    pub gaps: u32,
    /// The most that was charged to a root or a node that may not borrow, in hundredths of its cpu quota.
    pub highest_quota: BTreeMap<String, i64>,
    /// The most pods that were on one node.
    pub most_pods: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { completed, took, dispatches, kills, events, gaps, most_pods, .. } = self;
        let Kills { operators, servers, relapses } = kills;
        writeln!(
            f,
            "{completed} completed in {:.1} s, dispatched {dispatches} times",
            took.as_secs_f64()
        )?;
        let back: Vec<String> =
            self.taken_back.iter().map(|(why, times)| format!("{times} {why}")).collect();
        let back = if back.is_empty() { "never".to_owned() } else { back.join(", ") };
        writeln!(f, "taken back: {back}")?;
        for (priority, (count, waited, took)) in &self.priorities {
            let (waited, took) = (waited.as_secs_f64(), took.as_secs_f64());
            writeln!(
                f,
                "priority {priority}: {count} waited {waited:.1} s and took {took:.1} s on average"
            )?;
        }
        writeln!(
            f,
            "killed: the operator {operators} times, the server {servers} times; ended by itself: the \
             operator {relapses} times"
        )?;
        let quota: Vec<String> = self
            .highest_quota
            .iter()
            .map(|(node, percent)| format!("{node} {percent} %"))
            .collect();
        writeln!(f, "most that was charged: {}", quota.join(", "))?;
        write!(
            f,
            "judged after each of {events} changes ({gaps} lists made anew); at most {most_pods} pods on a node"
        )
    }
}
