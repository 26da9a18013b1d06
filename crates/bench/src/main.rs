//! Measures API servers side by side, in one run on one machine.
//!
//! Absolute figures of a shared machine say little; the report shows the ratio between servers
//! under the same load in the same minutes. Nothing here asserts a speed.

mod fan_out;
mod load;
mod report;
mod sample;
mod usage;
mod workload;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{OnLoss, TaskMetrics, Tasks};
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::embedded;
use gantry_testkit::http::{Client, Protocol, Target};
use tokio_util::sync::CancellationToken;

use crate::load::{Pace, Run};
use crate::report::{Better, Figure};
use crate::workload::Workload;

/// Measure API servers side by side and print ratios.
#[derive(Debug, Parser)]
#[command(
    name = "bench",
    after_help = "Examples:
  make bench
  make bench ARGS='--seconds 2 --clients 16 --only create --only get'
  make bench ARGS='--rate 200 --json /tmp/bench.json'"
)]
struct Arguments {
    /// Seconds each load runs.
    #[arg(long, default_value_t = 5)]
    seconds: u64,

    /// Concurrent clients; may be repeated.
    #[arg(long, default_values_t = [1, 16, 64])]
    clients: Vec<usize>,

    /// Only these requests; may be repeated.
    #[arg(long, value_enum)]
    only: Vec<Workload>,

    /// Requests per second in the open loop, which runs with the largest number of clients; 0 skips
    /// it.
    #[arg(long, default_value_t = 200)]
    rate: u32,

    /// Watchers in the fan-out; may be repeated. 0 skips it.
    #[arg(long, default_values_t = [100])]
    watchers: Vec<usize>,

    /// Objects in the server when memory is measured; 0 skips it.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,

    /// Only these servers; may be repeated.
    #[arg(long, value_enum)]
    server: Vec<Server>,

    /// Also write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The servers that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Server {
    /// etcd and kube-apiserver.
    Kubernetes,
    /// `gantry apiserver`.
    Gantry,
}

/// A server under measurement.
struct Subject {
    name: &'static str,
    target: Target,
    pids: Vec<u32>,
}

/// What a measurement used.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    times: Option<sample::Summary>,
    cpu_us: Option<f64>,
}

impl Cost {
    /// The cost of requests: their latency, and the processor time of the server for each.
    fn of(times: sample::Summary, cpu: Duration) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
        let each = cpu.as_secs_f64() * 1e6 / times.count.max(1) as f64;
        Self { times: Some(times), cpu_us: Some(each) }
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
    // One server at a time: two would compete for the machine and neither figure would mean
    // anything.
    let wanted = |server| arguments.server.is_empty() || arguments.server.contains(&server);
    if wanted(Server::Kubernetes) {
        let began = clock.moment();
        let cluster = RealCluster::plan().durable().start().await?;
        let subject = Subject {
            name: "kubernetes",
            target: cluster.admin().target().clone(),
            pids: cluster.processes().into_iter().map(|(_, pid)| pid).collect(),
        };
        measure(&subject, began, &arguments, &clock, &mut tasks, &mut figures).await?;
    }
    if wanted(Server::Gantry) {
        let began = clock.moment();
        let server = embedded::Plan::new(beside_this_program("gantry")?).start(&clock).await?;
        let subject =
            Subject { name: "gantry", target: server.target().clone(), pids: vec![server.pid()] };
        measure(&subject, began, &arguments, &clock, &mut tasks, &mut figures).await?;
    }

    io::stdout().lock().write_all(report::table(&figures).as_bytes())?;
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_string_pretty(&figures)? + "\n")
            .with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(())
}

/// A program that was built together with this one.
fn beside_this_program(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("could not find this program")?;
    let path = own.with_file_name(name);
    anyhow::ensure!(path.exists(), "{} is missing; `make bench` builds it", path.display());
    Ok(path)
}

/// Takes every measurement of one server.
async fn measure(
    subject: &Subject,
    began: gantry_process::clock::Moment,
    arguments: &Arguments,
    clock: &Clock,
    tasks: &mut Tasks,
    figures: &mut Vec<Figure>,
) -> anyhow::Result<()> {
    let time = Duration::from_secs(arguments.seconds);
    let mut note = |what: &str, setting: String, value, unit, better, cost: Cost| {
        eprintln!("{}: {what} {setting}: {value:.1} {unit}", subject.name);
        figures.push(Figure {
            what: what.to_owned(),
            target: subject.name.to_owned(),
            setting,
            value,
            unit,
            better,
            times: cost.times,
            cpu_us: cost.cpu_us,
        });
    };
    let most = arguments.clients.iter().copied().max().unwrap_or(1);
    let client = Client::new(&subject.target, Protocol::Http2, clock.clone())?;
    workload::create(&client, "/api/v1/namespaces", &namespace("first")).await?;
    let started = (clock.moment() - began).as_secs_f64() * 1000.0;
    note("start to first object", String::new(), started, "ms", Better::Less, Cost::default());
    note(
        "memory",
        "idle".to_owned(),
        usage::resident_megabytes(&subject.pids),
        "MB",
        Better::Less,
        Cost::default(),
    );
    // Measured before the loads: the faster a server is, the more objects the loads leave behind.
    if arguments.objects > 0 {
        fill(subject, arguments.objects, clock, tasks).await?;
        let setting = format!("{} objects of 1 KiB", arguments.objects);
        let memory = usage::resident_megabytes(&subject.pids);
        note("memory", setting, memory, "MB", Better::Less, Cost::default());
    }

    let name = "bench";
    workload::prepare(&client, name, most).await?;
    let mut first = 0;
    let chosen = |w: &Workload| arguments.only.is_empty() || arguments.only.contains(w);
    for workload in Workload::ALL.into_iter().filter(chosen) {
        let mut settings: Vec<_> =
            arguments.clients.iter().map(|n| (*n, Protocol::Http2, Pace::Closed)).collect();
        settings.push((most, Protocol::Http1, Pace::Closed));
        if arguments.rate > 0 {
            settings.push((most, Protocol::Http2, Pace::Open(arguments.rate.into())));
        }
        for (clients, protocol, pace) in settings {
            let run = Run {
                workload,
                target: &subject.target,
                namespace: name,
                protocol,
                clients,
                pace,
                time,
                first,
            };
            // Beyond every number this run can use, so that names are never used twice.
            first += 1_000_000_000;
            let cpu = usage::cpu(&subject.pids);
            let outcome = run.measure(clock, tasks).await?;
            let cpu = usage::cpu(&subject.pids).saturating_sub(cpu);
            note(
                workload.name(),
                describe(clients, protocol, pace),
                outcome.rate,
                "/s",
                Better::More,
                Cost::of(outcome.times, cpu),
            );
        }
    }
    for watchers in arguments.watchers.iter().copied().filter(|n| *n > 0) {
        let name = format!("fan-{watchers}");
        workload::create(&client, "/api/v1/namespaces", &namespace(&name)).await?;
        let cpu = usage::cpu(&subject.pids);
        let outcome =
            fan_out::measure(&subject.target, &name, watchers, time, clock, tasks).await?;
        let cpu = usage::cpu(&subject.pids).saturating_sub(cpu);
        let setting = format!("{watchers} watchers");
        let (writes, cost) = (outcome.writes, Cost::default());
        note("fan-out writes", setting.clone(), writes, "/s", Better::More, cost);
        let cost = Cost::of(outcome.delays, cpu);
        note("fan-out", setting, outcome.deliveries, "/s", Better::More, cost);
    }
    Ok(())
}

/// Creates many objects with many concurrent clients.
async fn fill(
    subject: &Subject,
    objects: usize,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    const FILL_WORKERS: usize = 16;
    let client = Client::new(&subject.target, Protocol::Http2, clock.clone())?;
    workload::create(&client, "/api/v1/namespaces", &namespace("fill")).await?;
    for hand in 0..FILL_WORKERS {
        let client = Client::new(&subject.target, Protocol::Http2, clock.clone())?;
        tasks.spawn(format!("hand {hand}"), OnLoss::EndOwner, move |_| async move {
            for index in (hand..objects).step_by(FILL_WORKERS) {
                let map = workload::config_map(&format!("fill-{index}"), "0");
                workload::create(&client, "/api/v1/namespaces/fill/configmaps", &map).await?;
            }
            Ok(())
        });
    }
    tasks.join().await?;
    Ok(())
}

fn describe(clients: usize, protocol: Protocol, pace: Pace) -> String {
    let protocol = match protocol {
        Protocol::Http1 => "http/1.1",
        Protocol::Http2 => "http/2",
    };
    match pace {
        Pace::Closed => format!("{clients} clients, {protocol}"),
        Pace::Open(rate) => format!("{rate:.0}/s due, {protocol}"),
    }
}

fn namespace(name: &str) -> serde_json::Value {
    serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}
