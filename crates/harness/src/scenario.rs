//! Scenarios, their faults, and how a run ends.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use gantry_reconcile::object::Resource;
use gantry_reconcile::plan::Event;
use gantry_reconcile::write::Write;
use gantry_reconcile::{Call, Controller, Held};

use crate::external::ExternalSystems;
use crate::server::Server;

/// The name prefix of objects whose writes are all refused ([`Scenario::prove_isolation`]).
pub const REFUSED_PREFIX: &str = "refused";
/// The name prefix of objects whose writes all conflict.
pub const CONFLICTED_PREFIX: &str = "conflicted";
/// The name prefix of objects that cannot be decoded.
pub const UNREADABLE_PREFIX: &str = "unreadable";

/// A test scenario.
pub struct Scenario<'a> {
    /// The controllers under test.
    pub controllers: &'a [&'a dyn Controller],
    /// Sets the defaults of an object, as the server does on create and update.
    pub defaults: fn(&Resource, &mut Value),
    /// The initial objects.
    pub objects: Vec<(Resource, Value)>,
    /// What users do, in this order, at random times.
    pub script: Vec<UserAction>,
    /// How many processes run the controllers concurrently. With more than one, leader election has
    /// failed.
    pub replicas: usize,
    /// How long the run continues after everything has settled.
    pub horizon: Duration,
    /// Systems outside the API.
    pub external: ExternalSystems<'a>,
}

impl Default for Scenario<'_> {
    fn default() -> Self {
        Self {
            controllers: &[],
            defaults: |_, _| {},
            objects: Vec::new(),
            script: Vec::new(),
            replicas: 1,
            horizon: Duration::ZERO,
            external: ExternalSystems::default(),
        }
    }
}

/// An action of a user.
pub type UserAction = Box<dyn Fn(&mut Server)>;

impl fmt::Debug for Scenario<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.controllers.iter().map(|it| it.name()).collect();
        to.debug_struct("Scenario").field("controllers", &names).finish_non_exhaustive()
    }
}

/// Fault rates: how many of a thousand moves are affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Requests that never arrive.
    pub lost_requests: u32,
    /// Responses that never arrive.
    pub lost_answers: u32,
    /// Requests that arrive twice.
    pub doubled: u32,
    /// Processes that crash.
    pub crashes: u32,
    /// Watches that must list again.
    pub relists: u32,
    /// A crash at this point, in addition to the random faults.
    pub crash: Option<Crash>,
}

/// The crash of a process at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The move after which it crashes. The response to a write that was just applied is lost.
    pub after: u64,
    /// What happens to its writes in flight.
    pub in_flight: InFlightRequests,
}

/// What happens to the requests in flight of a process that crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlightRequests {
    /// They never arrive.
    Lost,
    /// They arrive later, when the next process is already running.
    Late,
}

impl Faults {
    /// No faults, but watch events arrive late.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// All kinds of faults, at random.
    #[must_use]
    pub fn random() -> Self {
        Self {
            lost_requests: 80,
            lost_answers: 80,
            doubled: 60,
            crashes: 8,
            relists: 10,
            crash: None,
        }
    }

    /// Whether only the order of moves is random.
    pub(crate) fn has_no_random_faults(&self) -> bool {
        Self { crash: None, ..*self } == Self::none()
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct FinalState {
    /// The server, with all objects.
    pub server: Server,
    /// How many moves there were until everything had settled.
    pub moves: u64,
    /// The held reasons in the end, as [`Plan::held`](gantry_reconcile::Plan::held) has them; also
    /// failed writes, and objects that cannot be decoded.
    pub held: Vec<Held>,
    /// All recorded events, in order.
    pub events: Vec<Event>,
    /// The writes after everything had settled and all processes had been restarted. A controller
    /// that decides only by the objects has nothing left to do then.
    pub writes_after_restart: Vec<Write>,
    /// The calls after that restart.
    pub calls_after_restart: Vec<Call>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It did not settle.
    #[error("seed {seed}: not settled after {moves} moves; the last of them:\n{trace}")]
    Unsettled {
        /// The seed of the run.
        seed: u64,
        /// After how many moves it was aborted.
        moves: u64,
        /// The last moves.
        trace: String,
    },
    /// It settled in another state than the run without faults.
    #[error(
        "seed {seed}, {faults:?}: ended in another state\n expected {expected}\n    found {found}\n\
         {trace}"
    )]
    Diverged {
        /// The seed of the run.
        seed: u64,
        /// The faults.
        faults: Faults,
        /// The final state of the run without faults.
        expected: Value,
        /// The final state of this one.
        found: Value,
        /// The last moves.
        trace: String,
    },
    /// After a restart there was something to write although nothing had changed.
    #[error(
        "seed {seed}, {faults:?}: not quiescent; a restart wrote {writes:#?}, called {calls:#?}"
    )]
    NotQuiescent {
        /// The seed of the run.
        seed: u64,
        /// The faults.
        faults: Faults,
        /// The writes after the restart.
        writes: Vec<Write>,
        /// The calls after the restart.
        calls: Vec<Call>,
    },
    /// An invariant was violated after a move.
    #[error("seed {seed}: {invariant} does not hold after {moves} moves: {why}\n{trace}")]
    InvariantViolated {
        /// The seed of the run.
        seed: u64,
        /// After how many moves.
        moves: u64,
        /// The invariant.
        invariant: &'static str,
        /// Why it is violated.
        why: String,
        /// The last moves.
        trace: String,
    },
    /// An object that could not be reconciled has no held reason.
    #[error("seed {seed}, {faults:?}: no held reason {reason} for {name}; held is {held:#?}")]
    MissingHeldReason {
        /// The seed of the run.
        seed: u64,
        /// The faults.
        faults: Faults,
        /// The object.
        name: String,
        /// The expected reason.
        reason: &'static str,
        /// The actual held reasons.
        held: Vec<Held>,
    },
}
