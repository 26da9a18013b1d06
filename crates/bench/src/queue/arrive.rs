//! Jobs come to queues, each class to each queue at its own pace.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_testkit::http::{Client, Request};

use super::shape::Shape;
use super::wrapper::{APP_WRAPPERS, app_wrapper};

/// Creates at most 1,000 a second and 2,000 at once, as Kueue's runner does.
const RATE: Limit = Limit { every: Duration::from_millis(1), burst: 2_000 };

#[derive(Clone, Copy, Debug)]
struct Limit {
    every: Duration,
    burst: u32,
}

/// Whose turn is when.
#[derive(Debug)]
struct Pace {
    limit: Limit,
    start: Moment,
    /// When the next would come if nobody ever came at once, from the start.
    next: Mutex<Duration>,
}

impl Pace {
    fn new(limit: Limit, start: Moment) -> Self {
        Self { limit, start, next: Mutex::new(Duration::ZERO) }
    }

    /// Takes a turn; it is at this moment.
    fn turn(&self, now: Moment) -> Moment {
        // Nothing can panic under the lock.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = (*next).max(now - self.start) + self.limit.every;
        self.start + next.saturating_sub(self.limit.every * self.limit.burst)
    }
}

/// Lets all jobs of a shape come. The tasks end when all have.
pub(crate) fn arrive(
    shape: &Shape,
    quota: bool,
    clients: &[Client],
    clock: &Clock,
    tasks: &mut Tasks,
) {
    let pace = Arc::new(Pace::new(RATE, clock.moment()));
    let mut lanes = clients.iter().cycle();
    for queue in shape.all_queues() {
        for (set, class) in shape.classes.into_iter().enumerate() {
            let Some(client) = lanes.next().cloned() else { return };
            let (clock, pace, queue) = (clock.clone(), Arc::clone(&pace), queue.name.clone());
            tasks.spawn("arrivals", OnLoss::EndOwner, move |_| async move {
                let path = format!("{APP_WRAPPERS}/namespaces/{queue}/appwrappers");
                for nth in 0..class.count {
                    clock.sleep(class.every).await;
                    clock.sleep_until(pace.turn(clock.moment())).await;
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
        let pace = Pace::new(Limit { every: Duration::from_millis(10), burst: 2 }, start);
        let turns: Vec<Moment> = (0..4).map(|_| pace.turn(start)).collect();
        assert_eq!(turns, [at(0), at(0), at(10), at(20)]);
        // Time that nobody used is not saved beyond a burst.
        let later: Vec<Moment> = (0..3).map(|_| pace.turn(at(1000))).collect();
        assert!(later[0] <= at(1000) && later[1] <= at(1000));
        assert_eq!(later[2], at(1010));
    }
}
