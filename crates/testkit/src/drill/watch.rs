//! Follows a collection across the deaths of its server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::observer::Kind;
use super::{LOOK, Stage};
use crate::http::{Request, SendCause, Stream};

/// How long a line is waited for before it is waited for again; nothing is decided by it.
const LINE: Duration = Duration::from_secs(30);

/// Tells the observer of every change, for ever. A server that is away is asked again; one that does not
/// know any more what came after the last change is asked for everything, which the observer is told.
pub(super) async fn follow(kind: Kind, stage: Arc<Stage>) {
    let mut last = None;
    loop {
        let from = match last.take() {
            Some(revision) => revision,
            None => match list(kind, &stage).await {
                Some(revision) => revision,
                None => {
                    stage.clock.sleep(LOOK).await;
                    continue;
                }
            },
        };
        last = watch(kind, &stage, from).await;
        stage.clock.sleep(LOOK).await;
    }
}

/// Reads everything; returns the revision it is of.
async fn list(kind: Kind, stage: &Stage) -> Option<String> {
    let answer = stage.client.send(Request::get(kind.path())).await.ok()?;
    let list = answer.status.is_success().then(|| answer.json().ok()).flatten()?;
    let revision = list["metadata"]["resourceVersion"].as_str()?.to_owned();
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    stage.observer().listed(kind, items, stage.at());
    Some(revision)
}

/// Watches until the watch ends. Returns from where to go on; nothing if that is not possible.
async fn watch(kind: Kind, stage: &Stage, from: String) -> Option<String> {
    let path = format!("{}?watch=1&allowWatchBookmarks=1&resourceVersion={from}", kind.path());
    let opened = stage.client.open(Request::get(path)).await;
    let mut last = from;
    match opened {
        Err(_) => return Some(last),
        Ok(stream) if stream.status.as_u16() == 410 => return None,
        Ok(stream) if !stream.status.is_success() => return Some(last),
        Ok(mut stream) => {
            while let Some(event) = next(&mut stream).await {
                let object = &event["object"];
                match event["type"].as_str().unwrap_or_default() {
                    "ADDED" | "MODIFIED" => stage.observer().changed(kind, object, stage.at()),
                    "DELETED" => stage.observer().gone(kind, object),
                    "BOOKMARK" => {}
                    // It cannot go on from there.
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

/// The next event; nothing at the end, which may be in the middle of a line.
async fn next(stream: &mut Stream) -> Option<Value> {
    loop {
        match stream.next_line(LINE).await {
            Ok(line) => return serde_json::from_slice(&line?).ok(),
            Err(error) if matches!(error.cause, SendCause::TimedOut(_)) => {}
            Err(_) => return None,
        }
    }
}
