//! Measures what one admission costs when many AppWrappers are pending.
//!
//! All AppWrappers are pending before there is any free capacity, so that only admissions are
//! measured. The smallest jobs have the highest priority: they are admitted while the others stay
//! pending.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::tasks::Tasks;

use super::bench_server::{BenchServer, CONTROLLER_WARM_UP, OperatorSettings, RateLimit};
use super::operator_run::{NAMESPACE, OperatorRun};
use super::record::Record;
use super::shape::Class;
use super::wrapper;
use crate::usage;

/// The most admissions that are measured.
const MAX_MEASURED_ADMISSIONS: usize = 1_000;
/// CPUs that are added once all AppWrappers are pending.
const ADDED_CPUS: u64 = 600;

const fn class(name: &'static str, priority: i32, cpu: u32) -> Class {
    let (every, runs) = (Duration::ZERO, Duration::from_millis(200));
    Class { name, count: 1, every, runs, priority, cpu }
}
const CLASSES: [Class; 3] =
    [class("small", 200, 1), class("medium", 100, 5), class("large", 50, 20)];

/// The API server that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Kubernetes,
    Gantry,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Time from the first submission until all AppWrappers were observed as pending.
    pub(crate) queued: Duration,
    /// Admissions, and the time from the added capacity to the last of them.
    pub(crate) admissions: usize,
    pub(crate) took: Duration,
    /// Time from the added capacity to each admission.
    pub(crate) each: Vec<Duration>,
    /// Processor time of the operator for them.
    pub(crate) cpu: Duration,
    /// Memory of the operator while all AppWrappers were pending, and its peak, in megabytes.
    pub(crate) memory: f64,
    pub(crate) peak: f64,
}

/// Submits this many AppWrappers, and then adds capacity for some of them.
pub(crate) async fn measure(
    waiting: usize,
    on: ServerKind,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<Growth> {
    let server = match on {
        ServerKind::Kubernetes => BenchServer::real(clock).await?,
        ServerKind::Gantry => BenchServer::embedded(clock).await?,
    };
    server.create_definitions(tasks).await?;
    let settings = OperatorSettings { limit: RateLimit(None), queue: "" };
    let mut scene = OperatorRun::start(server, &settings, clock, tasks).await?;

    let start = clock.moment();
    let wrapped = (0..waiting).map(|nth| {
        let class = &CLASSES[nth % CLASSES.len()];
        wrapper::app_wrapper(NAMESPACE, &format!("job-{nth}"), class, false)
    });
    let mut record = Record::default();
    scene.submit_and_record(wrapped, &mut record, |record| record.queued >= waiting).await?;
    let queued = clock.moment() - start;
    // Waits until work for the last AppWrappers has ended.
    clock.sleep(CONTROLLER_WARM_UP).await;
    let before = scene.operator.cost();
    let memory = usage::resident_megabytes(&[scene.operator.pid()]);

    let admissions = waiting.div_ceil(CLASSES.len()).min(MAX_MEASURED_ADMISSIONS);
    let added = clock.moment();
    scene.server.create_nodes(ADDED_CPUS, &mut scene.tasks).await?;
    let seen = scene.record_until(&mut record, |record| record.admitted >= admissions).await?;
    let after = scene.operator.cost();
    scene.operator.ensure_running()?;
    let each: Vec<Duration> = seen.iter().map(|moment| *moment - added).collect();
    Ok(Growth {
        queued,
        admissions,
        took: each.last().copied().unwrap_or_default(),
        each,
        cpu: after.cpu.saturating_sub(before.cpu),
        memory,
        peak: after.peak,
    })
}
