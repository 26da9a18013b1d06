//! Our operator under Kueue's load.

use std::time::Duration;

use anyhow::Context as _;
use gantry_process::clock::Clock;
use gantry_process::tasks::Tasks;

use super::arrive::arrive;
use super::outcome::Outcome;
use super::program::Cost;
use super::record::Record;
use super::requests::Requests;
use super::scene::Scene;
use super::shape::Shape;
use super::stage::{Limit, Operator, Stage};
use super::wrapper::{self, QUOTAS};

/// Who owns what, or who comes first: quota trees with preemption, as Kueue has it, or nothing but the
/// nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Quota,
    Nodes,
}

/// Lets all jobs of a shape come, wait, run and end.
pub(crate) async fn measure(
    shape: &Shape,
    sharing: Sharing,
    limit: Limit,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<Outcome> {
    let stage = Stage::real(clock).await?;
    stage.define(tasks).await?;
    let namespaces = shape.all_queues().into_iter().map(|it| wrapper::namespace(&it.name));
    stage.create("/api/v1/namespaces", &namespaces.collect::<Vec<_>>(), tasks).await?;
    let (_, cpus) = shape.cpus();
    stage.nodes(cpus, tasks).await?;
    let queue = match sharing {
        Sharing::Quota => {
            stage.create(QUOTAS, &wrapper::quotas(shape), tasks).await?;
            "quotaEnabled: true, preemption: true"
        }
        Sharing::Nodes => "",
    };
    let mut scene = Scene::open(stage, &Operator { limit, queue }, clock, tasks).await?;
    let before = (scene.operator.cost(), Requests::read(&scene.stage.clients[0]).await?);
    let Scene { stage, tasks, .. } = &mut scene;
    arrive(shape, sharing == Sharing::Quota, &stage.clients, clock, tasks);
    let mut record = Record::default();
    let seen = scene.look(&mut record, |record| record.completed >= shape.jobs()).await;
    seen.with_context(|| format!("of {} jobs", shape.jobs()))?;
    let (cost, requests) = (scene.operator.cost(), Requests::read(&scene.stage.clients[0]).await?);
    scene.operator.must_run()?;
    let (requests, played) = (requests.since(&before.1), scene.played.count());
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
    let all = cpus as f64 * record.wall().as_secs_f64();
    Outcome {
        wall: record.wall(),
        usage: held / all.max(f64::MIN_POSITIVE),
        taken_back: classes.values().map(|class| u64::from(class.taken_back)).sum(),
        waits: classes.into_iter().map(|(name, class)| (name, class.waits)).collect(),
        cost: Cost { cpu: after.cpu.saturating_sub(before.cpu), peak: after.peak },
        requests,
        own_writes: played + shape.jobs() as u64,
        notes: Vec::new(),
    }
}

/// How long a run may take at most.
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);
