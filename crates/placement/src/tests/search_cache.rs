//! Pods that need the same are searched once, with the same result as individual searches.

use std::collections::{BTreeMap, BTreeSet};

use gantry_harness::Server;
use gantry_pods::view::Node;
use gantry_reconcile::{Controller, Held, Key, Propagation, Resource, World};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::build::*;
use super::scenarios::world;
use crate::scheduler::search_cache::StoredSearchCache;
use crate::{SCHEDULER_NAME, SCHEDULING_GATE, Scheduler};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// Returns a node, as its kubelet reports it.
fn observed_node(name: &str) -> (Resource, Value) {
    let mut node = node(name);
    defaults(&node.0.clone(), &mut node.1);
    node
}

/// Returns two nodes with one device each, and so many pods of each kind: with a claim of two
/// devices, with one of three, and with none but more CPU than there is.
fn crowded(twos: usize, threes: usize, large: usize) -> Objects {
    let mut objects =
        vec![observed_node("n1"), observed_node("n2"), driver(), class("gpu", &json!({}))];
    objects.extend([pool("p1", "n1", 1), pool("p2", "n2", 1)]);
    for (kind, count, devices) in [("two", twos, 2), ("three", threes, 3)] {
        for at in 0..count {
            let name = format!("{kind}{at}");
            objects.extend([
                claim(&name, &device_request("gpu", devices)),
                pod_with_claim(&name, &name),
            ]);
        }
    }
    for at in 0..large {
        let mut pod = pod(&format!("large{at}"), &json!([]));
        pod.1["metadata"]["annotations"] = json!({});
        pod.1["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("9");
        objects.push(pod);
    }
    objects
}

fn messages(held: &[Held]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    held.iter().for_each(|it| *counts.entry(it.message.as_str()).or_default() += 1);
    counts
}

#[test]
fn identical_pods_are_searched_for_once() {
    let scheduler = Scheduler::default();
    let key = Key::cluster(SCHEDULER_NAME);
    let world = world(&crowded(40, 30, 20));
    let kept = world.derived::<StoredSearchCache>();
    let expected = BTreeMap::from([
        ("0/2 nodes: 2 insufficient devices for claim gpu (2 too few)", 70),
        ("0/2 nodes: 2 Insufficient cpu", 20),
    ]);
    let first = scheduler.plan(&world, &key, now());
    assert_eq!(messages(&first.held), expected);
    assert_eq!(kept.searches(), 3, "three kinds of pods");
    let again = scheduler.plan(&world, &key, now());
    assert_eq!(format!("{again:?}"), format!("{first:?}"));
    assert_eq!(kept.searches(), 0, "nothing has changed");
    // Fields that no search reads: a node reports its conditions.
    let mut node = observed_node("n1");
    node.1["metadata"]["resourceVersion"] = json!("1001");
    node.1["status"]["nodeInfo"] = json!({"kubeletVersion": "v1.34.1"});
    let saw = |object: &(Resource, Value)| {
        let _ = world.single_store_for(&object.0).unwrap().observe(&object.1.to_string()).unwrap();
    };
    saw(&node);
    scheduler.plan(&world, &key, now());
    assert_eq!(kept.searches(), 0, "nothing has changed that matters");
    node.1["metadata"]["resourceVersion"] = json!("1002");
    node.1["spec"]["unschedulable"] = json!(true);
    saw(&node);
    let cordoned = scheduler.plan(&world, &key, now());
    assert_eq!(kept.searches(), 3, "a node has changed");
    assert_eq!(
        messages(&cordoned.held),
        BTreeMap::from([
            (
                "0/2 nodes: 1 insufficient devices for claim gpu (1 too few), 1 node(s) were \
                 unschedulable",
                70
            ),
            ("0/2 nodes: 1 Insufficient cpu, 1 node(s) were unschedulable", 20),
        ])
    );
    let mut more = pool("p3", "n2", 2);
    more.1["metadata"]["resourceVersion"] = json!("1003");
    more.1["metadata"]["uid"] = json!("p3");
    saw(&more);
    let served = scheduler.plan(&world, &key, now());
    let pools = served.steps.iter().map(|it| &it.write).filter(|it| *it.resource() == POOLS);
    let pools: Vec<String> = pools.map(|it| it.key().to_string()).collect();
    assert_eq!(pools, ["p2", "p3"], "one pod gets the three devices of n2");
}

/// What was allocated to one pod is not available for the next, whose result differs then.
#[test]
fn an_allocation_invalidates_cached_results() {
    let mut objects = crowded(0, 0, 0);
    for at in 0..6 {
        let name = format!("one{at}");
        objects.extend([claim(&name, &device_request("gpu", 1)), pod_with_claim(&name, &name)]);
    }
    let world = world(&objects);
    let plan = Scheduler::default().plan(&world, &Key::cluster(SCHEDULER_NAME), now());
    let expected = "0/2 nodes: 2 insufficient devices for claim gpu (2 in use)";
    assert_eq!(messages(&plan.held), BTreeMap::from([(expected, 4)]));
    assert_eq!(
        world.derived::<StoredSearchCache>().searches(),
        3,
        "two are served, and four are alike"
    );
}

/// A search for a pod that is over quota succeeds, and its result is shared.
#[test]
fn pods_over_quota_are_searched_for_once() {
    let mut objects = crowded(0, 0, 0);
    let limit = json!({"hard": {"gpu.deviceclass.devmgmtproto.k8s.io/devices": "0"}});
    let quota = json!({"metadata": {"name": "q", "namespace": "default"}, "spec": limit});
    objects.push((QUOTAS, quota));
    for at in 0..6 {
        let name = format!("one{at}");
        objects.extend([claim(&name, &device_request("gpu", 1)), pod_with_claim(&name, &name)]);
    }
    let world = world(&objects);
    let plan = Scheduler::default().plan(&world, &Key::cluster(SCHEDULER_NAME), now());
    let expected = "quota \"q\" allows 0 devices of class gpu: 0 are used, 1 more are requested";
    assert_eq!(messages(&plan.held), BTreeMap::from([(expected, 6)]));
    assert_eq!(world.derived::<StoredSearchCache>().searches(), 1);
}

/// A change in a cluster.
#[derive(Clone, Copy, Debug)]
enum ClusterEvent {
    Pod(PodKind),
    End(usize),
    Remove(usize),
    Cordon {
        node: usize,
        cordoned: bool,
    },
    Devices {
        pool: usize,
        count: usize,
    },
    /// A scheduler rejected a node for pods of the controller.
    Refused {
        pool: usize,
        node: usize,
    },
    Quota(usize),
    /// Another pod uses CPU of a node.
    Other {
        node: usize,
        cpu: usize,
    },
}

/// What a pod claims.
#[derive(Clone, Copy, Debug)]
enum PodKind {
    Own(usize),
    /// The same amount in another spelling.
    Amount(&'static str),
    Shared(usize),
    Zone,
    Large,
    Gated,
    Tolerant,
    Plain,
    WithOverhead,
}

fn any_pod_kind() -> impl Strategy<Value = PodKind> {
    prop_oneof![
        4 => (1..4_usize).prop_map(PodKind::Own),
        2 => prop_oneof![Just("1Gi"), Just("1024Mi")].prop_map(PodKind::Amount),
        2 => (0..2_usize).prop_map(PodKind::Shared),
        1 => Just(PodKind::Zone),
        1 => Just(PodKind::Large),
        2 => Just(PodKind::Gated),
        1 => Just(PodKind::Tolerant),
        1 => Just(PodKind::Plain),
        1 => Just(PodKind::WithOverhead),
    ]
}

fn any_cluster_event() -> impl Strategy<Value = ClusterEvent> {
    prop_oneof![
        12 => any_pod_kind().prop_map(ClusterEvent::Pod),
        2 => (0..20_usize).prop_map(ClusterEvent::End),
        1 => (0..20_usize).prop_map(ClusterEvent::Remove),
        1 => (0..3_usize, any::<bool>())
            .prop_map(|(node, cordoned)| ClusterEvent::Cordon { node, cordoned }),
        1 => (0..3_usize, 0..4_usize).prop_map(|(pool, count)| ClusterEvent::Devices { pool, count }),
        1 => (0..3_usize, 0..3_usize).prop_map(|(pool, node)| ClusterEvent::Refused { pool, node }),
        1 => (0..4_usize).prop_map(ClusterEvent::Quota),
        1 => (0..3_usize, 1..9_usize).prop_map(|(node, cpu)| ClusterEvent::Other { node, cpu }),
    ]
}

/// Returns devices with memory, the last of which use much of their node.
fn devices(count: usize) -> Value {
    let device = |at: usize| {
        let mut device = json!({"name": format!("d{at}"),
            "resources": [{"name": "memory", "quantity": {"capacity": "4Gi"}}]});
        if at > 1 {
            device["attributes"] = json!([{"name": "overhead.cpu", "quantityValue": "7"}]);
        }
        device
    };
    (0..count).map(device).collect()
}

fn pod_of_kind(name: &str, sort: PodKind) -> (Resource, Value) {
    let amount = |text: &str| {
        json!([{"name": "gpu", "claim": {"claims": [{"name": "main",
        "deviceClass": "gpu", "requests": {"memory": text}}]}}])
    };
    match sort {
        PodKind::Own(count) => pod_with_template(name, &format!("t{count}")),
        PodKind::Amount(text) => pod(name, &amount(text)),
        PodKind::Shared(at) => pod_with_claim(name, &format!("shared{at}")),
        PodKind::Zone => {
            let mut pod = pod_with_template(name, "t1");
            pod.1["spec"]["nodeSelector"] = json!({"cpu": "4"});
            pod
        }
        PodKind::Large => {
            let mut pod = pod_with_template(name, "t1");
            pod.1["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("5");
            pod
        }
        PodKind::Gated => {
            let mut pod = pod_with_template(name, "t1");
            pod.1["spec"]["schedulerName"] = json!("default-scheduler");
            pod.1["spec"]["schedulingGates"] = json!([{"name": SCHEDULING_GATE}]);
            pod.1["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1",
                "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true}]);
            pod
        }
        PodKind::Tolerant => {
            let mut pod = pod_with_template(name, "t2");
            pod.1["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
            pod
        }
        PodKind::Plain => {
            let mut pod = pod(name, &json!([]));
            pod.1["metadata"]["annotations"] = json!({});
            pod
        }
        PodKind::WithOverhead => pod_with_template(name, "all"),
    }
}

/// A cluster, and two schedulers that read all of it: one caches results.
struct SchedulerPair<'a> {
    server: Server,
    controllers: Vec<&'a dyn Controller>,
    cached_world: World,
    uncached_world: World,
    read: BTreeMap<Resource, usize>,
    queue: BTreeSet<(usize, Key)>,
}

impl<'a> SchedulerPair<'a> {
    fn new(team: &'a Controllers) -> Self {
        let controllers = team.all();
        let world = || World::new(controllers.iter().flat_map(|it| it.kinds()));
        let (remembers, forgets) = (world(), world());
        forgets.derived::<StoredSearchCache>().disable();
        let read = remembers.stores().map(|it| (it.resource(), 0)).collect();
        let mut server = Server::new(defaults, now());
        for (resource, object) in initial_objects() {
            server.create(&resource, object);
        }
        Self {
            server,
            controllers,
            cached_world: remembers,
            uncached_world: forgets,
            read,
            queue: BTreeSet::new(),
        }
    }

    fn read(&mut self) {
        let mut changes = Vec::new();
        for (resource, read) in &mut self.read {
            for (text, end) in self.server.history(resource).skip(*read) {
                *read += 1;
                for (world, told) in [(&self.cached_world, true), (&self.uncached_world, false)] {
                    let store = world.single_store_for(resource).unwrap();
                    let seen = if end { store.observe_deletion(text) } else { store.observe(text) };
                    changes.extend(seen.unwrap().into_iter().filter(|_| told));
                }
            }
        }
        for change in &changes {
            for (at, controller) in self.controllers.iter().enumerate() {
                if controller.kinds().iter().any(|it| *it.resource() == change.resource) {
                    let keys = controller.enqueue(&self.cached_world, change);
                    self.queue.extend(keys.into_iter().map(|key| (at, key)));
                }
            }
        }
    }

    /// Runs everything that is due, and plans with both schedulers.
    fn reconcile_all(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..8 {
            let time = self.server.now() + SignedDuration::from_secs(1);
            self.server.set_time(time);
            self.read();
            let mut writes = Vec::new();
            let mut due = std::mem::take(&mut self.queue);
            due.insert((0, Key::cluster(SCHEDULER_NAME)));
            for (at, key) in due {
                let plan = self.controllers[at].plan(&self.cached_world, &key, time);
                if at == 0 {
                    let other = self.controllers[at].plan(&self.uncached_world, &key, time);
                    prop_assert_eq!(format!("{plan:?}"), format!("{other:?}"));
                }
                writes.extend(plan.steps.into_iter().map(|it| it.write));
            }
            if writes.is_empty() {
                break;
            }
            for write in writes {
                self.server.apply(&write);
            }
            while self.server.collect_garbage() {}
        }
        Ok(())
    }

    fn apply_event(&mut self, at: usize, event: ClusterEvent) {
        let server = &mut self.server;
        match event {
            ClusterEvent::Pod(sort) => {
                let (resource, object) = pod_of_kind(&format!("pod{at}"), sort);
                server.create(&resource, object);
            }
            ClusterEvent::End(pod) => end(&format!("pod{pod}"))(server),
            ClusterEvent::Remove(pod) => {
                server.delete(&PODS, &key(&format!("pod{pod}")), Propagation::Background);
            }
            ClusterEvent::Cordon { node, cordoned } => {
                let key = Key::cluster(&format!("n{node}"));
                let resource = <Node as gantry_reconcile::View>::RESOURCE;
                server.edit(&resource, &key, |it| it["spec"]["unschedulable"] = json!(cordoned));
            }
            ClusterEvent::Devices { pool, count } => {
                let key = Key::cluster(&format!("p{pool}"));
                server.edit(&POOLS, &key, |it| it["spec"]["devices"] = devices(count));
            }
            ClusterEvent::Refused { pool, node } => {
                let until = server.now() + SignedDuration::from_secs(5);
                let refusal = json!({"ownerUid": "rs", "nodeName": format!("n{node}"),
                    "until": until.to_string()});
                let key = Key::cluster(&format!("p{pool}"));
                server.edit(&POOLS, &key, |it| it["status"]["refusals"] = json!([refusal]));
            }
            ClusterEvent::Quota(most) => {
                let key = key("q");
                let limit = "gpu.deviceclass.devmgmtproto.k8s.io/devices";
                let spec = json!({"hard": {limit: most.to_string()}});
                server.edit(&QUOTAS, &key, |it| it["spec"] = spec);
            }
            ClusterEvent::Other { node, cpu } => {
                let (resource, mut pod) = pod_of_kind(&format!("pod{at}"), PodKind::Plain);
                pod["spec"]["nodeName"] = json!(format!("n{node}"));
                pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
                    json!(cpu.to_string());
                server.create(&resource, pod);
            }
        }
    }
}

/// A history has many plans: a sixteenth of the usual number of cases is tried.
fn cases() -> u32 {
    (ProptestConfig::default().cases / 16).max(1)
}

fn initial_objects() -> Objects {
    let mut objects = vec![driver(), class("gpu", &json!({}))];
    for at in 0..3 {
        let name = format!("n{at}");
        objects.push(small_node(&name, if at == 0 { "4" } else { "8" }));
        let mut pool = pool(&format!("p{at}"), &name, 0);
        pool.1["spec"]["devices"] = devices(at + 1);
        objects.push(pool);
        objects.push(template(&format!("t{}", at + 1), &device_request("gpu", at + 1)));
    }
    let all = json!({"claims": [{"name": "main", "deviceClass": "gpu", "allocationMode": "All"}]});
    objects.extend([
        template("all", &all),
        claim("shared0", &device_request("gpu", 1)),
        claim("shared1", &device_request("gpu", 2)),
        (QUOTAS, json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {}}})),
    ]);
    objects
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever happened before: the scheduler with a cache plans what the one without a cache
    /// does.
    #[test]
    fn cached_results_change_no_plan(events in prop::collection::vec(any_cluster_event(), 1..24)) {
        let team = Controllers::new();
        let mut pair = SchedulerPair::new(&team);
        for (at, event) in events.into_iter().enumerate() {
            pair.apply_event(at, event);
            pair.reconcile_all()?;
        }
        let searches = |world: &World| world.derived::<StoredSearchCache>().searches();
        prop_assert!(searches(&pair.cached_world) <= searches(&pair.uncached_world));
    }
}
