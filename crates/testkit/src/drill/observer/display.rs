//! Formats the observed state.

use std::time::Duration;

use super::super::amounts::Amounts;
use super::super::processes::Kills;
use super::super::summary::Report;
use super::{FinalAppWrappers, Observer, Wrapper, count};

/// The header of the columns of [`Observer::status_line`].
pub(in super::super) const STATUS_HEADER: &str = "  time   done  run hold wait   p9 d/r/w      p5 \
                                                  d/r/w      p0 d/r/w      nodes  pods   cpu  gpu  \
                                                  quota";

/// The priorities, in the order of the columns.
const PRIORITIES: [i32; 3] = [9, 5, 0];

impl Observer {
    /// Returns which preemptions happened since the last call, and why.
    pub(in super::super) fn take_preemption_summary(&mut self) -> Option<String> {
        let fresh = std::mem::take(&mut self.new_reasons);
        let reasons: Vec<String> =
            fresh.iter().map(|(why, times)| format!("{times} {why}")).collect();
        (!reasons.is_empty()).then(|| format!("preempted: {}", reasons.join(", ")))
    }

    /// Returns the whole state in a line.
    pub(in super::super) fn status_line(&self) -> String {
        let is = |state: &'static str| count(self.wrappers.values().filter(|it| it.state == state));
        let waiting = count(self.wrappers.values().filter(|it| is_pending(it)));
        let columns = PRIORITIES.map(|priority| {
            let all = || {
                let of = |name: &String| self.app_wrappers.get(name).map(|it| it.priority);
                self.wrappers.iter().filter(move |(name, _)| of(name) == Some(priority))
            };
            let done = count(all().filter(|(_, it)| it.state == "Completed"));
            let waiting = count(all().filter(|(_, it)| is_pending(it)));
            let running = count(all()) - done - waiting;
            format!("{done}/{running}/{waiting}")
        });
        let ready = self.nodes.values().filter(|it| it.is_ready);
        let mut has = Amounts::default();
        ready.clone().for_each(|node| has.add(node.has));
        let mut takes = Amounts::default();
        for pod in self.pods.values().filter(|it| !it.is_finished && !it.node.is_empty()) {
            takes.add(pod.takes);
        }
        let running = self.pods.values().filter(|it| it.is_running).count();
        let root = self.limits.first().map(|it| it.most).unwrap_or_default();
        let mut charged = Amounts::default();
        for (name, _) in
            self.wrappers.iter().filter(|(_, it)| it.holds && it.queue_state != "Preempted")
        {
            self.app_wrappers.get(name).into_iter().for_each(|it| charged.add(it.demand));
        }
        format!(
            "{:>6} {:>4} {:>4} {:>4}   {:<13} {:<13} {:<13} {:>2}/{:<2} {:>6} {:>4}% {:>3}% {:>5}%",
            is("Completed"),
            is("Running"),
            is("RunningHoldCompletion"),
            waiting,
            columns[0],
            columns[1],
            columns[2],
            count(ready),
            self.nodes.len(),
            running,
            percent(takes.cpu, has.cpu),
            percent(takes.gpu, has.gpu),
            percent(charged.cpu, root.cpu),
        )
    }

    /// Returns the report of the drill.
    pub(in super::super) fn report(
        &self,
        took: Duration,
        kills: Kills,
        ended: &FinalAppWrappers,
    ) -> Report {
        let quota = self.limits.iter().zip(&self.most_charged).map(|(limit, most)| {
            let node = limit.leaf.unwrap_or("root");
            (format!("{}/{node}", limit.tree), percent(most.cpu, limit.most.cpu))
        });
        Report {
            completed: count(ended.wrappers.values()),
            took,
            dispatches: ended.wrappers.values().map(|it| it.admissions).sum(),
            preemptions: self.reasons.clone(),
            priorities: PRIORITIES.map(|it| (it, self.average_times(it, ended))).into(),
            kills,
            events: self.events,
            gaps: self.gaps,
            highest_quota: quota.collect(),
            most_pods: self.most_pods,
        }
    }

    /// Returns the AppWrappers in their final states.
    pub(in super::super) fn final_app_wrappers(&self) -> FinalAppWrappers {
        FinalAppWrappers { wrappers: self.wrappers.clone() }
    }

    /// Returns how long AppWrappers of a priority were pending and took on average, from their
    /// submission.
    fn average_times(&self, priority: i32, ended: &FinalAppWrappers) -> (u32, Duration, Duration) {
        let of = self.app_wrappers.values().filter(|it| it.priority == priority);
        let mut sums = (0, Duration::ZERO, Duration::ZERO);
        for planned in of {
            let submitted = self.submitted.get(&planned.name).copied().unwrap_or_default();
            let Some(wrapper) = ended.wrappers.get(&planned.name) else { continue };
            let since = |at: Option<Duration>| at.unwrap_or_default().saturating_sub(submitted);
            sums.0 += 1;
            sums.1 += since(wrapper.first_admitted);
            sums.2 += since(wrapper.done);
        }
        let (count, waited, took) = sums;
        (count, waited / count.max(1), took / count.max(1))
    }
}

fn is_pending(wrapper: &Wrapper) -> bool {
    matches!(wrapper.state.as_str(), "" | "Pending")
}

fn percent(part: i64, whole: i64) -> i64 {
    if whole == 0 { 0 } else { part * 100 / whole }
}
