//! Watching a kind.

use bytes::Bytes;
use gantry_process::clock::Moment;
use gantry_reconcile::{Parameter, Revision};
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::Lines;
use super::{Broken, Progress, Reflector, SHORTEST};
use crate::ask::{NoAnswer, Reply, Status, request};

/// The largest refusal that is read, in bytes: a Status of a few sentences.
const LARGEST_REFUSAL: usize = 1 << 20;

/// One line of a watch.
#[derive(Deserialize)]
struct Event<'line> {
    #[serde(rename = "type")]
    what: What,
    #[serde(borrow)]
    object: &'line RawValue,
}

#[derive(Clone, Copy, Deserialize)]
enum What {
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

/// An object of which only the revision matters.
#[derive(Deserialize)]
struct Marked {
    metadata: Mark,
}

#[derive(Deserialize)]
struct Mark {
    #[serde(rename = "resourceVersion")]
    revision: Revision,
}

impl Reflector {
    /// Follows the kind from `from` until the watch ends, and remembers how far it came.
    pub(super) async fn watch(
        &self,
        progress: &mut Progress,
        from: Revision,
        jitter: &mut fastrand::Rng,
    ) -> Result<(), Broken> {
        // Not all watches end at once: the server would have them all back at once.
        let seconds = self.timing.watch.as_secs();
        let seconds = jitter.u64(seconds - seconds / 4..=seconds).max(1);
        let parameters = [
            Parameter::Watch,
            Parameter::AllowWatchBookmarks,
            Parameter::ResourceVersion(from.0),
            Parameter::TimeoutSeconds(seconds),
        ];
        self.limiter.turn().await;
        let began = self.clock.moment();
        let request = request(Method::GET, &self.path(&parameters)?, "", Vec::new())?;
        let answer = self.clock.timeout(self.timing.page, self.client.send(request)).await;
        let answer = answer.map_err(NoAnswer::Late)?;
        let answer = answer.map_err(|error| NoAnswer::Unreached(Box::new(error)))?;
        if !answer.status().is_success() {
            return Err(self.refused(from, answer).await?);
        }
        self.trouble.set(None);
        let (mut body, mut lines, mut heard) = (answer.into_body(), Lines::default(), 0_u64);
        loop {
            let frame = self.clock.timeout(self.timing.silence, body.frame()).await;
            let frame = frame.map_err(|_| Broken::Silent(self.timing.silence))?;
            let Some(frame) = frame else { return self.ended(began, heard) };
            let frame = frame.map_err(|error| Broken::Interrupted(Box::new(error)))?;
            let Ok(data) = frame.into_data() else { continue };
            lines.push(&data).map_err(Broken::TooLong)?;
            while let Some(line) = lines.next() {
                heard += 1;
                self.take(progress, &line)?;
            }
        }
    }

    /// Whether a watch that came to its end was one.
    fn ended(&self, began: Moment, heard: u64) -> Result<(), Broken> {
        let short = heard == 0 && self.clock.moment() - began < SHORTEST;
        if short { Err(Broken::Short) } else { Ok(()) }
    }

    async fn refused(
        &self,
        from: Revision,
        answer: http::Response<kube::client::Body>,
    ) -> Result<Broken, Broken> {
        let code = answer.status();
        if code == StatusCode::GONE {
            return Ok(Broken::Expired(from));
        }
        let body = Limited::new(answer.into_body(), LARGEST_REFUSAL);
        let collected = self.clock.timeout(self.timing.page, body.collect()).await;
        let collected = collected.map_err(NoAnswer::Late)?;
        let broken = |error| Broken::Interrupted(Box::new(kube::Error::Service(error)));
        let body = collected.map_err(broken)?.to_bytes();
        let reply = Reply { status: code, retry_after: None, body };
        let status = reply.refusal();
        let wait = reply.wait(&status);
        Ok(Broken::Refused { code, message: status.message, wait })
    }

    /// Takes one event.
    fn take(&self, progress: &mut Progress, line: &Bytes) -> Result<(), Broken> {
        let event: Event<'_> = serde_json::from_slice(line).map_err(Broken::Garbled)?;
        let object = event.object.get();
        if let What::Error = event.what {
            return Err(error(progress, object));
        }
        let taken = self.audience.make(&self.place, |shelf| {
            let seen = match event.what {
                What::Added | What::Modified => shelf.saw(object),
                What::Deleted => shelf.saw_end(object),
                What::Bookmark | What::Error => Ok(None),
            };
            let (change, unreadable) = match seen {
                Ok(change) => (change, None),
                Err(mut unreadable) => (unreadable.change.take().map(|it| *it), Some(unreadable)),
            };
            // The shelf knows how far it is by what it could read; of the rest only this is read.
            if unreadable.is_some() || matches!(event.what, What::Bookmark) {
                shelf.saw_up_to(revision_of(object));
            }
            (change.into_iter().collect(), (unreadable, shelf.seen(), shelf.count()))
        });
        let Some((unreadable, seen, count)) = taken else { return Ok(()) };
        progress.from = Some(seen);
        progress.objects.set(i64::try_from(count).unwrap_or(i64::MAX));
        if let Some(unreadable) = unreadable {
            self.leave_out(progress, &unreadable);
        }
        Ok(())
    }
}

/// The revision of an object of which nothing else matters; the first one when it has none.
fn revision_of(object: &str) -> Revision {
    serde_json::from_str::<Marked>(object)
        .map_or_else(|_| Revision::default(), |it| it.metadata.revision)
}

/// What the server says when it cannot go on.
fn error(progress: &Progress, object: &str) -> Broken {
    let status: Status = serde_json::from_str(object).unwrap_or_default();
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if code == StatusCode::GONE || status.reason == "Expired" {
        return Broken::Expired(progress.from.unwrap_or_default());
    }
    let wait = status.details.map(|it| it.retry_after_seconds).filter(|it| *it > 0);
    let wait = wait.map(std::time::Duration::from_secs);
    Broken::Refused { code, message: status.message, wait }
}
