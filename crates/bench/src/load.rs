//! Sends requests in a closed loop or an open loop.
//!
//! In a closed loop each client sends its next request as soon as it has an answer: that finds the
//! highest rate. In an open loop requests are due at fixed times whether or not the server keeps
//! up, and a request is timed from when it was due, so that a server that stalls shows it in the
//! latency.

use std::time::Duration;

use anyhow::Context as _;
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_testkit::http::{Client, Protocol, Target};
use tokio::sync::mpsc;

use crate::sample::{Samples, Summary};
use crate::workload::Workload;

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// As soon as the last answer has arrived.
    Closed,
    /// This many a second, spread over the clients.
    Open(f64),
}

/// One run of one workload.
#[derive(Clone, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) workload: Workload,
    pub(crate) target: &'a Target,
    pub(crate) namespace: &'a str,
    pub(crate) protocol: Protocol,
    pub(crate) clients: usize,
    pub(crate) pace: Pace,
    pub(crate) time: Duration,
    /// Where request numbers begin, so that runs in one namespace do not repeat names.
    pub(crate) first: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Successful requests per second.
    pub(crate) rate: f64,
    /// The latency of the requests.
    pub(crate) times: Summary,
}

impl Run<'_> {
    /// Executes the run. Each client has a connection of its own and opens it before the clock
    /// starts.
    pub(crate) async fn measure(
        &self,
        clock: &Clock,
        tasks: &mut Tasks,
    ) -> anyhow::Result<Outcome> {
        let mut clients = Vec::with_capacity(self.clients);
        for index in 0..self.clients {
            let client = Client::new(self.target, self.protocol, clock.clone())?;
            let warm = self.workload.request(self.namespace, index, self.first);
            client.send(warm).await.context("could not warm up")?;
            clients.push(client);
        }
        let (done, mut results) = mpsc::channel(self.clients);
        let start = clock.moment();
        let end = start + self.time;
        for (index, client) in clients.into_iter().enumerate() {
            let (done, clock, run) = (done.clone(), clock.clone(), self.worker(index));
            tasks.spawn(format!("client {index}"), OnLoss::EndOwner, move |_| async move {
                let samples = run.work(&client, &clock, start, end).await;
                done.send(samples).await.map_err(Into::into)
            });
        }
        drop(done);
        let mut all = Samples::default();
        while let Some(samples) = results.recv().await {
            all.merge(samples);
        }
        let took = clock.moment() - start;
        tasks.join().await?;
        let times = all.summary();
        #[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
        let rate = times.count as f64 / took.as_secs_f64();
        Ok(Outcome { rate, times })
    }

    fn worker(&self, index: usize) -> Worker {
        Worker {
            workload: self.workload,
            namespace: self.namespace.to_owned(),
            index,
            clients: self.clients,
            pace: self.pace,
            first: self.first + 1,
        }
    }
}

struct Worker {
    workload: Workload,
    namespace: String,
    index: usize,
    clients: usize,
    pace: Pace,
    first: u64,
}

impl Worker {
    async fn work(&self, client: &Client, clock: &Clock, start: Moment, end: Moment) -> Samples {
        let mut samples = Samples::default();
        for turn in 0.. {
            let due = match self.pace {
                Pace::Closed => clock.moment(),
                Pace::Open(rate) => start + self.due(turn, rate),
            };
            if due >= end {
                break;
            }
            if let Pace::Open(_) = self.pace {
                clock.sleep_until(due).await;
            }
            let request = self.workload.request(&self.namespace, self.index, self.first + turn);
            match client.send(request).await {
                Ok(answer) if answer.status.is_success() => samples.add(clock.moment() - due),
                Ok(_) | Err(_) => samples.fail(),
            }
        }
        samples
    }

    /// Returns when request number `turn` of this client is due: requests of all clients are spread
    /// evenly.
    fn due(&self, turn: u64, rate: f64) -> Duration {
        let place = turn.saturating_mul(self.clients as u64).saturating_add(self.index as u64);
        #[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
        Duration::from_secs_f64(place as f64 / rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_spreads_requests_evenly_over_its_clients() {
        let worker = |index| Worker {
            workload: Workload::Get,
            namespace: String::new(),
            index,
            clients: 4,
            pace: Pace::Open(100.0),
            first: 0,
        };
        let mut due: Vec<_> = (0..4)
            .flat_map(|index| (0..3).map(move |turn| worker(index).due(turn, 100.0)))
            .collect();
        due.sort_unstable();
        let expected: Vec<_> = (0..12).map(|n| Duration::from_millis(10 * n)).collect();
        assert_eq!(due, expected);
    }
}
