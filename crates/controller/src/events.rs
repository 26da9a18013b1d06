//! Tells users what happened, without flooding anybody.
//!
//! Notes become events of the API as client-go writes them. Telling never holds up a pass: notes wait
//! in a queue of a fixed length, and one task writes them. What happens again is counted on the first
//! event instead of written anew; what is alike but for its words is combined; who complains without
//! end is heard now and then.

use std::sync::Arc;
use std::time::Duration;

use gantry_process::error_chain;
use gantry_process::tasks::{Backoff, TaskError};
use gantry_reconcile::{ApiPath, InvalidPath, Note, Parameter};
use http::{Method, StatusCode};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::ask::{NoAnswer, Reply, ask, request};
use crate::meters::{Meters, Told};
use crate::retry;
use crate::run::Actor;
use crate::writer::Writer;

mod correlate;
mod lru;

use correlate::{Correlator, Post, Said};

/// Notes that may wait to be written: some per pod of the largest cluster we support, which a roll-out
/// can bring about at once. On overflow the newest is dropped and counted: events are a courtesy.
const WAITING: usize = 10_000;

/// How long events are still begun after the shell was told to stop.
pub(crate) const LAST: Duration = Duration::from_secs(2);

/// How often an event is offered to a server that does not answer.
const TRIES: u32 = 12;

/// The wait between two offers: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Takes notes. Clones write with the same pen.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Dictated>,
    writer: Writer,
    meters: Meters,
}

/// A note that waits to be written.
struct Dictated {
    actor: Arc<Actor>,
    note: Note,
    at: Timestamp,
}

/// Writes what was noted.
pub(crate) struct Scribe {
    queue: mpsc::Receiver<Dictated>,
    writer: Writer,
    correlator: Correlator,
    backoff: Backoff,
    jitter: fastrand::Rng,
    meters: Meters,
}

/// A recorder, and the task that writes for it.
pub(crate) fn recorder(
    writer: Writer,
    mut jitter: fastrand::Rng,
    meters: Meters,
) -> (Recorder, Scribe) {
    let (sender, queue) = mpsc::channel(WAITING);
    let recorder = Recorder { queue: sender, writer: writer.clone(), meters: meters.clone() };
    let correlator = Correlator::new(jitter.fork());
    let backoff = retry::between(PAUSE);
    (recorder, Scribe { queue, writer, correlator, backoff, jitter, meters })
}

impl Recorder {
    /// Notes something in the name of an actor. It never waits.
    pub fn tell(&self, actor: &Arc<Actor>, note: Note) {
        let at = self.writer.clock.now();
        if self.queue.try_send(Dictated { actor: Arc::clone(actor), note, at }).is_err() {
            self.meters.told(Told::Overflowed);
        }
    }
}

impl Scribe {
    /// Writes until told to stop, then what is left, each once.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), TaskError> {
        loop {
            let next = tokio::select! {
                biased;
                // Either may be dropped: waiting takes nothing from the queue.
                () = stop.cancelled() => break,
                next = self.queue.recv() => next,
            };
            let Some(dictated) = next else { return Ok(()) };
            self.write(dictated, &stop).await;
        }
        self.queue.close();
        // None is broken off: one that is under way when the lease is given back might arrive later.
        let until = self.writer.clock.moment() + LAST;
        while let Some(dictated) = self.queue.recv().await {
            if self.writer.clock.moment() >= until {
                tracing::warn!("stopped before all events were written");
                break;
            }
            self.write(dictated, &stop).await;
        }
        Ok(())
    }

    async fn write(&mut self, dictated: Dictated, stop: &CancellationToken) {
        let Dictated { actor, note, at } = dictated;
        let said = Said { component: &actor.component, host: &actor.host, note: &note, at };
        let moment = self.writer.clock.moment();
        let Some(post) = self.correlator.correlate(&said, moment) else {
            self.meters.told(Told::Filtered);
            return;
        };
        let mut tries = 0;
        loop {
            let error = match self.offer(&actor, &post).await {
                Ok(()) => return self.meters.told(Told::Written),
                Err(Unwritten::Refused(why)) => return self.give_up(&note, &why),
                Err(Unwritten::Unanswered(why)) => why,
            };
            tries += 1;
            if tries >= TRIES || stop.is_cancelled() {
                return self.give_up(&note, &error);
            }
            let wait = self.backoff.delay(tries - 1, &mut self.jitter);
            tokio::select! {
                biased;
                // Either may be dropped: both only wait.
                () = stop.cancelled() => {}
                () = self.writer.clock.sleep(wait) => {}
            }
        }
    }

    fn give_up(&self, note: &Note, why: &str) {
        self.meters.told(Told::Refused);
        let (object, reason) = (note.about.key.to_string(), &*note.reason);
        tracing::warn!(object, reason, why, "event was not written");
    }

    /// Offers an event to the server once.
    async fn offer(&self, actor: &Actor, post: &Post) -> Result<(), Unwritten> {
        if let Some(again) = &post.again {
            let path = collection(&post.namespace)?.item(&post.name)?;
            let content = "application/strategic-merge-patch+json";
            let reply = self.send(actor, Method::PATCH, &path, content, again).await?;
            // It may have been removed since: servers keep events for an hour.
            if reply.status != StatusCode::NOT_FOUND {
                return taken(&reply);
            }
        }
        let path = collection(&post.namespace)?;
        let reply = self.send(actor, Method::POST, &path, "application/json", &post.event).await?;
        taken(&reply)
    }

    async fn send(
        &self,
        actor: &Actor,
        method: Method,
        path: &ApiPath,
        content: &str,
        body: &serde_json::Value,
    ) -> Result<Reply, Unwritten> {
        let Writer { clock, limiter, permit, limit } = &self.writer;
        limiter.turn().await;
        permit.check().map_err(|no| Unwritten::Refused(no.to_string()))?;
        let path = path.clone().with(Parameter::FieldManager(&actor.manager));
        let unanswered = |error: NoAnswer| Unwritten::Unanswered(error_chain(&error));
        let request = request(method, &path, content, body.to_string().into_bytes());
        let request = request.map_err(unanswered)?;
        ask(&actor.client, clock, *limit, request).await.map_err(unanswered)
    }
}

fn collection(namespace: &str) -> Result<ApiPath, InvalidPath> {
    ApiPath::collection("v1", namespace, "events")
}

/// Why an event was not written.
enum Unwritten {
    /// The server does not want it.
    Refused(String),
    /// The server did not say.
    Unanswered(String),
}

impl From<InvalidPath> for Unwritten {
    fn from(invalid: InvalidPath) -> Self {
        Self::Refused(invalid.to_string())
    }
}

fn taken(reply: &Reply) -> Result<(), Unwritten> {
    match reply.status {
        code if code.is_success() => Ok(()),
        // A repeated offer finds what the first left behind.
        StatusCode::CONFLICT => Ok(()),
        code if code.is_server_error() || code == StatusCode::TOO_MANY_REQUESTS => {
            Err(Unwritten::Unanswered(reply.refusal().message))
        }
        _ => Err(Unwritten::Refused(reply.refusal().message)),
    }
}
