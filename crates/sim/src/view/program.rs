//! Programs that really run.

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
}

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramState {
    /// It runs, and listens where it should.
    Running,
    /// It has ended.
    Exited {
        /// Its exit code; zero is success.
        code: i64,
        /// When it ended.
        at: Timestamp,
    },
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
}

impl Fact for Program {
    type Subject = ContainerKey;
    const NAME: &'static str = "program";
}

/// The programs of a pod, each with its container.
#[must_use]
pub fn programs_of(world: &World, pod: &Key) -> Vec<(String, Arc<Observed<Program>>)> {
    // Names of containers are ASCII: nothing comes after the last character there is.
    let (first, last) = (ContainerKey::new(pod, ""), ContainerKey::new(pod, "\u{10FFFF}"));
    let known = world.facts::<Program>().range(first..=last);
    known
        .into_iter()
        .filter_map(|(key, state)| Some((key.container, state.observed.clone()?)))
        .collect()
}
