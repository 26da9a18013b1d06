//! Programs that really run, and what their probes found.

use std::sync::Arc;

use gantry_reconcile::{Fact, Key, Observed, Uid, World};
use jiff::Timestamp;

/// What became of the program of one container, as observed by the runner of programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The identity of the pod.
    pub uid: Uid,
    /// Which run of the container: how often it had been started again.
    pub run: i64,
    /// What it does.
    pub state: ProgramState,
    /// The hook that failed, if one did.
    pub failed_hook: Option<FailedHook>,
}

/// What a program does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramState {
    /// It runs.
    Running {
        /// Whether it says that it can do its work.
        ready: bool,
    },
    /// It has ended.
    Exited {
        /// Its exit code; zero is success.
        code: i64,
        /// When it ended.
        at: Timestamp,
        /// Its last words; empty when it had none.
        message: String,
    },
}

/// A hook of a container that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedHook {
    /// Which one.
    pub hook: Hook,
    /// What went wrong.
    pub message: String,
}

/// A hook of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// After its start.
    PostStart,
    /// Before its end.
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
    /// A container by its pod and its name.
    #[must_use]
    pub fn new(pod: &Key, container: &str) -> Self {
        Self { pod: pod.clone(), container: container.to_owned() }
    }

    /// The first and the last key that containers of a pod can have.
    fn range(pod: &Key) -> (Self, Self) {
        // Names of containers are ASCII: nothing comes after the last character there is.
        (Self::new(pod, ""), Self::new(pod, "\u{10FFFF}"))
    }
}

impl Fact for Program {
    type Subject = ContainerKey;
    const NAME: &'static str = "program";
}

/// Which probe of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Whether it has started.
    Startup,
    /// Whether it is ready.
    Readiness,
    /// Whether it must be started again.
    Liveness,
}

impl ProbeKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// As events spell it.
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
    /// Which of its probes.
    pub probe: ProbeKind,
}

/// What a probe of one run of a program has found so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// The identity of the pod.
    pub uid: Uid,
    /// Which run of the container.
    pub run: i64,
    /// What it comes to, by the thresholds of the probe.
    pub verdict: ProbeVerdict,
    /// What the last attempt found wrong; absent when it found nothing.
    pub failure: Option<String>,
    /// How many attempts in a row found the same as the last one.
    pub in_a_row: u32,
}

/// What the results of a probe come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// Neither threshold was reached yet.
    Undecided,
    /// The container is well.
    Passing,
    /// It is not.
    Failing,
}

impl Fact for ProbeResult {
    type Subject = ProbeKey;
    const NAME: &'static str = "probe";
}

/// The programs of a pod, each with its container.
#[must_use]
pub fn programs_of(world: &World, pod: &Key) -> Vec<(String, Arc<Observed<Program>>)> {
    let (first, last) = ContainerKey::range(pod);
    let known = world.facts::<Program>().range(first..=last);
    known
        .into_iter()
        .filter_map(|(key, state)| Some((key.container, state.observed.clone()?)))
        .collect()
}

/// What the probes of a pod found, each with its container.
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
