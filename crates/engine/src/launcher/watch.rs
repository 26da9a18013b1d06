//! The watch stream: events as they happen, to clients that may be slow.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use gantry_serve::Body;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::api::Shared;
use super::instance_table::{InstanceTable, NotResumable};

/// One watcher.
struct Watcher {
    shared: Arc<Shared>,
    stop: CancellationToken,
    /// The last revision that was sent.
    position: u64,
    /// Lines that are to be sent.
    pending: VecDeque<Arc<str>>,
    /// The instances whose readiness was told, with their revision; `None` if it is not asked for.
    told_ready: Option<BTreeSet<(String, u64)>>,
    _permit: OwnedSemaphorePermit,
}

/// Returns the body of a watch that begins after a revision, or with the instances there are.
pub(super) fn stream_events(
    shared: &Arc<Shared>,
    stop: CancellationToken,
    since: Option<u64>,
    with_ready: bool,
    permit: OwnedSemaphorePermit,
) -> Result<Body, NotResumable> {
    let mut watcher = Watcher {
        shared: Arc::clone(shared),
        stop,
        position: 0,
        pending: VecDeque::new(),
        told_ready: with_ready.then(BTreeSet::new),
        _permit: permit,
    };
    shared.read(|table| {
        watcher.position = since.unwrap_or_else(|| table.revision());
        match since {
            Some(_) => watcher.collect(table)?,
            None => {
                watcher.pending.extend(table.current().into_iter().map(|it| it.line));
                watcher.collect(table)?;
            }
        }
        Ok(())
    })?;
    let lines = stream::unfold(watcher, |mut watcher| async move {
        let line = watcher.next().await?;
        Some((Ok(Frame::data(Bytes::copy_from_slice(line.as_bytes()))), watcher))
    });
    Ok(StreamBody::new(lines).boxed_unsync())
}

impl Watcher {
    /// Adds what happened since the last time.
    fn collect(&mut self, table: &InstanceTable) -> Result<(), NotResumable> {
        for event in table.events_since(self.position)? {
            self.position = event.revision;
            self.pending.push_back(event.line);
        }
        if let Some(told) = &mut self.told_ready {
            let ready = table.ready_events();
            told.retain(|it| ready.contains_key(it));
            for (key, line) in ready {
                if told.insert(key) {
                    self.pending.push_back(line);
                }
            }
        }
        Ok(())
    }

    /// Returns the next line; `None` when the launcher stops, or when the client read so slowly
    /// that events were lost.
    async fn next(&mut self) -> Option<Arc<str>> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            if let Some(line) = self.pending.pop_front() {
                return Some(line);
            }
            changes.mark_unchanged();
            let shared = Arc::clone(&self.shared);
            shared.read(|table| self.collect(table)).ok()?;
            if !self.pending.is_empty() {
                continue;
            }
            tokio::select! {
                biased;
                // Either may be dropped: both only wait.
                () = self.stop.cancelled() => return None,
                changed = changes.changed() => changed.ok()?,
            }
        }
    }
}
