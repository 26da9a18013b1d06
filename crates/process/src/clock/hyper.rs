//! Lets hyper use our clock, so that its timeouts can be tested without waiting for them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

use super::{Clock, Moment};

/// A timer for hyper's connection builders; see [`Clock::hyper_timer`].
#[derive(Clone, Debug)]
pub struct HyperTimer {
    pub(super) clock: Clock,
    /// The instant at which the clock's moments begin.
    pub(super) origin: Instant,
}

impl Timer for HyperTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.until(self.clock.moment() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.until(Moment(deadline.saturating_duration_since(self.origin)))
    }

    fn now(&self) -> Instant {
        self.origin + self.clock.moment().0
    }
}

impl HyperTimer {
    fn until(&self, deadline: Moment) -> Pin<Box<dyn Sleep>> {
        let clock = self.clock.clone();
        let sleep = async move { clock.sleep_until(deadline).await };
        Box::pin(Sleeping(Box::pin(sleep)))
    }
}

struct Sleeping(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

impl Future for Sleeping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl Sleep for Sleeping {}
