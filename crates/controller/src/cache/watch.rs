//! Watches a kind.

use bytes::Bytes;
use gantry_process::clock::Moment;
use gantry_reconcile::{Parameter, Revision};
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::LineBuffer;
use super::{ListWatchError, MIN_WATCH_DURATION, Reflector, ReflectorState};
use crate::api_request::{ApiResponse, NoResponse, Status, build_request};

/// The largest refusal that is read, in bytes: a Status of a few sentences.
const MAX_REFUSAL_BYTES: usize = 1 << 20;

/// One line of a watch.
#[derive(Deserialize)]
struct WatchEvent<'line> {
    #[serde(rename = "type")]
    event_type: WatchEventType,
    #[serde(borrow)]
    object: &'line RawValue,
}

#[derive(Clone, Copy, Deserialize)]
enum WatchEventType {
    #[serde(rename = "ADDED")]
    Added,
    #[serde(rename = "MODIFIED")]
    Modified,
    #[serde(rename = "DELETED")]
    Deleted,
    #[serde(rename = "BOOKMARK")]
    Bookmark,
    #[serde(rename = "ERROR")]
    Error,
}

/// An object of which only the revision is decoded.
#[derive(Deserialize)]
struct RevisionOnly {
    metadata: RevisionMetadata,
}

#[derive(Deserialize)]
struct RevisionMetadata {
    #[serde(rename = "resourceVersion")]
    revision: Revision,
}

impl Reflector {
    /// Watches the kind from `from` until the watch ends, and remembers the revision it reached.
    pub(super) async fn watch(
        &self,
        progress: &mut ReflectorState,
        from: Revision,
        jitter: &mut fastrand::Rng,
    ) -> Result<(), ListWatchError> {
        // Jittered, or all watches would end, and be restarted, at the same time.
        let seconds = self.timeouts.watch.as_secs();
        let seconds = jitter.u64(seconds - seconds / 4..=seconds).max(1);
        let parameters = [
            Parameter::Watch,
            Parameter::AllowWatchBookmarks,
            Parameter::ResourceVersion(from.0),
            Parameter::TimeoutSeconds(seconds),
        ];
        self.limiter.wait().await;
        let began = self.clock.moment();
        let request = build_request(Method::GET, &self.path(&parameters)?, "", Vec::new())?;
        let answer = self.clock.timeout(self.timeouts.page, self.client.send(request)).await;
        let answer = answer.map_err(NoResponse::TimedOut)?;
        let answer = answer.map_err(|error| NoResponse::Unreachable(Box::new(error)))?;
        if !answer.status().is_success() {
            return Err(self.refusal_error(from, answer).await?);
        }
        self.last_error.set(None);
        let (mut body, mut lines, mut heard) = (answer.into_body(), LineBuffer::default(), 0_u64);
        loop {
            let frame = self.clock.timeout(self.timeouts.watch_idle, body.frame()).await;
            let frame = frame.map_err(|_| ListWatchError::Idle(self.timeouts.watch_idle))?;
            let Some(frame) = frame else { return self.check_watch_end(began, heard) };
            let frame = frame.map_err(|error| ListWatchError::Interrupted(Box::new(error)))?;
            let Ok(data) = frame.into_data() else { continue };
            lines.push(&data).map_err(ListWatchError::EventTooLong)?;
            while let Some(line) = lines.next() {
                heard += 1;
                self.apply_event(progress, &line)?;
            }
        }
    }

    /// Checks that a watch that ended was not over at once.
    fn check_watch_end(&self, began: Moment, heard: u64) -> Result<(), ListWatchError> {
        let short = heard == 0 && self.clock.moment() - began < MIN_WATCH_DURATION;
        if short { Err(ListWatchError::EndedAtOnce) } else { Ok(()) }
    }

    async fn refusal_error(
        &self,
        from: Revision,
        answer: http::Response<kube::client::Body>,
    ) -> Result<ListWatchError, ListWatchError> {
        let code = answer.status();
        if code == StatusCode::GONE {
            return Ok(ListWatchError::Expired(from));
        }
        let body = Limited::new(answer.into_body(), MAX_REFUSAL_BYTES);
        let collected = self.clock.timeout(self.timeouts.page, body.collect()).await;
        let collected = collected.map_err(NoResponse::TimedOut)?;
        let broken = |error| ListWatchError::Interrupted(Box::new(kube::Error::Service(error)));
        let body = collected.map_err(broken)?.to_bytes();
        let reply = ApiResponse { status: code, retry_after: None, body };
        let status = reply.error_status();
        let wait = reply.retry_delay(&status);
        Ok(ListWatchError::Refused { code, message: status.message, retry_after: wait })
    }

    /// Applies one event to the store.
    fn apply_event(
        &self,
        progress: &mut ReflectorState,
        line: &Bytes,
    ) -> Result<(), ListWatchError> {
        let event: WatchEvent<'_> =
            serde_json::from_slice(line).map_err(ListWatchError::Malformed)?;
        let object = event.object.get();
        if let WatchEventType::Error = event.event_type {
            return Err(error_event(progress, object));
        }
        let taken = self.subscribers.update_store(&self.store_id, |shelf| {
            let seen = match event.event_type {
                WatchEventType::Added | WatchEventType::Modified => shelf.observe(object),
                WatchEventType::Deleted => shelf.observe_deletion(object),
                WatchEventType::Bookmark | WatchEventType::Error => Ok(None),
            };
            let (change, unreadable) = match seen {
                Ok(change) => (change, None),
                Err(mut unreadable) => (unreadable.change.take().map(|it| *it), Some(unreadable)),
            };
            // The store takes its revision from the objects it can decode; for all others only the
            // revision is read.
            if unreadable.is_some() || matches!(event.event_type, WatchEventType::Bookmark) {
                shelf.observe_bookmark(revision_of(object));
            }
            (change.into_iter().collect(), (unreadable, shelf.last_sync_revision(), shelf.count()))
        });
        let Some((unreadable, seen, count)) = taken else { return Ok(()) };
        progress.from = Some(seen);
        progress.objects.set(i64::try_from(count).unwrap_or(i64::MAX));
        if let Some(unreadable) = unreadable {
            self.report_unreadable(progress, &unreadable);
        }
        Ok(())
    }
}

/// The revision of an object, of which nothing else is read; zero when it has none.
fn revision_of(object: &str) -> Revision {
    serde_json::from_str::<RevisionOnly>(object)
        .map_or_else(|_| Revision::default(), |it| it.metadata.revision)
}

/// The error that the server sends in a watch.
fn error_event(progress: &ReflectorState, object: &str) -> ListWatchError {
    let status: Status = serde_json::from_str(object).unwrap_or_default();
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if code == StatusCode::GONE || status.reason == "Expired" {
        return ListWatchError::Expired(progress.from.unwrap_or_default());
    }
    let wait = status.details.map(|it| it.retry_after_seconds).filter(|it| *it > 0);
    let wait = wait.map(std::time::Duration::from_secs);
    ListWatchError::Refused { code, message: status.message, retry_after: wait }
}
