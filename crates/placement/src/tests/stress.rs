//! Many pods, two processes that believe they are the leader, and every fault at once.
//!
//! Processes die at any moment and what they had sent still arrives, or does not; requests and
//! responses are lost or come twice; watch events are late; and for a while most writes to pools
//! conflict. The invariants are checked at every revision, and in the end everything was released.
//!
//! Tests try as many seeds as property tests are configured to: see [`CASES_PER_SEED`].

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use gantry_harness::Server;
use gantry_reconcile::{Change, Controller, Key, ObjectReference, Outcome, Resource, World, Write};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::build::*;
use super::invariants::{self, InvariantChecker};

/// Cases of property tests for each seed: 4 seeds by default, and 1,000 with
/// `PROPTEST_CASES=64000`.
const CASES_PER_SEED: u32 = 64;
/// Cases of property tests for each pod of the largest workload: 32 pods by default, and all of
/// [`FULL`] with `PROPTEST_CASES=8000`.
const CASES_PER_POD: u32 = 8;
/// Cases of property tests for each run of the largest workload.
const CASES_PER_FULL: u32 = 32_000;

/// The size of a workload.
#[derive(Clone, Copy, Debug)]
struct Size {
    pods: usize,
    nodes: usize,
    /// Devices of each node.
    devices: usize,
}

/// The size of the scenario.
const FULL: Size = Size { pods: 1000, nodes: 100, devices: 8 };

/// How many rounds a workload may take: many times what any did.
const MAX_ROUNDS: usize = 5_000;

/// A controller by its index, and an object.
type Slot = (usize, Key);

/// A process that is the leader, or believes so.
struct LeaderProcess<'a> {
    controllers: Vec<&'a dyn Controller>,
    world: World,
    /// How many watch events of each kind were read.
    read: BTreeMap<Resource, usize>,
    queue: BTreeSet<Slot>,
    due: BTreeMap<Slot, Timestamp>,
    /// How often the process was restarted.
    incarnation: usize,
}

impl<'a> LeaderProcess<'a> {
    /// Starts a process: it lists all objects.
    fn start(controllers: Vec<&'a dyn Controller>, server: &Server, life: usize) -> Self {
        let world = World::new(controllers.iter().flat_map(|it| it.kinds()));
        let (mut read, mut changes) = (BTreeMap::new(), Vec::new());
        for store in world.stores() {
            let resource = store.resource();
            for object in server.list(&resource) {
                changes.extend(store.observe(&object.to_string()).unwrap());
            }
            read.insert(resource.clone(), server.history(&resource).count());
        }
        let (queue, due) = (BTreeSet::new(), BTreeMap::new());
        let mut leader = Self { controllers, world, read, queue, due, incarnation: life };
        changes.iter().for_each(|change| leader.enqueue(change));
        leader
    }

    /// Reads the watch events, except the last few of each kind.
    fn read(&mut self, server: &Server, late: usize) {
        let mut changes = Vec::new();
        for (resource, read) in &mut self.read {
            let news: Vec<(&str, bool)> = server.history(resource).skip(*read).collect();
            let count = news.len().saturating_sub(late);
            *read += count;
            let store = self.world.single_store_for(resource).unwrap();
            for (text, end) in &news[..count] {
                let seen = if *end { store.observe_deletion(text) } else { store.observe(text) };
                changes.extend(seen.unwrap());
            }
        }
        changes.iter().for_each(|change| self.enqueue(change));
    }

    fn enqueue(&mut self, change: &Change) {
        for (at, controller) in self.controllers.iter().enumerate() {
            if controller.kinds().iter().any(|it| *it.resource() == change.resource) {
                let keys = controller.enqueue(&self.world, change);
                self.queue.extend(keys.into_iter().map(|key| (at, key)));
            }
        }
    }

    /// Plans everything that is due, as its workers do. Keys with writes are requeued.
    fn plan(&mut self, server: &Server, now: Timestamp) -> Vec<Write> {
        let due = self.due.extract_if(.., |_, when| *when <= now).map(|(slot, _)| slot);
        self.queue.extend(due);
        let mut writes = Vec::new();
        for (at, key) in std::mem::take(&mut self.queue) {
            let plan = self.controllers[at].plan(&self.world, &key, now);
            if let Some(wait) = plan.requeue_after {
                self.due.insert((at, key.clone()), now.checked_add(wait).unwrap());
            }
            if !plan.steps.is_empty() {
                self.queue.insert((at, key));
            }
            // Checked right before the write is sent; it may arrive much later.
            let sent = plan.steps.into_iter().filter(|step| {
                step.require_present.iter().all(|it| is_there(server, it))
                    && !step.require_absent.iter().any(|it| is_there(server, it))
            });
            writes.extend(sent.map(|it| it.write));
        }
        writes
    }
}

fn is_there(server: &Server, object: &ObjectReference) -> bool {
    let found = server.get(&object.resource, &object.key);
    found.is_some_and(|it| it["metadata"]["uid"] == object.uid.as_str())
}

/// A write in flight.
struct InFlightWrite {
    leader: usize,
    incarnation: usize,
    write: Write,
}

/// Counts of faults and checks.
#[derive(Clone, Copy, Debug, Default)]
struct FaultCounts {
    revisions: u64,
    deaths: u64,
    /// Writes that conflicted.
    conflicts: u64,
    lost: u64,
    /// The largest number of devices that were held at the same time.
    held: usize,
}

struct StressRun<'a> {
    size: Size,
    rng: Rng,
    server: Server,
    teams: &'a [Controllers; 2],
    leader_processes: Vec<LeaderProcess<'a>>,
    under_way: Vec<InFlightWrite>,
    invariants: InvariantChecker,
    tally: FaultCounts,
}

impl<'a> StressRun<'a> {
    fn new(size: Size, seed: u64, teams: &'a [Controllers; 2]) -> Self {
        let mut rng = Rng::with_seed(seed);
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut server = Server::new(defaults, now);
        for (resource, object) in initial_objects(size, &mut rng) {
            server.create(&resource, object);
        }
        let leaders = teams
            .iter()
            .map(|team| LeaderProcess::start(team.all(), &server, 0))
            .collect::<Vec<_>>();
        Self {
            size,
            rng,
            server,
            teams,
            leader_processes: leaders,
            under_way: Vec::new(),
            invariants: InvariantChecker::new(invariants::ClaimInvariant::Always),
            tally: FaultCounts::default(),
        }
    }

    /// Runs one round. Returns whether everything is over.
    fn round(&mut self, round: usize) -> bool {
        let now = self.server.now() + SignedDuration::from_millis(700);
        self.server.set_time(now);
        for at in 0..self.leader_processes.len() {
            self.run_leader(at, now);
        }
        // A storm: for ten rounds of every forty most writes to pools conflict.
        self.deliver_writes(round % 40 >= 30);
        while self.server.collect_garbage() {}
        self.tally.revisions += self.invariants.check_new_revisions(&self.server);
        self.tally.held = self.tally.held.max(self.invariants.held());
        self.end_pods();
        self.is_over()
    }

    fn run_leader(&mut self, at: usize, now: Timestamp) {
        if self.rng.u8(..40) == 0 {
            // What it had sent arrives or not, and it never gets the response.
            let life = self.leader_processes[at].incarnation + 1;
            self.leader_processes[at] =
                LeaderProcess::start(self.teams[at].all(), &self.server, life);
            let rng = &mut self.rng;
            self.under_way.retain(|it| it.leader != at || rng.bool());
            self.tally.deaths += 1;
        }
        let late = if self.rng.u8(..4) == 0 { self.rng.usize(..20) } else { 0 };
        self.leader_processes[at].read(&self.server, late);
        if self.rng.u8(..6) > 0 {
            let leader = &mut self.leader_processes[at];
            let writes = leader.plan(&self.server, now);
            let life = leader.incarnation;
            self.under_way.extend(writes.into_iter().map(|write| InFlightWrite {
                leader: at,
                incarnation: life,
                write,
            }));
        }
    }

    /// Delivers writes, in any order; one of ten is delayed.
    fn deliver_writes(&mut self, storm: bool) {
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
                true => Outcome::Conflict("the object has been modified".to_owned()),
                false => self.server.apply(&it.write),
            };
            if self.rng.u8(..30) == 0 {
                self.server.apply(&it.write);
            }
            self.tally.conflicts += u64::from(matches!(outcome, Outcome::Conflict(_)));
            let leader = &mut self.leader_processes[it.leader];
            // The response is lost if the process is gone, and every now and then by itself.
            if leader.incarnation == it.incarnation && self.rng.u8(..30) > 0 {
                let change = leader.world.assume(&it.write, &outcome);
                change.iter().for_each(|change| leader.enqueue(change));
            }
        }
    }

    /// Ends or deletes some of the pods that have everything; deletes some of the others before
    /// they had anything.
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

    /// Whether no pod is left and everything was released.
    fn is_over(&self) -> bool {
        if !self.server.list(&PODS).is_empty() {
            return false;
        }
        let shape = summary(&self.server);
        let claims = shape["claims"].as_object().unwrap();
        shape["entries"] == json!({}) && claims.values().all(|it| *it == json!([0, null, false]))
    }

    fn run(mut self, seed: u64) -> FaultCounts {
        for round in 0..MAX_ROUNDS {
            if self.round(round) {
                self.invariants.check_end();
                return self.tally;
            }
        }
        panic!("seed {seed}, {:?}: never done: {}", self.size, summary(&self.server));
    }
}

/// Returns nodes with pools of three kinds, and pods that claim one device, two, or what others
/// claim too.
fn initial_objects(size: Size, rng: &mut Rng) -> Objects {
    let mut objects = vec![
        driver(),
        class("gpu", &json!({})),
        template("one", &device_request("gpu", 1)),
        template("two", &device_request("gpu", 2)),
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
            _ => *spec = with_shared_capacity(spec, size.devices),
        }
        objects.push(published);
    }
    let shared = size.pods.div_ceil(20);
    for at in 0..shared {
        objects.push(claim(&format!("shared{at}"), &device_request("gpu", rng.usize(1..3))));
    }
    for at in 0..size.pods {
        let name = format!("pod{at}");
        objects.push(match rng.u8(..10) {
            0..6 => pod_with_template(&name, "one"),
            6..8 => pod_with_template(&name, "two"),
            _ => pod_with_claim(&name, &format!("shared{}", rng.usize(..shared))),
        });
    }
    objects
}

/// Returns a pool of which only so much can be held at the same time, in halves or in wholes.
fn with_shared_capacity(spec: &Value, most: usize) -> Value {
    let device = |name: String, takes: &str| json!({"name": name, "requests": {"memory": takes}});
    let wholes = (0..most.div_ceil(2)).map(|at| device(format!("whole{at}"), "2"));
    let halves = (0..most).map(|at| device(format!("half{at}"), "1"));
    let mut spec = spec.clone();
    spec["resources"] = json!([{"name": "memory", "capacity": most.to_string()}]);
    spec["devices"] = wholes.chain(halves).collect();
    spec
}

fn run_stress(size: Size, seed: u64) -> FaultCounts {
    let teams = [Controllers::new(), Controllers::new()];
    let tally = StressRun::new(size, seed, &teams).run(seed);
    let all = size.nodes * size.devices;
    assert!(tally.held <= all, "seed {seed}: {} of {all} devices at once", tally.held);
    // The devices must be used: half of them were, where there were pods for all.
    let wanted = all.min(size.pods) / 2;
    assert!(tally.held >= wanted, "seed {seed}: no more than {} of {all} devices", tally.held);
    tally
}

#[test]
fn scenario_94_no_device_is_ever_allocated_twice() {
    let seeds = seeds(CASES_PER_SEED);
    let mut all = FaultCounts::default();
    for seed in 0..seeds {
        let mut rng = Rng::with_seed(seed);
        let size =
            Size { pods: rng.usize(12..32), nodes: rng.usize(2..6), devices: rng.usize(2..5) };
        let tally = run_stress(size, seed);
        all.revisions += tally.revisions;
        all.deaths += tally.deaths;
        all.conflicts += tally.conflicts;
        all.lost += tally.lost;
    }
    assert!(all.deaths > 0 && all.conflicts > 0 && all.lost > 0, "{all:?}");
    println!("{seeds} seeds: {all:?}");
}

#[test]
fn scenario_94_many_pods_allocate_and_release() {
    let pods = usize::try_from(seeds(CASES_PER_POD)).unwrap().clamp(20, FULL.pods);
    let size = Size { pods, nodes: pods * FULL.nodes / FULL.pods, ..FULL };
    for seed in 0..seeds(CASES_PER_FULL) {
        let tally = run_stress(size, seed);
        assert!(tally.deaths > 0 && tally.conflicts > 0 && tally.lost > 0, "{tally:?}");
        println!("{size:?}, seed {seed}: {tally:?}");
    }
}
