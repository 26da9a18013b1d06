//! Many pods, and two who believe to lead.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use gantry_reconcile::harness::Server;
use gantry_reconcile::{Controller, Key, Outcome, Resource, Step, World};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::build::*;
use super::invariants;

/// A process that leads, or believes so.
struct Leader<'a> {
    controllers: Vec<&'a dyn Controller>,
    world: World,
    /// How much of the news of each kind was read.
    read: BTreeMap<Resource, usize>,
    queue: BTreeSet<(usize, Key)>,
}

impl<'a> Leader<'a> {
    fn new(controllers: Vec<&'a dyn Controller>) -> Self {
        let world = World::new(controllers.iter().flat_map(|it| it.kinds()));
        let read = world.shelves().map(|it| (it.resource(), 0)).collect();
        Self { controllers, world, read, queue: BTreeSet::new() }
    }

    /// Reads the news, but the last few of each kind.
    fn read(&mut self, server: &Server, late: usize) {
        for (resource, read) in &mut self.read {
            let news: Vec<(&str, bool)> = server.history(resource).skip(*read).collect();
            let count = news.len().saturating_sub(late);
            *read += count;
            let shelf = self.world.find(resource).unwrap();
            for (text, end) in &news[..count] {
                let seen = if *end { shelf.saw_end(text) } else { shelf.saw(text) };
                let Some(change) = seen.unwrap() else { continue };
                for (at, controller) in self.controllers.iter().enumerate() {
                    if controller.kinds().iter().any(|it| *it.resource() == *resource) {
                        let keys = controller.wakes(&self.world, &change);
                        self.queue.extend(keys.into_iter().map(|key| (at, key)));
                    }
                }
            }
        }
    }

    /// Decides about everything that is due, at once.
    fn plan(&mut self, now: Timestamp) -> Vec<Step> {
        let mut steps = Vec::new();
        for (at, key) in std::mem::take(&mut self.queue) {
            let plan = self.controllers[at].plan(&self.world, &key, now);
            if plan.look_again.is_some() || !plan.steps.is_empty() {
                self.queue.insert((at, key));
            }
            steps.extend(plan.steps);
        }
        steps
    }
}

fn is_there(server: &Server, object: &gantry_reconcile::Reference) -> bool {
    let found = server.get(&object.resource, &object.key);
    found.is_some_and(|it| it["metadata"]["uid"] == object.uid.as_str())
}

/// Runs until every pod has had its device and has ended: some at a time end, at random.
fn crowd(pods: usize, nodes: usize, devices: usize, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut server = Server::new(defaults, now);
    let mut objects = vec![driver(), class("gpu", &json!({})), template("t", &wish("gpu", 1))];
    for at in 0..nodes {
        objects.push(node(&format!("n{at}")));
        objects.push(pool(&format!("p{at}"), &format!("n{at}"), devices));
    }
    objects.extend((0..pods).map(|at| owner(&format!("pod{at}"), "t")));
    for (resource, object) in objects {
        server.create(&resource, object);
    }
    let teams = [Team::new(), Team::new()];
    let mut leaders: Vec<Leader<'_>> = teams.iter().map(|it| Leader::new(it.all())).collect();
    let mut most = 0;
    for round in 0..2_000 {
        now += SignedDuration::from_millis(700);
        server.set_time(now);
        let mut steps = Vec::new();
        for (at, leader) in leaders.iter_mut().enumerate() {
            let late = if rng.u8(..4) == 0 { rng.usize(..20) } else { 0 };
            leader.read(&server, late);
            if rng.u8(..6) > 0 {
                steps.extend(leader.plan(now).into_iter().map(|step| (at, step)));
            }
        }
        rng.shuffle(&mut steps);
        for (at, step) in steps {
            let refused = step.provided.iter().any(|it| !is_there(&server, it))
                || step.gone.iter().any(|it| is_there(&server, it));
            if refused || rng.u8(..30) == 0 {
                continue;
            }
            let outcome = server.apply(&step.write);
            // Every now and then the answer is lost.
            if matches!(outcome, Outcome::Done(_)) && rng.u8(..30) > 0 {
                let _ = leaders[at].world.learn(&step.write, &outcome);
            }
        }
        while server.collect() {}
        let running: Vec<String> = server
            .list(&PODS)
            .into_iter()
            .filter(|it| {
                let told = &it["metadata"]["annotations"]["devmgmtproto.k8s.io/device-allocations"];
                it["spec"]["nodeName"].is_string() && told.is_string()
            })
            .map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        most = most.max(running.len());
        for name in running.iter().filter(|_| round > 10 && rng.u8(..4) == 0) {
            remove(name)(&mut server);
        }
        let shape = shape(&server);
        if server.list(&PODS).is_empty()
            && shape["entries"] == json!({})
            && shape["claims"] == json!({})
        {
            invariants::hold(&server, invariants::Claims::Always);
            assert!(most <= nodes * devices, "{most} pods at once");
            assert!(most * 10 > nodes * devices * 8, "no more than {most} pods at once");
            return;
        }
    }
    panic!("seed {seed}: never done: {}", shape(&server));
}

#[test]
fn scenario_94_no_device_is_ever_given_twice() {
    crowd(40, 4, 4, 1);
    crowd(20, 2, 2, 2);
}
