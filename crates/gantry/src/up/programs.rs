//! What becomes of programs that really run, told to those who decide about their pods.

use gantry_controller::Handle;
use gantry_reconcile::{Key, Shelf, View as _};
use gantry_sim::logs::Logs;
use gantry_sim::programs::Facts;
use gantry_sim::view::Program;
use jiff::Timestamp;

/// Puts facts on the shelf of programs, and words into logs.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) handle: Handle,
    pub(super) logs: Logs,
}

impl Facts for Told {
    fn tell(&self, program: Program) {
        self.handle.make(&Program::RESOURCE, |shelf| {
            let shelf = shelf.as_any().downcast_ref::<Shelf<Program>>();
            (shelf.map(|shelf| shelf.set(program)).into_iter().collect(), ())
        });
    }

    fn forget(&self, key: &Key) {
        self.handle.make(&Program::RESOURCE, |shelf| {
            let shelf = shelf.as_any().downcast_ref::<Shelf<Program>>();
            (shelf.and_then(|shelf| shelf.unset(key)).into_iter().collect(), ())
        });
    }

    // Logs begin and end with what is said of the container, as those of pretended ones do.
    fn begins(&self, _: &str, _: &str, _: Timestamp) {}

    fn says(&self, uid: &str, container: &str, now: Timestamp, text: &str) {
        self.logs.append(uid, container, now, text);
    }

    fn ends(&self, _: &str, _: &str) {}
}
