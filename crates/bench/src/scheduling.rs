//! Compares Kubernetes' scheduler and Gantry's allocating devices to pods on the same API server,
//! side by side.
//!
//! The shapes are those of Kubernetes' own benchmarks of dynamic resource allocation. Each
//! scheduler has etcd and kube-apiserver to itself, durable, with the same nodes and devices, and
//! no client rate limit. The measured time is what a user sees: from the creation of a pod to its
//! binding.

mod objects;
mod report;
#[expect(dead_code, reason = "failures and many clients are for other measurements")]
mod sample;
mod scheduling_bench;
mod usage;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Parser;
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{TaskMetrics, Tasks};
use gantry_testkit::cluster::RealCluster;
use tokio_util::sync::CancellationToken;

use crate::objects::SchedulerKind;
use crate::report::{Better, Figure};
use crate::scheduling_bench::SchedulingBench;

/// Measure Kubernetes' scheduler and Gantry's with devices, side by side.
#[derive(Debug, Parser)]
#[command(
    name = "bench-scheduling",
    after_help = "Shapes, and what their sizes mean:
  pods/NODESxDEVICES    half of the devices are allocated, the other half is timed
  empty/NODESxDEVICES   ten pods come and go, all other devices are free
  full/NODESxDEVICES    ten pods come and go, all other devices are allocated
  match/NODES           ten pods come and go, each with five devices of one of two roots

Examples:
  make bench-scheduling
  make bench-scheduling ARGS='pods/100x10 --side gantry'"
)]
struct Arguments {
    /// Seconds for which pods are created and deleted.
    #[arg(long, default_value_t = 10)]
    seconds: u64,

    /// Only these schedulers; may be repeated.
    #[arg(long, value_enum)]
    side: Vec<SchedulerKind>,

    /// Also write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,

    /// The shapes.
    #[arg(default_values = ["pods/500x10", "empty/500x10", "full/500x10", "match/500"])]
    shapes: Vec<Shape>,
}

/// A shape by its name.
#[derive(Clone, Debug)]
struct Shape {
    name: String,
    kind: ShapeKind,
    nodes: usize,
    devices: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShapeKind {
    Pods,
    Empty,
    Full,
    Match,
}

/// How many pods exist at a time while pods are created and deleted.
const AT_A_TIME: usize = 10;

impl FromStr for Shape {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        let wrong = || anyhow!("no such shape; use for instance pods/500x10, see --help");
        let (kind, size) = name.split_once('/').ok_or_else(wrong)?;
        let size: Vec<usize> =
            size.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let (kind, nodes, devices) = match (kind, size.as_slice()) {
            ("pods", &[nodes, devices]) => (ShapeKind::Pods, nodes, devices),
            ("empty", &[nodes, devices]) => (ShapeKind::Empty, nodes, devices),
            ("full", &[nodes, devices]) => (ShapeKind::Full, nodes, devices),
            ("match", &[nodes]) => (ShapeKind::Match, nodes, 10),
            _ => return Err(wrong()),
        };
        ensure!((1..=5000).contains(&nodes), "a shape must have from 1 to 5000 nodes");
        ensure!((1..=100).contains(&devices), "a node must have from 1 to 100 devices");
        ensure!(nodes * devices > AT_A_TIME, "a shape must have more than {AT_A_TIME} devices");
        Ok(Self { name: name.to_owned(), kind, nodes, devices })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let clock = Clock::system();
    let metrics =
        Metrics::new(&BuildInfo { version: env!("CARGO_PKG_VERSION"), revision: "bench" });
    let counters = TaskMetrics::register(&metrics)?;
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(clock.clone(), counters, fastrand::Rng::with_seed(1), &stop);
    let mut figures = Vec::new();
    for shape in &arguments.shapes {
        for side in [SchedulerKind::Kubernetes, SchedulerKind::Gantry] {
            if !arguments.side.is_empty() && !arguments.side.contains(&side) {
                continue;
            }
            let seconds = Duration::from_secs(arguments.seconds);
            let found = measure(shape, side, seconds, &clock, &mut tasks);
            let found = found.await.with_context(|| format!("{}: {}", side.name(), shape.name))?;
            let mut said = io::stderr().lock();
            for figure in &found {
                let Figure { what, target, setting, value, unit, .. } = figure;
                writeln!(said, "{target}: {what} {setting}: {value:.1} {unit}")?;
            }
            figures.extend(found);
        }
    }
    io::stdout().lock().write_all(report::table(&figures).as_bytes())?;
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_string_pretty(&figures)? + "\n")
            .with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(())
}

/// Gantry's scheduler, beside a cluster that has none. It is stopped when this value is dropped.
struct Operator(Child);

impl Operator {
    fn start(cluster: &RealCluster) -> anyhow::Result<Self> {
        let here = std::env::current_exe()?;
        let program = here.with_file_name("gantry");
        ensure!(program.is_file(), "there is no {}: build it first", program.display());
        let folder = cluster.folder();
        let settings = folder.join("operator.yaml");
        fs::write(&settings, objects::OPERATOR_CONFIG)?;
        let log = fs::File::create(folder.join("operator.log"))?;
        let child = Command::new(program)
            .args(["operator", "--kubeconfig"])
            .arg(cluster.admin().kubeconfig())
            .arg("--config-file")
            .arg(settings)
            .env("NAMESPACE", "default")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have exited already; then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn measure(
    shape: &Shape,
    side: SchedulerKind,
    seconds: Duration,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<Vec<Figure>> {
    // As in Kubernetes' own benchmarks: nodes have no kubelet, pods no service account.
    let plan = RealCluster::plan()
        .durable()
        .clock(clock.clone())
        .api_server_flag(
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority",
        )
        .api_server_flag("--max-requests-inflight=5000")
        .api_server_flag("--max-mutating-requests-inflight=2500");
    let cluster = match side {
        SchedulerKind::Kubernetes => plan.scheduling().start().await?,
        SchedulerKind::Gantry => plan.claims().start().await?,
    };
    let mut window = SchedulingBench::open(cluster.admin().target(), side, clock, tasks).await?;
    window.create_nodes_and_devices(shape.nodes, shape.devices).await?;
    let operator = match side {
        SchedulerKind::Kubernetes => None,
        SchedulerKind::Gantry => Some(Operator::start(&cluster)?),
    };
    let found = run(shape, side, seconds, &mut window, &cluster, operator.as_ref()).await;
    found.map_err(|error| {
        let log = fs::read_to_string(cluster.folder().join("operator.log")).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(20).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        error.context(tail.join("\n"))
    })
}

async fn run(
    shape: &Shape,
    side: SchedulerKind,
    seconds: Duration,
    window: &mut SchedulingBench<'_>,
    cluster: &RealCluster,
    operator: Option<&Operator>,
) -> anyhow::Result<Vec<Figure>> {
    let all = shape.nodes * shape.devices;
    match shape.kind {
        ShapeKind::Pods => {
            window.schedule_pods("before", all / 2).await?;
        }
        ShapeKind::Full => window.allocate_devices(all - AT_A_TIME, shape.devices).await?,
        ShapeKind::Empty | ShapeKind::Match => {
            window.schedule_pods("first", 1).await?;
        }
    }
    let scheduler: Vec<u32> = match operator {
        Some(operator) => vec![operator.0.id()],
        None => {
            let running = cluster.processes().into_iter();
            running.filter(|(name, _)| *name == "kube-scheduler").map(|(_, pid)| pid).collect()
        }
    };
    ensure!(!scheduler.is_empty(), "the scheduler is not running");
    let running = cluster.processes().into_iter().map(|(_, pid)| pid);
    let running: Vec<u32> = running.chain(operator.map(|it| it.0.id())).collect();
    window.wait_until_idle(&running).await?;
    let cpu = usage::cpu(&scheduler);
    let outcome = match shape.kind {
        ShapeKind::Pods => window.schedule_pods("timed", all - all / 2).await?,
        ShapeKind::Empty | ShapeKind::Full => window.churn(AT_A_TIME, 1, seconds).await?,
        ShapeKind::Match => window.churn(AT_A_TIME, 5, seconds).await?,
    };
    if outcome.times.count == 0 {
        bail!("no pod was bound");
    }
    let figure = |what: &str, value, unit, better, times, cpu_us| Figure {
        what: what.to_owned(),
        target: side.name().to_owned(),
        setting: shape.name.clone(),
        value,
        unit,
        better,
        times,
        cpu_us,
    };
    #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
    let count = outcome.times.count as f64;
    let each = (usage::cpu(&scheduler) - cpu).as_secs_f64() * 1e6 / count;
    let memory = usage::resident_megabytes(&scheduler);
    Ok(vec![
        figure("pods", outcome.rate, "/s", Better::More, Some(outcome.times), Some(each)),
        figure("scheduler", memory, "MB", Better::Less, None, None),
    ])
}
