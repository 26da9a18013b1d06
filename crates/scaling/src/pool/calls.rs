//! Plans the calls about the pools of a job.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::{
    Call, CallId, CallState, Event, FactTable, Held, Key, ObjectReference, Observed, Plan, Target,
    Uid, View as _, World,
};
use serde_json::{Value, json};

use super::{LIST_INTERVAL, Pool, PoolListing, PoolQuery, desired_pool, is_owned};
use crate::grant_record::NodeAllocation;
use crate::owner_labels::OwnerLabels;
use crate::reason::Reason;
use crate::view::AppWrapper;

/// The protocol of calls about pools.
pub const PROTOCOL: &str = "ocm";
/// The purpose of a call that creates a pool. The request is the [`Pool`].
pub const CREATE: &str = "create";
/// The purpose of a call that resizes a pool. The request has `replicas`.
pub const RESIZE: &str = "resize";
/// The purpose of a call that deletes a pool.
pub const DELETE: &str = "delete";

/// The purposes in the order in which calls follow each other between two listings, the last first.
const PURPOSES_LATEST_FIRST: [&str; 3] = [DELETE, RESIZE, CREATE];

/// How long one attempt may take: a token, the request, and a read of the existing pool of that
/// name.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The delay before a call is repeated that was carried out and had no effect.
const REPEAT_DELAY: Duration = Duration::from_secs(1);

/// What is known about the pools of one job: the last list, and the replies to calls since.
pub(super) struct PoolState<'a> {
    world: &'a World,
    job: &'a Key,
    marks: OwnerLabels,
    listing: Arc<Observed<PoolListing>>,
    calls: Arc<FactTable<CallState>>,
}

/// What is known about one pool.
struct ObservedPool {
    /// The pool; absent when it does not exist.
    pool: Option<Pool>,
    /// The purpose of the call whose reply says so; absent when it is from the list.
    purpose: Option<&'static str>,
}

impl<'a> PoolState<'a> {
    /// Returns what is known; `None` before the first list.
    pub(super) fn of(world: &'a World, job: &'a Key) -> Option<Self> {
        let listing = world.facts::<PoolListing>().observed(&PoolQuery)?;
        let calls = world.facts::<CallState>();
        Some(Self { world, job, marks: OwnerLabels::of(job), listing, calls })
    }

    /// Returns the names of the pools that are listed for the job, and of those that calls were
    /// sent about.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let listed = self.listing.value.pools.values().filter(|it| is_owned(it, &self.marks));
        let called = self.states().into_iter().map(|(name, ..)| name);
        listed.map(|it| it.name.clone()).chain(called).collect()
    }

    /// Returns the pool of this name, if it exists and belongs to the job.
    pub(super) fn owned_pool(&self, name: &str) -> Option<Pool> {
        self.observed(name).pool.filter(|it| is_owned(it, &self.marks))
    }

    /// Provisions what was granted from one pool.
    pub(super) fn provide(&self, lot: &NodeAllocation, plan: &mut Plan) -> Result<(), Reason> {
        let name = &lot.place;
        if self.is_under_way(name) {
            return Ok(());
        }
        let ObservedPool { pool, purpose: by } = self.observed(name);
        match (pool, by) {
            (Some(pool), _) if !is_owned(&pool, &self.marks) => {
                return Err(Reason::NameTaken { kind: "pool", name: name.clone() });
            }
            (Some(pool), _) if pool.replicas == Some(lot.count) => {}
            (Some(_), None | Some(CREATE)) => {
                self.want(RESIZE, name, json!({ "replicas": lot.count }), plan);
            }
            (None, None) => {
                self.want(CREATE, name, json!(desired_pool(self.job, lot)), plan);
            }
            // The reply differs from what is granted by now: the pools are listed before more is
            // done.
            (Some(_) | None, Some(_)) => plan.requeue_after(LIST_INTERVAL),
        }
        Ok(())
    }

    /// Releases what was granted from one pool. Returns whether it is known to be gone: because the
    /// service confirmed the deletion, and has not listed it since.
    pub(super) fn release(&self, name: &str, plan: &mut Plan) -> bool {
        if self.is_under_way(name) {
            return false;
        }
        let listed = self.listing.value.pools.get(name);
        if listed.is_some_and(|it| !is_owned(it, &self.marks)) {
            // The name belongs to another pool. The job has none.
            return true;
        }
        let deleted = self.state(DELETE, name).filter(|it| it.value.done().is_some());
        match deleted {
            Some(deleted) if self.is_newer(&deleted) || listed.is_none() => {
                // The reply is the evidence: it is kept until the grant is gone.
                plan.call(self.call(DELETE, name, Value::Null));
                true
            }
            Some(_) | None => {
                self.want(DELETE, name, Value::Null, plan);
                false
            }
        }
    }

    /// Deletes a pool of the job that was not granted. Returns whether there is none.
    pub(super) fn delete_ungranted(&self, name: &str, plan: &mut Plan) -> bool {
        if self.is_under_way(name) {
            return false;
        }
        if self.owned_pool(name).is_none() {
            return true;
        }
        self.want(DELETE, name, Value::Null, plan);
        false
    }

    /// Returns what the newest of the list and the replies says. A reply is newer than a list that
    /// was requested before the reply came: the change may have been made after the list.
    fn observed(&self, name: &str) -> ObservedPool {
        for purpose in PURPOSES_LATEST_FIRST {
            let Some(state) = self.state(purpose, name).filter(|it| self.is_newer(it)) else {
                continue;
            };
            let Some(reply) = state.value.done() else { continue };
            // A reply that cannot be read is ignored: then the list decides.
            let Ok(pool) = serde_json::from_value(reply.clone()) else { continue };
            return ObservedPool { pool, purpose: Some(purpose) };
        }
        ObservedPool { pool: self.listing.value.pools.get(name).cloned(), purpose: None }
    }

    fn is_newer(&self, state: &Observed<CallState>) -> bool {
        state.at >= self.listing.at
    }

    fn is_under_way(&self, name: &str) -> bool {
        let mut states =
            PURPOSES_LATEST_FIRST.iter().filter_map(|purpose| self.state(purpose, name));
        states.any(|it| it.value.under_way)
    }

    /// Requests a call, and reports its failure.
    fn want(&self, purpose: &'static str, name: &str, request: Value, plan: &mut Plan) {
        let state = self.state(purpose, name);
        if state.as_ref().is_some_and(|it| it.value.done().is_some()) {
            // It was carried out, and the list shows that it is needed once more. The plan that
            // does not request it forgets the reply, and the next one requests it again.
            plan.requeue_after(REPEAT_DELAY);
            return;
        }
        if let Some(state) = state {
            self.report_failure(purpose, name, &state.value, plan);
        }
        plan.call(self.call(purpose, name, request));
    }

    /// Reports why a call failed.
    fn report_failure(&self, purpose: &str, name: &str, state: &CallState, plan: &mut Plan) {
        let (reason, why) = match (state.refused(), &state.error) {
            (_, Some(error)) => ("NoResponse".to_owned(), error.clone()),
            (Some(refusal), None) => (refusal.reason.clone(), refusal.message.clone()),
            (None, None) => return,
        };
        let job = self.world.store::<AppWrapper>().get(self.job);
        let about = job.as_ref().map_or_else(
            || ObjectReference {
                resource: AppWrapper::RESOURCE,
                key: self.job.clone(),
                uid: Uid::default(),
                field: String::new(),
            },
            |job| ObjectReference::to(&AppWrapper::RESOURCE, &job.metadata),
        );
        let message = format!("could not {purpose} pool {name:?}: {why}");
        if job.is_some() && state.error.is_none() && !state.under_way {
            plan.events.push(Event::warning(about.clone(), "PoolRefused", message.clone()));
        }
        plan.held.push(Held { about, reason: reason.into(), message, until: state.retry_at });
    }

    fn state(&self, purpose: &str, name: &str) -> Option<Arc<Observed<CallState>>> {
        self.calls.observed(&self.id(purpose, name))
    }

    /// Returns all calls of the job: the name of the pool, the purpose, and the state.
    fn states(&self) -> Vec<(String, &'static str, Arc<Observed<CallState>>)> {
        let prefix = self.prefix();
        // The character after the slash.
        let end = format!("{}0", prefix.trim_end_matches('/'));
        let range = self.calls.range(CallId::new(prefix.as_str())..CallId::new(end));
        let state = |(id, state): (CallId, _)| {
            let state: Arc<gantry_reconcile::fact::FactState<CallState>> = state;
            let (name, purpose) = id.as_str().strip_prefix(&prefix)?.rsplit_once('/')?;
            let purpose = PURPOSES_LATEST_FIRST.into_iter().find(|it| *it == purpose)?;
            Some((name.to_owned(), purpose, state.observed.clone()?))
        };
        range.into_iter().filter_map(state).collect()
    }

    fn prefix(&self) -> String {
        format!("{PROTOCOL}/{}/{}/", self.job.namespace(), self.job.name())
    }

    /// Returns the identifier of a call: a pool is changed by one call at a time, and by the same
    /// until the pools are listed again.
    fn id(&self, purpose: &str, name: &str) -> CallId {
        CallId::new(format!("{}{name}/{purpose}", self.prefix()))
    }

    fn call(&self, purpose: &'static str, name: &str, request: Value) -> Call {
        let cluster = &self.listing.value.cluster;
        Call {
            id: self.id(purpose, name),
            target: Target {
                protocol: PROTOCOL,
                address: name.to_owned(),
                // A pool has no identity beside its name; its cluster has.
                uid: Uid::new(cluster),
                group: cluster.clone(),
            },
            purpose,
            request,
            timeout: CALL_TIMEOUT,
        }
    }
}

/// Keeps calls in flight, and replies that are newer than the list, whatever else a plan decides: a
/// call that is not requested is given up and forgotten.
pub(crate) fn keep_calls(world: &World, job: &Key, plan: &mut Plan) {
    let Some(state) = PoolState::of(world, job) else { return };
    for (name, purpose, call) in state.states() {
        let is_news = call.value.done().is_some() && state.is_newer(&call);
        if call.value.under_way || is_news {
            let call = state.call(purpose, &name, Value::Null);
            // A call in flight or done is identified by its id; its request is not read again.
            if plan.calls.iter().all(|it| it.id != call.id) {
                plan.call(call);
            }
        }
    }
}
