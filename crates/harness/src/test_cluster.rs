//! A scenario that a test advances step by step.

use std::time::Duration;

use jiff::SignedDuration;

use super::replica::Replica;
use super::simulation::{Conditions, Simulation};
use super::{Failure, Faults, Scenario, Server};
use gantry_reconcile::Held;
use gantry_reconcile::World;
use gantry_reconcile::plan::Event;

/// A scenario without faults in which the test advances the time: for tests about what happens
/// when. Its script and horizon are not used.
#[derive(Debug)]
pub struct TestCluster<'a>(Simulation<'a>);

impl<'a> TestCluster<'a> {
    /// Starts the scenario.
    #[must_use]
    pub fn new(scenario: &'a Scenario<'a>) -> Self {
        let conditions =
            Conditions { seed: 0, faults: Faults::none(), replicas: scenario.replicas, bad: &[] };
        Self(Simulation::new(scenario, conditions))
    }

    /// The server, for what users do.
    pub fn server(&mut self) -> &mut Server {
        &mut self.0.server
    }

    /// The world of the first process.
    #[must_use]
    pub fn world(&self) -> &World {
        self.0.replicas[0].world()
    }

    /// Advances the time by this much, and does everything that becomes due.
    ///
    /// # Errors
    /// [`Failure::Unsettled`] when there is always something left to do.
    pub fn advance(&mut self, time: Duration) -> Result<(), Box<Failure>> {
        let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        let now = self.0.server.now();
        let end = now.checked_add(time).unwrap_or(now);
        self.0.settle(time)?;
        let rest = end.duration_since(self.0.server.now());
        self.0.advance(rest.max(SignedDuration::ZERO));
        Ok(())
    }

    /// All events that were recorded since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.0.events)
    }

    /// The current held reasons.
    #[must_use]
    pub fn held(&self) -> Vec<Held> {
        self.0.replicas.iter().flat_map(Replica::held).collect()
    }

    /// Crashes and restarts all processes. Their requests in flight are lost.
    pub fn restart(&mut self) {
        self.0.restart();
    }
}
