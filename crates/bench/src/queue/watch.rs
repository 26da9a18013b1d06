//! What a server says of all objects of a kind, line by line.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_process::clock::{Clock, Moment, TimedOut};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_testkit::http::{Client, Protocol, Request, Stream, Target};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// How long nothing may happen before a run is given up. MCAD lets 20 seconds pass for less.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// What is seen and not looked at yet; more waits in the connection.
const AHEAD: usize = 100_000;

/// A change of an object.
#[derive(Debug, Deserialize)]
pub(crate) struct Event<Object> {
    #[serde(rename = "type")]
    pub(crate) kind: Change,
    pub(crate) object: Object,
}

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
    /// The server cannot go on.
    Error,
}

/// What happens to all objects at a path, without a gap. Servers end watches now and then, those of kinds that
/// were defined a moment ago in particular; then it goes on from where it was.
pub(crate) struct Watch {
    client: Client,
    clock: Clock,
    path: String,
    /// The revision up to which everything was seen.
    from: Option<String>,
    stream: Stream,
}

/// As much of an event as tells how far a watch has come.
#[derive(Deserialize)]
struct Marked {
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Mark,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    resource_version: String,
}

impl Watch {
    /// Begins to watch everything at this path from now on.
    pub(crate) async fn open(target: &Target, path: &str, clock: &Clock) -> anyhow::Result<Self> {
        let client = Client::new(target, Protocol::Http2, clock.clone())?.with_patience(PATIENCE);
        let path = format!("{path}?watch=true&timeoutSeconds=7200");
        let stream = stream(&client, &path, clock).await?;
        Ok(Self { client, clock: clock.clone(), path, from: None, stream })
    }

    /// The next event.
    pub(crate) async fn next<Seen: DeserializeOwned>(&mut self) -> anyhow::Result<Event<Seen>> {
        loop {
            let Some(line) = self.stream.next_line(Duration::from_secs(7200)).await? else {
                let from = self.from.as_ref().map(|it| format!("&resourceVersion={it}"));
                let path = format!("{}{}", self.path, from.unwrap_or_default());
                self.stream = stream(&self.client, &path, &self.clock).await?;
                continue;
            };
            let text = || String::from_utf8_lossy(&line).into_owned();
            let event: Event<Seen> = serde_json::from_slice(&line).with_context(text)?;
            ensure!(event.kind != Change::Error, "{}", text());
            let marked: Marked = serde_json::from_slice(&line).with_context(text)?;
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
        let early = stream.status.as_u16() == 429 && clock.moment() - begun < PATIENCE;
        ensure!(early, "{path}: {}", stream.status);
        clock.sleep(Duration::from_millis(100)).await;
    }
}

/// Events with the moment at which each was seen.
pub(crate) fn events<Object: DeserializeOwned + Send + 'static>(
    mut watch: Watch,
    clock: &Clock,
    tasks: &mut Tasks,
) -> mpsc::Receiver<(Event<Object>, Moment)> {
    let (tell, told) = mpsc::channel(AHEAD);
    let clock = clock.clone();
    tasks.spawn("watch", OnLoss::EndOwner, move |stop| async move {
        loop {
            let event = tokio::select! {
                event = watch.next() => event?,
                () = stop.cancelled() => return Ok(()),
            };
            // Whoever listened has seen enough.
            if tell.send((event, clock.moment())).await.is_err() {
                return Ok(());
            }
        }
    });
    told
}

/// The next event that was seen. When no more can come, somebody has been lost, and whoever joins the
/// tasks learns who: this waits for that.
///
/// # Errors
/// Nothing happened for too long.
pub(crate) async fn seen<Object>(
    events: &mut mpsc::Receiver<(Event<Object>, Moment)>,
    clock: &Clock,
) -> Result<(Event<Object>, Moment), TimedOut> {
    let next = async {
        match events.recv().await {
            Some(seen) => seen,
            None => std::future::pending().await,
        }
    };
    clock.timeout(PATIENCE, next).await
}
