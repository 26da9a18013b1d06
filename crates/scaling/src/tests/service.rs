//! The service that has the pools of a managed cluster, and its invariants.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use gantry_harness::{
    ExternalSystems, Invariant, Scenario, Server, SimulatedInquiry, SimulatedPeer, UserAction,
};
use gantry_reconcile::{
    Call, Change, Controller, FactChange, FactKind, Key, Kind, Plan, Refusal, Reply, Resource,
    View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::models::{self, delete, ledger};
use crate::grant_record::Grant;
use crate::pool::{CREATE, DELETE, PROTOCOL, Pool, PoolInquiry, PoolListing, PoolQuery, RESIZE};
use crate::view::{ConfigMap, Node};

/// The label of a pool with the namespace of its job.
pub(super) const NAMESPACE_LABEL: &str = "instascale.codeflare.dev-namespace";

/// The pools as they really are. Like the real service, it refuses a second pool of a name and has
/// no other fence. Clones share one state: the model that creates their nodes is no process of
/// ours.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolService(Arc<Mutex<BTreeMap<String, Pool>>>);

impl PoolService {
    pub(super) fn pools(&self) -> MutexGuard<'_, BTreeMap<String, Pool>> {
        self.0.lock().unwrap()
    }
}

impl SimulatedPeer for PoolService {
    fn call(&mut self, call: &Call, _: Timestamp) -> Reply {
        let name = &call.target.address;
        assert_eq!(call.target.uid.as_str(), "cluster");
        let refused = |code, reason: &str| {
            let message = format!("pool {name:?} may not be made");
            Reply::Refused(Refusal { code, reason: reason.to_owned(), message })
        };
        match call.purpose {
            CREATE => {
                let pool: Pool = serde_json::from_value(call.request.clone()).unwrap();
                assert_eq!(pool.name, *name);
                if pool.instance_type == "refused" {
                    return refused(403, "Forbidden");
                }
                let mut pools = self.pools();
                let there = pools.entry(name.clone()).or_insert_with(|| pool.clone());
                let alike = |it: &Pool| (it.instance_type.clone(), it.labels.clone());
                match alike(there) == alike(&pool) {
                    true => Reply::Done(json!(there)),
                    false => refused(409, "AlreadyExists"),
                }
            }
            RESIZE => {
                let replicas = call.request["replicas"].as_u64().unwrap();
                let mut pools = self.pools();
                let Some(pool) = pools.get_mut(name) else { return Reply::Done(Value::Null) };
                pool.replicas = u32::try_from(replicas).ok();
                Reply::Done(json!(pool))
            }
            DELETE => {
                self.pools().remove(name);
                Reply::Done(Value::Null)
            }
            other => panic!("{other:?} is not an operation on pools"),
        }
    }
}

pub(super) fn service(server: &Server) -> &PoolService {
    server.peer(PROTOCOL)
}

/// Returns a pool that belongs to no job.
pub(super) fn foreign() -> Pool {
    Pool {
        name: "worker".to_owned(),
        instance_type: "m5.xlarge".to_owned(),
        replicas: Some(3),
        labels: [("tier".to_owned(), "gold".to_owned())].into(),
    }
}

static POOL_LISTING: SimulatedInquiry<PoolInquiry> = SimulatedInquiry {
    inquiry: PoolInquiry,
    answer: |server, PoolQuery| {
        let pools = service(server).pools().clone();
        Ok(PoolListing { cluster: "cluster".to_owned(), pools })
    },
};

/// Returns a managed cluster with one pool, in which no more than this many nodes may be bought.
pub(super) fn managed<'a>(
    controllers: &'a [&'a dyn Controller],
    service: &PoolService,
    objects: Vec<(Resource, Value)>,
    script: Vec<UserAction>,
    most: u32,
) -> Scenario<'a> {
    let service = service.clone();
    let service = move || -> Box<dyn SimulatedPeer> {
        *service.pools() = [("worker".to_owned(), foreign())].into();
        Box::new(service.clone())
    };
    Scenario {
        external: ExternalSystems {
            peers: vec![(PROTOCOL, Box::new(service))],
            inquiries: vec![&POOL_LISTING],
            invariants: vec![never_beyond_grants(most)],
            ..ExternalSystems::default()
        },
        ..models::scenario(controllers, objects, script)
    }
}

/// Returns what a state of the grant record grants, by pool.
fn grants(ledger: &Value) -> BTreeMap<String, u32> {
    let mut grants: BTreeMap<String, u32> = BTreeMap::new();
    for text in ledger["data"].as_object().into_iter().flatten().map(|(_, it)| it) {
        let grant: Grant = serde_json::from_str(text.as_str().unwrap()).unwrap();
        for lot in grant.lots {
            *grants.entry(lot.place).or_default() += lot.count;
        }
    }
    grants
}

/// Returns the bought pools, and how many nodes each has.
fn bought(server: &Server) -> Vec<(String, u32)> {
    let pools = service(server).pools();
    let bought = pools.values().filter(|it| it.name != "worker");
    bought.map(|it| (it.name.clone(), it.replicas.unwrap_or_default())).collect()
}

/// Whatever requests arrive, and however late: a pool was granted before it was bought, it never
/// has more nodes than were once granted for it, and the grant record never grants more than is
/// allowed.
fn never_beyond_grants(most: u32) -> Invariant<'static> {
    let check = move |server: &Server| {
        let mut ever: BTreeMap<String, u32> = BTreeMap::new();
        for (text, _) in server.history(&ConfigMap::RESOURCE) {
            let grants = grants(&serde_json::from_str(text).unwrap());
            let total: u32 = grants.values().sum();
            if total > most {
                return Err(format!("{total} nodes are granted"));
            }
            for (place, count) in grants {
                let largest = ever.entry(place).or_default();
                *largest = count.max(*largest);
            }
        }
        for (name, count) in bought(server) {
            let largest = ever.get(&name).copied().unwrap_or_default();
            if count > largest {
                return Err(format!("{name} has {count} nodes, and {largest} were granted"));
            }
        }
        Ok(())
    };
    Invariant { name: "nothing is bought that was never granted", check: Box::new(check) }
}

/// At this moment no pool has more nodes than the grant record grants.
pub(super) fn within_grant_record() -> Invariant<'static> {
    let check = |server: &Server| {
        let now = server.get(&ConfigMap::RESOURCE, &ledger()).map(grants).unwrap_or_default();
        for (name, count) in bought(server) {
            let granted = now.get(&name).copied().unwrap_or_default();
            if count > granted {
                return Err(format!("{name} has {count} nodes, and {granted} are granted"));
            }
        }
        Ok(())
    };
    Invariant { name: "no more nodes than granted", check: Box::new(check) }
}

/// Creates the nodes of pools, as the cloud does: it knows the real pools.
pub(super) struct PoolNodes(pub(super) PoolService);

impl Controller for PoolNodes {
    fn name(&self) -> &'static str {
        "pool-nodes"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>()]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<PoolListing>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let nodes = change.both::<Node>().filter_map(|it| it.metadata.annotations.get("pool"));
        nodes.map(|it| Key::cluster(it)).collect()
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let change = change.of::<PoolListing>().unwrap();
        let both = [change.before, change.after].into_iter().flatten().filter_map(|it| it.value());
        both.flat_map(|it| it.pools.keys()).map(|it| Key::cluster(it)).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let pool = self.0.pools().get(key.name()).filter(|it| it.name != "worker").cloned();
        let wanted = pool.as_ref().and_then(|it| it.replicas).unwrap_or_default();
        let names: Vec<String> = (0..wanted).map(|it| format!("{}-{it}", key.name())).collect();
        for node in world.store::<Node>().list() {
            let mine = node.metadata.annotations.get("pool").is_some_and(|it| it == key.name());
            if mine && !names.contains(&node.metadata.name) {
                plan.write(delete::<Node>(&node.metadata));
            }
        }
        let Some(pool) = pool else { return plan };
        for name in names {
            if world.store::<Node>().get(&Key::cluster(&name)).is_none() {
                plan.write(Write::Create {
                    resource: Node::RESOURCE,
                    body: json!({"metadata": {
                        "name": name,
                        "labels": pool.labels,
                        "annotations": {"pool": key.name()},
                    }}),
                });
            }
        }
        plan
    }
}
