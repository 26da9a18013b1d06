//! Many pods, two who believe to lead, and everything that can go wrong at once.
//!
//! Processes die at any moment and what they had sent still arrives, or does not; requests and answers
//! are lost or come twice; news are late; and for a while most writes to pools come too late. What must
//! hold is checked at every revision, and in the end everything was given back.
//!
//! Tests try as many seeds as property tests are told to: see [`CASES_PER_SEED`].

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use gantry_harness::Server;
use gantry_reconcile::{Change, Controller, Key, Outcome, Reference, Resource, World, Write};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::build::*;
use super::invariants::{self, Witness};

/// Cases of property tests for each seed: 4 seeds unless told otherwise, and 1,000 with
/// `PROPTEST_CASES=64000`.
const CASES_PER_SEED: u32 = 64;
/// Cases of property tests for each pod of the largest crowd: 32 pods unless told otherwise, and all of
/// [`FULL`] with `PROPTEST_CASES=8000`.
const CASES_PER_POD: u32 = 8;
/// Cases of property tests for each time that the largest crowd is tried.
const CASES_PER_FULL: u32 = 32_000;

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
struct Size {
    pods: usize,
    nodes: usize,
    /// Of each node.
    devices: usize,
}

/// The size of the scenario.
const FULL: Size = Size { pods: 1000, nodes: 100, devices: 8 };

/// How long a crowd may take: many times what any did.
const ROUNDS: usize = 5_000;

/// A controller by its place, and an object.
type Slot = (usize, Key);

/// A process that leads, or believes so.
struct Leader<'a> {
    controllers: Vec<&'a dyn Controller>,
    world: World,
    /// How much of the news of each kind was read.
    read: BTreeMap<Resource, usize>,
    queue: BTreeSet<Slot>,
    due: BTreeMap<Slot, Timestamp>,
    /// Which of all that took this place.
    life: usize,
}

impl<'a> Leader<'a> {
    /// A process that has just started: it lists everything there is.
    fn start(controllers: Vec<&'a dyn Controller>, server: &Server, life: usize) -> Self {
        let world = World::new(controllers.iter().flat_map(|it| it.kinds()));
        let (mut read, mut changes) = (BTreeMap::new(), Vec::new());
        for shelf in world.shelves() {
            let resource = shelf.resource();
            for object in server.list(&resource) {
                changes.extend(shelf.saw(&object.to_string()).unwrap());
            }
            read.insert(resource.clone(), server.history(&resource).count());
        }
        let (queue, due) = (BTreeSet::new(), BTreeMap::new());
        let mut leader = Self { controllers, world, read, queue, due, life };
        changes.iter().for_each(|change| leader.tell(change));
        leader
    }

    /// Reads the news, but the last few of each kind.
    fn read(&mut self, server: &Server, late: usize) {
        let mut changes = Vec::new();
        for (resource, read) in &mut self.read {
            let news: Vec<(&str, bool)> = server.history(resource).skip(*read).collect();
            let count = news.len().saturating_sub(late);
            *read += count;
            let shelf = self.world.find(resource).unwrap();
            for (text, end) in &news[..count] {
                let seen = if *end { shelf.saw_end(text) } else { shelf.saw(text) };
                changes.extend(seen.unwrap());
            }
        }
        changes.iter().for_each(|change| self.tell(change));
    }

    fn tell(&mut self, change: &Change) {
        for (at, controller) in self.controllers.iter().enumerate() {
            if controller.kinds().iter().any(|it| *it.resource() == change.resource) {
                let keys = controller.enqueue(&self.world, change);
                self.queue.extend(keys.into_iter().map(|key| (at, key)));
            }
        }
    }

    /// Decides about everything that is due, as its workers do. What is written is looked at again.
    fn plan(&mut self, server: &Server, now: Timestamp) -> Vec<Write> {
        let due = self.due.extract_if(.., |_, when| *when <= now).map(|(slot, _)| slot);
        self.queue.extend(due);
        let mut writes = Vec::new();
        for (at, key) in std::mem::take(&mut self.queue) {
            let plan = self.controllers[at].plan(&self.world, &key, now);
            if let Some(wait) = plan.look_again {
                self.due.insert((at, key.clone()), now.checked_add(wait).unwrap());
            }
            if !plan.steps.is_empty() {
                self.queue.insert((at, key));
            }
            // Asked right before the write is sent; when that arrives is another question.
            let sent = plan.steps.into_iter().filter(|step| {
                step.provided.iter().all(|it| is_there(server, it))
                    && !step.gone.iter().any(|it| is_there(server, it))
            });
            writes.extend(sent.map(|it| it.write));
        }
        writes
    }
}

fn is_there(server: &Server, object: &Reference) -> bool {
    let found = server.get(&object.resource, &object.key);
    found.is_some_and(|it| it["metadata"]["uid"] == object.uid.as_str())
}

/// A write under way.
struct Sent {
    leader: usize,
    life: usize,
    write: Write,
}

/// What went wrong on the way, and what was looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    revisions: u64,
    deaths: u64,
    /// Writes that came too late.
    conflicts: u64,
    lost: u64,
    /// Devices that were held at the same time, at most.
    held: usize,
}

struct Crowd<'a> {
    size: Size,
    rng: Rng,
    server: Server,
    teams: &'a [Team; 2],
    leaders: Vec<Leader<'a>>,
    under_way: Vec<Sent>,
    witness: Witness,
    tally: Tally,
}

impl<'a> Crowd<'a> {
    fn new(size: Size, seed: u64, teams: &'a [Team; 2]) -> Self {
        let mut rng = Rng::with_seed(seed);
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut server = Server::new(defaults, now);
        for (resource, object) in furnish(size, &mut rng) {
            server.create(&resource, object);
        }
        let leaders =
            teams.iter().map(|team| Leader::start(team.all(), &server, 0)).collect::<Vec<_>>();
        Self {
            size,
            rng,
            server,
            teams,
            leaders,
            under_way: Vec::new(),
            witness: Witness::new(invariants::Claims::Always),
            tally: Tally::default(),
        }
    }

    /// Goes on for a moment. Returns whether everything is over.
    fn round(&mut self, round: usize) -> bool {
        let now = self.server.now() + SignedDuration::from_millis(700);
        self.server.set_time(now);
        for at in 0..self.leaders.len() {
            self.let_work(at, now);
        }
        // A storm: for ten rounds of every forty most writes to pools come too late.
        self.land(round % 40 >= 30);
        while self.server.collect() {}
        self.tally.revisions += self.witness.read(&self.server);
        self.tally.held = self.tally.held.max(self.witness.held());
        self.end_pods();
        self.is_over()
    }

    fn let_work(&mut self, at: usize, now: Timestamp) {
        if self.rng.u8(..40) == 0 {
            // What it had sent arrives or not, and it never hears of it.
            let life = self.leaders[at].life + 1;
            self.leaders[at] = Leader::start(self.teams[at].all(), &self.server, life);
            let rng = &mut self.rng;
            self.under_way.retain(|it| it.leader != at || rng.bool());
            self.tally.deaths += 1;
        }
        let late = if self.rng.u8(..4) == 0 { self.rng.usize(..20) } else { 0 };
        self.leaders[at].read(&self.server, late);
        if self.rng.u8(..6) > 0 {
            let leader = &mut self.leaders[at];
            let writes = leader.plan(&self.server, now);
            let life = leader.life;
            self.under_way.extend(writes.into_iter().map(|write| Sent { leader: at, life, write }));
        }
    }

    /// Writes arrive, in any order; one of ten takes until later.
    fn land(&mut self, storm: bool) {
        let mut sent = std::mem::take(&mut self.under_way);
        self.rng.shuffle(&mut sent);
        for it in sent {
            if self.rng.u8(..10) == 0 {
                self.under_way.push(it);
                continue;
            }
            if self.rng.u8(..30) == 0 {
                self.tally.lost += 1;
                continue;
            }
            let late = storm && *it.write.resource() == POOLS && self.rng.u8(..4) > 0;
            let outcome = match late {
                true => Outcome::Stale("the object has been modified".to_owned()),
                false => self.server.apply(&it.write),
            };
            if self.rng.u8(..30) == 0 {
                self.server.apply(&it.write);
            }
            self.tally.conflicts += u64::from(matches!(outcome, Outcome::Stale(_)));
            let leader = &mut self.leaders[it.leader];
            // The answer is lost with who asked, and every now and then by itself.
            if leader.life == it.life && self.rng.u8(..30) > 0 {
                let change = leader.world.learn(&it.write, &outcome);
                change.iter().for_each(|change| leader.tell(change));
            }
        }
    }

    /// Some of the pods that have everything end, or are taken away; some of the others are taken away
    /// before they had anything.
    fn end_pods(&mut self) {
        let mut ends: Vec<(String, bool)> = Vec::new();
        for pod in self.server.list(&PODS) {
            let told = &pod["metadata"]["annotations"]["devmgmtproto.k8s.io/device-allocations"];
            let has_all = pod["spec"]["nodeName"].is_string() && told.is_string();
            let over = pod["status"]["phase"] == "Succeeded";
            let is_due = match has_all || over {
                true => self.rng.u8(..12) == 0,
                false => self.rng.u16(..1000) == 0,
            };
            if is_due {
                let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
                ends.push((name, has_all && !over && self.rng.bool()));
            }
        }
        for (name, by_itself) in ends {
            match by_itself {
                true => end(&name)(&mut self.server),
                false => remove(&name)(&mut self.server),
            }
        }
    }

    /// Whether no pod is left and everything was given back.
    fn is_over(&self) -> bool {
        if !self.server.list(&PODS).is_empty() {
            return false;
        }
        let shape = shape(&self.server);
        let claims = shape["claims"].as_object().unwrap();
        shape["entries"] == json!({}) && claims.values().all(|it| *it == json!([0, null, false]))
    }

    fn run(mut self, seed: u64) -> Tally {
        for round in 0..ROUNDS {
            if self.round(round) {
                self.witness.end();
                return self.tally;
            }
        }
        panic!("seed {seed}, {:?}: never done: {}", self.size, shape(&self.server));
    }
}

/// Nodes with pools of three kinds, and pods that want one device, two, or what others want too.
fn furnish(size: Size, rng: &mut Rng) -> Objects {
    let mut objects = vec![
        driver(),
        class("gpu", &json!({})),
        template("one", &wish("gpu", 1)),
        template("two", &wish("gpu", 2)),
    ];
    for at in 0..size.nodes {
        let name = format!("n{at}");
        objects.push(node(&name));
        let mut published = pool(&format!("p{at}"), &name, size.devices);
        let spec = &mut published.1["spec"];
        match at % 3 {
            0 => {}
            1 => {
                spec["devices"] = Value::Null;
                spec["deviceCount"] = json!(size.devices);
            }
            _ => *spec = in_parts(spec, size.devices),
        }
        objects.push(published);
    }
    let shared = size.pods.div_ceil(20);
    for at in 0..shared {
        objects.push(claim(&format!("shared{at}"), &wish("gpu", rng.usize(1..3))));
    }
    for at in 0..size.pods {
        let name = format!("pod{at}");
        objects.push(match rng.u8(..10) {
            0..6 => owner(&name, "one"),
            6..8 => owner(&name, "two"),
            _ => user(&name, &format!("shared{}", rng.usize(..shared))),
        });
    }
    objects
}

/// A pool of which only so much can be held at the same time, in halves or in wholes.
fn in_parts(spec: &Value, most: usize) -> Value {
    let device = |name: String, takes: &str| json!({"name": name, "requests": {"memory": takes}});
    let wholes = (0..most.div_ceil(2)).map(|at| device(format!("whole{at}"), "2"));
    let halves = (0..most).map(|at| device(format!("half{at}"), "1"));
    let mut spec = spec.clone();
    spec["resources"] = json!([{"name": "memory", "capacity": most.to_string()}]);
    spec["devices"] = wholes.chain(halves).collect();
    spec
}

fn crowd(size: Size, seed: u64) -> Tally {
    let teams = [Team::new(), Team::new()];
    let tally = Crowd::new(size, seed, &teams).run(seed);
    let all = size.nodes * size.devices;
    assert!(tally.held <= all, "seed {seed}: {} of {all} devices at once", tally.held);
    // They are there to be used: half of them were, where there were pods for all.
    let wanted = all.min(size.pods) / 2;
    assert!(tally.held >= wanted, "seed {seed}: no more than {} of {all} devices", tally.held);
    tally
}

#[test]
fn scenario_94_no_device_is_ever_given_twice() {
    let seeds = seeds(CASES_PER_SEED);
    let mut all = Tally::default();
    for seed in 0..seeds {
        let mut rng = Rng::with_seed(seed);
        let size =
            Size { pods: rng.usize(12..32), nodes: rng.usize(2..6), devices: rng.usize(2..5) };
        let tally = crowd(size, seed);
        all.revisions += tally.revisions;
        all.deaths += tally.deaths;
        all.conflicts += tally.conflicts;
        all.lost += tally.lost;
    }
    assert!(all.deaths > 0 && all.conflicts > 0 && all.lost > 0, "{all:?}");
    println!("{seeds} seeds: {all:?}");
}

#[test]
fn scenario_94_a_large_crowd_gets_and_gives_back() {
    let pods = usize::try_from(seeds(CASES_PER_POD)).unwrap().clamp(20, FULL.pods);
    let size = Size { pods, nodes: pods * FULL.nodes / FULL.pods, ..FULL };
    for seed in 0..seeds(CASES_PER_FULL) {
        let tally = crowd(size, seed);
        assert!(tally.deaths > 0 && tally.conflicts > 0 && tally.lost > 0, "{tally:?}");
        println!("{size:?}, seed {seed}: {tally:?}");
    }
}
