//! What containers have said: a bounded log in memory for each, and the one of the run before.
//!
//! Whoever sees pods change calls [`Logs::observe`] for each and [`Logs::forget`] when one is gone;
//! that is all pretend containers need. A program that really runs calls [`Logs::begin`] when it
//! starts, [`Logs::append`] for what it says and [`Logs::end`] when it stops. Whoever reads calls
//! [`readable`] to learn which run a request is about, and then [`Logs::read`]. What is read, and in
//! which order options apply, is as a kubelet does it.

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
use self::ring::{Ring, Taken};

/// The annotation of a pod that says what its containers say first, a line each.
pub const SAYS: &str = "gantry.dev/sim-logs";

/// The logs of all containers. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Logs(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// By uid of the pod and name of the container.
    pods: Mutex<HashMap<String, BTreeMap<String, Runs>>>,
    /// Bytes in all rings.
    total: Arc<AtomicUsize>,
}

/// The runs of a container whose logs are kept.
#[derive(Debug)]
struct Runs {
    /// How often the container had been started again when the current run began.
    number: i64,
    current: Arc<Ring>,
    previous: Option<Arc<Ring>>,
}

/// Which run of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// The one that runs, or ran last.
    Current,
    /// The one before it.
    Previous,
}

/// What of a log is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Go on with lines as they are written, until the run ends.
    pub follow: bool,
    /// Put the time before each line.
    pub timestamps: bool,
    /// Leave out lines from before this moment. They count as lines of the tail all the same.
    pub since: Option<Timestamp>,
    /// Begin with the last so many lines.
    pub tail: Option<u64>,
    /// End after so many bytes, be it in the middle of a line.
    pub limit: Option<u64>,
}

impl Logs {
    /// No logs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A run of a container begins with `lines`; `run` is how often it had been started again. What
    /// it said before becomes the previous run, and what was before that is forgotten. A run that
    /// has begun already does not begin again.
    pub fn begin<'a>(
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
            let current = Arc::new(Ring::new(Arc::clone(&self.0.total)));
            for line in lines {
                current.push(now, line);
            }
            let previous = all.remove(container).map(|runs| runs.current);
            let runs = Runs { number: run, current, previous: previous.clone() };
            all.insert(container.to_owned(), runs);
            previous
        };
        if let Some(replaced) = replaced {
            replaced.end();
        }
    }

    /// A container says something. Text of several lines is several lines. A container of which no
    /// run has begun, or whose run is over, has nothing to say, and nothing is kept.
    pub fn append(&self, pod: &str, container: &str, now: Timestamp, text: &str) {
        if let Some(ring) = self.ring(pod, container, Run::Current) {
            for line in text.lines() {
                ring.push(now, line);
            }
        }
    }

    /// The run of a container is over: it says nothing any more, and nobody waits for it. It can
    /// still be read.
    pub fn end(&self, pod: &str, container: &str) {
        if let Some(ring) = self.ring(pod, container, Run::Current) {
            ring.end();
        }
    }

    /// A run is over, if it is the current one and was not over before; it may have a last word.
    fn finish(&self, pod: &str, container: &str, run: i64, now: Timestamp, line: Option<&str>) {
        let ring = {
            let pods = self.pods();
            let runs = pods.get(pod).and_then(|all| all.get(container));
            runs.filter(|runs| runs.number == run).map(|runs| Arc::clone(&runs.current))
        };
        if let Some(ring) = ring {
            // After its end a ring takes no more words.
            if let Some(line) = line {
                ring.push(now, line);
            }
            ring.end();
        }
    }

    /// A pod is gone, and so is what its containers said. Those who still read it come to an end.
    pub fn forget(&self, pod: &str) {
        let gone = self.pods().remove(pod).unwrap_or_default();
        for runs in gone.into_values() {
            runs.current.end();
        }
    }

    /// How many pods there are logs of.
    #[must_use]
    pub fn pods_known(&self) -> usize {
        self.pods().len()
    }

    /// Opens the log of a run; `None` if there is none.
    #[must_use]
    pub fn read(&self, pod: &str, container: &str, run: Run, options: &Options) -> Option<Reader> {
        let ring = self.ring(pod, container, run)?;
        let at = ring.before_last(options.tail);
        Some(Reader { ring, at, left: options.limit, options: options.clone() })
    }

    fn ring(&self, pod: &str, container: &str, run: Run) -> Option<Arc<Ring>> {
        let pods = self.pods();
        let runs = pods.get(pod)?.get(container)?;
        match run {
            Run::Current => Some(Arc::clone(&runs.current)),
            Run::Previous => runs.previous.clone(),
        }
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<String, BTreeMap<String, Runs>>> {
        self.0.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is given out at once.
const CHUNK: usize = 32 * 1024;

/// Reads a log from one place on. Lines that were dropped before they were read are skipped.
#[derive(Debug)]
pub struct Reader {
    ring: Arc<Ring>,
    /// The number of the next line.
    at: u64,
    /// Bytes that may still be given out; `None` is any number.
    left: Option<u64>,
    options: Options,
}

impl Reader {
    /// The next lines; `None` when there are no more, or when the run of a log that is followed is
    /// over. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Bytes> {
        let ring = Arc::clone(&self.ring);
        loop {
            // Asked for before we look: what is written after that wakes us.
            let changed = ring.changed();
            let (chunk, over) = self.take();
            if !chunk.is_empty() {
                return Some(chunk);
            }
            if over || self.left == Some(0) || !self.options.follow {
                return None;
            }
            changed.await;
        }
    }

    /// What is there now, and whether nothing can come after it.
    fn take(&mut self) -> (Bytes, bool) {
        let mut chunk = BytesMut::new();
        let Self { ring, at, left, options } = self;
        let over = ring.lines_from(at, |time, line| {
            if options.since.is_some_and(|since| time < since) {
                return Taken::More;
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
                    return Taken::Enough;
                }
            }
            if chunk.len() >= CHUNK { Taken::Enough } else { Taken::More }
        });
        (chunk.freeze(), over)
    }
}

/// Which run of a container its log is to be read from, by the status of its pod.
///
/// # Errors
/// Why there is nothing to read, in the words of a kubelet.
pub fn readable(pod: &Value, container: &str, previous: bool) -> Result<Run, String> {
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
            (true, true) => Ok(Run::Previous),
            // Nothing has begun since, so what we keep of the last run is the current one.
            (true, false) => Ok(Run::Current),
            (false, _) => Err(format!("previous terminated {} not found", what())),
        };
    }
    if begun {
        return Ok(Run::Current);
    }
    // A run that did not begin has no log, and what is there is still the last one's.
    if state["terminated"].is_object() || last["terminated"].is_object() {
        return match ran(last) {
            true => Ok(Run::Current),
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
