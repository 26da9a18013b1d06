//! How long it takes until jobs that all fit are there, when they come at once.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::tasks::Tasks;
use gantry_testkit::http::Request;

use super::record::Record;
use super::requests::Requests;
use super::scene::{Scene, lost, see};
use super::shape::Class;
use super::stage::{Limit, Operator, Stage};
use super::wrapper::{self, APP_WRAPPERS};

const NAMESPACE: &str = "default";
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
    let scene = Scene::open(stage, &Operator { limit, queue: "" }, clock, tasks).await?;
    let Scene { stage, mut operator, mut events, mut tasks, .. } = scene;
    let before = (operator.cost(), Requests::read(&stage.clients[0]).await?);

    let start = clock.moment();
    let path = format!("{APP_WRAPPERS}/namespaces/{NAMESPACE}/appwrappers");
    let wrapped = (0..count).map(|nth| {
        Request::post(&path, &wrapper::app_wrapper(NAMESPACE, &format!("job-{nth}"), &CLASS, false))
    });
    let mut record = Record::default();
    let all = |record: &Record| record.made >= count;
    let mut sending = tasks.child();
    let come = stage.send_all(wrapped, &mut sending);
    let seen = see(&mut record, &mut events, clock, &operator, all);
    let ((), passages) = tokio::select! {
        both = async { tokio::try_join!(come, seen) } => both?,
        lost = lost(&mut tasks) => return Err(lost.context(operator.tail())),
    };
    let made = clock.moment() - start;
    let (cost, requests) = (operator.cost(), Requests::read(&stage.clients[0]).await?);
    operator.must_run()?;
    Ok(Burst {
        passed: passages.last().map_or(Duration::ZERO, |last| *last - start),
        made,
        cpu: cost.cpu.saturating_sub(before.0.cpu),
        requests: requests.since(&before.1),
    })
}
