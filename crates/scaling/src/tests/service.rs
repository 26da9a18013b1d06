//! The service that has the pools of a managed cluster, and what must always hold of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use gantry_harness::{Action, Asking, Edge, Invariant, Outside, Scenario, Server};
use gantry_reconcile::{
    Call, Change, Controller, FactChange, FactKind, Key, Kind, Plan, Refusal, Reply, Resource,
    View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::models::{self, delete, ledger};
use crate::ledger::Grant;
use crate::pool::{CREATE, DELETE, PROTOCOL, Pool, PoolInquiry, PoolListing, RESIZE, WhichPools};
use crate::view::{ConfigMap, Node};

/// The label of a pool that says where its job is.
pub(super) const NAMESPACE_LABEL: &str = "instascale.codeflare.dev-namespace";

/// The pools as they really are. As the real service, it refuses a second pool of a name and has no other
/// fence. Clones are the same: the one that makes nodes of them is no process of ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Service(Arc<Mutex<BTreeMap<String, Pool>>>);

impl Service {
    pub(super) fn pools(&self) -> MutexGuard<'_, BTreeMap<String, Pool>> {
        self.0.lock().unwrap()
    }
}

impl Edge for Service {
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
            other => panic!("nobody can {other} a pool"),
        }
    }
}

pub(super) fn service(server: &Server) -> &Service {
    server.edge(PROTOCOL)
}

/// A pool that is nobody's.
pub(super) fn foreign() -> Pool {
    Pool {
        name: "worker".to_owned(),
        instance_type: "m5.xlarge".to_owned(),
        replicas: Some(3),
        labels: [("tier".to_owned(), "gold".to_owned())].into(),
    }
}

static LISTS_POOLS: Asking<PoolInquiry> = Asking {
    inquiry: PoolInquiry,
    answer: |server, WhichPools| {
        let pools = service(server).pools().clone();
        Ok(PoolListing { cluster: "cluster".to_owned(), pools })
    },
};

/// A managed cluster with one pool, in which no more than so many nodes may be bought.
pub(super) fn managed<'a>(
    controllers: &'a [&'a dyn Controller],
    service: &Service,
    objects: Vec<(Resource, Value)>,
    script: Vec<Action>,
    most: u32,
) -> Scenario<'a> {
    let service = service.clone();
    let service = move || -> Box<dyn Edge> {
        *service.pools() = [("worker".to_owned(), foreign())].into();
        Box::new(service.clone())
    };
    Scenario {
        outside: Outside {
            edges: vec![(PROTOCOL, Box::new(service))],
            inquiries: vec![&LISTS_POOLS],
            always: vec![granted_before(most)],
            ..Outside::default()
        },
        ..models::scenario(controllers, objects, script)
    }
}

/// What a state of the ledger grants, by pool.
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

/// The pools that were bought, and how many nodes each has.
fn bought(server: &Server) -> Vec<(String, u32)> {
    let pools = service(server).pools();
    let bought = pools.values().filter(|it| it.name != "worker");
    bought.map(|it| (it.name.clone(), it.replicas.unwrap_or_default())).collect()
}

/// Whatever arrives, and however late: a pool was granted before it was bought, it never has more nodes than
/// were once granted for it, and the ledger never grants more than is allowed.
fn granted_before(most: u32) -> Invariant<'static> {
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

/// At this moment no pool has more nodes than the ledger grants.
pub(super) fn within_ledger() -> Invariant<'static> {
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

/// Makes the nodes of pools, as the cloud does: it knows what there really is.
pub(super) struct PoolNodes(pub(super) Service);

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
        for node in world.shelf::<Node>().all() {
            let mine = node.metadata.annotations.get("pool").is_some_and(|it| it == key.name());
            if mine && !names.contains(&node.metadata.name) {
                plan.write(delete::<Node>(&node.metadata));
            }
        }
        let Some(pool) = pool else { return plan };
        for name in names {
            if world.shelf::<Node>().get(&Key::cluster(&name)).is_none() {
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
