//! Models of the environment of the controller: the queue, the machine API, the cloud and the
//! kubelets.

use std::time::Duration;

use gantry_harness::{Failure, Faults, FinalState, Scenario, Server, UserAction};
use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Change, Controller, Fence, Key, Kind, Plan, Propagation, Resource, Subresource, View, World,
    Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::demand::{Demand, is_pending, waits_for_capacity};
use crate::owner_labels::{OwnerLabels, RETURNED_ANNOTATION};
use crate::settings::{Backend, Limits, Settings};
use crate::view::{
    AppWrapper, ConfigMap, Machine, MachineSet, Node, ORDERED_INSTANCE_LABEL, SET_LABEL,
};
use crate::view::{is_ready, labelled_nodes};
use crate::{Scaling, view};

pub(super) use gantry_harness::Kubelet;

pub(super) const NAMESPACE: &str = "openshift-machine-api";

pub(super) fn settings(backend: Backend, nodes: u32) -> Settings {
    Settings {
        limits: Limits {
            max_nodes: nodes,
            provision_timeout: Duration::from_secs(1200),
            cooldown: Duration::ZERO,
        },
        backend,
        grant_record: ledger(),
    }
}

pub(super) fn ledger() -> Key {
    Key::new("gantry", "ledger")
}

pub(super) fn scaling(backend: Backend, nodes: u32) -> Scaling {
    Scaling::new(settings(backend, nodes))
}

/// Returns a job that is pending for lack of resources.
pub(super) fn job(name: &str, types: &str, replicas: &[i64]) -> (Resource, Value) {
    let pods: Vec<Value> =
        replicas.iter().map(|count| json!({"replicas": count, "requests": {"cpu": 1}})).collect();
    let object = json!({
        "metadata": {"name": name, "namespace": "n", "labels": {ORDERED_INSTANCE_LABEL: types}},
        "spec": {"resources": {"GenericItems": [{"custompodresources": pods}]}},
    });
    (AppWrapper::RESOURCE, object)
}

pub(super) fn key(name: &str) -> Key {
    Key::new("n", name)
}

pub(super) const NO_CAPACITY_MESSAGE: &str = "Insufficient resources to dispatch AppWrapper.";

pub(super) fn set(name: &str, instance: &str, replicas: i64) -> (Resource, Value) {
    let labels = json!({
        "machine.openshift.io/cluster-api-cluster": "cluster-x",
        SET_LABEL: name,
    });
    let object = json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "labels": {"machine.openshift.io/cluster-api-cluster": "cluster-x"},
            "annotations": {"base": replicas.to_string(), "unknown": "kept"},
        },
        "spec": {
            "replicas": replicas,
            "deletePolicy": "Random",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"providerSpec": {"value": {"instanceType": instance, "ami": "x"}}},
            },
        },
    });
    (MachineSet::RESOURCE, object)
}

pub(super) fn set_key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

/// Reports every job as lacking capacity; runs it when its nodes are ready, and ends it after that.
pub(super) struct Queue {
    /// Whether running jobs come to an end.
    pub(super) ends: bool,
}

impl Controller for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<AppWrapper>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        match change.is::<AppWrapper>() {
            true => vec![change.key.clone()],
            false => {
                world.store::<AppWrapper>().list().iter().map(|it| it.metadata.key()).collect()
            }
        }
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(job) = world.store::<AppWrapper>().get(key) else { return plan };
        if job.metadata.is_terminating() {
            return plan;
        }
        let nodes = labelled_nodes(world, &OwnerLabels::of(key).owner_label);
        let there = nodes.iter().filter(|it| is_ready(it)).count();
        let wanted = Demand::of(&job).map_or(0, |it| it.total());
        let status = if job.state().is_none() {
            json!({"state": "Pending", "conditions": [
                {"type": "Backoff", "status": "True", "message": NO_CAPACITY_MESSAGE,
                 "lastUpdateMicroTime": "2026-01-01T00:00:00.000001Z"},
            ]})
        } else if is_pending(&job) && waits_for_capacity(&job) && there >= wanted as usize {
            json!({"state": "Running"})
        } else if self.ends && !is_pending(&job) && !job.has_ended() {
            json!({"state": "Completed"})
        } else {
            return plan;
        };
        plan.write(Write::Merge {
            resource: AppWrapper::RESOURCE,
            key: key.clone(),
            subresource: Subresource::Status,
            fence: job.metadata.fence(),
            body: json!({ "status": status }),
        });
        plan
    }
}

/// Creates machines as sets want them and nodes for machines, and deletes them in the right order.
pub(super) struct MachineApi {
    /// The most machines there may ever be beyond those at the start.
    pub(super) most: i64,
    /// Whether machines ever come into use.
    pub(super) works: bool,
}

impl MachineApi {
    pub(super) fn new(most: i64) -> Self {
        Self { most, works: true }
    }
}

impl Controller for MachineApi {
    fn name(&self) -> &'static str {
        "machine-api"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<MachineSet>(), Kind::of::<Machine>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let sets = change.both::<MachineSet>().map(|it| it.metadata.key());
        let of = |it: &Machine| {
            Some(Key::new(&it.metadata.namespace, it.metadata.labels.get(SET_LABEL)?))
        };
        let machines = change.both::<Machine>().filter_map(of);
        let mut keys: Vec<Key> = sets.chain(machines).collect();
        let nodes = change.both::<Node>().filter_map(|it| it.metadata.annotations.get("set"));
        keys.extend(nodes.filter_map(|it| crate::owner_labels::parse_owner(it)));
        keys
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let sets = world.store::<MachineSet>().list();
        let bought: i64 =
            sets.iter().map(|it| it.replicas() - base(&it.metadata.annotations)).sum();
        assert!(bought <= self.most, "{bought} machines were bought, more than {}", self.most);
        let machines = crate::machine_set::machines(world, key);
        let nodes = world.store::<Node>();
        for node in nodes.list() {
            let of_set = node.metadata.annotations.get("set") == Some(&key.to_string());
            let alive = machines.iter().any(|it| it.metadata.name == node.metadata.name);
            if of_set && !alive {
                plan.write(delete::<Node>(&node.metadata));
            }
        }
        let Some(set) = world.store::<MachineSet>().get(key) else { return plan };
        let wanted = usize::try_from(set.replicas()).unwrap();
        if machines.len() > wanted {
            let mut going: Vec<_> = machines.iter().collect();
            going.sort_by_key(|it| (!it.is_deleted_first(), it.is_running()));
            for machine in going.into_iter().take(machines.len() - wanted) {
                plan.write(delete::<Machine>(&machine.metadata));
            }
        }
        let mut number = 0;
        let mut missing = wanted.saturating_sub(machines.len());
        while missing > 0 {
            let name = format!("{}-{number}", key.name());
            number += 1;
            if machines.iter().any(|it| it.metadata.name == name) {
                continue;
            }
            missing -= 1;
            let mut labels = set.spec["template"]["metadata"]["labels"].clone();
            labels[SET_LABEL] = json!(key.name());
            plan.write(Write::Create {
                resource: Machine::RESOURCE,
                body: json!({"metadata": {
                    "name": name, "namespace": key.namespace(), "labels": labels,
                    "ownerReferences": [controller_reference(&MachineSet::RESOURCE, &set.metadata)],
                }}),
            });
        }
        for machine in machines.iter().filter(|_| self.works) {
            let name = &machine.metadata.name;
            if nodes.get(&Key::cluster(name)).is_none() {
                plan.write(Write::Create {
                    resource: Node::RESOURCE,
                    body: json!({"metadata": {"name": name, "annotations": {"set": key.to_string()}}}),
                });
            } else if !machine.is_running() {
                let status = json!({"phase": "Running", "nodeRef": {"name": name}});
                plan.write(status_of::<Machine>(&machine.metadata, &status));
            }
        }
        let count = i64::try_from(machines.len()).unwrap();
        let settled = view::MachineSetStatus {
            replicas: count,
            observed_generation: set.metadata.generation,
        };
        if set.status != settled {
            let status = json!({"replicas": count, "observedGeneration": set.metadata.generation});
            plan.write(status_of::<MachineSet>(&set.metadata, &status));
        }
        plan
    }
}

fn base(annotations: &std::collections::BTreeMap<String, String>) -> i64 {
    annotations.get("base").map_or(0, |it| it.parse().unwrap())
}

fn status_of<V: View>(meta: &gantry_reconcile::Meta, status: &Value) -> Write {
    Write::Merge {
        resource: V::RESOURCE,
        key: meta.key(),
        subresource: Subresource::Status,
        fence: meta.fence(),
        body: json!({ "status": status }),
    }
}

pub(super) fn delete<V: View>(meta: &gantry_reconcile::Meta) -> Write {
    Write::Delete {
        resource: V::RESOURCE,
        key: meta.key(),
        fence: Fence { uid: meta.uid.clone(), revision: None },
        grace: None,
        propagation: None,
    }
}

/// Fills in that there was too little capacity for a job before the run began.
pub(super) fn queued(resource: &Resource, object: &mut Value) {
    if *resource == AppWrapper::RESOURCE && object["status"].is_null() {
        let label = object["metadata"]["labels"]["priority"].as_str().unwrap_or("0");
        let priority: f64 = label.parse().unwrap();
        object["status"] = json!({
            "state": "Pending", "systempriority": priority,
            "conditions": [{"type": "Backoff", "status": "True", "message": NO_CAPACITY_MESSAGE}],
        });
    }
}

pub(super) fn scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Vec<(Resource, Value)>,
    script: Vec<UserAction>,
) -> Scenario<'a> {
    let horizon = Duration::from_secs(600);
    Scenario {
        controllers,
        defaults: |_, _| {},
        objects,
        script,
        replicas: 1,
        horizon,
        ..Scenario::default()
    }
}

pub(super) fn removes(name: &'static str) -> UserAction {
    Box::new(move |server: &mut Server| {
        server.delete(&AppWrapper::RESOURCE, &key(name), Propagation::Background);
    })
}

pub(super) fn state(name: &'static str, state: &'static str) -> UserAction {
    Box::new(move |server: &mut Server| {
        server.edit(&AppWrapper::RESOURCE, &key(name), |it| it["status"]["state"] = json!(state));
    })
}

/// Returns the jobs, what was granted, and everything that was bought.
pub(super) fn final_state(server: &Server) -> Value {
    let jobs = server.list(&AppWrapper::RESOURCE).into_iter().map(|it| {
        // Some jobs had to wait, and some were never held: the rest of the state is the same.
        let left = |field: &str| {
            let value = &it["metadata"][field];
            let empty = *value == json!([]) || *value == json!({});
            if empty { Value::Null } else { value.clone() }
        };
        let (finalizers, annotations) = (left("finalizers"), left("annotations"));
        json!([it["metadata"]["name"], it["status"]["state"], finalizers, annotations])
    });
    let sets = server.list(&MachineSet::RESOURCE).into_iter().map(|it| {
        let mut annotations = it["metadata"]["annotations"].clone();
        // The order in which they were released differs.
        annotations.as_object_mut().unwrap().remove(RETURNED_ANNOTATION);
        json!([
            it["metadata"]["name"],
            it["spec"]["replicas"],
            it["metadata"]["labels"],
            annotations
        ])
    });
    let granted = server.get(&ConfigMap::RESOURCE, &ledger()).map(|it| {
        let entries = it["data"].as_object().into_iter().flatten();
        entries.map(|(entry, _)| entry.clone()).collect::<Vec<_>>()
    });
    json!({
        "jobs": jobs.collect::<Vec<_>>(),
        "sets": sets.collect::<Vec<_>>(),
        "granted": granted.unwrap_or_default(),
        "machines": server.list(&Machine::RESOURCE).len(),
        "nodes": server.list(&Node::RESOURCE).len(),
    })
}

/// Returns the final state of a run without faults.
pub(super) fn final_state_without_faults(scenario: &Scenario<'_>) -> FinalState {
    match scenario.run(1, Faults::none()) {
        Ok(ending) => {
            assert!(ending.writes_after_restart.is_empty(), "{:#?}", ending.writes_after_restart);
            ending
        }
        Err(failure) => panic!("{failure}"),
    }
}

pub(super) fn proven(proof: Result<(), Box<Failure>>) {
    if let Err(failure) = proof {
        panic!("{failure}");
    }
}

/// Returns a field of an existing object.
pub(super) fn field(server: &Server, resource: &Resource, key: &Key, path: &str) -> Value {
    let object = server.get(resource, key).unwrap_or_else(|| panic!("{resource} {key} is gone"));
    object.pointer(path).cloned().unwrap_or_default()
}
