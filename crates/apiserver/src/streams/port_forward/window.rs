//! Flow control windows: how much may be sent before the client has read it.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// The window of a stream, or of a connection.
///
/// Windows are enforced once the client has sent an update. The library behind kubectl never does:
/// it reads what arrives, and stops reading the whole connection otherwise.
#[derive(Debug)]
pub(super) struct Window {
    /// What may be sent; below zero when the client has reduced it, or sends no updates.
    left: Mutex<i64>,
    grown: Notify,
}

impl Window {
    pub(super) fn new(size: i64) -> Self {
        Self { left: Mutex::new(size), grown: Notify::new() }
    }

    /// Enlarges or reduces the window.
    pub(super) fn grow(&self, by: i64) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_add(by);
        drop(left);
        self.grown.notify_waiters();
    }

    /// Takes up to `most`, and waits while there is nothing left.
    pub(super) async fn reserve(&self, most: usize, obeyed: &AtomicBool) -> usize {
        loop {
            let mut grown = pin!(self.grown.notified());
            grown.as_mut().enable();
            if let Some(taken) = self.try_reserve(most, obeyed.load(Ordering::Relaxed)) {
                return taken;
            }
            grown.await;
        }
    }

    fn try_reserve(&self, most: usize, obeyed: bool) -> Option<usize> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = match usize::try_from(*left) {
            Ok(left) if obeyed => most.min(left),
            Err(_) if obeyed => 0,
            Ok(_) | Err(_) => most,
        };
        *left = left.saturating_sub(i64::try_from(taken).unwrap_or(i64::MAX));
        (taken > 0 || most == 0).then_some(taken)
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn windows_are_enforced_once_the_client_uses_them() {
        let (window, obeyed) = (Window::new(10), AtomicBool::new(false));
        assert_eq!(window.reserve(25, &obeyed).await, 25, "no window update was sent");
        obeyed.store(true, Ordering::Relaxed);
        window.grow(18);
        assert_eq!(window.reserve(25, &obeyed).await, 3, "10 - 25 + 18");
        let full = CancellationToken::new();
        let wait = async {
            let taken = window.reserve(5, &obeyed).await;
            assert!(full.is_cancelled(), "it was taken before there was anything");
            taken
        };
        let grow = async {
            window.grow(0);
            full.cancel();
            window.grow(2);
        };
        assert_eq!(tokio::join!(wait, grow).0, 2);
    }
}
