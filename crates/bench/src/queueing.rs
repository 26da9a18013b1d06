//! Queues of jobs side by side, each on an API server of its own, in one run on one machine.
//!
//! The load is that of Kueue's own measurement of its scheduler: the same counts, classes, intervals
//! and running times, in Kueue's words for Kueue and in AppWrappers for us. Beside it are MCAD's own
//! measurement, and what a passage costs when many wait. Nothing here asserts a speed.

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
use gantry_process::metrics::{Build, Metrics};
use gantry_process::tasks::{Counters, Tasks};
use tokio_util::sync::CancellationToken;

use crate::queue::burst::Burst;
use crate::queue::evaluate::{Evaluation, Lack, Size};
use crate::queue::gantry::Sharing;
use crate::queue::growth::{Growth, On};
use crate::queue::jobs::{Done, Mcad};
use crate::queue::shape::Shape;
use crate::queue::stage::Limit;
use crate::queue::{burst, evaluate, gantry, gate, growth, jobs, kueue};
use crate::report::{Better, Figure};
use crate::sample::Samples;

/// Measure queues of jobs side by side.
#[derive(Debug, Parser)]
#[command(
    name = "bench-queue",
    after_help = "Runs:
  baseline        15,000 jobs in 30 queues of 5 cohorts; Kueue and Gantry with quota
  large-scale     50,000 jobs in 1,000 queues of 10 cohorts; Kueue and Gantry with quota
  nodes           the jobs of baseline, without quota, on nodes with as many cpus; Gantry
  jobs/N          N Jobs on nodes that kwok plays; MCAD and Gantry, at MCAD's 100/200
  burst/N         N small jobs come at once, and all fit; Gantry
  growth/N        passages when N wait, on Kubernetes; Gantry
  embedded/N      the same on Gantry's own API server
  evaluate        one evaluation at 5,000 nodes, 50,000 pods and 10,000 AppWrappers, without a server

Examples:
  make bench-queue
  make bench-queue ARGS='--scale 0.1 --limit none baseline'
  make bench-queue ARGS='--scale 0.1 --before yesterday.json nodes'
  make bench-queue ARGS='--side gantry growth/1000 growth/10000 growth/50000 embedded/100000'"
)]
struct Arguments {
    /// The share of the jobs of baseline, large-scale and nodes that come.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,

    /// How often controllers may ask, as 50/100 or none; may be repeated.
    #[arg(long, default_values = ["50/100", "none"])]
    limit: Vec<Limit>,

    /// Only these; may be repeated.
    #[arg(long, value_enum)]
    side: Vec<Side>,

    /// The folder with Kueue's minimalkueue and runner, and with core of our test bed.
    #[arg(long, requires = "kueue_definitions")]
    kueue: Option<PathBuf>,

    /// The folder with Kueue's definitions of kinds.
    #[arg(long)]
    kueue_definitions: Option<PathBuf>,

    /// MCAD's controller.
    #[arg(long, requires = "mcad_definitions")]
    mcad: Option<PathBuf>,

    /// The folder with MCAD's definitions of kinds.
    #[arg(long)]
    mcad_definitions: Option<PathBuf>,

    /// Also write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,

    /// Figures of an earlier run, as --json wrote them; may be repeated, and their mean counts. The program
    /// ends with code 1 if anything is a fifth worse.
    #[arg(long)]
    before: Vec<PathBuf>,

    /// The runs.
    #[arg(default_values = ["baseline", "nodes", "jobs/50", "jobs/150", "jobs/300",
                            "burst/1000", "growth/1000", "growth/10000", "growth/50000", "evaluate"])]
    runs: Vec<Run>,
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Side {
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
        let wrong = || anyhow!("no such run; one is for instance baseline, see --help");
        let (kind, count) = match name.split_once('/') {
            None => (name, None),
            Some((kind, count)) => (kind, Some(count.parse::<usize>().map_err(|_| wrong())?)),
        };
        ensure!(count.is_none_or(|it| (1..=1_000_000).contains(&it)), "from 1 to 1,000,000");
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
    ensure!(arguments.scale > 0.0 && arguments.scale <= 10.0, "--scale is more than 0, at most 10");
    let before = gate::read(&arguments.before)?;
    let clock = Clock::system();
    let metrics = Metrics::new(&Build { version: env!("CARGO_PKG_VERSION"), revision: "bench" });
    let counters = Counters::register(&metrics)?;
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
    let worse = gate::worse(&before, &figures);
    ensure!(worse.is_empty(), "worse than before:\n{}", worse.join("\n"));
    Ok(())
}

/// One call of this program.
struct Bench<'a> {
    arguments: &'a Arguments,
    clock: Clock,
    tasks: Tasks,
    figures: Vec<Figure>,
}

impl Bench<'_> {
    fn wants(&self, side: Side) -> bool {
        self.arguments.side.is_empty() || self.arguments.side.contains(&side)
    }

    async fn run(&mut self, run: Run) -> anyhow::Result<()> {
        match run {
            Run::Baseline => self.classes(Shape::BASELINE, Sharing::Quota).await,
            Run::LargeScale => self.classes(Shape::LARGE_SCALE, Sharing::Quota).await,
            Run::Nodes => self.classes(Shape::BASELINE, Sharing::Nodes).await,
            Run::Jobs(count) => self.jobs(count).await,
            Run::Burst(count) => self.burst(count).await,
            Run::Evaluate => self.evaluate(),
            Run::Growth(count) => self.growth(count, On::Kubernetes).await,
            Run::Embedded(count) => self.growth(count, On::Gantry).await,
        }
    }

    /// Kueue's load, on both sides and under each limit.
    async fn classes(&mut self, shape: Shape, sharing: Sharing) -> anyhow::Result<()> {
        let shape = shape.scaled(self.arguments.scale);
        let name = match sharing {
            Sharing::Quota => shape.name,
            Sharing::Nodes => "nodes",
        };
        for limit in self.arguments.limit.clone() {
            let setting = format!("{name}, {} jobs, {limit}", shape.jobs());
            if sharing == Sharing::Quota && self.wants(Side::Kueue) {
                match self.kueue() {
                    Some(programs) => {
                        let outcome = kueue::measure(&shape, limit, &programs, &self.clock).await;
                        let outcome = outcome.with_context(|| format!("kueue: {setting}"))?;
                        self.note(outcome.figures("kueue", &setting))?;
                        say(outcome.notes.iter().chain(&outcome.requests.show()))?;
                    }
                    None => say(["kueue: not measured, because --kueue is missing"])?,
                }
            }
            if self.wants(Side::Gantry) {
                let (clock, tasks) = (&self.clock, &mut self.tasks);
                let outcome = gantry::measure(&shape, sharing, limit, clock, tasks).await;
                let outcome = outcome.with_context(|| format!("gantry: {setting}"))?;
                self.note(outcome.figures("gantry", &setting))?;
                say(outcome.notes.iter().chain(&outcome.requests.show()))?;
            }
        }
        Ok(())
    }

    fn kueue(&self) -> Option<kueue::Programs> {
        let Arguments { kueue, kueue_definitions, .. } = self.arguments;
        let (folder, definitions) = (kueue.clone()?, kueue_definitions.clone()?);
        Some(kueue::Programs { folder, definitions })
    }

    /// MCAD's load, on both sides.
    async fn jobs(&mut self, count: usize) -> anyhow::Result<()> {
        let Arguments { mcad, mcad_definitions, .. } = self.arguments;
        let mcad = mcad.clone().zip(mcad_definitions.clone());
        let mcad = mcad.map(|(program, definitions)| Mcad { program, definitions });
        if self.wants(Side::Mcad) {
            match &mcad {
                Some(mcad) => self.jobs_of("mcad", count, Some(mcad)).await?,
                None => say(["mcad: not measured, because --mcad is missing"])?,
            }
        }
        if self.wants(Side::Gantry) {
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
        let Done { wall, cost, requests } = done.with_context(|| target.to_owned())?;
        let setting = format!("{count} Jobs on kwok, 100/200");
        let figure =
            |what, value, unit, better| figure(what, target, &setting, value, unit, better);
        let wall = wall.as_secs_f64();
        self.note(vec![
            figure("wall", wall, "s", Better::Less),
            figure("dispatches", number(count) / wall.max(1e-9), "/s", Better::More),
            figure("processor", cost.cpu.as_secs_f64(), "s", Better::Less),
            figure("memory, peak", cost.peak, "MB", Better::Less),
        ])?;
        say(requests.show())
    }

    /// How long it takes until so many are there that come at once, under each limit.
    async fn burst(&mut self, count: usize) -> anyhow::Result<()> {
        if !self.wants(Side::Gantry) {
            return Ok(());
        }
        for limit in self.arguments.limit.clone() {
            let setting = format!("{count} at once, {limit}");
            let burst = burst::measure(count, limit, &self.clock, &mut self.tasks).await;
            let Burst { passed, made, cpu, requests } = burst.with_context(|| setting.clone())?;
            let figure =
                |what, value, unit, better| figure(what, "gantry", &setting, value, unit, better);
            self.note(vec![
                figure("until all passed", passed.as_secs_f64(), "s", Better::Less),
                figure("until all were made", made.as_secs_f64(), "s", Better::Less),
                figure("processor", cpu.as_secs_f64(), "s", Better::Less),
            ])?;
            say(requests.show())?;
        }
        Ok(())
    }

    /// What one evaluation costs.
    fn evaluate(&mut self) -> anyhow::Result<()> {
        if !self.wants(Side::Gantry) {
            return Ok(());
        }
        for lack in Lack::ALL {
            let measured = evaluate::measure(lack, Size::LARGE, &self.clock);
            let Evaluation { first, each, end } = measured.with_context(|| lack.name())?;
            let figure = |what, time: Duration, scale: f64, unit| {
                let value = time.as_secs_f64() * scale;
                figure(what, "gantry", lack.name(), value, unit, Better::Less)
            };
            self.note(vec![
                figure("the first decision", first, 1e3, "ms"),
                figure("one evaluation", each, 1e6, "us"),
                figure("a pod that ended", end, 1e6, "us"),
            ])?;
        }
        Ok(())
    }

    /// What a passage costs when so many wait.
    async fn growth(&mut self, waiting: usize, on: On) -> anyhow::Result<()> {
        if !self.wants(Side::Gantry) {
            return Ok(());
        }
        let growth = growth::measure(waiting, on, &self.clock, &mut self.tasks).await?;
        let Growth { queued, passages, took, each, cpu, memory, peak } = growth;
        let server = match on {
            On::Kubernetes => "Kubernetes",
            On::Gantry => "Gantry's server",
        };
        let setting = format!("{waiting} wait, on {server}");
        let figure =
            |what, value, unit, better| figure(what, "gantry", &setting, value, unit, better);
        let mut times = Samples::default();
        each.into_iter().for_each(|time| times.add(time));
        let rate = number(passages) / took.as_secs_f64().max(1e-9);
        let each = cpu.as_secs_f64() * 1e6 / number(passages.max(1));
        self.note(vec![
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

    /// Keeps figures, and says them at once: a run takes minutes.
    fn note(&mut self, figures: Vec<Figure>) -> anyhow::Result<()> {
        let line = |it: &Figure| {
            let Figure { what, target, setting, value, unit, .. } = it;
            format!("{target}: {what} ({setting}): {value:.1} {unit}")
        };
        say(figures.iter().map(line))?;
        self.figures.extend(figures);
        Ok(())
    }
}

fn say(lines: impl IntoIterator<Item = impl AsRef<str>>) -> anyhow::Result<()> {
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
