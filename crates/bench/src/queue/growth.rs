//! What one passage costs when many wait.
//!
//! All of them wait before there is any room, so that nothing is measured but passages. The smallest
//! jobs are the most important ones: they pass while the others stay.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::tasks::Tasks;

use super::record::Record;
use super::scene::{NAMESPACE, Scene};
use super::shape::Class;
use super::stage::{Limit, Operator, SETTLE, Stage};
use super::wrapper;
use crate::usage;

/// Passages that are measured at most.
const MOST: usize = 1_000;
/// Cpus that appear when all wait.
const CPUS: u64 = 600;

const fn class(name: &'static str, priority: i32, cpu: u32) -> Class {
    let (every, runs) = (Duration::ZERO, Duration::from_millis(200));
    Class { name, count: 1, every, runs, priority, cpu }
}
const CLASSES: [Class; 3] =
    [class("small", 200, 1), class("medium", 100, 5), class("large", 50, 20)];

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Kubernetes,
    Gantry,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Until all were known to wait, from the first request for one.
    pub(crate) queued: Duration,
    /// Passages, and the time from the room to the last of them.
    pub(crate) passages: usize,
    pub(crate) took: Duration,
    /// From the room to each passage.
    pub(crate) each: Vec<Duration>,
    /// Processor time of the operator for them.
    pub(crate) cpu: Duration,
    /// Memory of the operator while all waited, and the most it ever had, in megabytes.
    pub(crate) memory: f64,
    pub(crate) peak: f64,
}

/// Lets so many wait, and then some pass.
pub(crate) async fn measure(
    waiting: usize,
    on: On,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<Growth> {
    let stage = match on {
        On::Kubernetes => Stage::real(clock).await?,
        On::Gantry => Stage::embedded(clock).await?,
    };
    stage.define(tasks).await?;
    let settings = Operator { limit: Limit(None), queue: "" };
    let mut scene = Scene::open(stage, &settings, clock, tasks).await?;

    let start = clock.moment();
    let wrapped = (0..waiting).map(|nth| {
        let class = &CLASSES[nth % CLASSES.len()];
        wrapper::app_wrapper(NAMESPACE, &format!("job-{nth}"), class, false)
    });
    let mut record = Record::default();
    scene.bring(wrapped, &mut record, |record| record.queued >= waiting).await?;
    let queued = clock.moment() - start;
    // Whatever was begun for those that came last ends.
    clock.sleep(SETTLE).await;
    let before = scene.operator.cost();
    let memory = usage::resident_megabytes(&[scene.operator.pid()]);

    let passages = waiting.div_ceil(CLASSES.len()).min(MOST);
    let room = clock.moment();
    scene.stage.nodes(CPUS, &mut scene.tasks).await?;
    let seen = scene.look(&mut record, |record| record.passed >= passages).await?;
    let after = scene.operator.cost();
    scene.operator.must_run()?;
    let each: Vec<Duration> = seen.iter().map(|moment| *moment - room).collect();
    Ok(Growth {
        queued,
        passages,
        took: each.last().copied().unwrap_or_default(),
        each,
        cpu: after.cpu.saturating_sub(before.cpu),
        memory,
        peak: after.peak,
    })
}
