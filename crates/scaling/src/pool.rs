//! Pools of a managed cluster: one for each type a job needs, deleted as a whole.
//!
//! Pools are no API objects. [`PoolInquiry`] lists them, and the list is a fact, [`PoolListing`].
//! Plans create, resize and delete pools by calls, which [`effects`](crate::effects) carries out.
//!
//! The service has no fencing for old requests. This makes it safe to send a request twice, late,
//! or from two processes that both believe they lead:
//!
//! - The name of a pool is derived from the grant record. The service refuses a second pool of a
//!   name, and an existing one that is like it counts as created. So each type of a grant is bought
//!   once.
//! - A pool is resized to a number of nodes, and not by one.
//! - The reply to a call counts until the pools are listed by a request that was sent after it: an
//!   older list may lack it. Replies do not survive the process; the next one lists the pools
//!   first.
//! - A call in flight is not given up: its outcome is known before the next one is sent.
//! - What was granted is always released by a call, whether or not it is listed: a request whose
//!   reply was lost may have been carried out after the list was made.
//!
//! One case remains: a request to create a pool may arrive after the pool was deleted, when its
//! sender died or lost the connection. Such a pool has the labels of a job without a grant, and is
//! deleted when it is listed.

mod calls;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, WantedQuestions};
use gantry_reconcile::{Change, Fact, Inquiry, Key, Kind, Plan, World};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::grant_record::{Grant, GrantRecord, NodeAllocation};
use crate::owner_labels::{self, OwnerLabels};
use crate::reason::Reason;
use crate::settings::PoolKind;
use crate::view::{AppWrapper, Node, is_ready, labelled_nodes};

pub(crate) use calls::keep_calls;
pub use calls::{CREATE, DELETE, PROTOCOL, RESIZE};

use calls::PoolState;

/// How often the pools are listed. The operator's own changes are known from the replies; this is
/// for changes by others, and each listing is one request.
pub const LIST_INTERVAL: Duration = Duration::from_secs(30);
/// How long a listing may take. Each of its pages has a timeout of its own.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);
/// The first delay after a failed listing. The longest is [`LIST_INTERVAL`].
const FIRST_LIST_RETRY_DELAY: Duration = Duration::from_secs(5);

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// Its identifier at the service.
    pub name: String,
    /// The type of its nodes.
    pub instance_type: String,
    /// The number of its nodes; absent where the service autoscales it.
    pub replicas: Option<u32>,
    /// The labels of its nodes.
    pub labels: BTreeMap<String, String>,
}

/// All pools of the cluster, as the service listed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolListing {
    /// The identifier of the cluster at the service.
    pub cluster: String,
    /// The pools, by name.
    pub pools: BTreeMap<String, Pool>,
}

/// The question which pools the cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolQuery;

impl Fact for PoolListing {
    type Subject = PoolQuery;
    const NAME: &'static str = "pools";
}

/// Lists the pools of the cluster, for as long as there is any object in the cluster.
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

    /// Returns the same key for every change: the question is always open. Pools of deleted jobs
    /// are to be found, too, so it does not depend on any job.
    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let is_new = change.before::<AppWrapper>().is_none() && change.before::<Node>().is_none();
        if is_new && !change.is_removal() { vec![Key::cluster(self.name())] } else { Vec::new() }
    }

    fn wanted_questions(&self, _: &World, _: &Key, _: Timestamp) -> WantedQuestions<PoolQuery> {
        WantedQuestions::from_iter([PoolQuery])
    }

    fn policy(&self, _: &PoolQuery) -> InquiryPolicy {
        InquiryPolicy {
            refresh_interval: LIST_INTERVAL,
            timeout: LIST_TIMEOUT,
            first_retry_delay: FIRST_LIST_RETRY_DELAY,
            max_retry_delay: LIST_INTERVAL,
            leader_only: true,
        }
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency { total: 1, per_group: 1 }
    }
}

/// Returns whether the pools are known. Unknown must not read as "there are none": what was bought
/// would be forgotten.
pub(crate) fn are_listed(world: &World) -> bool {
    world.facts::<PoolListing>().observed(&PoolQuery).is_some()
}

/// Returns the types of the listed pools.
pub(crate) fn listed_types(world: &World) -> BTreeSet<String> {
    let listing = world.facts::<PoolListing>().observed(&PoolQuery);
    let pools = listing.iter().flat_map(|it| it.value.pools.values());
    pools.map(|it| it.instance_type.clone()).filter(|it| !it.is_empty()).collect()
}

/// Returns the jobs whose pools differ between two lists.
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

/// How often another name is tried when one is taken. Few pools share four digits.
const MAX_NAME_ATTEMPTS: usize = 16;

/// Allocates a pool for a type, or enlarges one.
pub(crate) fn allocate(
    world: &World,
    ledger: &GrantRecord,
    job: &Key,
    id: &str,
    kind: PoolKind,
    (instance, missing): (&str, u32),
    kept: &[NodeAllocation],
) -> Result<Vec<NodeAllocation>, Reason> {
    let instance = instance.to_owned();
    if let Some(lot) = kept.iter().find(|lot| lot.instance == instance) {
        return Ok(vec![NodeAllocation { instance, count: missing, place: lot.place.clone() }]);
    }
    let listing = world.facts::<PoolListing>().observed(&PoolQuery);
    let taken = |name: &str| {
        listing.as_ref().is_some_and(|it| it.value.pools.contains_key(name))
            || ledger.granted_from(name) > 0
            || kept.iter().any(|lot| lot.place == name)
    };
    let names = (0..MAX_NAME_ATTEMPTS).map(|attempt| {
        owner_labels::pool_name(job, id, &instance, attempt, kind.max_name_length())
    });
    let mut names = names.collect::<Vec<_>>().into_iter();
    let last = names.clone().next_back().unwrap_or_default();
    match names.find(|name| !taken(name)) {
        Some(place) => Ok(vec![NodeAllocation { instance, count: missing, place }]),
        None => Err(Reason::NameTaken { kind: "pool", name: last }),
    }
}

/// Provisions what was granted. Returns how many nodes are ready.
///
/// # Errors
/// Fails with what prevents that.
pub(crate) fn provide(
    world: &World,
    job: &Key,
    grant: &Grant,
    plan: &mut Plan,
) -> Result<u32, Reason> {
    let Some(state) = PoolState::of(world, job) else { return Err(Reason::PoolsUnknown) };
    let granted = |name: &String| grant.lots.iter().any(|lot| lot.place == *name);
    for name in state.names().iter().filter(|it| !granted(it)) {
        state.delete_ungranted(name, plan);
    }
    for lot in &grant.lots {
        state.provide(lot, plan)?;
    }
    let nodes = labelled_nodes(world, &OwnerLabels::of(job).owner_label);
    let ready = nodes.iter().filter(|node| is_ready(node)).count();
    Ok(u32::try_from(ready).unwrap_or(u32::MAX))
}

/// Deletes the pools of a job. Returns whether none are left.
pub(crate) fn release(world: &World, job: &Key, grant: Option<&Grant>, plan: &mut Plan) -> bool {
    let Some(state) = PoolState::of(world, job) else { return false };
    let mut all_gone = true;
    for lot in grant.iter().flat_map(|it| &it.lots) {
        all_gone &= state.release(&lot.place, plan);
    }
    let granted = |name: &String| grant.is_some_and(|it| it.count_from(name) > 0);
    for name in state.names().iter().filter(|it| !granted(it)) {
        all_gone &= state.delete_ungranted(name, plan);
    }
    all_gone
}

/// Returns what exists for a job.
pub(crate) fn existing(world: &World, job: &Key) -> Vec<NodeAllocation> {
    let Some(state) = PoolState::of(world, job) else { return Vec::new() };
    let lot = |name: &String| {
        let pool = state.owned_pool(name)?;
        let count = pool.replicas.filter(|count| *count > 0)?;
        Some(NodeAllocation { instance: pool.instance_type, count, place: pool.name })
    };
    state.names().iter().filter_map(lot).collect()
}

fn is_owned(pool: &Pool, marks: &OwnerLabels) -> bool {
    pool.labels.get(&marks.owner_label) == Some(&marks.owner_label)
}

/// Returns the job that a pool was created for, by its labels.
pub(crate) fn owner(pool: &Pool) -> Option<Key> {
    let namespace = pool.labels.get(NAMESPACE_LABEL)?;
    let names = pool.labels.iter().filter(|(key, value)| key == value).map(|(key, _)| key);
    let mut jobs = names.map(|name| Key::new(namespace, name));
    jobs.find(|job| pool.labels.contains_key(&OwnerLabels::of(job).owner_label))
}

/// The label of a pool with the namespace of its job.
const NAMESPACE_LABEL: &str = "instascale.codeflare.dev-namespace";

/// Returns the pool for an allocation.
fn desired_pool(job: &Key, lot: &NodeAllocation) -> Pool {
    let marks = OwnerLabels::of(job);
    let labels = marks.labels().into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut labels: BTreeMap<String, String> = labels.collect();
    labels.insert(NAMESPACE_LABEL.to_owned(), job.namespace().to_owned());
    Pool {
        name: lot.place.clone(),
        instance_type: lot.instance.clone(),
        replicas: Some(lot.count),
        labels,
    }
}
