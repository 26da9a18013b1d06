//! The result of a run, in the figures that all controllers have.

use std::collections::BTreeMap;
use std::time::Duration;

use super::program::Cost;
use super::requests::Requests;
use crate::report::{Better, Figure};
use crate::sample::Samples;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Time from the first event of the first job until the last was completed.
    pub(crate) wall_time: Duration,
    /// How long jobs of each class were pending.
    pub(crate) waits: BTreeMap<String, Vec<Duration>>,
    /// The share of all CPUs that was in use, over the whole time.
    pub(crate) usage: f64,
    /// How often a job was preempted.
    pub(crate) preemptions: u64,
    /// Processor time and memory of the controller.
    pub(crate) cost: Cost,
    /// All requests to the server.
    pub(crate) requests: Requests,
    /// How many of the writes were made by the benchmark itself.
    pub(crate) own_writes: u64,
    /// Additional figures.
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    /// Returns the figures of this target under these conditions.
    #[expect(clippy::cast_precision_loss, reason = "counts of jobs are far below 2^52")]
    pub(crate) fn figures(&self, target: &str, setting: &str) -> Vec<Figure> {
        let figure = |what: &str, value, unit, better| Figure {
            what: what.to_owned(),
            target: target.to_owned(),
            setting: setting.to_owned(),
            value,
            unit,
            better,
            times: None,
            cpu_us: None,
        };
        let jobs = self.waits.values().map(Vec::len).sum::<usize>().max(1) as f64;
        let wall = self.wall_time.as_secs_f64();
        let events = self.requests.events();
        let writes = self.requests.writes().saturating_sub(self.own_writes + events);
        let mut all = vec![
            figure("wall", wall, "s", Better::Less),
            Figure {
                cpu_us: Some(self.cost.cpu.as_secs_f64() * 1e6 / jobs),
                ..figure("dispatches", jobs / wall.max(1e-9), "/s", Better::More)
            },
        ];
        for (class, waits) in &self.waits {
            let mut samples = Samples::default();
            waits.iter().for_each(|wait| samples.add(*wait));
            let total: f64 = waits.iter().map(Duration::as_secs_f64).sum();
            let mean = total * 1000.0 / waits.len().max(1) as f64;
            let what = format!("mean wait, {class}");
            let times = Some(samples.summary());
            all.push(Figure { times, ..figure(&what, mean, "ms", Better::Less) });
        }
        all.extend([
            figure("usage", self.usage * 100.0, "%", Better::More),
            figure("preemptions", self.preemptions as f64, "", Better::Less),
            figure("processor", self.cost.cpu.as_secs_f64(), "s", Better::Less),
            figure("memory, peak", self.cost.peak, "MB", Better::Less),
            figure("writes a job", writes as f64 / jobs, "", Better::Less),
            figure("events a job", events as f64 / jobs, "", Better::Less),
            figure("lists after the start", self.requests.lists() as f64, "", Better::Less),
        ]);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_2_all_systems_report_same_figures() {
        let seconds = Duration::from_secs;
        let waits = [("large", vec![seconds(1), seconds(3)]), ("small", vec![seconds(5); 2])];
        let outcome = Outcome {
            wall_time: seconds(8),
            waits: waits.map(|(class, waits)| (class.to_owned(), waits)).into(),
            usage: 0.5,
            preemptions: 3,
            cost: Cost { cpu: seconds(2), peak: 64.0 },
            requests: Requests::default(),
            own_writes: 0,
            notes: Vec::new(),
        };
        let figures = outcome.figures("gantry", "baseline");
        let of = |what: &str| figures.iter().find(|it| it.what == what).unwrap();
        let table = [
            ("wall", 8.0, "s"),
            ("dispatches", 0.5, "/s"),
            ("mean wait, large", 2_000.0, "ms"),
            ("mean wait, small", 5_000.0, "ms"),
            ("usage", 50.0, "%"),
            ("preemptions", 3.0, ""),
            ("processor", 2.0, "s"),
            ("memory, peak", 64.0, "MB"),
        ];
        for (what, value, unit) in table {
            let Figure { value: found, unit: its, .. } = of(what);
            assert!((found - value).abs() < 1e-9 && *its == unit, "{what}: {found} {its}");
        }
        let slowest = of("mean wait, large").times.unwrap();
        assert!((slowest.p99_ms - 3_000.0).abs() < 1e-9, "{slowest:?}");
    }
}
