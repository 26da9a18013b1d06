//! Writes Kubernetes events, without flooding the API server.
//!
//! Events are written as client-go writes them. Recording never blocks a reconcile: events wait in
//! a queue of a fixed length, and one task writes them. A repeated event increments the count of
//! the first one; events that differ only in their message are aggregated; a source that records
//! too many is rate limited.

use std::sync::Arc;
use std::time::Duration;

use gantry_process::error_chain;
use gantry_process::tasks::{Backoff, TaskError};
use gantry_reconcile::{ApiPath, Event, InvalidPath, Parameter};
use http::{Method, StatusCode};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api_request::{ApiResponse, NoResponse, build_request, send_request};
use crate::metrics::{ControllerMetrics, EventResult};
use crate::retry;
use crate::run::Actor;
use crate::writer::Writer;

mod correlate;
mod lru;

use correlate::{Correlator, EventOccurrence, EventWrite};

/// How many events may wait to be written: some per pod of the largest cluster we support, which a
/// roll-out can cause at once. On overflow the newest is dropped and counted: events are best
/// effort.
const EVENT_QUEUE_CAPACITY: usize = 10_000;

/// For how long after the shutdown began the writes of further events are started.
pub(crate) const EVENT_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the write of an event is attempted when the server does not respond.
const MAX_WRITE_ATTEMPTS: u32 = 12;

/// The delay between two attempts: the first, and the longest.
const EVENT_RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Records events. Clones share the queue.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    queue: mpsc::Sender<QueuedEvent>,
    writer: Writer,
    meters: ControllerMetrics,
}

/// An event that waits to be written.
struct QueuedEvent {
    actor: Arc<Actor>,
    event: Event,
    at: Timestamp,
}

/// Writes the recorded events.
pub(crate) struct EventWriter {
    queue: mpsc::Receiver<QueuedEvent>,
    writer: Writer,
    correlator: Correlator,
    backoff: Backoff,
    jitter: fastrand::Rng,
    meters: ControllerMetrics,
}

/// A recorder, and the task that writes its events.
pub(crate) fn event_recorder(
    writer: Writer,
    mut jitter: fastrand::Rng,
    meters: ControllerMetrics,
) -> (EventRecorder, EventWriter) {
    let (sender, queue) = mpsc::channel(EVENT_QUEUE_CAPACITY);
    let recorder = EventRecorder { queue: sender, writer: writer.clone(), meters: meters.clone() };
    let correlator = Correlator::new(jitter.fork());
    let backoff = retry::backoff_between(EVENT_RETRY_DELAYS);
    (recorder, EventWriter { queue, writer, correlator, backoff, jitter, meters })
}

impl EventRecorder {
    /// Records an event as an actor. It never waits.
    pub fn record(&self, actor: &Arc<Actor>, note: Event) {
        let at = self.writer.clock.now();
        if self.queue.try_send(QueuedEvent { actor: Arc::clone(actor), event: note, at }).is_err() {
            self.meters.event_recorded(EventResult::Overflowed);
        }
    }
}

impl EventWriter {
    /// Writes until `stop` is cancelled, then the rest of the queue, each event with one attempt.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), TaskError> {
        loop {
            let next = tokio::select! {
                biased;
                // Either is cancel-safe: waiting takes nothing from the queue.
                () = stop.cancelled() => break,
                next = self.queue.recv() => next,
            };
            let Some(dictated) = next else { return Ok(()) };
            self.write(dictated, &stop).await;
        }
        self.queue.close();
        // No write is cancelled: one that is in flight when the lease is released might arrive
        // later.
        let until = self.writer.clock.moment() + EVENT_DRAIN_TIMEOUT;
        while let Some(dictated) = self.queue.recv().await {
            if self.writer.clock.moment() >= until {
                tracing::warn!("stopped before all events were written");
                break;
            }
            self.write(dictated, &stop).await;
        }
        Ok(())
    }

    async fn write(&mut self, dictated: QueuedEvent, stop: &CancellationToken) {
        let QueuedEvent { actor, event: note, at } = dictated;
        let said =
            EventOccurrence { component: &actor.component, host: &actor.host, event: &note, at };
        let moment = self.writer.clock.moment();
        let Some(post) = self.correlator.correlate(&said, moment) else {
            self.meters.event_recorded(EventResult::Filtered);
            return;
        };
        let mut tries = 0;
        loop {
            let error = match self.write_once(&actor, &post).await {
                Ok(()) => return self.meters.event_recorded(EventResult::Written),
                Err(EventWriteError::Refused(why)) => return self.give_up(&note, &why),
                Err(EventWriteError::Unknown(why)) => why,
            };
            tries += 1;
            if tries >= MAX_WRITE_ATTEMPTS || stop.is_cancelled() {
                return self.give_up(&note, &error);
            }
            let wait = self.backoff.delay(tries - 1, &mut self.jitter);
            tokio::select! {
                biased;
                // Either is cancel-safe: both only wait.
                () = stop.cancelled() => {}
                () = self.writer.clock.sleep(wait) => {}
            }
        }
    }

    fn give_up(&self, note: &Event, why: &str) {
        self.meters.event_recorded(EventResult::Refused);
        let (object, reason) = (note.about.key.to_string(), &*note.reason);
        tracing::warn!(object, reason, why, "event was not written");
    }

    /// Sends an event to the server once.
    async fn write_once(&self, actor: &Actor, post: &EventWrite) -> Result<(), EventWriteError> {
        if let Some(again) = &post.patch {
            let path = collection(&post.namespace)?.item(&post.name)?;
            let content = "application/strategic-merge-patch+json";
            let reply = self.send(actor, Method::PATCH, &path, content, again).await?;
            // It may have been deleted since: servers keep events for an hour.
            if reply.status != StatusCode::NOT_FOUND {
                return check_response(&reply);
            }
        }
        let path = collection(&post.namespace)?;
        let reply = self.send(actor, Method::POST, &path, "application/json", &post.event).await?;
        check_response(&reply)
    }

    async fn send(
        &self,
        actor: &Actor,
        method: Method,
        path: &ApiPath,
        content: &str,
        body: &serde_json::Value,
    ) -> Result<ApiResponse, EventWriteError> {
        let Writer { clock, limiter, permit, timeout: limit } = &self.writer;
        limiter.wait().await;
        permit.check().map_err(|no| EventWriteError::Refused(no.to_string()))?;
        let path = path.clone().with(Parameter::FieldManager(&actor.field_manager));
        let unanswered = |error: NoResponse| EventWriteError::Unknown(error_chain(&error));
        let request = build_request(method, &path, content, body.to_string().into_bytes());
        let request = request.map_err(unanswered)?;
        send_request(&actor.client, clock, *limit, request).await.map_err(unanswered)
    }
}

fn collection(namespace: &str) -> Result<ApiPath, InvalidPath> {
    ApiPath::collection("v1", namespace, "events")
}

/// Why an event was not written.
enum EventWriteError {
    /// The server refused it.
    Refused(String),
    /// There was no response.
    Unknown(String),
}

impl From<InvalidPath> for EventWriteError {
    fn from(invalid: InvalidPath) -> Self {
        Self::Refused(invalid.to_string())
    }
}

fn check_response(reply: &ApiResponse) -> Result<(), EventWriteError> {
    match reply.status {
        code if code.is_success() => Ok(()),
        // A retry finds the event that the first attempt created.
        StatusCode::CONFLICT => Ok(()),
        code if code.is_server_error() || code == StatusCode::TOO_MANY_REQUESTS => {
            Err(EventWriteError::Unknown(reply.error_status().message))
        }
        _ => Err(EventWriteError::Refused(reply.error_status().message)),
    }
}
