//! Tracks when a session was last active.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};

/// A session without activity for this long is closed, as on a real node.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

/// When data was last transferred.
#[derive(Debug)]
pub(super) struct Activity {
    clock: Clock,
    last: Mutex<Moment>,
}

impl Activity {
    /// Starts now.
    pub(super) fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), last: Mutex::new(clock.moment()) }
    }

    /// Records activity now.
    pub(super) fn record(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.moment();
    }

    /// Ready when there was no activity for too long.
    pub(super) async fn wait_until_idle(&self) {
        loop {
            let due = *self.last.lock().unwrap_or_else(PoisonError::into_inner) + IDLE_TIMEOUT;
            if self.clock.moment() >= due {
                return;
            }
            self.clock.sleep_until(due).await;
        }
    }
}
