//! Pools of a managed cluster: one for each type a job needs, deleted as a whole.
//!
//! No API server knows of them. Who can see them puts them on their shelf, and says so with
//! [`Polled`]; what is written to them is carried out by [`effects`](crate::effects).

use std::sync::Arc;

use gantry_reconcile::{Key, Meta, Plan, Resource, View, World, Write};
use serde::Deserialize;
use serde_json::json;

use crate::ledger::{Grant, Ledger, Lot};
use crate::machine_set::merge;
use crate::marks::{self, Marks};
use crate::reason::Reason;
use crate::settings::PoolKind;
use crate::view::{is_ready, marked_nodes};

/// A pool. Its labels are those of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// Its name is what the service knows it by.
    pub metadata: Meta,
    /// The type of its nodes.
    pub instance_type: String,
    /// How many nodes it has; absent where the service decides that itself.
    pub replicas: Option<u32>,
}

impl View for Pool {
    /// A kind that no API server serves.
    const RESOURCE: Resource =
        Resource::namespaced("clusters-mgmt.gantry.dev", "v1", "pools", "Pool")
            .cluster_wide()
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// That the pools are known. Without it an empty shelf would read as "there are none", and what was
/// bought would be forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Polled {
    /// Its name is [`Polled::NAME`].
    pub metadata: Meta,
}

impl Polled {
    /// The name of the only one there is.
    pub const NAME: &'static str = "pools";
}

impl View for Polled {
    /// A kind that no API server serves.
    const RESOURCE: Resource =
        Resource::namespaced("clusters-mgmt.gantry.dev", "v1", "polls", "Poll")
            .cluster_wide()
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Whether the pools are known.
pub(crate) fn are_known(world: &World) -> bool {
    world.shelf::<Polled>().get(&Key::cluster(Polled::NAME)).is_some()
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
    let taken = |name: &str| {
        world.shelf::<Pool>().get(&Key::cluster(name)).is_some()
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
    let marks = Marks::of(job);
    for pool in pools(world, &marks) {
        if !grant.lots.iter().any(|lot| lot.place == pool.metadata.name) {
            remove(&pool, plan);
        }
    }
    for lot in &grant.lots {
        let key = Key::cluster(&lot.place);
        match world.shelf::<Pool>().get(&key) {
            None => {
                plan.write(Write::Create {
                    resource: Pool::RESOURCE,
                    body: body(job, lot, &marks),
                });
            }
            Some(pool) if !is_mine(&pool, &marks) => {
                let name = lot.place.clone();
                return Err(Reason::NameTaken { kind: "pool", name });
            }
            Some(pool) if pool.replicas != Some(lot.count) => {
                let body = json!({"replicas": lot.count});
                plan.write(merge(Pool::RESOURCE, key, pool.metadata.fence(), body));
            }
            Some(_) => {}
        }
    }
    let nodes = marked_nodes(world, &marks.mine);
    let ready = nodes.iter().filter(|node| is_ready(node)).count();
    Ok(u32::try_from(ready).unwrap_or(u32::MAX))
}

/// Deletes the pools of a job. Returns whether none are left.
pub(crate) fn give_back(world: &World, job: &Key, plan: &mut Plan) -> bool {
    let pools = pools(world, &Marks::of(job));
    pools.iter().for_each(|pool| remove(pool, plan));
    pools.is_empty()
}

/// What there is for a job.
pub(crate) fn found(world: &World, job: &Key) -> Vec<Lot> {
    let lot = |pool: Arc<Pool>| {
        let count = pool.replicas.filter(|count| *count > 0)?;
        let (instance, place) = (pool.instance_type.clone(), pool.metadata.name.clone());
        Some(Lot { instance, count, place })
    };
    pools(world, &Marks::of(job)).into_iter().filter_map(lot).collect()
}

fn pools(world: &World, marks: &Marks) -> Vec<Arc<Pool>> {
    let mut pools = world.shelf::<Pool>().all();
    pools.retain(|pool| is_mine(pool, marks));
    pools
}

fn is_mine(pool: &Pool, marks: &Marks) -> bool {
    pool.metadata.labels.get(&marks.mine) == Some(&marks.mine)
}

/// The job that a pool was made for, if its labels tell.
pub(crate) fn owner(pool: &Pool) -> Option<Key> {
    let labels = &pool.metadata.labels;
    let namespace = labels.get(NAMESPACE)?;
    let names = labels.iter().filter(|(key, value)| key == value).map(|(key, _)| key);
    let mut jobs = names.map(|name| Key::new(namespace, name));
    jobs.find(|job| labels.contains_key(&Marks::of(job).mine))
}

/// The label of a pool that says where the job is that it was made for.
const NAMESPACE: &str = "instascale.codeflare.dev-namespace";

fn body(job: &Key, lot: &Lot, marks: &Marks) -> serde_json::Value {
    let mut labels: serde_json::Map<_, _> =
        marks.labels().into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
    labels.insert(NAMESPACE.to_owned(), json!(job.namespace()));
    json!({
        "metadata": {"name": lot.place, "labels": labels},
        "instanceType": lot.instance,
        "replicas": lot.count,
    })
}

fn remove(pool: &Pool, plan: &mut Plan) {
    plan.write(Write::Delete {
        resource: Pool::RESOURCE,
        key: pool.metadata.key(),
        fence: pool.metadata.fence(),
        grace: None,
        propagation: None,
    });
}
