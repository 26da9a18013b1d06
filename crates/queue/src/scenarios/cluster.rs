//! A simulated cluster in which items create pods, and pods are bound to nodes and run.
//!
//! Annotations of an object define its behavior, so that objects of any kind can be simulated:
//! `pods` (how many), `cpu` and `gpu` (of each), `init` (seconds before it runs), `seconds` (how
//! long it runs; for ever without), `says` (a condition it has at once), `job` (whether it is
//! complete when its pods have succeeded).

#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_harness::{
    ExternalSystems, Kubelet, KubeletNodes, KubeletPod, PodLifecycle, Scenario, Server,
    SimulatedInquiry, TestCluster,
};
use gantry_pods::Requests;
use gantry_pods::view::{Node, Phase, Pod};
use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Key, Kind, Meta, Plan, Resource, Subresource,
    View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::app_wrapper::{AppWrapper, TypeName};
use crate::kind_discovery::{KindDiscovery, ServedKind};
use crate::wrapped::WrappedObject;
use crate::{Dispatch, LiveSettings, Progress, Settings};

pub(super) const DEPLOYMENTS: Resource =
    Resource::namespaced("apps", "v1", "deployments", "Deployment");
pub(super) const SETS: Resource = Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet");
pub(super) const JOBS: Resource = Resource::namespaced("batch", "v1", "jobs", "Job");
pub(super) const SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");
pub(super) const POD_GROUPS: Resource =
    Resource::namespaced("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup");

pub(super) const RAY_CLUSTERS: Resource =
    Resource::namespaced("ray.io", "v1", "rayclusters", "RayCluster");

/// The kinds that the server has and lets the queue use.
pub(super) const SERVED: [Resource; 6] =
    [DEPLOYMENTS, SETS, JOBS, SERVICES, POD_GROUPS, RAY_CLUSTERS];

/// Returns stores for the objects of those kinds.
fn wrapped_kinds() -> impl Iterator<Item = Kind> {
    SERVED.into_iter().map(Kind::with_resource::<WrappedObject>)
}

/// Returns the answer of the server about a kind: the model has no discovery document.
pub(super) fn served(_: &Server, name: &TypeName) -> Result<ServedKind, String> {
    let resource = SERVED.into_iter().find(|it| TypeName::of(it) == *name);
    Ok(resource.map_or(ServedKind::NotServed, ServedKind::Usable))
}

/// Asks about kinds in every scenario. Its answers are late, get lost and expire.
pub(super) static DISCOVERY: SimulatedInquiry<KindDiscovery> =
    SimulatedInquiry { inquiry: KindDiscovery, answer: served };

/// [`Progress`] that watches the wrapped kinds from the start.
#[derive(Debug)]
pub(super) struct ProgressWithKinds(pub(super) Progress);

impl Controller for ProgressWithKinds {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn kinds(&self) -> Vec<Kind> {
        self.0.kinds().into_iter().chain(wrapped_kinds()).collect()
    }

    fn facts(&self) -> Vec<FactKind> {
        self.0.facts()
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        self.0.enqueue(world, change)
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        self.0.enqueue_for_fact(world, change)
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        self.0.plan(world, key, now)
    }
}

fn annotation<'a>(meta: &'a Meta, name: &str) -> Option<&'a str> {
    meta.annotations.get(name).map(String::as_str)
}

fn annotation_number(meta: &Meta, name: &str) -> Option<i64> {
    annotation(meta, name).map(|it| it.parse().unwrap())
}

fn status(resource: &Resource, meta: &Meta, status: &Value) -> Write {
    Write::Merge {
        resource: resource.clone(),
        key: meta.key(),
        subresource: Subresource::Status,
        fence: meta.fence(),
        body: json!({"status": status}),
    }
}

/// Creates the pods of objects, and reports when they are complete.
pub(super) struct WorkloadControllers;

impl Controller for WorkloadControllers {
    fn name(&self) -> &'static str {
        "makers"
    }

    fn kinds(&self) -> Vec<Kind> {
        wrapped_kinds().chain([Kind::of::<Pod>()]).collect()
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let owners = change.both::<Pod>().filter_map(|it| it.metadata.controller());
        let mut keys: Vec<Key> = owners.map(|it| change.key.in_same_namespace(&it.name)).collect();
        if change.is::<WrappedObject>() {
            keys.push(change.key.clone());
        }
        keys
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        for resource in &SERVED {
            let store = world.store_for::<WrappedObject>(resource).unwrap();
            if let Some(object) = store.get(key).filter(|it| !it.metadata.is_terminating()) {
                create_pods(world, resource, &object, &mut plan);
            }
        }
        plan
    }
}

fn create_pods(world: &World, resource: &Resource, object: &WrappedObject, plan: &mut Plan) {
    let meta = &object.metadata;
    let pods = world.store::<Pod>().owned_by(&meta.uid);
    for at in 0..annotation_number(meta, "pods").unwrap_or_default() {
        let name = format!("{}-{at}", meta.name);
        if pods.iter().any(|it| it.metadata.name == name) {
            continue;
        }
        let mut requests = json!({"cpu": annotation(meta, "cpu").unwrap_or("0")});
        if let Some(gpu) = annotation(meta, "gpu") {
            requests["nvidia.com/gpu"] = json!(gpu);
        }
        plan.write(Write::Create {
            resource: Pod::RESOURCE,
            body: json!({
                "metadata": {"name": name, "namespace": meta.namespace, "labels": meta.labels,
                    "annotations": meta.annotations,
                    "ownerReferences": [controller_reference(resource, meta)]},
                "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
            }),
        });
    }
    let over = pods.iter().filter(|it| it.status.phase == Phase::Succeeded).count();
    let all = annotation_number(meta, "pods").unwrap_or_default();
    let done = annotation(meta, "job").is_some() && i64::try_from(over).unwrap() >= all;
    let says = annotation(meta, "says").or_else(|| done.then_some("Complete"));
    if let Some(kind) = says.filter(|it| object.conditions.iter().all(|has| has.kind != *it)) {
        let body = json!({"conditions": [{"type": kind, "status": "True"}]});
        plan.write(status(resource, meta, &body));
    }
}

/// Binds pods to the first node with enough free capacity.
pub(super) struct Binder;

impl Controller for Binder {
    fn name(&self) -> &'static str {
        "binder"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, _: &World, _: &Change) -> Vec<Key> {
        vec![Key::cluster("all")]
    }

    fn plan(&self, world: &World, _: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let mut room: BTreeMap<String, Requests> = BTreeMap::new();
        let nodes = world.store::<Node>().list();
        for node in nodes.iter().filter(|it| !it.spec.unschedulable && it.is_ready()) {
            room.insert(
                node.metadata.name.clone(),
                Requests::from_allocatable(&node.status.allocatable),
            );
        }
        let pods = world.store::<Pod>().list();
        for pod in pods.iter().filter(|it| !it.is_terminal()) {
            if let Some(room) = room.get_mut(&pod.spec.node_name) {
                room.subtract(&Requests::of(pod));
            }
        }
        for pod in
            pods.iter().filter(|it| it.spec.node_name.is_empty() && !it.metadata.is_terminating())
        {
            let wants = Requests::of(pod);
            let none = Requests::default();
            let fits =
                |(_, room): &(&String, &mut Requests)| wants.insufficient(&none, room).is_empty();
            match room.iter_mut().find(fits) {
                Some((node, room)) => {
                    room.subtract(&wants);
                    let (key, uid) = (pod.metadata.key(), pod.metadata.uid.clone());
                    plan.write(Write::bind(key, uid, node.clone()));
                }
                None if pod.condition("PodScheduled").is_none() => {
                    let body = json!({"conditions": [{"type": "PodScheduled", "status": "False",
                        "reason": "Unschedulable", "message": "0 nodes are available"}]});
                    plan.write(status(&Pod::RESOURCE, &pod.metadata, &body));
                }
                None => {}
            }
        }
        plan
    }
}

/// Runs bound pods. Their annotations define how long they take, and whether their node is lost.
const KUBELET: Kubelet =
    Kubelet { nodes: KubeletNodes::Required, lifecycle, reports_termination: false };

fn lifecycle(pod: &KubeletPod) -> PodLifecycle {
    let meta = &pod.metadata;
    let made = meta.creation_timestamp.unwrap();
    let after = |seconds: i64| made + jiff::SignedDuration::from_secs(seconds);
    let init = annotation_number(meta, "init").unwrap_or_default();
    let seconds = annotation_number(meta, "seconds");
    PodLifecycle {
        starts_at: Some(after(init)),
        exit_code: seconds.map(|_| 0),
        ends_at: seconds.map(|it| after(init + it)),
        node_is_lost: annotation(meta, "lost").is_some(),
    }
}

/// The controllers of the queue and of the cluster.
pub(super) struct TestControllers {
    dispatch: Dispatch,
    progress: ProgressWithKinds,
}

impl TestControllers {
    pub(super) fn new(settings: Settings) -> Self {
        let live = LiveSettings::new(settings);
        Self {
            dispatch: Dispatch::new(live.clone()),
            progress: ProgressWithKinds(Progress::new(live)),
        }
    }

    pub(super) fn all(&self) -> [&dyn Controller; 5] {
        [&self.dispatch, &self.progress, &WorkloadControllers, &Binder, &KUBELET]
    }
}

pub(super) fn scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Vec<(Resource, Value)>,
) -> Scenario<'a> {
    Scenario {
        controllers,
        defaults: ready,
        objects,
        script: Vec::new(),
        replicas: 1,
        horizon: Duration::from_secs(1800),
        external: ExternalSystems { inquiries: vec![&DISCOVERY], ..ExternalSystems::default() },
    }
}

pub(super) fn node(name: &str, cpu: &str, gpu: i64) -> (Resource, Value) {
    // The harness creates objects without a status where the kind has one.
    let resource = Node::RESOURCE;
    (resource, json!({"metadata": {"name": name}, "spec": {}, "made": {"cpu": cpu, "gpu": gpu}}))
}

/// Sets the status that a kubelet would have reported for its node.
pub(super) fn ready(resource: &Resource, object: &mut Value) {
    if *resource == Node::RESOURCE && object["status"].is_null() {
        let made = &object["made"];
        let status = json!({
            "allocatable": {"cpu": made["cpu"], "memory": "64Gi", "nvidia.com/gpu": made["gpu"]},
            "conditions": [{"type": "Ready", "status": "True"}],
        });
        object["status"] = status;
    }
}

/// Fixture A: what is free on two nodes reproduces all relations of MCAD's tests.
pub(super) fn fixture_a() -> Vec<(Resource, Value)> {
    vec![node("a", "1525m", 8), node("b", "425m", 8)]
}

/// A cluster with an AppWrapper queue in it, and a user that reads its objects.
pub(super) struct Simulation<'a> {
    pub(super) run: TestCluster<'a>,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(scenario: &'a Scenario<'a>) -> Self {
        Self { run: TestCluster::new(scenario) }
    }

    pub(super) fn advance(&mut self, seconds: u64) {
        if let Err(failure) = self.run.advance(Duration::from_secs(seconds)) {
            panic!("{failure}");
        }
    }

    /// Creates an AppWrapper and advances the time a little.
    pub(super) fn create(&mut self, wrapper: Value) {
        self.run.server().create(&AppWrapper::RESOURCE, wrapper);
        self.advance(3);
    }

    pub(super) fn object(&mut self, resource: &Resource, name: &str) -> Option<Value> {
        self.run.server().get(resource, &Key::new("test", name)).cloned()
    }

    pub(super) fn status(&mut self, name: &str) -> Value {
        self.object(&AppWrapper::RESOURCE, name).unwrap()["status"].clone()
    }

    /// Returns state and step.
    pub(super) fn state(&mut self, name: &str) -> String {
        let status = self.status(name);
        let text = |name: &str| status[name].as_str().unwrap_or("-").to_owned();
        format!("{} {}", text("state"), text("queuejobstate"))
    }

    /// Returns how many pods of an AppWrapper exist, and how many of them run or have succeeded.
    pub(super) fn pods(&mut self, wrapper: &str) -> (usize, usize) {
        let all = self.run.server().list(&Pod::RESOURCE);
        let own = all.iter().filter(|it| {
            it["metadata"]["labels"][crate::item_objects::APP_WRAPPER_LABEL] == wrapper
        });
        let own: Vec<_> = own.collect();
        let up =
            |it: &&&&Value| matches!(it["status"]["phase"].as_str(), Some("Running" | "Succeeded"));
        (own.len(), own.iter().filter(up).count())
    }

    /// Returns the types of its conditions.
    pub(super) fn conditions(&mut self, name: &str) -> Vec<String> {
        let status = self.status(name);
        let list = status["conditions"].as_array().cloned().unwrap_or_default();
        list.iter().map(|it| it["type"].as_str().unwrap().to_owned()).collect()
    }

    pub(super) fn reasons(&mut self, name: &str) -> Vec<String> {
        let status = self.status(name);
        let list = status["conditions"].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|it| it["reason"].as_str().map(str::to_owned)).collect()
    }

    /// Sets the ready status that a node reports from now on, or that it stopped reporting.
    pub(super) fn set_ready(&mut self, node: &str, status: &str) {
        self.run.server().edit(&Node::RESOURCE, &Key::cluster(node), |it| {
            it["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
        });
        self.advance(2);
    }

    /// Deletes a node.
    pub(super) fn delete_node(&mut self, node: &str) {
        let key = Key::cluster(node);
        self.run.server().delete(&Node::RESOURCE, &key, gantry_reconcile::Propagation::Background);
        self.advance(2);
    }

    pub(super) fn delete(&mut self, resource: &Resource, name: &str) {
        let key = Key::new("test", name);
        self.run.server().delete(resource, &key, gantry_reconcile::Propagation::Background);
    }
}

/// Returns an AppWrapper around these items.
pub(super) fn wrap(name: &str, spec: Value, items: Vec<Value>) -> Value {
    let mut object = json!({"metadata": {"name": name, "namespace": "test"}, "spec": spec});
    object["spec"]["resources"] = json!({"GenericItems": items});
    object
}

/// Returns an object that creates pods.
pub(super) fn template(
    resource: &Resource,
    name: &str,
    pods: i64,
    cpu: &str,
    more: Value,
) -> Value {
    let mut notes = json!({"pods": pods.to_string(), "cpu": cpu});
    for (name, value) in more.as_object().unwrap() {
        notes[name] = value.clone();
    }
    let mut requests = json!({"cpu": cpu});
    if let Some(gpu) = notes["gpu"].as_str() {
        requests["nvidia.com/gpu"] = json!(gpu);
    }
    let mut object = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": {"name": name, "namespace": "test", "annotations": notes},
        "spec": {"replicas": pods, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"requests": requests}}]}}},
    });
    if *resource == JOBS {
        (object["spec"]["parallelism"], object["spec"]["completions"]) = (json!(pods), json!(pods));
    }
    object
}

pub(super) fn item(template: Value) -> Value {
    json!({"generictemplate": template})
}

/// Returns a Deployment of some pods.
pub(super) fn deployment(name: &str, pods: i64, cpu: &str) -> Value {
    wrap(
        name,
        json!({"schedulingSpec": {"minAvailable": pods}}),
        vec![item(template(&DEPLOYMENTS, &format!("{name}-d"), pods, cpu, json!({})))],
    )
}

/// Returns the final state of all objects on a server, for comparisons: statuses without times.
pub(super) fn final_state(server: &Server) -> Value {
    let mut lines: Vec<String> = Vec::new();
    for it in server.list(&AppWrapper::RESOURCE) {
        let status = &it["status"];
        lines.push(format!(
            "{} {} {} {} {} {}",
            it["metadata"]["name"],
            status["state"],
            status["queuejobstate"],
            status["canrun"],
            status["running"],
            status["message"],
        ));
    }
    for resource in SERVED.iter().chain([&Pod::RESOURCE]) {
        for it in server.list(resource) {
            lines.push(format!("{resource} {} {}", it["metadata"]["name"], it["status"]["phase"]));
        }
    }
    json!(lines)
}
