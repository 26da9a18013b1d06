//! What is tried, what goes wrong, and how it ends.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use gantry_reconcile::object::Resource;
use gantry_reconcile::plan::Note;
use gantry_reconcile::write::Write;
use gantry_reconcile::{Call, Controller, Held};

use crate::outside::Outside;
use crate::server::Server;

/// How the name of an object begins whose writes are all refused ([`Scenario::prove_apart`]).
pub const REFUSED: &str = "refused";
/// How the name of an object begins whose writes all come too late.
pub const CONFLICTED: &str = "conflicted";
/// How the name of an object begins that cannot be read.
pub const UNREADABLE: &str = "unreadable";

/// What is tried.
pub struct Scenario<'a> {
    /// Who decides.
    pub controllers: &'a [&'a dyn Controller],
    /// What the server fills in when an object is made or changed.
    pub defaults: fn(&Resource, &mut Value),
    /// What is there when it begins.
    pub objects: Vec<(Resource, Value)>,
    /// What users do on the way, in this order, at any time.
    pub script: Vec<Action>,
    /// How many processes run the controllers at once. More than one is more than there should be.
    pub replicas: usize,
    /// How long everything is left alone in the end.
    pub horizon: Duration,
    /// What lies outside the API.
    pub outside: Outside<'a>,
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
            outside: Outside::default(),
        }
    }
}

/// Something a user does.
pub type Action = Box<dyn Fn(&mut Server)>;

impl fmt::Debug for Scenario<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.controllers.iter().map(|it| it.name()).collect();
        to.debug_struct("Scenario").field("controllers", &names).finish_non_exhaustive()
    }
}

/// How much goes wrong: how many of a thousand moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Requests that never arrive.
    pub lost_requests: u32,
    /// Answers that never arrive.
    pub lost_answers: u32,
    /// Requests that arrive twice.
    pub doubled: u32,
    /// Processes that die.
    pub crashes: u32,
    /// Watches that must list again.
    pub relists: u32,
    /// A process dies at this moment, whatever else happens.
    pub crash: Option<Crash>,
}

/// The end of a process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Right after which move. The answer to a write that has just landed is not heard.
    pub after: u64,
    /// What becomes of writes that were under way.
    pub sent: Sent,
}

/// What becomes of what a process had sent when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It never arrives.
    Lost,
    /// It arrives later, when the next process is already at work.
    Late,
}

impl Faults {
    /// Nothing goes wrong but that news are late.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Everything goes wrong, now and then.
    #[must_use]
    pub fn some() -> Self {
        Self {
            lost_requests: 80,
            lost_answers: 80,
            doubled: 60,
            crashes: 8,
            relists: 10,
            crash: None,
        }
    }

    /// Whether chance decides nothing but the order of things.
    pub(crate) fn is_calm(&self) -> bool {
        Self { crash: None, ..*self } == Self::none()
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Ending {
    /// The server, with everything on it.
    pub server: Server,
    /// How many moves there were until everything had settled.
    pub moves: u64,
    /// What is held in the end, as [`Plan::held`](gantry_reconcile::Plan::held) has it; also writes that do not
    /// come through, and objects that cannot be read.
    pub held: Vec<Held>,
    /// Everything that was told, in this order.
    pub notes: Vec<Note>,
    /// What was written after everything had settled and all processes had been started anew. What
    /// decides by what it sees has nothing left to do then.
    pub restless: Vec<Write>,
    /// What was called then.
    pub restless_calls: Vec<Call>,
}

/// Why a run did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It went on and on.
    #[error("seed {seed}: not settled after {moves} moves; the last of them:\n{trace}")]
    Unsettled {
        /// Which run.
        seed: u64,
        /// After how many moves it was given up.
        moves: u64,
        /// What happened last.
        trace: String,
    },
    /// It settled elsewhere than the run in which nothing went wrong.
    #[error(
        "seed {seed}, {faults:?}: ended elsewhere\n expected {expected}\n    found {found}\n{trace}"
    )]
    Elsewhere {
        /// Which run.
        seed: u64,
        /// What went wrong.
        faults: Faults,
        /// Where the run without faults ended.
        expected: Value,
        /// Where this one ended.
        found: Value,
        /// What happened last.
        trace: String,
    },
    /// After a fresh start there was something to write though nothing had changed.
    #[error(
        "seed {seed}, {faults:?}: not at rest; a fresh start wrote {writes:#?}, called {calls:#?}"
    )]
    Restless {
        /// Which run.
        seed: u64,
        /// What went wrong.
        faults: Faults,
        /// What was written.
        writes: Vec<Write>,
        /// What was called.
        calls: Vec<Call>,
    },
    /// What must always hold did not hold after a move.
    #[error("seed {seed}: {invariant} does not hold after {moves} moves: {why}\n{trace}")]
    Broken {
        /// Which run.
        seed: u64,
        /// After how many moves.
        moves: u64,
        /// Which invariant.
        invariant: &'static str,
        /// Why it does not hold.
        why: String,
        /// What happened last.
        trace: String,
    },
    /// Nothing was said about an object that nothing could be done about.
    #[error("seed {seed}, {faults:?}: nobody says {reason} about {name}; held is {held:#?}")]
    Unsaid {
        /// Which run.
        seed: u64,
        /// What went wrong.
        faults: Faults,
        /// The object.
        name: String,
        /// What should have been said.
        reason: &'static str,
        /// What was.
        held: Vec<Held>,
    },
}
