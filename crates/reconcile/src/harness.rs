//! A world in which everything goes wrong, on a virtual clock.
//!
//! A [`Scenario`] is some controllers, the objects they begin with, and what users do on the way. It
//! is run many times: in each run chance decides whose turn it is, which news arrive late, which
//! requests and answers get lost or are doubled, and when a process dies and starts with nothing but
//! what the server still knows. Then the faults stop, and when nothing is left to do, the end is
//! looked at. Chance follows from a seed, so every failure can be had again.
//!
//! The server is a small model of the real one ([`Server`]): revisions, fences, finalizers, grace
//! periods and garbage collection, but no schemas. What the real one fills in is an argument.
//!
//! [`Scenario::prove`] is all that most controllers need.

mod replica;
mod server;
mod trial;

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::controller::Controller;
use crate::object::Resource;
use crate::write::Write;

pub use server::Server;

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
    /// A process dies at this move, whatever else happens.
    pub crash_at: Option<u64>,
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
            crash_at: None,
        }
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Ending {
    /// The server, with everything on it.
    pub server: Server,
    /// How many moves there were before the faults stopped.
    pub moves: u64,
    /// What was written after everything had settled and all processes had been started anew. What
    /// decides by what it sees has nothing left to do then.
    pub restless: Vec<Write>,
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
    #[error("seed {seed}, {faults:?}: not at rest; a fresh start wrote {writes:#?}")]
    Restless {
        /// Which run.
        seed: u64,
        /// What went wrong.
        faults: Faults,
        /// What was written.
        writes: Vec<Write>,
    },
}

impl Scenario<'_> {
    /// Runs once.
    ///
    /// # Errors
    /// [`Failure::Unsettled`] when there is always something left to do.
    pub fn run(&self, seed: u64, faults: Faults) -> Result<Ending, Box<Failure>> {
        trial::run(self, seed, faults).map(|(ending, _)| ending)
    }

    /// Proves that every run ends where the run without faults does, as far as `shape` tells: for
    /// each seed with all kinds of faults, and for the first with a crash at every single move. In
    /// the end a fresh start must find nothing to do.
    ///
    /// # Errors
    /// The first run that did not.
    pub fn prove(
        &self,
        seeds: std::ops::Range<u64>,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        let (reference, _) = trial::run(self, seeds.start, Faults::none())?;
        let expected = shape(&reference.server);
        at_rest(&reference, seeds.start, Faults::none())?;
        let check = |seed, faults| {
            let (ending, trace) = trial::run(self, seed, faults)?;
            let found = shape(&ending.server);
            if found != expected {
                let expected = expected.clone();
                return Err(Box::new(Failure::Elsewhere { seed, faults, expected, found, trace }));
            }
            at_rest(&ending, seed, faults)
        };
        for seed in seeds.clone() {
            check(seed, Faults::some())?;
        }
        for at in 0..reference.moves {
            check(seeds.start, Faults { crash_at: Some(at), ..Faults::none() })?;
        }
        Ok(())
    }
}

fn at_rest(ending: &Ending, seed: u64, faults: Faults) -> Result<(), Box<Failure>> {
    match ending.restless.is_empty() {
        true => Ok(()),
        false => Err(Box::new(Failure::Restless { seed, faults, writes: ending.restless.clone() })),
    }
}

#[cfg(test)]
mod tests;
