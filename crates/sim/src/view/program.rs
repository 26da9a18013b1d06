//! Programs that really run, and their probe results.

use std::sync::Arc;

use gantry_reconcile::{Fact, Key, Observed, Uid, World};
use jiff::Timestamp;

/// The state of the program of one container, as observed by the runner of programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The UID of the pod.
    pub uid: Uid,
    /// The run of the container: its restart count.
    pub run: i64,
    /// The state of the program.
    pub state: ProgramState,
    /// The hook that failed, if one did.
    pub failed_hook: Option<FailedHook>,
}

/// The state of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramState {
    /// The program runs.
    Running {
        /// Whether the program reports that it is ready.
        ready: bool,
    },
    /// The program has exited.
    Exited {
        /// Its exit code; zero is success.
        code: i64,
        /// When it exited.
        at: Timestamp,
        /// Its termination message; empty when it has none.
        message: String,
    },
}

/// A hook of a container that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedHook {
    /// Which hook.
    pub hook: Hook,
    /// What went wrong.
    pub message: String,
}

/// A hook of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// After the start.
    PostStart,
    /// Before the stop.
    PreStop,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerKey {
    /// The pod.
    pub pod: Key,
    /// The container's name.
    pub container: String,
}

impl ContainerKey {
    /// Creates the key of a container from its pod and its name.
    #[must_use]
    pub fn new(pod: &Key, container: &str) -> Self {
        Self { pod: pod.clone(), container: container.to_owned() }
    }

    /// Returns the first and the last key that containers of a pod can have.
    fn range(pod: &Key) -> (Self, Self) {
        // Names of containers are ASCII: the last Unicode character sorts after all of them.
        (Self::new(pod, ""), Self::new(pod, "\u{10FFFF}"))
    }
}

impl Fact for Program {
    type Subject = ContainerKey;
    const NAME: &'static str = "program";
}

/// The kind of a container's probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Whether the container has started.
    Startup,
    /// Whether the container is ready.
    Readiness,
    /// Whether the container must be restarted.
    Liveness,
}

impl ProbeKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// Returns the name as events spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// A probe of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeKey {
    /// The container.
    pub container: ContainerKey,
    /// The kind of the probe.
    pub probe: ProbeKind,
}

/// The result of a probe of one run of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// The UID of the pod.
    pub uid: Uid,
    /// The run of the container.
    pub run: i64,
    /// The verdict, by the thresholds of the probe.
    pub verdict: ProbeVerdict,
    /// The failure of the last attempt; `None` when it succeeded.
    pub failure: Option<String>,
    /// How many attempts in a row had the same result as the last one.
    pub consecutive: u32,
}

/// The verdict of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// Neither threshold was reached yet.
    Undecided,
    /// The success threshold was reached.
    Passing,
    /// The failure threshold was reached.
    Failing,
}

impl Fact for ProbeResult {
    type Subject = ProbeKey;
    const NAME: &'static str = "probe";
}

/// Returns the programs of a pod, each with its container.
#[must_use]
pub fn programs_of(world: &World, pod: &Key) -> Vec<(String, Arc<Observed<Program>>)> {
    let (first, last) = ContainerKey::range(pod);
    let known = world.facts::<Program>().range(first..=last);
    known
        .into_iter()
        .filter_map(|(key, state)| Some((key.container, state.observed.clone()?)))
        .collect()
}

/// Returns the probe results of a pod, each with its container.
#[must_use]
pub fn probes_of(world: &World, pod: &Key) -> Vec<(String, ProbeKind, Arc<Observed<ProbeResult>>)> {
    let (first, last) = ContainerKey::range(pod);
    let first = ProbeKey { container: first, probe: ProbeKind::Startup };
    let last = ProbeKey { container: last, probe: ProbeKind::Liveness };
    let known = world.facts::<ProbeResult>().range(first..=last);
    known
        .into_iter()
        .filter_map(|(key, state)| {
            Some((key.container.container, key.probe, state.observed.clone()?))
        })
        .collect()
}
