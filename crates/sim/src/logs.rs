//! The output of containers: a bounded log in memory for each, and the one of the previous run.
//!
//! The observer of pods calls [`Logs::observe`] for each change and [`Logs::remove_pod`] when a pod
//! is gone; that is all simulated containers need. A program that really runs calls
//! [`Logs::start_run`] when it starts, [`Logs::append`] for its output and [`Logs::end_run`] when
//! it stops. Readers call [`select_run`] to determine which run a request is about, and then
//! [`Logs::read`]. What is read, and in which order options apply, is as in a kubelet.

mod observe;
mod observer;
mod ring;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::Value;

pub use self::observer::LogObserver;
use self::ring::{ReadControl, RingBuffer};

/// The annotation of a pod with the first lines its containers log.
pub const LOG_LINES_ANNOTATION: &str = "gantry.dev/sim-logs";

/// The logs of all containers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Logs(Arc<LogStore>);

#[derive(Debug, Default)]
struct LogStore {
    /// By UID of the pod and name of the container.
    pods: Mutex<HashMap<String, BTreeMap<String, ContainerRuns>>>,
    /// The bytes in all ring buffers.
    total: Arc<AtomicUsize>,
}

/// The runs of a container whose logs are kept.
#[derive(Debug)]
struct ContainerRuns {
    /// The restart count of the current run.
    number: i64,
    current: Arc<RingBuffer>,
    previous: Option<Arc<RingBuffer>>,
}

/// A run of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerRun {
    /// The run in progress, or the last one.
    Current,
    /// The one before it.
    Previous,
}

/// The options of reading a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReadOptions {
    /// Continue with lines as they are written, until the run ends.
    pub follow: bool,
    /// Write the time before each line.
    pub timestamps: bool,
    /// Leave out lines from before this time. They count as lines of the tail all the same.
    pub since: Option<Timestamp>,
    /// Begin with the last lines, this many.
    pub tail: Option<u64>,
    /// End after this many bytes, even in the middle of a line.
    pub limit: Option<u64>,
}

impl Logs {
    /// Creates an empty store of logs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a run of a container with `lines`; `run` is its restart count. The current log
    /// becomes that of the previous run, and the one before it is dropped. A run that has started
    /// already does not start again.
    pub fn start_run<'a>(
        &self,
        pod: &str,
        container: &str,
        run: i64,
        now: Timestamp,
        lines: impl IntoIterator<Item = &'a str>,
    ) {
        let replaced = {
            let mut pods = self.pods();
            let all = pods.entry(pod.to_owned()).or_default();
            if all.get(container).is_some_and(|runs| runs.number >= run) {
                return;
            }
            let current = Arc::new(RingBuffer::new(Arc::clone(&self.0.total)));
            for line in lines {
                current.push(now, line);
            }
            let previous = all.remove(container).map(|runs| runs.current);
            let runs = ContainerRuns { number: run, current, previous: previous.clone() };
            all.insert(container.to_owned(), runs);
            previous
        };
        if let Some(replaced) = replaced {
            replaced.end();
        }
    }

    /// Appends output of a container. Text of several lines is several lines. The output of a
    /// container without a run, or whose run has ended, is dropped.
    pub fn append(&self, pod: &str, container: &str, now: Timestamp, text: &str) {
        if let Some(ring) = self.ring(pod, container, ContainerRun::Current) {
            for line in text.lines() {
                ring.push(now, line);
            }
        }
    }

    /// Ends the run of a container: nothing can be appended, and followers reach the end. Its log
    /// can still be read.
    pub fn end_run(&self, pod: &str, container: &str) {
        if let Some(ring) = self.ring(pod, container, ContainerRun::Current) {
            ring.end();
        }
    }

    /// Ends a run, if it is the current one and has not ended before, optionally with a last line.
    fn finish_run(&self, pod: &str, container: &str, run: i64, now: Timestamp, line: Option<&str>) {
        let ring = {
            let pods = self.pods();
            let runs = pods.get(pod).and_then(|all| all.get(container));
            runs.filter(|runs| runs.number == run).map(|runs| Arc::clone(&runs.current))
        };
        if let Some(ring) = ring {
            // After its end a ring buffer accepts no more lines.
            if let Some(line) = line {
                ring.push(now, line);
            }
            ring.end();
        }
    }

    /// Removes the logs of a pod that is gone. Followers reach the end.
    pub fn remove_pod(&self, pod: &str) {
        let gone = self.pods().remove(pod).unwrap_or_default();
        for runs in gone.into_values() {
            runs.current.end();
        }
    }

    /// Returns how many pods have logs.
    #[must_use]
    pub fn pod_count(&self) -> usize {
        self.pods().len()
    }

    /// Opens the log of a run; `None` if there is none.
    #[must_use]
    pub fn read(
        &self,
        pod: &str,
        container: &str,
        run: ContainerRun,
        options: &LogReadOptions,
    ) -> Option<LogReader> {
        let ring = self.ring(pod, container, run)?;
        let at = ring.tail_position(options.tail);
        Some(LogReader {
            ring,
            position: at,
            remaining_bytes: options.limit,
            options: options.clone(),
        })
    }

    fn ring(&self, pod: &str, container: &str, run: ContainerRun) -> Option<Arc<RingBuffer>> {
        let pods = self.pods();
        let runs = pods.get(pod)?.get(container)?;
        match run {
            ContainerRun::Current => Some(Arc::clone(&runs.current)),
            ContainerRun::Previous => runs.previous.clone(),
        }
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<String, BTreeMap<String, ContainerRuns>>> {
        self.0.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most bytes that are returned at once.
const MAX_CHUNK_BYTES: usize = 32 * 1024;

/// Reads a log from a position on. Lines that were dropped before they were read are skipped.
#[derive(Debug)]
pub struct LogReader {
    ring: Arc<RingBuffer>,
    /// The number of the next line.
    position: u64,
    /// The bytes that may still be returned; `None` is any number.
    remaining_bytes: Option<u64>,
    options: LogReadOptions,
}

impl LogReader {
    /// Returns the next lines; `None` when there are no more, or when the run of a followed log has
    /// ended. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Bytes> {
        let ring = Arc::clone(&self.ring);
        loop {
            // Registered before the buffer is read: a line that is written after that wakes the
            // reader.
            let changed = ring.changed();
            let (chunk, over) = self.take_available();
            if !chunk.is_empty() {
                return Some(chunk);
            }
            if over || self.remaining_bytes == Some(0) || !self.options.follow {
                return None;
            }
            changed.await;
        }
    }

    /// Returns the available lines, and whether no more can follow.
    fn take_available(&mut self) -> (Bytes, bool) {
        let mut chunk = BytesMut::new();
        let Self { ring, position: at, remaining_bytes: left, options } = self;
        let over = ring.lines_from(at, |time, line| {
            if options.since.is_some_and(|since| time < since) {
                return ReadControl::Continue;
            }
            let begun = chunk.len();
            if options.timestamps {
                chunk.extend_from_slice(format!("{time:.9} ").as_bytes());
            }
            chunk.extend_from_slice(line.as_bytes());
            chunk.extend_from_slice(b"\n");
            if let Some(left) = left {
                let written = chunk.len() - begun;
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(written);
                chunk.truncate(begun + most);
                *left -= u64::try_from(most).unwrap_or(*left);
                if *left == 0 {
                    return ReadControl::Stop;
                }
            }
            if chunk.len() >= MAX_CHUNK_BYTES { ReadControl::Stop } else { ReadControl::Continue }
        });
        (chunk.freeze(), over)
    }
}

/// Returns which run of a container its log is to be read from, by the status of its pod.
///
/// # Errors
/// Why there is nothing to read, with the text of a kubelet.
pub fn select_run(pod: &Value, container: &str, previous: bool) -> Result<ContainerRun, String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let what = || format!("container {container:?} in pod {name:?}");
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let status = lists
        .iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten()
        .find(|status| status["name"] == container);
    let Some(status) = status else { return Err(format!("{} is not available", what())) };
    let ran = |state: &Value| {
        state["terminated"]["containerID"].as_str().is_some_and(|id| !id.is_empty())
    };
    let (state, last) = (&status["state"], &status["lastState"]);
    let begun = state["running"].is_object() || ran(state);
    if previous {
        return match (ran(last), begun) {
            (true, true) => Ok(ContainerRun::Previous),
            // No run has started since, so the log of the last run is the current one.
            (true, false) => Ok(ContainerRun::Current),
            (false, _) => Err(format!("previous terminated {} not found", what())),
        };
    }
    if begun {
        return Ok(ContainerRun::Current);
    }
    // A run that did not start has no log, and the current log is still that of the last one.
    if state["terminated"].is_object() || last["terminated"].is_object() {
        return match ran(last) {
            true => Ok(ContainerRun::Current),
            false => Err(format!("{} is terminated", what())),
        };
    }
    if !state["waiting"].is_object() {
        return Err(format!("{} is waiting to start - no logs yet", what()));
    }
    let why = match state["waiting"]["reason"].as_str().unwrap_or_default() {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        reason => reason,
    };
    Err(format!("{} is waiting to start: {why}", what()))
}

#[cfg(test)]
mod tests;
