//! Measures how long it takes to dispatch jobs that all fit, when they are submitted at once.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::tasks::Tasks;

use super::bench_server::{BenchServer, OperatorSettings, RateLimit};
use super::operator_run::{NAMESPACE, OperatorRun};
use super::record::Record;
use super::requests::Requests;
use super::shape::Class;
use super::wrapper;

/// One of many jobs that all fit. None completes before all are dispatched.
const CLASS: Class = Class {
    name: "small",
    count: 1,
    every: Duration::ZERO,
    runs: Duration::from_secs(24 * 3600),
    priority: 0,
    cpu: 2,
};

/// The result of a burst.
#[derive(Debug)]
pub(crate) struct Burst {
    /// Time from the first submission until all AppWrappers were admitted, and until the job in
    /// each was created.
    pub(crate) admitted: Duration,
    pub(crate) created: Duration,
    /// Processor time of the operator.
    pub(crate) cpu: Duration,
    /// Requests to the server.
    pub(crate) requests: Requests,
}

/// Submits this many jobs to nodes that have free capacity for each of them.
pub(crate) async fn measure(
    count: usize,
    limit: RateLimit,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<Burst> {
    let server = BenchServer::real(clock).await?;
    server.create_definitions(tasks).await?;
    server.create_nodes(count as u64 * u64::from(CLASS.cpu), tasks).await?;
    let mut scene =
        OperatorRun::start(server, &OperatorSettings { limit, queue: "" }, clock, tasks).await?;
    let before = (scene.operator.cost(), Requests::read(&scene.server.clients[0]).await?);

    let start = clock.moment();
    let wrapped =
        (0..count).map(|nth| wrapper::app_wrapper(NAMESPACE, &format!("job-{nth}"), &CLASS, false));
    let mut record = Record::default();
    let admissions =
        scene.submit_and_record(wrapped, &mut record, |record| record.created >= count).await?;
    let made = clock.moment() - start;
    let (cost, requests) = (scene.operator.cost(), Requests::read(&scene.server.clients[0]).await?);
    scene.operator.ensure_running()?;
    Ok(Burst {
        admitted: admissions.last().map_or(Duration::ZERO, |last| *last - start),
        created: made,
        cpu: cost.cpu.saturating_sub(before.0.cpu),
        requests: requests.since(&before.1),
    })
}
