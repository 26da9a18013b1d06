//! Records what becomes of programs, for the controllers that decide about their pods.

use gantry_controller::Handle;
use gantry_process::clock::Clock;
use gantry_sim::logs::Logs;
use gantry_sim::programs::Facts;
use gantry_sim::view::{ContainerKey, Program};
use jiff::Timestamp;

/// Records facts, and adds to logs.
#[derive(Debug)]
pub(super) struct ProgramFacts {
    pub(super) handle: Handle,
    pub(super) logs: Logs,
    pub(super) clock: Clock,
}

impl Facts for ProgramFacts {
    fn record(&self, container: ContainerKey, program: Program) {
        self.handle.record(container, program, self.clock.now());
    }

    fn forget(&self, container: &ContainerKey) {
        self.handle.forget::<Program>(container);
    }

    // Logs begin and end with what is said of the container, as those of pretended ones do.
    fn begins(&self, _: &str, _: &str, _: Timestamp) {}

    fn says(&self, uid: &str, container: &str, now: Timestamp, text: &str) {
        self.logs.append(uid, container, now, text);
    }

    fn ends(&self, _: &str, _: &str) {}
}
