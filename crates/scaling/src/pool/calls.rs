//! Which calls should be under way about the pools of a job.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::{
    Call, CallId, CallState, FactTable, Held, Key, Note, Observed, Plan, Reference, Target, Uid,
    View as _, World,
};
use serde_json::{Value, json};

use super::{LIST_INTERVAL, Pool, PoolListing, WhichPools, is_mine, pool_of};
use crate::ledger::Lot;
use crate::marks::Marks;
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

/// The purposes in the order in which calls follow each other between two lists, the last first.
const LAST_FIRST: [&str; 3] = [DELETE, RESIZE, CREATE];

/// How long one attempt may take: a token, the request, and a look at what is there under the name.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause before a call is wanted once more that was done and had no effect.
const REPEAT_DELAY: Duration = Duration::from_secs(1);

/// What is known about the pools of one job: the last list, and what was replied to calls since.
pub(super) struct PoolState<'a> {
    world: &'a World,
    job: &'a Key,
    marks: Marks,
    listing: Arc<Observed<PoolListing>>,
    calls: Arc<FactTable<CallState>>,
}

/// What is known about one pool.
struct Known {
    /// The pool; absent when there is none.
    pool: Option<Pool>,
    /// The purpose of the call whose reply says so; absent when it is from the list.
    by: Option<&'static str>,
}

impl<'a> PoolState<'a> {
    /// What is known; nothing before the first list.
    pub(super) fn of(world: &'a World, job: &'a Key) -> Option<Self> {
        let listing = world.facts::<PoolListing>().observed(&WhichPools)?;
        let calls = world.facts::<CallState>();
        Some(Self { world, job, marks: Marks::of(job), listing, calls })
    }

    /// The names of the pools that are listed for the job, and of those that calls were sent about.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let listed = self.listing.value.pools.values().filter(|it| is_mine(it, &self.marks));
        let called = self.states().into_iter().map(|(name, ..)| name);
        listed.map(|it| it.name.clone()).chain(called).collect()
    }

    /// The pool of this name, if it is there and is the job's.
    pub(super) fn mine(&self, name: &str) -> Option<Pool> {
        self.known(name).pool.filter(|it| is_mine(it, &self.marks))
    }

    /// Makes true what was granted from one pool.
    pub(super) fn provide(&self, lot: &Lot, plan: &mut Plan) -> Result<(), Reason> {
        let name = &lot.place;
        if self.is_under_way(name) {
            return Ok(());
        }
        let Known { pool, by } = self.known(name);
        match (pool, by) {
            (Some(pool), _) if !is_mine(&pool, &self.marks) => {
                return Err(Reason::NameTaken { kind: "pool", name: name.clone() });
            }
            (Some(pool), _) if pool.replicas == Some(lot.count) => {}
            (Some(_), None | Some(CREATE)) => {
                self.want(RESIZE, name, json!({ "replicas": lot.count }), plan);
            }
            (None, None) => {
                self.want(CREATE, name, json!(pool_of(self.job, lot)), plan);
            }
            // What a reply says is not what is granted by now: the pools are listed before more is done.
            (Some(_) | None, Some(_)) => plan.look_within(LIST_INTERVAL),
        }
        Ok(())
    }

    /// Gives back what was granted from one pool. Returns whether it is known to be gone: because the service
    /// said so when it was asked to delete it, and does not list it since.
    pub(super) fn give_back(&self, name: &str, plan: &mut Plan) -> bool {
        if self.is_under_way(name) {
            return false;
        }
        let listed = self.listing.value.pools.get(name);
        if listed.is_some_and(|it| !is_mine(it, &self.marks)) {
            // Another pool has the name. The job has none.
            return true;
        }
        let deleted = self.state(DELETE, name).filter(|it| it.value.done().is_some());
        match deleted {
            Some(deleted) if self.is_newer(&deleted) || listed.is_none() => {
                // The reply is what says so: it is kept until the grant is gone.
                plan.call(self.call(DELETE, name, Value::Null));
                true
            }
            Some(_) | None => {
                self.want(DELETE, name, Value::Null, plan);
                false
            }
        }
    }

    /// Deletes a pool that is the job's and was not granted. Returns whether there is none.
    pub(super) fn remove(&self, name: &str, plan: &mut Plan) -> bool {
        if self.is_under_way(name) {
            return false;
        }
        if self.mine(name).is_none() {
            return true;
        }
        self.want(DELETE, name, Value::Null, plan);
        false
    }

    /// What the newest of the list and the replies says. A reply is newer than a list that was asked for
    /// before the reply came: what it says may have been done after the list was made.
    fn known(&self, name: &str) -> Known {
        for purpose in LAST_FIRST {
            let Some(state) = self.state(purpose, name).filter(|it| self.is_newer(it)) else {
                continue;
            };
            let Some(reply) = state.value.done() else { continue };
            // A reply that cannot be read says nothing: then the list decides.
            let Ok(pool) = serde_json::from_value(reply.clone()) else { continue };
            return Known { pool, by: Some(purpose) };
        }
        Known { pool: self.listing.value.pools.get(name).cloned(), by: None }
    }

    fn is_newer(&self, state: &Observed<CallState>) -> bool {
        state.at >= self.listing.at
    }

    fn is_under_way(&self, name: &str) -> bool {
        let mut states = LAST_FIRST.iter().filter_map(|purpose| self.state(purpose, name));
        states.any(|it| it.value.under_way)
    }

    /// Wants a call, and says what goes wrong with it.
    fn want(&self, purpose: &'static str, name: &str, request: Value, plan: &mut Plan) {
        let state = self.state(purpose, name);
        if state.as_ref().is_some_and(|it| it.value.done().is_some()) {
            // It was done, and the list shows that it is needed once more. The plan that does not want it
            // forgets the reply, and the next one wants it anew.
            plan.look_within(REPEAT_DELAY);
            return;
        }
        if let Some(state) = state {
            self.tell(purpose, name, &state.value, plan);
        }
        plan.call(self.call(purpose, name, request));
    }

    /// Says why a call did not do what it should.
    fn tell(&self, purpose: &str, name: &str, state: &CallState, plan: &mut Plan) {
        let (reason, why) = match (state.refused(), &state.error) {
            (_, Some(error)) => ("Unanswered".to_owned(), error.clone()),
            (Some(refusal), None) => (refusal.reason.clone(), refusal.message.clone()),
            (None, None) => return,
        };
        let job = self.world.shelf::<AppWrapper>().get(self.job);
        let about = job.as_ref().map_or_else(
            || Reference {
                resource: AppWrapper::RESOURCE,
                key: self.job.clone(),
                uid: Uid::default(),
                field: String::new(),
            },
            |job| Reference::to(&AppWrapper::RESOURCE, &job.metadata),
        );
        let message = format!("could not {purpose} pool {name:?}: {why}");
        if job.is_some() && state.error.is_none() && !state.under_way {
            plan.notes.push(Note::warning(about.clone(), "PoolRefused", message.clone()));
        }
        plan.held.push(Held { about, reason: reason.into(), message, until: state.retry_at });
    }

    fn state(&self, purpose: &str, name: &str) -> Option<Arc<Observed<CallState>>> {
        self.calls.observed(&self.id(purpose, name))
    }

    /// All calls of the job: the name of the pool, the purpose, and how far it has come.
    fn states(&self) -> Vec<(String, &'static str, Arc<Observed<CallState>>)> {
        let prefix = self.prefix();
        // The character after the slash.
        let end = format!("{}0", prefix.trim_end_matches('/'));
        let range = self.calls.range(CallId::new(prefix.as_str())..CallId::new(end));
        let state = |(id, state): (CallId, _)| {
            let state: Arc<gantry_reconcile::fact::FactState<CallState>> = state;
            let (name, purpose) = id.as_str().strip_prefix(&prefix)?.rsplit_once('/')?;
            let purpose = LAST_FIRST.into_iter().find(|it| *it == purpose)?;
            Some((name.to_owned(), purpose, state.observed.clone()?))
        };
        range.into_iter().filter_map(state).collect()
    }

    fn prefix(&self) -> String {
        format!("{PROTOCOL}/{}/{}/", self.job.namespace(), self.job.name())
    }

    /// Which call: a pool is changed by one call at a time, and by the same until the pools are listed again.
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

/// Keeps calls that are under way, and replies that are newer than the list, whatever else a plan decides: what
/// is not wanted is given up and forgotten.
pub(crate) fn keep_calls(world: &World, job: &Key, plan: &mut Plan) {
    let Some(state) = PoolState::of(world, job) else { return };
    for (name, purpose, call) in state.states() {
        let is_news = call.value.done().is_some() && state.is_newer(&call);
        if call.value.under_way || is_news {
            let call = state.call(purpose, &name, Value::Null);
            // What is under way or done is known by its id; its request is not looked at again.
            if plan.calls.iter().all(|it| it.id != call.id) {
                plan.call(call);
            }
        }
    }
}
