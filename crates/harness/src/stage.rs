//! A scenario that goes on when the test says so.

use std::time::Duration;

use jiff::SignedDuration;

use super::replica::Replica;
use super::trial::{Conditions, Trial};
use super::{Failure, Faults, Scenario, Server};
use gantry_reconcile::Held;
use gantry_reconcile::World;
use gantry_reconcile::plan::Note;

/// A scenario in which nothing goes wrong and time passes when it is told to: for tests about what
/// happens when. Its script and horizon are not used.
#[derive(Debug)]
pub struct Stage<'a>(Trial<'a>);

impl<'a> Stage<'a> {
    /// Begins.
    #[must_use]
    pub fn new(scenario: &'a Scenario<'a>) -> Self {
        let conditions =
            Conditions { seed: 0, faults: Faults::none(), replicas: scenario.replicas, bad: &[] };
        Self(Trial::new(scenario, conditions))
    }

    /// The server, for what users do.
    pub fn server(&mut self) -> &mut Server {
        &mut self.0.server
    }

    /// What the first process knows.
    #[must_use]
    pub fn world(&self) -> &World {
        self.0.replicas[0].world()
    }

    /// Lets this much time pass, in which everything is done that is due.
    ///
    /// # Errors
    /// [`Failure::Unsettled`] when there is always something left to do.
    pub fn pass(&mut self, time: Duration) -> Result<(), Box<Failure>> {
        let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        let now = self.0.server.now();
        let end = now.checked_add(time).unwrap_or(now);
        self.0.settle(time)?;
        let rest = end.duration_since(self.0.server.now());
        self.0.pass(rest.max(SignedDuration::ZERO));
        Ok(())
    }

    /// Everything that was told since this was last asked.
    pub fn told(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.0.notes)
    }

    /// What is held now.
    #[must_use]
    pub fn held(&self) -> Vec<Held> {
        self.0.replicas.iter().flat_map(Replica::held).collect()
    }

    /// All processes die and start with what the server knows. What they had sent is lost.
    pub fn restart(&mut self) {
        self.0.restart();
    }
}
