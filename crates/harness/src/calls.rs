//! The calls of one process.

use std::time::Duration;

use gantry_reconcile::call::{CallAttempt, CallBounds, CallChange, CallTable};
use gantry_reconcile::{Call, CallId, CallState, Reply, World};
use jiff::Timestamp;

use crate::replica::ControllerKey;

/// The delay after a failed attempt; it doubles with every further one, up to the longest.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The wanted calls, and the requests and replies in flight.
#[derive(Debug)]
pub(crate) struct Calls {
    table: CallTable<ControllerKey, Timestamp>,
    /// Requests that were sent and have not arrived yet.
    requests: Vec<SentAttempt>,
    /// Replies that have not arrived yet.
    replies: Vec<(SentAttempt, Reply)>,
}

/// An attempt of a call.
#[derive(Clone, Debug)]
pub(crate) struct SentAttempt {
    pub(crate) call: Call,
    attempt: CallAttempt,
}

impl Calls {
    pub(crate) fn new() -> Self {
        let table = CallTable::new(CallBounds::default());
        Self { table, requests: Vec::new(), replies: Vec::new() }
    }

    /// Sets the calls of a key. Returns requests that are cancelled and may arrive all the same.
    pub(crate) fn set_wanted(
        &mut self,
        slot: &ControllerKey,
        calls: Vec<Call>,
        world: &World,
        now: Timestamp,
    ) -> Vec<Call> {
        let given_up = self.table.set_wanted(slot, calls, now);
        let mut on_their_way = Vec::new();
        for attempt in given_up.iter().filter_map(|it| it.attempt) {
            let sent = self.requests.iter().position(|it| it.attempt == attempt);
            on_their_way.extend(sent.map(|place| self.requests.swap_remove(place).call));
            self.replies.retain(|(sent, _)| sent.attempt != attempt);
        }
        for call in &given_up {
            // No key is left that wants it and would be notified.
            let _ = world.facts::<CallState>().forget(&call.call.id);
        }
        on_their_way
    }

    pub(crate) fn can_send(&self, now: Timestamp) -> usize {
        self.table.startable(now).len()
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn replies(&self) -> usize {
        self.replies.len()
    }

    /// When the next call is due.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.table.next_due(now)
    }

    /// Sends one of the calls that can be sent. Returns the keys to plan, and the call.
    pub(crate) fn send(
        &mut self,
        which: usize,
        world: &World,
        now: Timestamp,
    ) -> Option<(Vec<ControllerKey>, Call)> {
        let id = self.table.startable(now).into_iter().nth(which)?;
        let (call, attempt, change) = self.table.start(&id)?;
        self.requests.push(SentAttempt { call: call.clone(), attempt });
        Some((record(change, None, world, now), call))
    }

    /// Takes one of the requests in flight.
    pub(crate) fn take_request(&mut self, which: usize) -> SentAttempt {
        self.requests.swap_remove(which)
    }

    /// Sends the reply to a call.
    pub(crate) fn reply(&mut self, sent: SentAttempt, reply: Reply) {
        self.replies.push((sent, reply));
    }

    /// Takes one of the replies in flight.
    pub(crate) fn take_reply(&mut self, which: usize) -> (SentAttempt, Reply) {
        self.replies.swap_remove(which)
    }

    /// Ends an attempt. Returns the keys to plan.
    pub(crate) fn end(
        &mut self,
        sent: &SentAttempt,
        reply: Option<Reply>,
        world: &World,
        now: Timestamp,
    ) -> Vec<ControllerKey> {
        let id: &CallId = &sent.call.id;
        let delay = FIRST_RETRY_DELAY.saturating_mul(1 << self.table.failures(id).min(16));
        let retry_at = now.checked_add(delay.min(MAX_RETRY_DELAY)).unwrap_or(Timestamp::MAX);
        let outcome = reply.ok_or_else(|| "no reply".to_owned());
        let change = self.table.end(id, sent.attempt, outcome, retry_at);
        change.map_or_else(Vec::new, |it| record(it, Some(retry_at), world, now))
    }

    /// Crashes the process. Returns the requests in flight.
    pub(crate) fn into_requests(self) -> Vec<Call> {
        self.requests.into_iter().map(|it| it.call).collect()
    }
}

/// Records the state of a call. Returns the keys to plan.
fn record(
    change: CallChange<ControllerKey>,
    retry_at: Option<Timestamp>,
    world: &World,
    now: Timestamp,
) -> Vec<ControllerKey> {
    let CallChange { id, state, owners } = change;
    let retry_at = retry_at.filter(|_| state.failures > 0);
    // The keys that want it are enqueued by name.
    let _ = world.facts::<CallState>().record(id, CallState { retry_at, ..state }, now);
    owners
}
