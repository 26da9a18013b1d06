//! Probes programs: runs the probes of their containers periodically, and records the results.

use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::Clock;
use tokio_util::sync::CancellationToken;

use super::action::{ActionRunner, ResolvedAction};
use crate::view::{Probe, ProbeKind, ProbeVerdict};

/// The state of a probe. Pure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeState {
    pub(super) verdict: ProbeVerdict,
    pub(super) failure: Option<String>,
    pub(super) consecutive: u32,
    success_threshold: u32,
    failure_threshold: u32,
}

fn at_least_one(value: Option<i32>, default: u32) -> u32 {
    value.map_or(default, |it| u32::try_from(it).unwrap_or(1)).max(1)
}

fn seconds(value: Option<i32>, default: u32) -> Duration {
    Duration::from_secs(at_least_one(value, default).into())
}

impl ProbeState {
    pub(super) fn new(probe: &Probe) -> Self {
        Self {
            verdict: ProbeVerdict::Undecided,
            failure: None,
            consecutive: 0,
            success_threshold: at_least_one(probe.success_threshold, 1),
            failure_threshold: at_least_one(probe.failure_threshold, 3),
        }
    }

    /// Returns the state after one more attempt. The count stops at the threshold: further equal
    /// results change nothing.
    pub(super) fn after_attempt(mut self, result: Result<(), String>) -> Self {
        let same = self.consecutive > 0 && self.failure.is_none() == result.is_ok();
        let (threshold, verdict) = match result {
            Ok(()) => (self.success_threshold, ProbeVerdict::Passing),
            Err(_) => (self.failure_threshold, ProbeVerdict::Failing),
        };
        self.consecutive = if same { (self.consecutive + 1).min(threshold) } else { 1 };
        if self.consecutive >= threshold {
            self.verdict = verdict;
        }
        self.failure = result.err();
        self
    }
}

/// One probe of a run of a program.
pub(super) struct Prober {
    pub(super) kind: ProbeKind,
    pub(super) probe: Probe,
    pub(super) attempt: ResolvedAction,
    pub(super) attempts: Arc<ActionRunner>,
    /// Cancelled when the startup probe succeeded; the others begin then.
    pub(super) started: CancellationToken,
}

impl Prober {
    /// Probes until the result can change nothing any more, or it is dropped.
    pub(super) async fn run(self, clock: &Clock, record: impl Fn(ProbeKind, &ProbeState)) {
        let Self { kind, probe, attempt, attempts, started } = self;
        let delay = probe.initial_delay_seconds.and_then(|it| u64::try_from(it).ok());
        clock.sleep(Duration::from_secs(delay.unwrap_or_default())).await;
        if kind != ProbeKind::Startup {
            started.cancelled().await;
        }
        let period = seconds(probe.period_seconds, 10);
        let timeout = seconds(probe.timeout_seconds, 1);
        let mut probe_state = ProbeState::new(&probe);
        loop {
            let result = attempts.run(&attempt, timeout).await;
            let next = probe_state.clone().after_attempt(result);
            if next != probe_state {
                record(kind, &next);
                probe_state = next;
            }
            match (kind, probe_state.verdict) {
                (ProbeKind::Startup, ProbeVerdict::Passing) => {
                    started.cancel();
                    return;
                }
                // The run ends; further probes change nothing.
                (ProbeKind::Startup | ProbeKind::Liveness, ProbeVerdict::Failing) => return,
                (ProbeKind::Readiness, ProbeVerdict::Failing | ProbeVerdict::Passing)
                | (ProbeKind::Liveness, ProbeVerdict::Passing)
                | (_, ProbeVerdict::Undecided) => {}
            }
            clock.sleep(period).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_decide_the_probe_result() {
        use ProbeVerdict::{Failing, Passing, Undecided};
        let probe =
            Probe { success_threshold: Some(2), failure_threshold: Some(3), ..Probe::default() };
        // Each attempt, and the resulting state.
        let table = [
            (true, Undecided, 1),
            (false, Undecided, 1),
            (true, Undecided, 1),
            (true, Passing, 2),
            (true, Passing, 2),
            (false, Passing, 1),
            (false, Passing, 2),
            (true, Passing, 1),
            (false, Passing, 1),
            (false, Passing, 2),
            (false, Failing, 3),
            (false, Failing, 3),
            (true, Failing, 1),
            (true, Passing, 2),
        ];
        let mut probe_state = ProbeState::new(&probe);
        for (at, (good, verdict, in_a_row)) in table.into_iter().enumerate() {
            probe_state =
                probe_state.after_attempt(if good { Ok(()) } else { Err("bad".to_owned()) });
            assert_eq!(
                (probe_state.verdict, probe_state.consecutive),
                (verdict, in_a_row),
                "attempt {at}"
            );
            assert_eq!(probe_state.failure.is_none(), good, "attempt {at}");
        }
        let usual = ProbeState::new(&Probe::default());
        assert_eq!((usual.success_threshold, usual.failure_threshold), (1, 3));
    }
}
