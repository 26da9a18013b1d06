//! Pools of a managed cluster: one for each type a job needs, deleted as a whole.
//!
//! No API server knows of them. [`PoolInquiry`] has them listed, and the list is a fact, [`PoolListing`]. Plans
//! want pools created, resized and deleted by calls, which [`effects`](crate::effects) carries out.
//!
//! The service has no fence for requests that are old. What makes it safe to send a request twice, late, or
//! from two processes that believe to lead:
//!
//! - The name of a pool follows from the grant in the ledger. The service refuses a second pool of a name, and
//!   one that is there and is alike counts as created. So each type of a grant is bought once.
//! - A pool is resized to a number of nodes, and not by one.
//! - The reply to a call is believed until the pools are listed by a request that was sent after it: an older
//!   list may lack it. Nothing of that survives the process; the next one lists the pools first.
//! - A call that is under way is not given up: what became of it is known before the next one is sent.
//! - What was granted is given back by a call in any case, whether or not it is listed: a request whose reply
//!   was lost may have been carried out after the list was made.
//!
//! One thing remains: a request to create a pool may arrive after the pool was deleted, when its sender died
//! or lost the connection. Such a pool bears the marks of a job that has no grant, and is deleted when it is
//! listed.

mod calls;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, Wanted};
use gantry_reconcile::{Change, Fact, Inquiry, Key, Kind, Plan, World};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ledger::{Grant, Ledger, Lot};
use crate::marks::{self, Marks};
use crate::reason::Reason;
use crate::settings::PoolKind;
use crate::view::{AppWrapper, Node, is_ready, marked_nodes};

pub(crate) use calls::keep_calls;
pub use calls::{CREATE, DELETE, PROTOCOL, RESIZE};

use calls::PoolState;

/// How often the service is asked which pools there are. What the operator itself does is known from the
/// replies; this is for what others do, and each time is one request.
pub const LIST_INTERVAL: Duration = Duration::from_secs(30);
/// How long a list may take. Each of its pages has a time-out of its own.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);
/// The first pause after a list that failed. The longest is [`LIST_INTERVAL`].
const FIRST_LIST_RETRY_DELAY: Duration = Duration::from_secs(5);

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// What the service knows it by.
    pub name: String,
    /// The type of its nodes.
    pub instance_type: String,
    /// How many nodes it has; absent where the service decides that itself.
    pub replicas: Option<u32>,
    /// The labels of its nodes.
    pub labels: BTreeMap<String, String>,
}

/// All pools of the cluster, as the service listed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolListing {
    /// What the service knows the cluster by.
    pub cluster: String,
    /// The pools, by name.
    pub pools: BTreeMap<String, Pool>,
}

/// The question which pools the cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WhichPools;

impl Fact for PoolListing {
    type Subject = WhichPools;
    const NAME: &'static str = "pools";
}

/// Asks which pools the cluster has, for as long as there is anything in the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolInquiry;

impl Inquiry for PoolInquiry {
    type Fact = PoolListing;

    fn name(&self) -> &'static str {
        "pools"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<AppWrapper>(), Kind::of::<Node>()]
    }

    /// The same key for everything that is new: the question is always open. Pools of jobs that are gone are
    /// to be found, too, so it does not depend on any job.
    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let is_new = change.before::<AppWrapper>().is_none() && change.before::<Node>().is_none();
        if is_new && !change.is_removal() { vec![Key::cluster(self.name())] } else { Vec::new() }
    }

    fn wanted(&self, _: &World, _: &Key, _: Timestamp) -> Wanted<WhichPools> {
        Wanted::from_iter([WhichPools])
    }

    fn policy(&self, _: &WhichPools) -> InquiryPolicy {
        InquiryPolicy {
            refresh_interval: LIST_INTERVAL,
            timeout: LIST_TIMEOUT,
            first_retry_delay: FIRST_LIST_RETRY_DELAY,
            longest_retry_delay: LIST_INTERVAL,
            leader_only: true,
        }
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency { total: 1, per_group: 1 }
    }
}

/// Whether the pools are known. What is not known must not read as "there are none": what was bought would be
/// forgotten.
pub(crate) fn are_known(world: &World) -> bool {
    world.facts::<PoolListing>().observed(&WhichPools).is_some()
}

/// The types of the pools that were listed.
pub(crate) fn types(world: &World) -> BTreeSet<String> {
    let listing = world.facts::<PoolListing>().observed(&WhichPools);
    let pools = listing.iter().flat_map(|it| it.value.pools.values());
    pools.map(|it| it.instance_type.clone()).filter(|it| !it.is_empty()).collect()
}

/// The jobs whose pools differ between two lists.
pub(crate) fn owners_of_changed(
    before: Option<&PoolListing>,
    after: Option<&PoolListing>,
) -> BTreeSet<Key> {
    let get = |listing: Option<&PoolListing>, name: &str| -> Option<Pool> {
        listing.and_then(|it| it.pools.get(name)).cloned()
    };
    let names = before.into_iter().chain(after).flat_map(|it| it.pools.keys());
    let changed = names.map(|name| (get(before, name), get(after, name)));
    let changed = changed.filter(|(before, after)| before != after);
    changed
        .flat_map(|(before, after)| before.into_iter().chain(after))
        .filter_map(|it| owner(&it))
        .collect()
}

/// How often another name is tried when one is taken. Four digits are shared by few.
const ATTEMPTS: usize = 16;

/// A pool for a type, or a larger one.
pub(crate) fn add(
    world: &World,
    ledger: &Ledger,
    job: &Key,
    id: &str,
    kind: PoolKind,
    (instance, missing): (&str, u32),
    kept: &[Lot],
) -> Result<Vec<Lot>, Reason> {
    let instance = instance.to_owned();
    if let Some(lot) = kept.iter().find(|lot| lot.instance == instance) {
        return Ok(vec![Lot { instance, count: missing, place: lot.place.clone() }]);
    }
    let listing = world.facts::<PoolListing>().observed(&WhichPools);
    let taken = |name: &str| {
        listing.as_ref().is_some_and(|it| it.value.pools.contains_key(name))
            || ledger.at(name) > 0
            || kept.iter().any(|lot| lot.place == name)
    };
    let names =
        (0..ATTEMPTS).map(|attempt| marks::pool(job, id, &instance, attempt, kind.longest_name()));
    let mut names = names.collect::<Vec<_>>().into_iter();
    let last = names.clone().next_back().unwrap_or_default();
    match names.find(|name| !taken(name)) {
        Some(place) => Ok(vec![Lot { instance, count: missing, place }]),
        None => Err(Reason::NameTaken { kind: "pool", name: last }),
    }
}

/// Makes true what was granted. Returns how many nodes are ready.
///
/// # Errors
/// What keeps it from being made true.
pub(crate) fn provide(
    world: &World,
    job: &Key,
    grant: &Grant,
    plan: &mut Plan,
) -> Result<u32, Reason> {
    let Some(state) = PoolState::of(world, job) else { return Err(Reason::PoolsUnknown) };
    let granted = |name: &String| grant.lots.iter().any(|lot| lot.place == *name);
    for name in state.names().iter().filter(|it| !granted(it)) {
        state.remove(name, plan);
    }
    for lot in &grant.lots {
        state.provide(lot, plan)?;
    }
    let nodes = marked_nodes(world, &Marks::of(job).mine);
    let ready = nodes.iter().filter(|node| is_ready(node)).count();
    Ok(u32::try_from(ready).unwrap_or(u32::MAX))
}

/// Deletes the pools of a job. Returns whether none are left.
pub(crate) fn give_back(world: &World, job: &Key, grant: Option<&Grant>, plan: &mut Plan) -> bool {
    let Some(state) = PoolState::of(world, job) else { return false };
    let mut all_gone = true;
    for lot in grant.iter().flat_map(|it| &it.lots) {
        all_gone &= state.give_back(&lot.place, plan);
    }
    let granted = |name: &String| grant.is_some_and(|it| it.at(name) > 0);
    for name in state.names().iter().filter(|it| !granted(it)) {
        all_gone &= state.remove(name, plan);
    }
    all_gone
}

/// What there is for a job.
pub(crate) fn found(world: &World, job: &Key) -> Vec<Lot> {
    let Some(state) = PoolState::of(world, job) else { return Vec::new() };
    let lot = |name: &String| {
        let pool = state.mine(name)?;
        let count = pool.replicas.filter(|count| *count > 0)?;
        Some(Lot { instance: pool.instance_type, count, place: pool.name })
    };
    state.names().iter().filter_map(lot).collect()
}

fn is_mine(pool: &Pool, marks: &Marks) -> bool {
    pool.labels.get(&marks.mine) == Some(&marks.mine)
}

/// The job that a pool was made for, if its labels tell.
pub(crate) fn owner(pool: &Pool) -> Option<Key> {
    let namespace = pool.labels.get(NAMESPACE)?;
    let names = pool.labels.iter().filter(|(key, value)| key == value).map(|(key, _)| key);
    let mut jobs = names.map(|name| Key::new(namespace, name));
    jobs.find(|job| pool.labels.contains_key(&Marks::of(job).mine))
}

/// The label of a pool that says where the job is that it was made for.
const NAMESPACE: &str = "instascale.codeflare.dev-namespace";

/// The pool that a lot stands for.
fn pool_of(job: &Key, lot: &Lot) -> Pool {
    let marks = Marks::of(job);
    let labels = marks.labels().into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut labels: BTreeMap<String, String> = labels.collect();
    labels.insert(NAMESPACE.to_owned(), job.namespace().to_owned());
    Pool {
        name: lot.place.clone(),
        instance_type: lot.instance.clone(),
        replicas: Some(lot.count),
        labels,
    }
}
