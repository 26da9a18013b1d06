//! How long it takes until jobs that all fit are there, when they come at once.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::tasks::Tasks;

use super::record::Record;
use super::requests::Requests;
use super::scene::{NAMESPACE, Scene};
use super::shape::Class;
use super::stage::{Limit, Operator, Stage};
use super::wrapper;

/// One of many that all fit. None ends before all are there.
const CLASS: Class = Class {
    name: "small",
    count: 1,
    every: Duration::ZERO,
    runs: Duration::from_secs(24 * 3600),
    priority: 0,
    cpu: 2,
};

/// What came of it.
#[derive(Debug)]
pub(crate) struct Burst {
    /// From the first request for one until all had passed, and until the job in each was made.
    pub(crate) passed: Duration,
    pub(crate) made: Duration,
    /// Processor time of the operator.
    pub(crate) cpu: Duration,
    /// What was asked of the server.
    pub(crate) requests: Requests,
}

/// Lets so many come to nodes that have room for each of them.
pub(crate) async fn measure(
    count: usize,
    limit: Limit,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<Burst> {
    let stage = Stage::real(clock).await?;
    stage.define(tasks).await?;
    stage.nodes(count as u64 * u64::from(CLASS.cpu), tasks).await?;
    let mut scene = Scene::open(stage, &Operator { limit, queue: "" }, clock, tasks).await?;
    let before = (scene.operator.cost(), Requests::read(&scene.stage.clients[0]).await?);

    let start = clock.moment();
    let wrapped =
        (0..count).map(|nth| wrapper::app_wrapper(NAMESPACE, &format!("job-{nth}"), &CLASS, false));
    let mut record = Record::default();
    let passages = scene.bring(wrapped, &mut record, |record| record.made >= count).await?;
    let made = clock.moment() - start;
    let (cost, requests) = (scene.operator.cost(), Requests::read(&scene.stage.clients[0]).await?);
    scene.operator.must_run()?;
    Ok(Burst {
        passed: passages.last().map_or(Duration::ZERO, |last| *last - start),
        made,
        cpu: cost.cpu.saturating_sub(before.0.cpu),
        requests: requests.since(&before.1),
    })
}
