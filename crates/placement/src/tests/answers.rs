//! Pods that ask for the same are answered once, and as if each had been searched for.

use std::collections::{BTreeMap, BTreeSet};

use gantry_harness::Server;
use gantry_pods::view::Node;
use gantry_reconcile::{Controller, Held, Key, Propagation, Resource, World};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::build::*;
use super::scenarios::world;
use crate::scheduler::answers::Kept;
use crate::{GATE, NAME, Scheduler};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A node, as its kubelet shows it.
fn shown(name: &str) -> (Resource, Value) {
    let mut node = node(name);
    defaults(&node.0.clone(), &mut node.1);
    node
}

/// Two nodes with one device each, and so many pods of each kind: with a claim of two devices, with one
/// of three, and with none but more processors than there are.
fn crowded(twos: usize, threes: usize, large: usize) -> Objects {
    let mut objects = vec![shown("n1"), shown("n2"), driver(), class("gpu", &json!({}))];
    objects.extend([pool("p1", "n1", 1), pool("p2", "n2", 1)]);
    for (kind, count, devices) in [("two", twos, 2), ("three", threes, 3)] {
        for at in 0..count {
            let name = format!("{kind}{at}");
            objects.extend([claim(&name, &wish("gpu", devices)), user(&name, &name)]);
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
fn pods_that_ask_for_the_same_are_searched_for_once() {
    let scheduler = Scheduler::default();
    let key = Key::cluster(NAME);
    let world = world(&crowded(40, 30, 20));
    let kept = world.kept::<Kept>();
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
    // What nobody looks at: a node says how it is.
    let mut node = shown("n1");
    node.1["metadata"]["resourceVersion"] = json!("1001");
    node.1["status"]["nodeInfo"] = json!({"kubeletVersion": "v1.34.1"});
    let saw = |object: &(Resource, Value)| {
        let _ = world.find(&object.0).unwrap().saw(&object.1.to_string()).unwrap();
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
    assert_eq!(pools, ["p2", "p3"], "somebody is served with the three devices of n2");
}

/// What was given to one is not there for the next, whose answer is another then.
#[test]
fn whoever_comes_after_one_that_was_served_is_searched_for_anew() {
    let mut objects = crowded(0, 0, 0);
    for at in 0..6 {
        let name = format!("one{at}");
        objects.extend([claim(&name, &wish("gpu", 1)), user(&name, &name)]);
    }
    let world = world(&objects);
    let plan = Scheduler::default().plan(&world, &Key::cluster(NAME), now());
    let expected = "0/2 nodes: 2 insufficient devices for claim gpu (2 in use)";
    assert_eq!(messages(&plan.held), BTreeMap::from([(expected, 4)]));
    assert_eq!(world.kept::<Kept>().searches(), 3, "two are served, and four are alike");
}

/// Whom a quota refuses was found something, which is found once for all.
#[test]
fn those_that_a_quota_refuses_are_searched_for_once() {
    let mut objects = crowded(0, 0, 0);
    let limit = json!({"hard": {"gpu.deviceclass.devmgmtproto.k8s.io/devices": "0"}});
    let quota = json!({"metadata": {"name": "q", "namespace": "default"}, "spec": limit});
    objects.push((QUOTAS, quota));
    for at in 0..6 {
        let name = format!("one{at}");
        objects.extend([claim(&name, &wish("gpu", 1)), user(&name, &name)]);
    }
    let world = world(&objects);
    let plan = Scheduler::default().plan(&world, &Key::cluster(NAME), now());
    let expected = "quota \"q\" allows 0 devices of class gpu: 0 are used, 1 more are wanted";
    assert_eq!(messages(&plan.held), BTreeMap::from([(expected, 6)]));
    assert_eq!(world.kept::<Kept>().searches(), 1);
}

/// Something that happens in a cluster.
#[derive(Clone, Copy, Debug)]
enum Event {
    Pod(Sort),
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
    /// A scheduler refused a node for pods of the controller.
    Refused {
        pool: usize,
        node: usize,
    },
    Quota(usize),
    /// Somebody else's pod takes processors of a node.
    Other {
        node: usize,
        cpu: usize,
    },
}

/// What a pod asks for.
#[derive(Clone, Copy, Debug)]
enum Sort {
    Own(usize),
    /// In other words that mean the same.
    Amount(&'static str),
    Shared(usize),
    Zone,
    Large,
    Gated,
    Tolerant,
    Plain,
    Burdensome,
}

fn sort() -> impl Strategy<Value = Sort> {
    prop_oneof![
        4 => (1..4_usize).prop_map(Sort::Own),
        2 => prop_oneof![Just("1Gi"), Just("1024Mi")].prop_map(Sort::Amount),
        2 => (0..2_usize).prop_map(Sort::Shared),
        1 => Just(Sort::Zone),
        1 => Just(Sort::Large),
        2 => Just(Sort::Gated),
        1 => Just(Sort::Tolerant),
        1 => Just(Sort::Plain),
        1 => Just(Sort::Burdensome),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => sort().prop_map(Event::Pod),
        2 => (0..20_usize).prop_map(Event::End),
        1 => (0..20_usize).prop_map(Event::Remove),
        1 => (0..3_usize, any::<bool>())
            .prop_map(|(node, cordoned)| Event::Cordon { node, cordoned }),
        1 => (0..3_usize, 0..4_usize).prop_map(|(pool, count)| Event::Devices { pool, count }),
        1 => (0..3_usize, 0..3_usize).prop_map(|(pool, node)| Event::Refused { pool, node }),
        1 => (0..4_usize).prop_map(Event::Quota),
        1 => (0..3_usize, 1..9_usize).prop_map(|(node, cpu)| Event::Other { node, cpu }),
    ]
}

/// Devices with memory, the last of which take much of their node.
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

fn made(name: &str, sort: Sort) -> (Resource, Value) {
    let amount = |text: &str| {
        json!([{"name": "gpu", "claim": {"claims": [{"name": "main",
        "deviceClass": "gpu", "requests": {"memory": text}}]}}])
    };
    match sort {
        Sort::Own(count) => owner(name, &format!("t{count}")),
        Sort::Amount(text) => pod(name, &amount(text)),
        Sort::Shared(at) => user(name, &format!("shared{at}")),
        Sort::Zone => {
            let mut pod = owner(name, "t1");
            pod.1["spec"]["nodeSelector"] = json!({"cpu": "4"});
            pod
        }
        Sort::Large => {
            let mut pod = owner(name, "t1");
            pod.1["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("5");
            pod
        }
        Sort::Gated => {
            let mut pod = owner(name, "t1");
            pod.1["spec"]["schedulerName"] = json!("default-scheduler");
            pod.1["spec"]["schedulingGates"] = json!([{"name": GATE}]);
            pod.1["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1",
                "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true}]);
            pod
        }
        Sort::Tolerant => {
            let mut pod = owner(name, "t2");
            pod.1["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
            pod
        }
        Sort::Plain => {
            let mut pod = pod(name, &json!([]));
            pod.1["metadata"]["annotations"] = json!({});
            pod
        }
        Sort::Burdensome => owner(name, "all"),
    }
}

/// A cluster, and two who read of it all there is to read: one remembers answers.
struct Pair<'a> {
    server: Server,
    controllers: Vec<&'a dyn Controller>,
    remembers: World,
    forgets: World,
    read: BTreeMap<Resource, usize>,
    queue: BTreeSet<(usize, Key)>,
}

impl<'a> Pair<'a> {
    fn new(team: &'a Team) -> Self {
        let controllers = team.all();
        let world = || World::new(controllers.iter().flat_map(|it| it.kinds()));
        let (remembers, forgets) = (world(), world());
        forgets.kept::<Kept>().forget();
        let read = remembers.shelves().map(|it| (it.resource(), 0)).collect();
        let mut server = Server::new(defaults, now());
        for (resource, object) in furnish() {
            server.create(&resource, object);
        }
        Self { server, controllers, remembers, forgets, read, queue: BTreeSet::new() }
    }

    fn read(&mut self) {
        let mut changes = Vec::new();
        for (resource, read) in &mut self.read {
            for (text, end) in self.server.history(resource).skip(*read) {
                *read += 1;
                for (world, told) in [(&self.remembers, true), (&self.forgets, false)] {
                    let shelf = world.find(resource).unwrap();
                    let seen = if end { shelf.saw_end(text) } else { shelf.saw(text) };
                    changes.extend(seen.unwrap().into_iter().filter(|_| told));
                }
            }
        }
        for change in &changes {
            for (at, controller) in self.controllers.iter().enumerate() {
                if controller.kinds().iter().any(|it| *it.resource() == change.resource) {
                    let keys = controller.enqueue(&self.remembers, change);
                    self.queue.extend(keys.into_iter().map(|key| (at, key)));
                }
            }
        }
    }

    /// Lets everybody do what is due, and both schedulers plan beside each other.
    fn work(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..8 {
            let time = self.server.now() + SignedDuration::from_secs(1);
            self.server.set_time(time);
            self.read();
            let mut writes = Vec::new();
            let mut due = std::mem::take(&mut self.queue);
            due.insert((0, Key::cluster(NAME)));
            for (at, key) in due {
                let plan = self.controllers[at].plan(&self.remembers, &key, time);
                if at == 0 {
                    let other = self.controllers[at].plan(&self.forgets, &key, time);
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
            while self.server.collect() {}
        }
        Ok(())
    }

    fn happen(&mut self, at: usize, event: Event) {
        let server = &mut self.server;
        match event {
            Event::Pod(sort) => {
                let (resource, object) = made(&format!("pod{at}"), sort);
                server.create(&resource, object);
            }
            Event::End(pod) => end(&format!("pod{pod}"))(server),
            Event::Remove(pod) => {
                server.delete(&PODS, &key(&format!("pod{pod}")), Propagation::Background);
            }
            Event::Cordon { node, cordoned } => {
                let key = Key::cluster(&format!("n{node}"));
                let resource = <Node as gantry_reconcile::View>::RESOURCE;
                server.edit(&resource, &key, |it| it["spec"]["unschedulable"] = json!(cordoned));
            }
            Event::Devices { pool, count } => {
                let key = Key::cluster(&format!("p{pool}"));
                server.edit(&POOLS, &key, |it| it["spec"]["devices"] = devices(count));
            }
            Event::Refused { pool, node } => {
                let until = server.now() + SignedDuration::from_secs(5);
                let refusal = json!({"ownerUid": "rs", "nodeName": format!("n{node}"),
                    "until": until.to_string()});
                let key = Key::cluster(&format!("p{pool}"));
                server.edit(&POOLS, &key, |it| it["status"]["refusals"] = json!([refusal]));
            }
            Event::Quota(most) => {
                let key = key("q");
                let limit = "gpu.deviceclass.devmgmtproto.k8s.io/devices";
                let spec = json!({"hard": {limit: most.to_string()}});
                server.edit(&QUOTAS, &key, |it| it["spec"] = spec);
            }
            Event::Other { node, cpu } => {
                let (resource, mut pod) = made(&format!("pod{at}"), Sort::Plain);
                pod["spec"]["nodeName"] = json!(format!("n{node}"));
                pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
                    json!(cpu.to_string());
                server.create(&resource, pod);
            }
        }
    }
}

/// A history is many plans: as many are tried as otherwise of sixteen times as many cases.
fn cases() -> u32 {
    (ProptestConfig::default().cases / 16).max(1)
}

fn furnish() -> Objects {
    let mut objects = vec![driver(), class("gpu", &json!({}))];
    for at in 0..3 {
        let name = format!("n{at}");
        objects.push(small_node(&name, if at == 0 { "4" } else { "8" }));
        let mut pool = pool(&format!("p{at}"), &name, 0);
        pool.1["spec"]["devices"] = devices(at + 1);
        objects.push(pool);
        objects.push(template(&format!("t{}", at + 1), &wish("gpu", at + 1)));
    }
    let all = json!({"claims": [{"name": "main", "deviceClass": "gpu", "allocationMode": "All"}]});
    objects.extend([
        template("all", &all),
        claim("shared0", &wish("gpu", 1)),
        claim("shared1", &wish("gpu", 2)),
        (QUOTAS, json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {}}})),
    ]);
    objects
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever happened before: who remembers plans what who remembers nothing does.
    #[test]
    fn what_is_remembered_changes_no_plan(events in prop::collection::vec(event(), 1..24)) {
        let team = Team::new();
        let mut pair = Pair::new(&team);
        for (at, event) in events.into_iter().enumerate() {
            pair.happen(at, event);
            pair.work()?;
        }
        let searches = |world: &World| world.kept::<Kept>().searches();
        prop_assert!(searches(&pair.remembers) <= searches(&pair.forgets));
    }
}
