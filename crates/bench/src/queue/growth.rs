//! What one passage costs when many wait.
//!
//! All of them wait before there is any room, so that nothing is measured but passages. The smallest
//! jobs are the most important ones: they pass while the others stay.

use std::time::Duration;

use anyhow::Context as _;
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::Tasks;
use gantry_testkit::http::Request;
use tokio::sync::mpsc;

use super::gantry::lost;
use super::play::play;
use super::program::Program;
use super::record::{Record, Seen};
use super::shape::Class;
use super::stage::{Limit, Operator, SETTLE, Stage};
use super::watch::{self, Event, Watch};
use super::wrapper::{self, APP_WRAPPERS, PLAYED};
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
    let mut tasks = tasks.child();
    let wrappers = format!("{APP_WRAPPERS}/appwrappers");
    let wrappers = Watch::open(&stage.target, &wrappers, clock).await?;
    let jobs = Watch::open(&stage.target, &format!("{PLAYED}/playedjobs"), clock).await?;
    let mut events = watch::events::<Seen>(wrappers, clock, &mut tasks);
    play(jobs, &stage.clients[0], clock, &mut tasks);
    let mut operator = stage.operator(&Operator { limit: Limit(None), queue: "" })?;
    clock.sleep(SETTLE).await;

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

/// Looks at events until that is so. Returns when each passage was seen.
async fn see(
    record: &mut Record,
    events: &mut mpsc::Receiver<(Event<Seen>, Moment)>,
    clock: &Clock,
    operator: &Program,
    enough: impl Fn(&Record) -> bool,
) -> anyhow::Result<Vec<Moment>> {
    let mut passages = Vec::new();
    while !enough(record) {
        let seen = watch::seen(events, clock).await;
        let (event, now) = seen.with_context(|| {
            let Record { queued, passed, .. } = record;
            format!("{queued} were queued and {passed} passed\n{}", operator.tail())
        })?;
        let before = record.passed;
        record.saw(event, now)?;
        if record.passed > before {
            passages.push(now);
        }
    }
    Ok(passages)
}
