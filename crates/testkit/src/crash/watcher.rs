//! Watches one collection: it never lists again unless the server requires it, and must not miss or
//! repeat anything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gantry_process::error_chain;
use serde_json::Value;

use super::collection::{self, Collection, ListedObjects, revision};
use super::{Numbered, Report, ServerLifetime};
use crate::http::{Client, Request, Stream};

/// How long a healthy server may take to deliver an event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// A copy of a collection, kept up to date by its events alone.
#[derive(Debug)]
pub(super) struct Watcher {
    number: usize,
    pub(super) collection: Collection,
    /// The revision of the last event, from which the watch resumes.
    last: u64,
    /// The revisions of the objects that should exist.
    copy: BTreeMap<String, u64>,
    events: u64,
    expired: u64,
}

/// The meaning of a line of a watch.
enum WatchLine {
    Event,
    /// The watch cannot resume from its last revision.
    Expired,
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Numbered for Watcher {
    fn number(&self) -> usize {
        self.number
    }
}

impl Watcher {
    pub(super) fn new(collection: Collection, listed: &ListedObjects) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let copy = revisions(listed);
        Self { number, collection, last: listed.revision, copy, events: 0, expired: 0 }
    }

    pub(super) fn add_to_report(&self, report: &mut Report) {
        report.events += self.events;
        report.expired += self.expired;
    }

    /// Watches until the server is down.
    pub(super) async fn run(
        mut self,
        client: Client,
        life: ServerLifetime,
    ) -> Result<Self, String> {
        let mut stream = match self.open(&client).await {
            Ok(stream) => stream,
            Err(_) if life.is_ending() => return Ok(self),
            Err(what) => return Err(what),
        };
        loop {
            match stream.next_line(EVENT_TIMEOUT).await {
                Ok(Some(line)) => match serde_json::from_slice(&line) {
                    Ok(line) => match self.apply_line(&line, &life)? {
                        WatchLine::Event => {}
                        WatchLine::Expired => {
                            return Err(format!("expired while it was read: {line}"));
                        }
                    },
                    // The last line of a server that was killed may be half a line.
                    Err(_) if life.is_ending() => return Ok(self),
                    Err(error) => return Err(format!("half a line: {error}")),
                },
                Ok(None) | Err(_) if life.is_ending() => return Ok(self),
                Ok(None) => return Err("a watch ended by itself".to_owned()),
                Err(error) => return Err(error_chain(&error)),
            }
        }
    }

    /// Resumes from where the last server broke off, until a revision.
    pub(super) async fn catch_up(
        &mut self,
        client: &Client,
        until: u64,
        life: &ServerLifetime,
    ) -> Result<(), String> {
        if self.last >= until {
            return Ok(());
        }
        let mut stream = self.open(client).await?;
        while self.last < until {
            let line =
                stream.next_line(EVENT_TIMEOUT).await.map_err(|error| error_chain(&error))?;
            let line = line.ok_or("a watch ended by itself")?;
            let line = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
            match self.apply_line(&line, life)? {
                WatchLine::Event => {}
                WatchLine::Expired => {
                    let listed = collection::list(&self.collection, client).await?;
                    (self.copy, self.last) = (revisions(&listed), listed.revision);
                    self.expired += 1;
                }
            }
        }
        Ok(())
    }

    /// Compares the copy with a list requested after it had caught up.
    pub(super) fn verify(&self, listed: &ListedObjects) -> Result<(), String> {
        let there = revisions(listed);
        if there == self.copy {
            return Ok(());
        }
        let differs = |name: &&String| there.get(*name) != self.copy.get(*name);
        let names: Vec<_> = there.keys().chain(self.copy.keys()).filter(differs).collect();
        let shown = names.iter().map(|name| {
            format!("{name}: watched {:?}, listed {:?}", self.copy.get(*name), there.get(*name))
        });
        let shown: Vec<_> = shown.collect();
        Err(format!("a watch of {} and a list differ: {shown:?}", self.collection.path))
    }

    async fn open(&self, client: &Client) -> Result<Stream, String> {
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=1&resourceVersion={}",
            self.collection.path, self.last
        );
        let stream = client.open(Request::get(path)).await.map_err(|error| error_chain(&error))?;
        if stream.status.is_success() { Ok(stream) } else { Err(stream.status.to_string()) }
    }

    /// Applies one line to the copy.
    fn apply_line(&mut self, line: &Value, life: &ServerLifetime) -> Result<WatchLine, String> {
        let (kind, object) = (line["type"].as_str().unwrap_or_default(), &line["object"]);
        if kind == "ERROR" {
            return match object["code"].as_u64() {
                Some(410) => Ok(WatchLine::Expired),
                _ => Err(format!("a watch received {line}")),
            };
        }
        let at = revision(object)?;
        let last = self.last;
        life.observe_revision(at);
        if kind == "BOOKMARK" && at >= last {
            self.last = at;
            return Ok(WatchLine::Event);
        }
        if at <= last {
            return Err(format!("revision {last} was followed by {line}"));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let known = match kind {
            "DELETED" => self.copy.remove(&name),
            _ => self.copy.insert(name.clone(), at),
        };
        let possible = match kind {
            "ADDED" => known.is_none(),
            "MODIFIED" | "DELETED" => known.is_some(),
            _ => false,
        };
        if !possible {
            return Err(format!("after {last}, {name} was at {known:?}; then came {line}"));
        }
        self.last = at;
        self.events += 1;
        Ok(WatchLine::Event)
    }
}

fn revisions(listed: &ListedObjects) -> BTreeMap<String, u64> {
    let known = listed.objects.iter();
    known.filter_map(|(name, object)| Some((name.clone(), revision(object).ok()?))).collect()
}
