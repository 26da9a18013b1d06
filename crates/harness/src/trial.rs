//! One run of a scenario.

use std::collections::VecDeque;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::outside::Edges;
use super::replica::{Replica, Slot};
use super::server::refused;
use super::{Crash, Ending, Failure, Faults, Scenario, Sent, Server};
use gantry_reconcile::Call;
use gantry_reconcile::object::{Resource, Revision};
use gantry_reconcile::plan::Note;
use gantry_reconcile::write::{Outcome, Write};

mod moves;

/// When every run begins.
const BEGIN: i64 = 1_800_000_000;
/// After how many moves a run that does not settle is given up.
const PATIENCE: u64 = 20_000;
/// How many moves the faults last.
const TROUBLE: u64 = 300;
/// How many lines of what happened are kept.
const TRACE: usize = 60;

/// What a run is like beside what the scenario says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions<'a> {
    pub(super) seed: u64,
    pub(super) faults: Faults,
    /// How many processes there are.
    pub(super) replicas: usize,
    /// Objects that are there too, and whose writes never come through: [`spoil`].
    pub(super) bad: &'a [(Resource, Value)],
}

/// What came of a run.
pub(super) struct Run {
    pub(super) ending: Ending,
    /// What happened last.
    pub(super) trace: String,
    /// The moves after which it makes a difference to die.
    pub(super) deaths: Vec<Death>,
}

/// A moment at which a process may die.
///
/// What is left then is the server, what is on its way to it, and the time. Where none of these has
/// changed since the last move, dying is what it would have been before that move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) after: u64,
    /// Whether writes were under way.
    pub(super) sent: bool,
}

/// Runs a scenario once.
pub(super) fn run(
    scenario: &Scenario<'_>,
    conditions: Conditions<'_>,
) -> Result<Run, Box<Failure>> {
    let mut trial = Trial::new(scenario, conditions);
    // Without faults chance decides the order until all is done; with them there is always more.
    let calm = conditions.faults.is_calm();
    while !trial.script.is_empty() || (trial.moves < TROUBLE && !(calm && trial.is_quiet())) {
        trial.check_broken()?;
        if !trial.shake() {
            break;
        }
    }
    let horizon = SignedDuration::try_from(scenario.horizon).unwrap_or_default();
    trial.faults = Faults { crash: conditions.faults.crash, ..Faults::none() };
    trial.settle(horizon)?;
    let (moves, deaths) = (trial.moves, std::mem::take(&mut trial.deaths));
    // Whoever forgets everything must find nothing to do.
    trial.faults = Faults::none();
    trial.written = Some(Vec::new());
    for place in 0..trial.replicas.len() {
        trial.replicas[place] = Replica::start(scenario, &trial.server);
    }
    trial.called = Some(Vec::new());
    trial.settle(horizon)?;
    trial.check_broken()?;
    let restless = trial.written.take().unwrap_or_default();
    let restless_calls = trial.called.take().unwrap_or_default();
    let held = trial.replicas.iter().flat_map(Replica::held).collect();
    let trace = trial.trace();
    let Trial { server, notes, .. } = trial;
    Ok(Run {
        ending: Ending { server, moves, restless, restless_calls, held, notes },
        trace,
        deaths,
    })
}

pub(super) struct Trial<'a> {
    scenario: &'a Scenario<'a>,
    pub(super) server: Server,
    pub(super) replicas: Vec<Replica<'a>>,
    /// What processes that died had sent.
    ghosts: Vec<Write>,
    /// Calls of processes that died or gave them up.
    ghost_calls: Vec<Call>,
    /// Which of the users' actions are left.
    script: VecDeque<usize>,
    rng: Rng,
    seed: u64,
    faults: Faults,
    moves: u64,
    deaths: Vec<Death>,
    /// What is left of everything when all processes die, as of the last move.
    left: Left,
    lines: VecDeque<String>,
    /// What was told.
    pub(super) notes: Vec<Note>,
    /// What is written, when somebody wants to know.
    written: Option<Vec<Write>>,
    /// What is called, likewise.
    called: Option<Vec<Call>>,
    /// The invariant that did not hold first, and why.
    broken: Option<(&'static str, String)>,
}

impl std::fmt::Debug for Trial<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Trial").field("server", &self.server).finish_non_exhaustive()
    }
}

/// The server's state, the time, and how much there is of the rest.
type Left = (Revision, Timestamp, u64, usize, usize, usize);

/// What can happen next.
#[derive(Clone, Copy)]
enum Move {
    Deliver(usize),
    Plan(usize),
    Land(usize),
    /// A question about the outside is asked.
    Ask(usize),
    /// An answer arrives.
    Answer(usize),
    /// A call is sent, arrives, or is replied to.
    Send(usize),
    Arrive(usize),
    Reply(usize),
    Ghost,
    GhostCall,
    Collect,
    User,
    Wait,
}

impl<'a> Trial<'a> {
    pub(super) fn new(scenario: &'a Scenario<'a>, conditions: Conditions<'_>) -> Self {
        let Conditions { seed, faults, replicas, bad } = conditions;
        let now = Timestamp::from_second(BEGIN).unwrap_or_default();
        let mut server = Server::new(scenario.defaults, now);
        server.edges = Edges::new(&scenario.outside.edges);
        server.edges.pass(now);
        for (resource, object) in scenario.objects.iter().chain(bad) {
            server.create(resource, object.clone());
        }
        if !bad.is_empty() {
            server.intercept(spoil);
        }
        let start = || Replica::start(scenario, &server);
        let replicas = (0..replicas.max(1)).map(|_| start()).collect();
        Self {
            scenario,
            left: (server.revision(), now, 0, scenario.script.len(), 0, 0),
            server,
            replicas,
            ghosts: Vec::new(),
            ghost_calls: Vec::new(),
            script: (0..scenario.script.len()).collect(),
            rng: Rng::with_seed(seed),
            seed,
            faults,
            moves: 0,
            deaths: Vec::new(),
            lines: VecDeque::new(),
            notes: Vec::new(),
            written: None,
            called: None,
            broken: None,
        }
    }

    /// Whether nothing is to be done at this moment.
    fn is_quiet(&self) -> bool {
        let idle = self.replicas.iter().all(|it| it.is_idle(&self.server));
        idle && self.ghosts.is_empty() && self.ghost_calls.is_empty()
    }

    /// Ends a move that was made: whoever is to die after it dies.
    fn moved(&mut self, place: usize) {
        let sent = self.replicas.iter().map(|it| it.in_flight.len() + it.calls.requests()).sum();
        let (script, ghosts) = (self.script.len(), self.ghosts.len() + self.ghost_calls.len());
        let (revision, arrivals) = (self.server.revision(), self.server.edges.arrivals);
        let left = (revision, self.server.now(), arrivals, script, ghosts, sent);
        if left != self.left {
            self.deaths.push(Death { after: self.moves, sent: sent > 0 });
            self.left = left;
        }
        if let Some(Crash { after, sent }) = self.faults.crash
            && after == self.moves
        {
            self.crash(place, |_| sent == Sent::Late);
        }
        self.moves += 1;
        self.check_invariants();
    }

    /// Finds out whether what must always hold does. The first that does not is remembered.
    fn check_invariants(&mut self) {
        for invariant in &self.scenario.outside.always {
            if self.broken.is_none()
                && let Err(why) = (invariant.check)(&self.server)
            {
                self.note(&format!("{} does not hold: {why}", invariant.name));
                self.broken = Some((invariant.name, why));
            }
        }
    }

    /// Ends the run when an invariant did not hold.
    fn check_broken(&self) -> Result<(), Box<Failure>> {
        let Some((invariant, why)) = self.broken.clone() else { return Ok(()) };
        let (seed, moves, trace) = (self.seed, self.moves, self.trace());
        Err(Box::new(Failure::Broken { seed, moves, invariant, why, trace }))
    }

    /// One move, by chance. Returns whether there was anything to do.
    fn shake(&mut self) -> bool {
        let mut may: Vec<Move> = Vec::new();
        for (place, replica) in self.replicas.iter().enumerate() {
            // What can go on weighs more than what could also wait: a run is a walk, not a standstill.
            if !replica.behind(&self.server).is_empty() {
                may.extend([Move::Deliver(place); 3]);
            }
            if !replica.queue.is_empty() {
                may.extend([Move::Plan(place); 3]);
            }
            if !replica.in_flight.is_empty() {
                may.extend([Move::Land(place); 4]);
            }
            let now = self.server.now();
            if !replica.questions(now).is_empty() {
                may.extend([Move::Ask(place); 2]);
            }
            if !replica.answers().is_empty() {
                may.extend([Move::Answer(place); 3]);
            }
            if replica.calls.can_send(now) > 0 {
                may.extend([Move::Send(place); 3]);
            }
            if replica.calls.requests() > 0 {
                may.extend([Move::Arrive(place); 3]);
            }
            if replica.calls.replies() > 0 {
                may.extend([Move::Reply(place); 3]);
            }
        }
        if !self.ghost_calls.is_empty() {
            may.push(Move::GhostCall);
        }
        if !self.ghosts.is_empty() {
            may.push(Move::Ghost);
        }
        if !self.script.is_empty() {
            may.push(Move::User);
        }
        may.push(Move::Collect);
        let busy = may.len() > 1;
        if busy || self.replicas.iter().any(|it| it.next_due(self.server.now()).is_some()) {
            may.push(Move::Wait);
        } else {
            return false;
        }
        if self.chance(self.faults.crashes) {
            let place = self.rng.usize(..self.replicas.len());
            self.crash(place, Rng::bool);
            self.moves += 1;
            self.check_invariants();
            return true;
        }
        if self.chance(self.faults.relists) {
            let place = self.rng.usize(..self.replicas.len());
            self.relist(place);
            self.moves += 1;
            return true;
        }
        let pick = may[self.rng.usize(..may.len())];
        self.make(pick);
        true
    }

    fn make(&mut self, pick: Move) {
        let place = match pick {
            Move::Deliver(place)
            | Move::Plan(place)
            | Move::Land(place)
            | Move::Ask(place)
            | Move::Answer(place)
            | Move::Send(place)
            | Move::Arrive(place)
            | Move::Reply(place) => place,
            Move::Ghost | Move::GhostCall | Move::Collect | Move::User | Move::Wait => 0,
        };
        self.act(pick);
        self.moved(place);
    }

    /// A process dies and starts anew; what it had sent may still arrive.
    fn crash(&mut self, place: usize, arrives: impl Fn(&mut Rng) -> bool) {
        self.note(&format!("#{place} dies"));
        let fresh = Replica::start(self.scenario, &self.server);
        let old = std::mem::replace(&mut self.replicas[place], fresh);
        for call in old.calls.die() {
            if arrives(&mut self.rng) {
                self.ghost_calls.push(call);
            }
        }
        for (_, step) in old.in_flight {
            if self.unsent(&step).is_none() && arrives(&mut self.rng) {
                self.ghosts.push(step.write);
            }
        }
    }

    /// All processes die and start anew.
    pub(super) fn restart(&mut self) {
        for place in 0..self.replicas.len() {
            self.crash(place, |_| false);
        }
    }

    fn relist(&mut self, place: usize) {
        let kinds = self.replicas[place].kinds();
        if kinds.is_empty() {
            return;
        }
        let resource = &kinds[self.rng.usize(..kinds.len())];
        let changes = self.replicas[place].relist(resource, &self.server);
        for change in changes {
            self.replicas[place].tell(&change, self.server.now());
        }
    }

    pub(super) fn pass(&mut self, time: SignedDuration) {
        let now = self.server.now();
        let now = now.checked_add(time).unwrap_or(now);
        self.server.set_time(now);
        for replica in &mut self.replicas {
            replica.ring(now);
        }
    }

    /// Goes on without faults until nothing is left to do for as long as that.
    pub(super) fn settle(&mut self, horizon: SignedDuration) -> Result<(), Box<Failure>> {
        let end = self.server.now().checked_add(horizon).unwrap_or(Timestamp::MAX);
        let begin = self.moves;
        loop {
            while self.step() {
                self.check_broken()?;
                if self.moves - begin > PATIENCE {
                    let (seed, moves, trace) = (self.seed, self.moves, self.trace());
                    return Err(Box::new(Failure::Unsettled { seed, moves, trace }));
                }
            }
            let due = self.replicas.iter().filter_map(|it| it.next_due(self.server.now()));
            let due = due.chain(self.server.edges.next_change()).min();
            let Some(due) = due.filter(|due| *due <= end) else { return Ok(()) };
            let wait = due.duration_since(self.server.now());
            self.pass(wait.max(SignedDuration::ZERO));
            self.moved(0);
        }
    }

    /// The next thing to do at this moment. Returns whether there was one.
    fn step(&mut self) -> bool {
        for place in 0..self.replicas.len() {
            if !self.replicas[place].behind(&self.server).is_empty() {
                self.make(Move::Deliver(place));
                return true;
            }
            if !self.replicas[place].in_flight.is_empty() {
                self.make(Move::Land(place));
                return true;
            }
            if let Some(slot) = self.replicas[place].queue.first().cloned() {
                self.plan(place, &slot);
                self.moved(place);
                return true;
            }
            let (replica, now) = (&self.replicas[place], self.server.now());
            let next = match () {
                () if !replica.answers().is_empty() => Some(Move::Answer(place)),
                () if replica.calls.replies() > 0 => Some(Move::Reply(place)),
                () if replica.calls.requests() > 0 => Some(Move::Arrive(place)),
                () if replica.calls.can_send(now) > 0 => Some(Move::Send(place)),
                () if !replica.questions(now).is_empty() => Some(Move::Ask(place)),
                () => None,
            };
            if let Some(next) = next {
                self.make(next);
                return true;
            }
        }
        if !self.ghost_calls.is_empty() {
            self.make(Move::GhostCall);
            return true;
        }
        if !self.ghosts.is_empty() {
            self.make(Move::Ghost);
            return true;
        }
        let collected = self.server.collect();
        if collected {
            self.moved(0);
        }
        collected
    }

    fn chance(&mut self, of_thousand: u32) -> bool {
        of_thousand > 0 && self.rng.u32(..1000) < of_thousand
    }

    fn note(&mut self, line: &str) {
        if self.lines.len() == TRACE {
            self.lines.pop_front();
        }
        let time = self.server.now();
        self.lines.push_back(format!("{:>6} {time} {line}", self.moves));
    }

    fn trace(&self) -> String {
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// What becomes of writes in a world with bad objects: the name of each says what is wrong with it,
/// and what is made for it has a name or a namespace that begins with that.
fn spoil(write: &Write) -> Option<Outcome> {
    let key = write.key();
    let is = |what: &str| key.name().starts_with(what) || key.namespace().starts_with(what);
    if is(super::REFUSED) {
        let message = format!("{} {key} is invalid: the test says so", write.resource());
        return Some(refused(422, "Invalid", message));
    }
    let conflict = || Outcome::Stale("the object has been modified".to_owned());
    is(super::CONFLICTED).then(conflict)
}
