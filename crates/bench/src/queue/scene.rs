//! A stage on which our operator decides, jobs are played, and somebody looks.

use anyhow::Context as _;
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::Tasks;
use gantry_testkit::http::Request;
use serde_json::Value;
use tokio::sync::mpsc;

use super::play::{Writes, play};
use super::program::Program;
use super::record::{Record, Seen};
use super::stage::{Operator, SETTLE, Stage};
use super::watch::{self, Event, Watch};
use super::wrapper::{APP_WRAPPERS, PLAYED};

/// Where those are that come at once.
pub(crate) const NAMESPACE: &str = "default";

/// Everybody who takes part.
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    pub(crate) operator: Program,
    /// What becomes of AppWrappers.
    events: mpsc::Receiver<(Event<Seen>, Moment)>,
    /// How often jobs were written to.
    pub(crate) played: Writes,
    pub(crate) tasks: Tasks,
}

impl Scene {
    /// Opens it on a stage that has everything but what arrives, and lets the operator look around.
    pub(crate) async fn open(
        stage: Stage,
        settings: &Operator<'_>,
        clock: &Clock,
        tasks: &mut Tasks,
    ) -> anyhow::Result<Self> {
        let mut tasks = tasks.child();
        let wrappers = format!("{APP_WRAPPERS}/appwrappers");
        let wrappers = Watch::open(&stage.target, &wrappers, clock).await?;
        let jobs = Watch::open(&stage.target, &format!("{PLAYED}/playedjobs"), clock).await?;
        let events = watch::events::<Seen>(wrappers, clock, &mut tasks);
        let played = play(jobs, &stage.clients[0], clock, &mut tasks);
        let mut operator = stage.operator(settings)?;
        clock.sleep(SETTLE).await;
        operator.must_run()?;
        Ok(Self { stage, operator, events, played, tasks })
    }

    /// Looks at what becomes of AppWrappers until that is so. Returns when each passage was seen.
    pub(crate) async fn look(
        &mut self,
        record: &mut Record,
        enough: impl Fn(&Record) -> bool,
    ) -> anyhow::Result<Vec<Moment>> {
        let Self { stage, operator, events, tasks, .. } = self;
        tokio::select! {
            seen = see(record, events, &stage.clock, operator, enough) => seen,
            lost = lost(tasks) => Err(lost.context(operator.tail())),
        }
    }

    /// Lets these come at once, and looks until that is so.
    pub(crate) async fn bring(
        &mut self,
        wrapped: impl Iterator<Item = Value>,
        record: &mut Record,
        enough: impl Fn(&Record) -> bool,
    ) -> anyhow::Result<Vec<Moment>> {
        let Self { stage, operator, events, tasks, .. } = self;
        let path = format!("{APP_WRAPPERS}/namespaces/{NAMESPACE}/appwrappers");
        let mut sending = tasks.child();
        let come = stage.send_all(wrapped.map(|it| Request::post(&path, &it)), &mut sending);
        let seen = see(record, events, &stage.clock, operator, enough);
        let ((), seen) = tokio::select! {
            both = async { tokio::try_join!(come, seen) } => both?,
            lost = lost(tasks) => return Err(lost.context(operator.tail())),
        };
        Ok(seen)
    }
}

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
            let Record { queued, passed, made, completed, .. } = record;
            let tail = operator.tail();
            format!(
                "{queued} were queued, {passed} passed, {made} were made and {completed} ended\n{tail}"
            )
        })?;
        let before = record.passed;
        record.saw(event, now)?;
        if record.passed > before {
            passages.push(now);
        }
    }
    Ok(passages)
}

/// What ends a measurement before its time; arrivals that are done do not.
pub(crate) async fn lost(tasks: &mut Tasks) -> anyhow::Error {
    match tasks.join().await {
        Err(lost) => lost.into(),
        Ok(()) => anyhow::anyhow!("nobody watches any more"),
    }
}
