//! Runs Gantry's operator under Kueue's load.

use std::time::Duration;

use anyhow::Context as _;
use gantry_process::clock::Clock;
use gantry_process::tasks::Tasks;

use super::arrivals::submit_jobs;
use super::bench_server::{BenchServer, OperatorSettings, RateLimit};
use super::operator_run::OperatorRun;
use super::outcome::Outcome;
use super::program::Cost;
use super::record::Record;
use super::requests::Requests;
use super::shape::Shape;
use super::wrapper::{self, QUOTAS};

/// The queue policy: quota trees with preemption, as Kueue has it, or free capacity of the nodes
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapacitySharing {
    Quota,
    Nodes,
}

/// Submits all jobs of a shape and waits until all have completed.
pub(crate) async fn measure(
    shape: &Shape,
    sharing: CapacitySharing,
    limit: RateLimit,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<Outcome> {
    let server = BenchServer::real(clock).await?;
    server.create_definitions(tasks).await?;
    let namespaces = shape.all_queues().into_iter().map(|it| wrapper::namespace(&it.name));
    server.create("/api/v1/namespaces", &namespaces.collect::<Vec<_>>(), tasks).await?;
    let (_, cpus) = shape.cpus();
    server.create_nodes(cpus, tasks).await?;
    let queue = match sharing {
        CapacitySharing::Quota => {
            server.create(QUOTAS, &wrapper::quotas(shape), tasks).await?;
            "quotaEnabled: true, preemption: true"
        }
        CapacitySharing::Nodes => "",
    };
    let mut scene =
        OperatorRun::start(server, &OperatorSettings { limit, queue }, clock, tasks).await?;
    let before = (scene.operator.cost(), Requests::read(&scene.server.clients[0]).await?);
    let OperatorRun { server, tasks, .. } = &mut scene;
    submit_jobs(shape, sharing == CapacitySharing::Quota, &server.clients, clock, tasks);
    let mut record = Record::default();
    let seen = scene.record_until(&mut record, |record| record.completed >= shape.jobs()).await;
    seen.with_context(|| format!("of {} jobs", shape.jobs()))?;
    let (cost, requests) = (scene.operator.cost(), Requests::read(&scene.server.clients[0]).await?);
    scene.operator.ensure_running()?;
    let (requests, played) = (requests.since(&before.1), scene.job_writes.count());
    Ok(outcome(&record, shape, (before.0, cost), requests, played))
}

fn outcome(
    record: &Record,
    shape: &Shape,
    (before, after): (Cost, Cost),
    requests: Requests,
    played: u64,
) -> Outcome {
    let classes = record.classes();
    let cpu = |name: &str| {
        let class = shape.classes.iter().find(|class| class.name == name);
        class.map_or(0.0, |class| f64::from(class.cpu))
    };
    let held: f64 = classes.iter().map(|(name, it)| cpu(name) * it.held.as_secs_f64()).sum();
    let (_, cpus) = shape.cpus();
    #[expect(clippy::cast_precision_loss, reason = "a cluster has far fewer than 2^52 cpus")]
    let all = cpus as f64 * record.wall_time().as_secs_f64();
    Outcome {
        wall_time: record.wall_time(),
        usage: held / all.max(f64::MIN_POSITIVE),
        preemptions: classes.values().map(|class| u64::from(class.preemptions)).sum(),
        waits: classes.into_iter().map(|(name, class)| (name, class.waits)).collect(),
        cost: Cost { cpu: after.cpu.saturating_sub(before.cpu), peak: after.peak },
        requests,
        own_writes: played + shape.jobs() as u64,
        notes: Vec::new(),
    }
}

/// The time limit of a run.
pub(crate) const MAX_RUN_TIME: Duration = Duration::from_secs(3600);
