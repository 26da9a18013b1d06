//! What one passage costs when many wait.
//!
//! All of them wait before there is any room, so that nothing is measured but passages. The smallest
//! jobs are the most important ones: they pass while the others stay.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::tasks::Tasks;
use gantry_testkit::http::Request;

use super::record::Record;
use super::scene::{Scene, lost, see};
use super::shape::Class;
use super::stage::{Limit, Operator, SETTLE, Stage};
use super::wrapper::{self, APP_WRAPPERS};
use crate::usage;

/// Passages that are measured at most.
const MOST: usize = 1_000;
/// Cpus that appear when all wait.
const CPUS: u64 = 600;
const NAMESPACE: &str = "default";

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
    let scene = Scene::open(stage, &settings, clock, tasks).await?;
    let Scene { stage, mut operator, mut events, mut tasks, .. } = scene;

    let start = clock.moment();
    let path = format!("{APP_WRAPPERS}/namespaces/{NAMESPACE}/appwrappers");
    let wrapped = (0..waiting).map(|nth| {
        let class = &CLASSES[nth % CLASSES.len()];
        Request::post(&path, &wrapper::app_wrapper(NAMESPACE, &format!("job-{nth}"), class, false))
    });
    let mut record = Record::default();
    let all = |record: &Record| record.queued >= waiting;
    let mut sending = tasks.child();
    let come = stage.send_all(wrapped, &mut sending);
    let seen = see(&mut record, &mut events, clock, &operator, all);
    tokio::select! {
        both = async { tokio::try_join!(come, seen) } => both?,
        lost = lost(&mut tasks) => return Err(lost),
    };
    let queued = clock.moment() - start;
    // Whatever was begun for those that came last ends.
    clock.sleep(SETTLE).await;
    let (before, memory) = (operator.cost(), usage::resident_megabytes(&[operator.pid()]));

    let passages = waiting.div_ceil(CLASSES.len()).min(MOST);
    let room = clock.moment();
    stage.nodes(CPUS, &mut tasks).await?;
    let enough = |record: &Record| record.passed >= passages;
    let seen = tokio::select! {
        seen = see(&mut record, &mut events, clock, &operator, enough) => seen?,
        lost = lost(&mut tasks) => return Err(lost),
    };
    let after = operator.cost();
    operator.must_run()?;
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
