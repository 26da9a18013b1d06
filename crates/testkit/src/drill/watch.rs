//! Watches a collection across restarts of its server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::observer::Kind;
use super::{DrillContext, POLL_INTERVAL};
use crate::http::{Request, SendCause, Stream};

/// The timeout of waiting for a line, after which the wait is repeated; nothing depends on it.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// Reports every change to the observer, for ever. An unavailable server is tried again; when the
/// watch cannot resume from the last change, the collection is listed again, and the observer is
/// notified of the gap.
pub(super) async fn follow(kind: Kind, context: Arc<DrillContext>) {
    let mut last = None;
    loop {
        let from = match last.take() {
            Some(revision) => revision,
            None => match list(kind, &context).await {
                Some(revision) => revision,
                None => {
                    context.clock.sleep(POLL_INTERVAL).await;
                    continue;
                }
            },
        };
        last = watch(kind, &context, from).await;
        context.clock.sleep(POLL_INTERVAL).await;
    }
}

/// Lists everything; returns the revision of the list.
async fn list(kind: Kind, context: &DrillContext) -> Option<String> {
    let answer = context.client.send(Request::get(kind.path())).await.ok()?;
    let list = answer.status.is_success().then(|| answer.json().ok()).flatten()?;
    let revision = list["metadata"]["resourceVersion"].as_str()?.to_owned();
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    context.observer().listed(kind, items, context.elapsed());
    Some(revision)
}

/// Watches until the watch ends. Returns the revision to resume from; nothing if that is not
/// possible.
async fn watch(kind: Kind, context: &DrillContext, from: String) -> Option<String> {
    let path = format!("{}?watch=1&allowWatchBookmarks=1&resourceVersion={from}", kind.path());
    let opened = context.client.open(Request::get(path)).await;
    let mut last = from;
    match opened {
        Err(_) => return Some(last),
        Ok(stream) if stream.status.as_u16() == 410 => return None,
        Ok(stream) if !stream.status.is_success() => return Some(last),
        Ok(mut stream) => {
            while let Some(event) = next(&mut stream).await {
                let object = &event["object"];
                match event["type"].as_str().unwrap_or_default() {
                    "ADDED" | "MODIFIED" => {
                        context.observer().changed(kind, object, context.elapsed());
                    }
                    "DELETED" => context.observer().deleted(kind, object),
                    "BOOKMARK" => {}
                    // The watch cannot resume from there.
                    _ => return None,
                }
                if let Some(revision) = object["metadata"]["resourceVersion"].as_str() {
                    revision.clone_into(&mut last);
                }
            }
        }
    }
    Some(last)
}

/// Returns the next event; nothing at the end, which may be in the middle of a line.
async fn next(stream: &mut Stream) -> Option<Value> {
    loop {
        match stream.next_line(LINE_TIMEOUT).await {
            Ok(line) => return serde_json::from_slice(&line?).ok(),
            Err(error) if matches!(error.cause, SendCause::TimedOut(_)) => {}
            Err(_) => return None,
        }
    }
}
