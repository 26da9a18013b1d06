//! A benchmark server with Gantry's operator, the job simulator and a watch on AppWrappers.

use anyhow::Context as _;
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::Tasks;
use gantry_testkit::http::Request;
use serde_json::Value;
use tokio::sync::mpsc;

use super::bench_server::{BenchServer, CONTROLLER_WARM_UP, OperatorSettings};
use super::job_simulator::{WriteCounter, simulate_jobs};
use super::program::Program;
use super::record::{ObservedAppWrapper, Record};
use super::watch::{self, Event, Watch};
use super::wrapper::{APP_WRAPPERS, PLAYED};

/// The namespace of jobs that are submitted at once.
pub(crate) const NAMESPACE: &str = "default";

/// The running parts of a benchmark.
pub(crate) struct OperatorRun {
    pub(crate) server: BenchServer,
    pub(crate) operator: Program,
    /// The observed states of AppWrappers.
    events: mpsc::Receiver<(Event<ObservedAppWrapper>, Moment)>,
    /// The number of writes to jobs.
    pub(crate) job_writes: WriteCounter,
    pub(crate) tasks: Tasks,
}

impl OperatorRun {
    /// Starts all parts on a server that has everything but the jobs, and lets the operator fill
    /// its caches.
    pub(crate) async fn start(
        server: BenchServer,
        settings: &OperatorSettings<'_>,
        clock: &Clock,
        tasks: &mut Tasks,
    ) -> anyhow::Result<Self> {
        let mut tasks = tasks.child();
        let wrappers = format!("{APP_WRAPPERS}/appwrappers");
        let wrappers = Watch::open(&server.target, &wrappers, clock).await?;
        let jobs = Watch::open(&server.target, &format!("{PLAYED}/playedjobs"), clock).await?;
        let events = watch::events::<ObservedAppWrapper>(wrappers, clock, &mut tasks);
        let played = simulate_jobs(jobs, &server.clients[0], clock, &mut tasks);
        let mut operator = server.start_operator(settings)?;
        clock.sleep(CONTROLLER_WARM_UP).await;
        operator.ensure_running()?;
        Ok(Self { server, operator, events, job_writes: played, tasks })
    }

    /// Observes AppWrappers until the condition holds. Returns when each admission was observed.
    pub(crate) async fn record_until(
        &mut self,
        record: &mut Record,
        enough: impl Fn(&Record) -> bool,
    ) -> anyhow::Result<Vec<Moment>> {
        let Self { server, operator, events, tasks, .. } = self;
        tokio::select! {
            seen = record_events(record, events, &server.clock, operator, enough) => seen,
            lost = task_failure(tasks) => Err(lost.context(operator.tail())),
        }
    }

    /// Submits these at once, and observes until the condition holds.
    pub(crate) async fn submit_and_record(
        &mut self,
        wrapped: impl Iterator<Item = Value>,
        record: &mut Record,
        enough: impl Fn(&Record) -> bool,
    ) -> anyhow::Result<Vec<Moment>> {
        let Self { server, operator, events, tasks, .. } = self;
        let path = format!("{APP_WRAPPERS}/namespaces/{NAMESPACE}/appwrappers");
        let mut sending = tasks.child();
        let come = server.send_all(wrapped.map(|it| Request::post(&path, &it)), &mut sending);
        let seen = record_events(record, events, &server.clock, operator, enough);
        let ((), seen) = tokio::select! {
            both = async { tokio::try_join!(come, seen) } => both?,
            lost = task_failure(tasks) => return Err(lost.context(operator.tail())),
        };
        Ok(seen)
    }
}

async fn record_events(
    record: &mut Record,
    events: &mut mpsc::Receiver<(Event<ObservedAppWrapper>, Moment)>,
    clock: &Clock,
    operator: &Program,
    enough: impl Fn(&Record) -> bool,
) -> anyhow::Result<Vec<Moment>> {
    let mut admissions = Vec::new();
    while !enough(record) {
        let seen = watch::next_event(events, clock).await;
        let (event, now) = seen.with_context(|| {
            let Record { queued, admitted, created, completed, .. } = record;
            let tail = operator.tail();
            format!(
                "{queued} queued, {admitted} admitted, {created} created, {completed} ended\n{tail}"
            )
        })?;
        let before = record.admitted;
        record.observe(event, now)?;
        if record.admitted > before {
            admissions.push(now);
        }
    }
    Ok(admissions)
}

/// Returns the error of the task that ends a benchmark early; finished submissions do not end it.
pub(crate) async fn task_failure(tasks: &mut Tasks) -> anyhow::Error {
    match tasks.join().await {
        Err(lost) => lost.into(),
        Ok(()) => anyhow::anyhow!("all watch tasks have ended"),
    }
}
