//! The life of an instance: one task from its start until nothing of it is left.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gantry_http_client::{Body as ClientBody, Bounds};
use gantry_process::children::ChildExit;
use gantry_process::descendants::Family;
use gantry_process::tasks::{OnLoss, Tasks};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::api::Shared;
use super::log_file::LogFile;
use super::start::{EngineOutput, EngineProcess};
use crate::exchange;
use crate::tiny::core_process::INSTANCE_VARIABLE;

/// How long ending all processes of an instance may take after the signal that cannot be ignored.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the last output is read after all processes have ended.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The first and the longest wait before an engine is asked again whether it answers.
const READY_DELAYS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How much one such question may take.
const READY_BOUNDS: Bounds = Bounds { time: Duration::from_secs(2), bytes: 64 << 10 };

/// How far the deletion of an instance is.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// It was not asked for.
    Kept,
    /// It was asked for.
    Requested,
    /// Nothing is left; with the last state.
    Done(Value),
    /// Processes are left.
    Failed(String),
}

/// What requests know of an instance beside the table.
#[derive(Clone)]
pub(super) struct InstanceHandle {
    pub(super) log: PathBuf,
    pub(super) progress: watch::Sender<Progress>,
}

impl InstanceHandle {
    /// Asks for the deletion and waits for it. It goes on when this is dropped.
    pub(super) async fn delete(&self) -> Result<Value, String> {
        self.progress.send_if_modified(|it| match it {
            // A deletion that failed is tried again.
            Progress::Kept | Progress::Failed(_) => {
                *it = Progress::Requested;
                true
            }
            Progress::Requested | Progress::Done(_) => false,
        });
        let mut progress = self.progress.subscribe();
        let ended = progress
            .wait_for(|it| matches!(it, Progress::Done(_) | Progress::Failed(_)))
            .await
            .map(|it| it.clone());
        match ended {
            Ok(Progress::Done(state)) => Ok(state),
            Ok(Progress::Failed(message)) => Err(message),
            Ok(Progress::Kept | Progress::Requested) | Err(_) => {
                Err("the launcher is stopping".to_owned())
            }
        }
    }
}

/// An instance with its process.
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) mark: String,
    pub(super) port: u16,
    pub(super) process: EngineProcess,
    pub(super) output: EngineOutput,
    pub(super) log: LogFile,
    pub(super) handle: InstanceHandle,
}

impl Instance {
    /// Ends what was just started, before anybody knew of it.
    pub(super) async fn discard(mut self, shared: &Shared) {
        shared.log(&format!("instance {} was overtaken by a newer call", self.id));
        let family = self.family();
        self.process.kill();
        // Both log what is wrong; there is nobody else to tell.
        let _ = end_family(&family, shared).await;
        let _ = self.process.wait().await;
    }

    fn family(&self) -> Family {
        let mark = Some(format!("{INSTANCE_VARIABLE}={}", self.mark));
        Family { root: Some(self.process.id()), mark }
    }

    /// Runs until the instance is deleted, or the launcher stops.
    pub(super) async fn run(self, shared: Arc<Shared>, mut tasks: Tasks) {
        let family = self.family();
        let Self { id, mark: _, port, mut process, output, log, handle } = self;
        let (clock, stop) = (tasks.clock().clone(), tasks.token().clone());
        // Not stopped with the launcher: the last lines are written while it stops.
        let (output_ended, log) = spawn_output(output, log, &mut tasks);
        let ready_stop = stop.child_token();
        spawn_ready_check(&id, port, &shared, &mut tasks, ready_stop.clone());
        let mut progress = handle.progress.subscribe();
        let mut exit = None;
        tokio::select! {
            biased;
            // Each may be dropped: waiting changes nothing.
            () = stop.cancelled() => {}
            _ = progress.wait_for(|it| matches!(it, Progress::Requested)) => {}
            ended = process.wait() => exit = Some(ended),
        }
        ready_stop.cancel();
        if exit.is_none() {
            shared.log(&format!("stopping instance {id}"));
            process.terminate();
            let ended = clock.timeout(shared.settings.stop_time, process.wait()).await;
            if ended.is_err() {
                shared.log(&format!("instance {id} ignores SIGTERM and is killed"));
                process.kill();
            }
            exit = ended.ok();
        }
        let was_deleted = !matches!(*progress.borrow(), Progress::Kept) || stop.is_cancelled();
        let mut left = end_family(&family, &shared).await;
        if exit.is_none() {
            exit = Some(process.wait().await);
        }
        let _ = clock.timeout(OUTPUT_DRAIN_TIMEOUT, output_ended.cancelled()).await;
        if !was_deleted {
            let code = exit_code(exit.as_ref());
            shared.log(&format!("instance {id} ended by itself with code {code}"));
            shared.change(|table| table.stopped(&id, code));
        }
        loop {
            if !stop.is_cancelled() {
                tokio::select! {
                    biased;
                    // Either may be dropped: both only wait.
                    () = stop.cancelled() => {}
                    _ = progress.wait_for(|it| matches!(it, Progress::Requested)) => {}
                }
            }
            if left.is_err() {
                left = end_family(&family, &shared).await;
            }
            match &left {
                Ok(()) => break,
                Err(message) => {
                    handle.progress.send_replace(Progress::Failed(message.clone()));
                    if stop.is_cancelled() {
                        break;
                    }
                }
            }
        }
        drop(log);
        shared.forget(&id);
        let state = shared.change(|table| table.remove(&id)).unwrap_or_default();
        handle.progress.send_replace(Progress::Done(state));
        tasks.token().cancel();
        while tasks.join().await.is_err() {}
    }
}

/// Ends every process of an instance, and frees the memory of accelerators that they had.
async fn end_family(family: &Family, shared: &Shared) -> Result<(), String> {
    let ended = family.end(&shared.settings.clock, KILL_TIMEOUT).await;
    super::reap_ledgers(&shared.settings.host, &shared.settings.clock);
    ended.map_err(|error| {
        let message = error.to_string();
        shared.log(&message);
        message
    })
}

/// The exit code in events: negative for a signal.
fn exit_code(exit: Option<&std::io::Result<ChildExit>>) -> i32 {
    match exit {
        Some(Ok(ChildExit::Exited(code))) => (*code).into(),
        Some(Ok(ChildExit::Signaled(signal))) => -signal,
        // Nobody knows how it ended.
        Some(Err(_)) | None => -1,
    }
}

/// Writes output to the log. Returns a token that is cancelled at the end of the output, and what
/// keeps the log.
fn spawn_output(
    mut output: EngineOutput,
    mut log: LogFile,
    tasks: &mut Tasks,
) -> (CancellationToken, DropGuard) {
    let ended = CancellationToken::new();
    let finished = CancellationToken::new();
    let (at_end, until) = (ended.clone(), finished.clone());
    tasks.spawn("engine output", OnLoss::CarryOn, move |_| async move {
        loop {
            let bytes = tokio::select! {
                biased;
                // Either may be dropped: what was read was written.
                () = until.cancelled() => return Ok(()),
                bytes = output.next() => bytes,
            };
            match bytes {
                Some(bytes) => log.append(&bytes)?,
                None => break,
            }
        }
        at_end.cancel();
        // The file is removed when this ends.
        until.cancelled().await;
        Ok(())
    });
    (ended, finished.drop_guard())
}

/// Asks the engine until it answers, and announces that.
fn spawn_ready_check(
    id: &str,
    port: u16,
    shared: &Arc<Shared>,
    tasks: &mut Tasks,
    stop: CancellationToken,
) {
    let (id, shared) = (id.to_owned(), Arc::clone(shared));
    tasks.spawn("ready check", OnLoss::CarryOn, move |_| async move {
        let url = exchange::url(shared.settings.host.local_address(), port, "/health");
        let mut delay = READY_DELAYS.0;
        loop {
            let asked = async {
                shared.settings.clock.sleep(delay).await;
                let request = http::Request::get(&url).body(ClientBody::empty()).ok()?;
                shared.settings.forwarder.fetch(request, READY_BOUNDS).await.ok()
            };
            let answered = tokio::select! {
                biased;
                // Either may be dropped: the question changes nothing.
                () = stop.cancelled() => return Ok(()),
                answered = asked => answered,
            };
            if answered.is_some_and(|it| it.status().is_success()) {
                shared.change(|table| table.ready(&id));
                return Ok(());
            }
            delay = (delay * 2).min(READY_DELAYS.1);
        }
    });
}
