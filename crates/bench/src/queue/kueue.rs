//! Runs Kueue under its own load, measured by its own runner.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_process::clock::Clock;
use serde::Deserialize;

use super::bench_server::{BenchServer, CONTROLLER_WARM_UP, RateLimit};
use super::gantry::MAX_RUN_TIME;
use super::outcome::Outcome;
use super::program::{Cost, Program};
use super::requests::Requests;
use super::shape::Shape;

/// Paths of Kueue's programs and CRDs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) folder: PathBuf,
    pub(crate) definitions: PathBuf,
}

/// The client rate limit in Kueue's own benchmark.
const KUEUE_RATE_LIMIT: RateLimit = RateLimit(Some((50, 100)));

/// The fields of the runner's summary that are needed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    cluster_queue_classes: BTreeMap<String, Queues>,
    workload_classes: BTreeMap<String, Workloads>,
    #[serde(default)]
    dropped_workload_events: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Queues {
    /// Thousandths of CPUs, on average over the whole time.
    cpu_average_usage: f64,
    nominal_quota: f64,
    first_event_time: String,
    last_event_time: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Workloads {
    total_evictions: u64,
}

/// Submits all jobs of a shape and waits until all have completed.
pub(crate) async fn measure(
    shape: &Shape,
    limit: RateLimit,
    programs: &Programs,
    clock: &Clock,
) -> anyhow::Result<Outcome> {
    let server = BenchServer::real(clock).await?;
    server.apply(&programs.definitions).await?;
    let kubeconfig = || [OsString::from("--kubeconfig"), server.kubeconfig.clone().into()];
    let folder = server.folder();
    let (name, mut arguments) = match limit {
        KUEUE_RATE_LIMIT => ("minimalkueue", Vec::new()),
        RateLimit(None) => ("core", Vec::new()),
        RateLimit(Some((rate, burst))) => {
            ("core", vec![format!("--qps={rate}").into(), format!("--burst={burst}").into()])
        }
    };
    arguments.extend(kubeconfig());
    let mut kueue = Program::start(name, &programs.folder.join(name), &arguments, &folder)?;
    clock.sleep(CONTROLLER_WARM_UP).await;
    kueue.ensure_running()?;
    let before = (kueue.cost(), Requests::read(&server.clients[0]).await?);

    let output = folder.join("kueue");
    fs::create_dir(&output)?;
    let generator = folder.join("generator.yaml");
    // JSON is YAML.
    fs::write(&generator, shape.generator().to_string())?;
    let mut arguments: Vec<OsString> = vec![
        "--generatorConfig".into(),
        generator.into(),
        "--o".into(),
        output.clone().into(),
        "--qps=1000".into(),
        "--burst=2000".into(),
        format!("--timeout={}s", MAX_RUN_TIME.as_secs()).into(),
        "--zap-log-level=error".into(),
    ];
    arguments.extend(kubeconfig());
    let mut runner =
        Program::start("runner", &programs.folder.join("runner"), &arguments, &folder)?;
    // The summary is written when the last workload has finished; only cleanup follows.
    let summary = output.join("summary.yaml");
    while !summary.exists() {
        clock.sleep(Duration::from_millis(50)).await;
        kueue.ensure_running()?;
        ensure!(
            !runner.has_exited()? || summary.exists(),
            "the runner wrote no summary\n{}",
            runner.tail()
        );
    }
    let (cost, requests) = (kueue.cost(), Requests::read(&server.clients[0]).await?);
    let ended = clock.moment();
    while !runner.has_exited()? {
        ensure!(
            clock.moment() - ended < MAX_RUN_TIME,
            "the runner does not end\n{}",
            runner.tail()
        );
        clock.sleep(Duration::from_millis(100)).await;
    }
    let summary = gantry_yaml::read(&fs::read_to_string(summary)?)?;
    let summary = summary.first().context("the summary is empty")?.to_json();
    let summary: Summary = serde_json::from_value(summary)?;
    let waits = waits(&fs::read_to_string(output.join("wlStates.csv"))?)?;
    let seen: usize = waits.values().map(Vec::len).sum();
    ensure!(seen == shape.jobs(), "the runner reports {seen} of {} jobs", shape.jobs());
    let requests = requests.since(&before.1);
    let mut outcome = outcome(&summary, shape, waits, (before.0, cost), requests)?;
    if summary.dropped_workload_events > 0 {
        let dropped = summary.dropped_workload_events;
        outcome.notes.push(format!("the runner did not look at {dropped} events"));
    }
    Ok(outcome)
}

fn outcome(
    summary: &Summary,
    shape: &Shape,
    waits: BTreeMap<String, Vec<Duration>>,
    (before, after): (Cost, Cost),
    requests: Requests,
) -> anyhow::Result<Outcome> {
    let queues = summary.cluster_queue_classes.get("cq").context("no queues in the summary")?;
    let first: jiff::Timestamp = queues.first_event_time.parse()?;
    let last: jiff::Timestamp = queues.last_event_time.parse()?;
    let evictions: u64 = summary.workload_classes.values().map(|it| it.total_evictions).sum();
    let queues_of_all = (shape.cohorts * shape.queues) as u64;
    Ok(Outcome {
        wall_time: Duration::try_from(last.duration_since(first))?,
        waits,
        usage: queues.cpu_average_usage / queues.nominal_quota,
        preemptions: evictions,
        cost: Cost { cpu: after.cpu.saturating_sub(before.cpu), peak: after.peak },
        requests,
        // A flavour, and three objects for each queue; each job is created and finished, and
        // requeued when it was preempted.
        own_writes: 1 + 3 * queues_of_all + 2 * shape.jobs() as u64 + evictions,
        notes: Vec::new(),
    })
}

/// How long workloads of each class were pending, from the runner's table of them.
fn waits(table: &str) -> anyhow::Result<BTreeMap<String, Vec<Duration>>> {
    let mut lines = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().context("the table of workloads is empty")?;
    let column = |name| {
        head.iter()
            .position(|it| *it == name)
            .context("a column of the table of workloads is missing")
    };
    let (class, wait) = (column("class name")?, column("ms to admitted")?);
    let mut waits: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for line in lines {
        let (Some(class), Some(wait)) = (line.get(class), line.get(wait)) else {
            anyhow::bail!("a line of the table of workloads is too short");
        };
        let wait = Duration::from_millis(wait.parse()?);
        waits.entry((*class).to_owned()).or_default().push(wait);
    }
    Ok(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_by_class() {
        let table = "id,class name,namespace,name,ms to admitted,ms to finish,num evictions\n\
                     0,small,a,small-0-0-0,15,300,0\n1,large,a,large-2-0-0,7,1100,1\n\
                     2,small,a,small-0-1-0,25,400,0\n";
        let found = waits(table).unwrap();
        let ms = Duration::from_millis;
        assert_eq!(found["small"], [ms(15), ms(25)]);
        assert_eq!(found["large"], [ms(7)]);
        waits("id,name\n").unwrap_err();
    }
}
