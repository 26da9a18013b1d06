//! Compares queue controllers side by side, each on an API server of its own, in one run on one
//! machine.
//!
//! The load is that of Kueue's own scheduler benchmark: the same counts, classes, intervals and
//! running times, as Kueue workloads for Kueue and as AppWrappers for Gantry. Beside it are MCAD's
//! own benchmark, and the cost of an admission when many AppWrappers are pending. Nothing here
//! asserts a speed.

mod peak_memory;
mod queue;
mod report;
#[expect(dead_code, reason = "failures and many clients are for other measurements")]
mod sample;
mod usage;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use clap::Parser;
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{TaskMetrics, Tasks};
use tokio_util::sync::CancellationToken;

use crate::queue::bench_server::RateLimit;
use crate::queue::burst::Burst;
use crate::queue::evaluate::{Evaluation, Shortage, Size};
use crate::queue::gantry::CapacitySharing;
use crate::queue::growth::{Growth, ServerKind};
use crate::queue::jobs::{JobsOutcome, Mcad};
use crate::queue::shape::Shape;
use crate::queue::{burst, evaluate, gantry, growth, jobs, kueue, regression_check};
use crate::report::{Better, Figure};
use crate::sample::Samples;

/// Measure queue controllers side by side.
#[derive(Debug, Parser)]
#[command(
    name = "bench-queue",
    after_help = "Runs:
  baseline        15,000 jobs in 30 queues of 5 cohorts; Kueue and Gantry with quota
  large-scale     50,000 jobs in 1,000 queues of 10 cohorts; Kueue and Gantry with quota
  nodes           the jobs of baseline, without quota, on nodes with as many cpus; Gantry
  jobs/N          N Jobs on nodes that kwok simulates; MCAD and Gantry, at MCAD's 100/200
  burst/N         N small jobs are submitted at once, and all fit; Gantry
  growth/N        admissions when N AppWrappers are pending, on Kubernetes; Gantry
  embedded/N      the same on Gantry's own API server
  evaluate        one evaluation at 5,000 nodes, 50,000 pods and 10,000 AppWrappers, without a \
server

Examples:
  make bench-queue
  make bench-queue ARGS='--scale 0.1 --limit none baseline'
  make bench-queue ARGS='--scale 0.1 --before yesterday.json nodes'
  make bench-queue ARGS='--side gantry growth/1000 growth/10000 growth/50000 embedded/100000'"
)]
struct Arguments {
    /// The share of the jobs of baseline, large-scale and nodes that is submitted.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,

    /// The client rate limit of controllers, as 50/100 (queries per second/burst) or none; may be
    /// repeated.
    #[arg(long, default_values = ["50/100", "none"])]
    limit: Vec<RateLimit>,

    /// Only these controllers; may be repeated.
    #[arg(long, value_enum)]
    side: Vec<QueueSystem>,

    /// The folder with Kueue's minimalkueue and runner, and with core of the test bed.
    #[arg(long, requires = "kueue_definitions")]
    kueue: Option<PathBuf>,

    /// The folder with Kueue's CRDs.
    #[arg(long)]
    kueue_definitions: Option<PathBuf>,

    /// MCAD's controller.
    #[arg(long, requires = "mcad_definitions")]
    mcad: Option<PathBuf>,

    /// The folder with MCAD's CRDs.
    #[arg(long)]
    mcad_definitions: Option<PathBuf>,

    /// Also write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,

    /// Figures of an earlier run, as --json wrote them; may be repeated, and their mean is
    /// compared. The program exits with code 1 if any figure is a fifth worse.
    #[arg(long)]
    before: Vec<PathBuf>,

    /// The runs.
    #[arg(default_values = ["baseline", "nodes", "jobs/50", "jobs/150", "jobs/300", "burst/1000",
                            "growth/1000", "growth/10000", "growth/50000", "evaluate"])]
    runs: Vec<Run>,
}

/// The measured controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum QueueSystem {
    /// Kueue.
    Kueue,
    /// The multi-cluster app dispatcher.
    Mcad,
    /// `gantry operator`.
    Gantry,
}

/// A run by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Baseline,
    LargeScale,
    Nodes,
    Jobs(usize),
    Burst(usize),
    Growth(usize),
    Embedded(usize),
    Evaluate,
}

impl FromStr for Run {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        let wrong = || anyhow!("no such run; use for instance baseline, see --help");
        let (kind, count) = match name.split_once('/') {
            None => (name, None),
            Some((kind, count)) => (kind, Some(count.parse::<usize>().map_err(|_| wrong())?)),
        };
        ensure!(
            count.is_none_or(|it| (1..=1_000_000).contains(&it)),
            "a count must be from 1 to 1,000,000"
        );
        match (kind, count) {
            ("baseline", None) => Ok(Self::Baseline),
            ("large-scale", None) => Ok(Self::LargeScale),
            ("nodes", None) => Ok(Self::Nodes),
            ("jobs", Some(count)) => Ok(Self::Jobs(count)),
            ("burst", Some(count)) => Ok(Self::Burst(count)),
            ("evaluate", None) => Ok(Self::Evaluate),
            ("growth", Some(count)) => Ok(Self::Growth(count)),
            ("embedded", Some(count)) => Ok(Self::Embedded(count)),
            _ => Err(wrong()),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ensure!(
        arguments.scale > 0.0 && arguments.scale <= 10.0,
        "--scale must be above 0 and at most 10"
    );
    let before = regression_check::read_earlier_figures(&arguments.before)?;
    let clock = Clock::system();
    let metrics =
        Metrics::new(&BuildInfo { version: env!("CARGO_PKG_VERSION"), revision: "bench" });
    let counters = TaskMetrics::register(&metrics)?;
    let stop = CancellationToken::new();
    let tasks = Tasks::new(clock.clone(), counters, fastrand::Rng::with_seed(1), &stop);
    let mut bench = Bench { arguments: &arguments, clock, tasks, figures: Vec::new() };
    for run in &arguments.runs {
        bench.run(*run).await.with_context(|| format!("{run:?}"))?;
    }
    let figures = bench.figures;
    io::stdout().lock().write_all(report::table(&figures).as_bytes())?;
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_string_pretty(&figures)? + "\n")
            .with_context(|| format!("could not write {}", path.display()))?;
    }
    let worse = regression_check::regressions(&before, &figures);
    ensure!(worse.is_empty(), "worse than before:\n{}", worse.join("\n"));
    Ok(())
}

/// One invocation of this program.
struct Bench<'a> {
    arguments: &'a Arguments,
    clock: Clock,
    tasks: Tasks,
    figures: Vec<Figure>,
}

impl Bench<'_> {
    fn wants(&self, side: QueueSystem) -> bool {
        self.arguments.side.is_empty() || self.arguments.side.contains(&side)
    }

    async fn run(&mut self, run: Run) -> anyhow::Result<()> {
        match run {
            Run::Baseline => self.classes(Shape::BASELINE, CapacitySharing::Quota).await,
            Run::LargeScale => self.classes(Shape::LARGE_SCALE, CapacitySharing::Quota).await,
            Run::Nodes => self.classes(Shape::BASELINE, CapacitySharing::Nodes).await,
            Run::Jobs(count) => self.jobs(count).await,
            Run::Burst(count) => self.burst(count).await,
            Run::Evaluate => self.evaluate(),
            Run::Growth(count) => self.growth(count, ServerKind::Kubernetes).await,
            Run::Embedded(count) => self.growth(count, ServerKind::Gantry).await,
        }
    }

    /// Kueue's load, with both controllers and under each rate limit.
    async fn classes(&mut self, shape: Shape, sharing: CapacitySharing) -> anyhow::Result<()> {
        let shape = shape.scaled(self.arguments.scale);
        let name = match sharing {
            CapacitySharing::Quota => shape.name,
            CapacitySharing::Nodes => "nodes",
        };
        for limit in self.arguments.limit.clone() {
            let setting = format!("{name}, {} jobs, {limit}", shape.jobs());
            if sharing == CapacitySharing::Quota && self.wants(QueueSystem::Kueue) {
                match self.kueue() {
                    Some(programs) => {
                        let outcome = kueue::measure(&shape, limit, &programs, &self.clock).await;
                        let outcome = outcome.with_context(|| format!("kueue: {setting}"))?;
                        self.record_figures(outcome.figures("kueue", &setting))?;
                        print_lines(outcome.notes.iter().chain(&outcome.requests.show()))?;
                    }
                    None => print_lines(["kueue: not measured, because --kueue is missing"])?,
                }
            }
            if self.wants(QueueSystem::Gantry) {
                let (clock, tasks) = (&self.clock, &mut self.tasks);
                let outcome = gantry::measure(&shape, sharing, limit, clock, tasks).await;
                let outcome = outcome.with_context(|| format!("gantry: {setting}"))?;
                self.record_figures(outcome.figures("gantry", &setting))?;
                print_lines(outcome.notes.iter().chain(&outcome.requests.show()))?;
            }
        }
        Ok(())
    }

    fn kueue(&self) -> Option<kueue::Programs> {
        let Arguments { kueue, kueue_definitions, .. } = self.arguments;
        let (folder, definitions) = (kueue.clone()?, kueue_definitions.clone()?);
        Some(kueue::Programs { folder, definitions })
    }

    /// MCAD's load, with both controllers.
    async fn jobs(&mut self, count: usize) -> anyhow::Result<()> {
        let Arguments { mcad, mcad_definitions, .. } = self.arguments;
        let mcad = mcad.clone().zip(mcad_definitions.clone());
        let mcad = mcad.map(|(program, definitions)| Mcad { program, definitions });
        if self.wants(QueueSystem::Mcad) {
            match &mcad {
                Some(mcad) => self.jobs_of("mcad", count, Some(mcad)).await?,
                None => print_lines(["mcad: not measured, because --mcad is missing"])?,
            }
        }
        if self.wants(QueueSystem::Gantry) {
            self.jobs_of("gantry", count, None).await?;
        }
        Ok(())
    }

    async fn jobs_of(
        &mut self,
        target: &str,
        count: usize,
        mcad: Option<&Mcad>,
    ) -> anyhow::Result<()> {
        let done = jobs::measure(count, mcad, &self.clock, &mut self.tasks).await;
        let JobsOutcome { wall_time: wall, cost, requests } =
            done.with_context(|| target.to_owned())?;
        let setting = format!("{count} Jobs on kwok, 100/200");
        let figure =
            |what, value, unit, better| figure(what, target, &setting, value, unit, better);
        let wall = wall.as_secs_f64();
        self.record_figures(vec![
            figure("wall", wall, "s", Better::Less),
            figure("dispatches", number(count) / wall.max(1e-9), "/s", Better::More),
            figure("processor", cost.cpu.as_secs_f64(), "s", Better::Less),
            figure("memory, peak", cost.peak, "MB", Better::Less),
        ])?;
        print_lines(requests.show())
    }

    /// Measures how long it takes to dispatch so many jobs that are submitted at once, under each
    /// rate limit.
    async fn burst(&mut self, count: usize) -> anyhow::Result<()> {
        if !self.wants(QueueSystem::Gantry) {
            return Ok(());
        }
        for limit in self.arguments.limit.clone() {
            let setting = format!("{count} at once, {limit}");
            let burst = burst::measure(count, limit, &self.clock, &mut self.tasks).await;
            let Burst { admitted, created, cpu, requests } =
                burst.with_context(|| setting.clone())?;
            let figure =
                |what, value, unit, better| figure(what, "gantry", &setting, value, unit, better);
            self.record_figures(vec![
                figure("until all were admitted", admitted.as_secs_f64(), "s", Better::Less),
                figure("until all were created", created.as_secs_f64(), "s", Better::Less),
                figure("processor", cpu.as_secs_f64(), "s", Better::Less),
            ])?;
            print_lines(requests.show())?;
        }
        Ok(())
    }

    /// Measures the cost of one evaluation.
    fn evaluate(&mut self) -> anyhow::Result<()> {
        if !self.wants(QueueSystem::Gantry) {
            return Ok(());
        }
        for lack in Shortage::ALL {
            let measured = evaluate::measure(lack, Size::LARGE, &self.clock);
            let Evaluation { first, each, end } = measured.with_context(|| lack.name())?;
            let figure = |what, time: Duration, scale: f64, unit| {
                let value = time.as_secs_f64() * scale;
                figure(what, "gantry", lack.name(), value, unit, Better::Less)
            };
            self.record_figures(vec![
                figure("the first decision", first, 1e3, "ms"),
                figure("one evaluation", each, 1e6, "us"),
                figure("a pod that ended", end, 1e6, "us"),
            ])?;
        }
        Ok(())
    }

    /// Measures the cost of an admission when so many AppWrappers are pending.
    async fn growth(&mut self, waiting: usize, on: ServerKind) -> anyhow::Result<()> {
        if !self.wants(QueueSystem::Gantry) {
            return Ok(());
        }
        let growth = growth::measure(waiting, on, &self.clock, &mut self.tasks).await?;
        let Growth { queued, admissions, took, each, cpu, memory, peak } = growth;
        let server = match on {
            ServerKind::Kubernetes => "Kubernetes",
            ServerKind::Gantry => "Gantry's server",
        };
        let setting = format!("{waiting} pending, on {server}");
        let figure =
            |what, value, unit, better| figure(what, "gantry", &setting, value, unit, better);
        let mut times = Samples::default();
        each.into_iter().for_each(|time| times.add(time));
        let rate = number(admissions) / took.as_secs_f64().max(1e-9);
        let each = cpu.as_secs_f64() * 1e6 / number(admissions.max(1));
        self.record_figures(vec![
            figure("until all are queued", queued.as_secs_f64(), "s", Better::Less),
            Figure {
                times: Some(times.summary()),
                cpu_us: Some(each),
                ..figure("dispatches", rate, "/s", Better::More)
            },
            figure("memory", memory, "MB", Better::Less),
            figure("memory, peak", peak, "MB", Better::Less),
        ])
    }

    /// Collects figures, and prints them at once: a run takes minutes.
    fn record_figures(&mut self, figures: Vec<Figure>) -> anyhow::Result<()> {
        let line = |it: &Figure| {
            let Figure { what, target, setting, value, unit, .. } = it;
            format!("{target}: {what} ({setting}): {value:.1} {unit}")
        };
        print_lines(figures.iter().map(line))?;
        self.figures.extend(figures);
        Ok(())
    }
}

fn print_lines(lines: impl IntoIterator<Item = impl AsRef<str>>) -> anyhow::Result<()> {
    let mut said = io::stderr().lock();
    for line in lines {
        writeln!(said, "{}", line.as_ref())?;
    }
    Ok(())
}

fn figure(
    what: &str,
    target: &str,
    setting: &str,
    value: f64,
    unit: &'static str,
    better: Better,
) -> Figure {
    let [what, target, setting] = [what, target, setting].map(str::to_owned);
    Figure { what, target, setting, value, unit, better, times: None, cpu_us: None }
}

#[expect(clippy::cast_precision_loss, reason = "counts of jobs are far below 2^52")]
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_as_they_are_written() {
        let table = [
            ("baseline", Some(Run::Baseline)),
            ("jobs/50", Some(Run::Jobs(50))),
            ("burst/1000", Some(Run::Burst(1_000))),
            ("evaluate", Some(Run::Evaluate)),
            ("growth/50000", Some(Run::Growth(50_000))),
            ("embedded/100000", Some(Run::Embedded(100_000))),
            ("baseline/3", None),
            ("evaluate/3", None),
            ("jobs", None),
            ("jobs/0", None),
            ("jobs/x", None),
            ("", None),
        ];
        for (name, expected) in table {
            assert_eq!(name.parse::<Run>().ok(), expected, "{name}");
        }
    }
}
