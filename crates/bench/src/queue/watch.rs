//! Watches all objects of a kind, line by line.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_process::clock::{Clock, Moment, TimedOut};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_testkit::http::{Client, Protocol, Request, Stream, Target};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// How long no event may arrive before a run is given up. MCAD gives up after 20 seconds in similar
/// cases.
pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_secs(300);
/// Capacity of the channel of events that are not handled yet; more wait in the connection.
const EVENT_BUFFER_SIZE: usize = 100_000;

/// A change of an object.
#[derive(Debug, Deserialize)]
pub(crate) struct Event<Object> {
    #[serde(rename = "type")]
    pub(crate) kind: Change,
    pub(crate) object: Object,
}

/// The type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
    /// The server cannot continue the watch.
    Error,
}

/// A watch on all objects at a path, without gaps. Servers end watches now and then, in particular
/// those of kinds that were defined a moment ago; the watch then resumes from its last revision.
pub(crate) struct Watch {
    client: Client,
    clock: Clock,
    path: String,
    /// The revision up to which all events were received.
    from: Option<String>,
    stream: Stream,
}

/// The fields of an event that hold its revision.
#[derive(Deserialize)]
struct EventRevision {
    object: ObjectRevision,
}

#[derive(Deserialize)]
struct ObjectRevision {
    metadata: RevisionMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RevisionMetadata {
    resource_version: String,
}

impl Watch {
    /// Starts to watch everything at this path from now on.
    pub(crate) async fn open(target: &Target, path: &str, clock: &Clock) -> anyhow::Result<Self> {
        let client =
            Client::new(target, Protocol::Http2, clock.clone())?.with_timeout(EVENT_TIMEOUT);
        let path = format!("{path}?watch=true&timeoutSeconds=7200");
        let stream = stream(&client, &path, clock).await?;
        Ok(Self { client, clock: clock.clone(), path, from: None, stream })
    }

    /// Returns the next event.
    pub(crate) async fn next<Observed: DeserializeOwned>(
        &mut self,
    ) -> anyhow::Result<Event<Observed>> {
        loop {
            let Some(line) = self.stream.next_line(Duration::from_secs(7200)).await? else {
                let from = self.from.as_ref().map(|it| format!("&resourceVersion={it}"));
                let path = format!("{}{}", self.path, from.unwrap_or_default());
                self.stream = stream(&self.client, &path, &self.clock).await?;
                continue;
            };
            let text = || String::from_utf8_lossy(&line).into_owned();
            let event: Event<Observed> = serde_json::from_slice(&line).with_context(text)?;
            ensure!(event.kind != Change::Error, "{}", text());
            let marked: EventRevision = serde_json::from_slice(&line).with_context(text)?;
            self.from = Some(marked.object.metadata.resource_version);
            return Ok(event);
        }
    }
}

async fn stream(client: &Client, path: &str, clock: &Clock) -> anyhow::Result<Stream> {
    let begun = clock.moment();
    loop {
        let stream = client.open(Request::get(path)).await.context("could not watch")?;
        if stream.status.is_success() {
            return Ok(stream);
        }
        // A kind that was defined a moment ago cannot be watched yet.
        let early = stream.status.as_u16() == 429 && clock.moment() - begun < EVENT_TIMEOUT;
        ensure!(early, "{path}: {}", stream.status);
        clock.sleep(Duration::from_millis(100)).await;
    }
}

/// Events with the moment at which each was received.
pub(crate) fn events<Object: DeserializeOwned + Send + 'static>(
    mut watch: Watch,
    clock: &Clock,
    tasks: &mut Tasks,
) -> mpsc::Receiver<(Event<Object>, Moment)> {
    let (sender, receiver) = mpsc::channel(EVENT_BUFFER_SIZE);
    let clock = clock.clone();
    tasks.spawn("watch", OnLoss::EndOwner, move |stop| async move {
        loop {
            let event = tokio::select! {
                event = watch.next() => event?,
                () = stop.cancelled() => return Ok(()),
            };
            // The receiver has ended and needs no more events.
            if sender.send((event, clock.moment())).await.is_err() {
                return Ok(());
            }
        }
    });
    receiver
}

/// Returns the next received event. When no more can arrive, a task has failed, and joining the
/// tasks returns its error: this waits for that.
///
/// # Errors
/// No event arrived for too long.
pub(crate) async fn next_event<Object>(
    events: &mut mpsc::Receiver<(Event<Object>, Moment)>,
    clock: &Clock,
) -> Result<(Event<Object>, Moment), TimedOut> {
    let next = async {
        match events.recv().await {
            Some(seen) => seen,
            None => std::future::pending().await,
        }
    };
    clock.timeout(EVENT_TIMEOUT, next).await
}
