//! Calls that go to engines: those of a newer binding wait for those of older ones.
//!
//! A call is forwarded until the engine has answered, also when the client is gone. Otherwise a
//! wake that was given up could reach the engine after the sleep that followed it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_http_client::{Body as ClientBody, Bounds};
use gantry_serve::Body;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use tokio::sync::watch;

use super::FORWARD_TIMEOUT;
use super::api::{Shared, not_found};
use super::fence::{CallFence, Refusal};
use crate::exchange::{self as answer, Call};

/// The largest response of an engine that is forwarded.
const MAX_FORWARDED_BYTES: usize = 1 << 20;

/// The calls that are forwarded now: how many of each instance and counter.
pub(super) struct Forwards {
    current: Mutex<BTreeMap<(String, u64), usize>>,
    /// Changes whenever one ends.
    ended: watch::Sender<u64>,
}

impl Default for Forwards {
    fn default() -> Self {
        Self { current: Mutex::default(), ended: watch::Sender::new(0) }
    }
}

/// One call that is forwarded.
struct Forward<'a> {
    forwards: &'a Forwards,
    key: (String, u64),
}

impl Forwards {
    fn begin(&self, id: &str, counter: u64) -> Forward<'_> {
        let key = (id.to_owned(), counter);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current.entry(key.clone()).or_default() += 1;
        Forward { forwards: self, key }
    }
}

impl Forward<'_> {
    /// Waits until no call of an older binding of the instance is forwarded.
    async fn wait_for_older(&self) {
        let mut ended = self.forwards.ended.subscribe();
        loop {
            {
                let current = &self.forwards.current;
                let current = current.lock().unwrap_or_else(PoisonError::into_inner);
                let (id, counter) = &self.key;
                if current.range((id.clone(), 0)..(id.clone(), *counter)).next().is_none() {
                    return;
                }
            }
            // Never closed: the sender is in what this borrows.
            let _ = ended.changed().await;
        }
    }
}

impl Drop for Forward<'_> {
    fn drop(&mut self) {
        let mut current = self.forwards.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = current.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                current.remove(&self.key);
            }
        }
        drop(current);
        self.forwards.ended.send_modify(|it| *it = it.wrapping_add(1));
    }
}

/// Forwards a call to an engine. One that is overtaken by a call of a newer binding is refused.
pub(super) async fn forward(
    shared: &Arc<Shared>,
    (id, name): (&str, &str),
    call: &Call,
    fence: CallFence,
) -> Response<Body> {
    let query = ["level", "mode", "tags"].iter().filter_map(|it| {
        let value = call.query(it)?;
        let is_plain = value.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
        is_plain.then(|| format!("{it}={value}"))
    });
    let query = query.collect::<Vec<_>>().join("&");
    let path = if query.is_empty() { format!("/{name}") } else { format!("/{name}?{query}") };
    let (id, method) = (id.to_owned(), call.method.clone());
    if method == Method::GET {
        return send(shared, &id, method, &path).await;
    }
    let work = {
        let shared = Arc::clone(shared);
        async move {
            let began = {
                // Under one lock, so that a newer call finds this one or is found by it.
                let mut newest = shared.fence.lock().unwrap_or_else(PoisonError::into_inner);
                match newest.admit(&fence) {
                    Ok(()) => fence.counter().map(|it| shared.forwards.begin(&id, it)),
                    Err(refusal) => return refused(&refusal),
                }
            };
            if let Some(began) = &began {
                began.wait_for_older().await;
                let checked = {
                    let newest = shared.fence.lock().unwrap_or_else(PoisonError::into_inner);
                    newest.check(&fence)
                };
                if let Err(refusal) = checked {
                    return refused(&refusal);
                }
            }
            send(&shared, &id, method, &path).await
        }
    };
    match shared.detached.run(work).await {
        Some(response) => response,
        None => answer::detail(StatusCode::SERVICE_UNAVAILABLE, "the launcher is stopping"),
    }
}

pub(super) fn refused(refusal: &Refusal) -> Response<Body> {
    answer::detail(refusal.status(), refusal.to_string())
}

async fn send(shared: &Shared, id: &str, method: Method, path: &str) -> Response<Body> {
    let found = shared.read(|it| Some((it.config(id)?.port(), it.is_running(id))));
    let Some((port, is_running)) = found else { return not_found(id) };
    if !is_running {
        let message = format!("Instance with ID '{id}' is stopped");
        return answer::detail(StatusCode::BAD_GATEWAY, message);
    }
    let url = answer::url(shared.settings.host.local_address(), port, path);
    let request = Request::builder().method(method).uri(url);
    let Ok(request) = request.body(ClientBody::empty()) else {
        return answer::detail(StatusCode::BAD_REQUEST, "the query cannot be forwarded");
    };
    let bounds = Bounds { time: FORWARD_TIMEOUT, bytes: MAX_FORWARDED_BYTES };
    match shared.settings.forwarder.fetch(request, bounds).await {
        Ok(answered) => {
            let status = answered.status();
            let content_type = answered.headers().get(CONTENT_TYPE).cloned();
            let mut response = answer::text(status, answered.into_body());
            if let Some(content_type) = content_type {
                response.headers_mut().insert(CONTENT_TYPE, content_type);
            }
            response
        }
        Err(error) => answer::detail(
            StatusCode::BAD_GATEWAY,
            format!("the engine does not answer: {}", gantry_process::error_chain(&error)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn as_69_calls_of_newer_bindings_wait_for_those_of_older_ones() {
        let forwards = Forwards::default();
        let (older, same) = (forwards.begin("a", 3), forwards.begin("a", 3));
        let (newer, other) = (forwards.begin("a", 4), forwards.begin("b", 4));
        for free in [&older, &same, &other] {
            assert_eq!(poll!(std::pin::pin!(free.wait_for_older())), Poll::Ready(()));
        }
        let mut waiting = std::pin::pin!(newer.wait_for_older());
        assert_eq!(poll!(waiting.as_mut()), Poll::Pending);
        drop(older);
        assert_eq!(poll!(waiting.as_mut()), Poll::Pending);
        drop(same);
        assert_eq!(poll!(waiting.as_mut()), Poll::Ready(()));
    }
}
