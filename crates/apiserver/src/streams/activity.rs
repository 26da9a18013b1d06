//! When something was last said on a connection.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};

/// A session in which nothing is said for so long is over, as on a real node.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

/// When something was last said.
#[derive(Debug)]
pub(super) struct Activity {
    clock: Clock,
    last: Mutex<Moment>,
}

impl Activity {
    /// Begins now.
    pub(super) fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), last: Mutex::new(clock.moment()) }
    }

    /// Something is said now.
    pub(super) fn note(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.moment();
    }

    /// Ready when nothing was said for too long.
    pub(super) async fn idle(&self) {
        loop {
            let due = *self.last.lock().unwrap_or_else(PoisonError::into_inner) + IDLE_TIMEOUT;
            if self.clock.moment() >= due {
                return;
            }
            self.clock.sleep_until(due).await;
        }
    }
}
