//! Submits jobs to queues, each class to each queue at its own rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_testkit::http::{Client, Request};

use super::shape::Shape;
use super::wrapper::{APP_WRAPPERS, app_wrapper};

/// Limits creation to 1,000 jobs per second with a burst of 2,000, as Kueue's runner does.
const CREATION_RATE: RateLimit = RateLimit { every: Duration::from_millis(1), burst: 2_000 };

#[derive(Clone, Copy, Debug)]
struct RateLimit {
    every: Duration,
    burst: u32,
}

/// The state of the rate limiter.
#[derive(Debug)]
struct RateLimiter {
    limit: RateLimit,
    start: Moment,
    /// When the next creation is due without bursts, from the start.
    next: Mutex<Duration>,
}

impl RateLimiter {
    fn new(limit: RateLimit, start: Moment) -> Self {
        Self { limit, start, next: Mutex::new(Duration::ZERO) }
    }

    /// Reserves the next creation, and returns the time at which it may happen.
    fn next_slot(&self, now: Moment) -> Moment {
        // Nothing can panic under the lock.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = (*next).max(now - self.start) + self.limit.every;
        self.start + next.saturating_sub(self.limit.every * self.limit.burst)
    }
}

/// Submits all jobs of a shape. The tasks end when all jobs are submitted.
pub(crate) fn submit_jobs(
    shape: &Shape,
    quota: bool,
    clients: &[Client],
    clock: &Clock,
    tasks: &mut Tasks,
) {
    let pace = Arc::new(RateLimiter::new(CREATION_RATE, clock.moment()));
    let mut lanes = clients.iter().cycle();
    for queue in shape.all_queues() {
        for (set, class) in shape.classes.into_iter().enumerate() {
            let Some(client) = lanes.next().cloned() else { return };
            let (clock, pace, queue) = (clock.clone(), Arc::clone(&pace), queue.name.clone());
            tasks.spawn("arrivals", OnLoss::EndOwner, move |_| async move {
                let path = format!("{APP_WRAPPERS}/namespaces/{queue}/appwrappers");
                for nth in 0..class.count {
                    clock.sleep(class.every).await;
                    clock.sleep_until(pace.next_slot(clock.moment())).await;
                    let name = format!("{}-{set}-{nth}-0", class.name);
                    let wrapped = app_wrapper(&queue, &name, &class, quota);
                    let answer = client.send(Request::post(&path, &wrapped)).await?;
                    if !answer.status.is_success() {
                        return Err(format!("{path}: {}: {}", answer.status, answer.text()).into());
                    }
                }
                Ok(())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_comes_at_once_and_the_rest_at_the_rate() {
        let start = Moment::default() + Duration::from_secs(5);
        let at = |ms| start + Duration::from_millis(ms);
        let pace =
            RateLimiter::new(RateLimit { every: Duration::from_millis(10), burst: 2 }, start);
        let turns: Vec<Moment> = (0..4).map(|_| pace.next_slot(start)).collect();
        assert_eq!(turns, [at(0), at(0), at(10), at(20)]);
        // Unused capacity is not saved beyond one burst.
        let later: Vec<Moment> = (0..3).map(|_| pace.next_slot(at(1000))).collect();
        assert!(later[0] <= at(1000) && later[1] <= at(1000));
        assert_eq!(later[2], at(1010));
    }
}
