//! One run of a scenario.

use std::collections::VecDeque;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::external::SimulatedPeers;
use super::replica::{ControllerKey, Replica};
use super::server::refused;
use super::{Crash, Failure, Faults, FinalState, InFlightRequests, Scenario, Server};
use gantry_reconcile::Call;
use gantry_reconcile::object::{Resource, Revision};
use gantry_reconcile::plan::Event;
use gantry_reconcile::write::{Outcome, Write};

mod moves;

/// The time at which every run begins.
const START_UNIX_SECONDS: i64 = 1_800_000_000;
/// After how many moves a run that does not settle is aborted.
const MAX_MOVES_TO_SETTLE: u64 = 20_000;
/// How many moves the faults last.
const MOVES_WITH_FAULTS: u64 = 300;
/// How many lines of the trace are kept.
const MAX_TRACE_LINES: usize = 60;

/// The parameters of a run beside the scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions<'a> {
    pub(super) seed: u64,
    pub(super) faults: Faults,
    /// The number of processes.
    pub(super) replicas: usize,
    /// Additional objects whose writes always fail: [`intercept_bad_objects`].
    pub(super) bad: &'a [(Resource, Value)],
}

/// The result of a run.
pub(super) struct CompletedRun {
    pub(super) final_state: FinalState,
    /// The last moves.
    pub(super) trace: String,
    /// The moves after which a crash makes a difference.
    pub(super) crash_points: Vec<CrashPoint>,
}

/// A point at which a process may crash.
///
/// What survives a crash is the server, the requests in flight, and the time. Where none of these
/// has changed since the last move, a crash has the same effect as before that move.
#[derive(Clone, Copy, Debug)]
pub(super) struct CrashPoint {
    pub(super) after: u64,
    /// Whether writes were in flight.
    pub(super) has_in_flight: bool,
}

/// Runs a scenario once.
pub(super) fn run(
    scenario: &Scenario<'_>,
    conditions: Conditions<'_>,
) -> Result<CompletedRun, Box<Failure>> {
    let mut trial = Simulation::new(scenario, conditions);
    // Without faults the order is random until all is done; with faults there is always more.
    let calm = conditions.faults.has_no_random_faults();
    while !trial.script.is_empty()
        || (trial.moves < MOVES_WITH_FAULTS && !(calm && trial.is_quiet()))
    {
        trial.check_violated()?;
        if !trial.random_move() {
            break;
        }
    }
    let horizon = SignedDuration::try_from(scenario.horizon).unwrap_or_default();
    trial.faults = Faults { crash: conditions.faults.crash, ..Faults::none() };
    trial.settle(horizon)?;
    let (moves, deaths) = (trial.moves, std::mem::take(&mut trial.crash_points));
    // A process that restarts without its memory must find nothing to do.
    trial.faults = Faults::none();
    trial.written = Some(Vec::new());
    for place in 0..trial.replicas.len() {
        trial.replicas[place] = Replica::start(scenario, &trial.server);
    }
    trial.called = Some(Vec::new());
    trial.settle(horizon)?;
    trial.check_violated()?;
    let restless = trial.written.take().unwrap_or_default();
    let restless_calls = trial.called.take().unwrap_or_default();
    let held = trial.replicas.iter().flat_map(Replica::held).collect();
    let trace = trial.trace();
    let Simulation { server, events: notes, .. } = trial;
    Ok(CompletedRun {
        final_state: FinalState {
            server,
            moves,
            writes_after_restart: restless,
            calls_after_restart: restless_calls,
            held,
            events: notes,
        },
        trace,
        crash_points: deaths,
    })
}

pub(super) struct Simulation<'a> {
    scenario: &'a Scenario<'a>,
    pub(super) server: Server,
    pub(super) replicas: Vec<Replica<'a>>,
    /// Writes in flight of processes that crashed.
    late_writes: Vec<Write>,
    /// Calls of processes that crashed or cancelled them.
    late_calls: Vec<Call>,
    /// The user actions that are left.
    script: VecDeque<usize>,
    rng: Rng,
    seed: u64,
    faults: Faults,
    moves: u64,
    crash_points: Vec<CrashPoint>,
    /// The state that survives a crash of all processes, as of the last move.
    external_state: ExternalState,
    trace_lines: VecDeque<String>,
    /// The recorded events.
    pub(super) events: Vec<Event>,
    /// The writes, while they are recorded.
    written: Option<Vec<Write>>,
    /// The calls, while they are recorded.
    called: Option<Vec<Call>>,
    /// The first invariant that was violated, and why.
    violated_invariant: Option<(&'static str, String)>,
}

impl std::fmt::Debug for Simulation<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Trial").field("server", &self.server).finish_non_exhaustive()
    }
}

/// The server's state, the time, and the sizes of the rest.
type ExternalState = (Revision, Timestamp, u64, usize, usize, usize);

/// What can happen next.
#[derive(Clone, Copy)]
enum Move {
    Deliver(usize),
    Plan(usize),
    ApplyWrite(usize),
    /// A question about an external system is asked.
    Ask(usize),
    /// An answer arrives.
    Answer(usize),
    /// A call is sent, arrives, or gets its reply.
    Send(usize),
    Arrive(usize),
    Reply(usize),
    LateWrite,
    LateCall,
    CollectGarbage,
    User,
    Wait,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(scenario: &'a Scenario<'a>, conditions: Conditions<'_>) -> Self {
        let Conditions { seed, faults, replicas, bad } = conditions;
        let now = Timestamp::from_second(START_UNIX_SECONDS).unwrap_or_default();
        let mut server = Server::new(scenario.defaults, now);
        server.peers = SimulatedPeers::new(&scenario.external.peers);
        server.peers.advance_to(now);
        for (resource, object) in scenario.objects.iter().chain(bad) {
            server.create(resource, object.clone());
        }
        if !bad.is_empty() {
            server.intercept(intercept_bad_objects);
        }
        let start = || Replica::start(scenario, &server);
        let replicas = (0..replicas.max(1)).map(|_| start()).collect();
        Self {
            scenario,
            external_state: (server.revision(), now, 0, scenario.script.len(), 0, 0),
            server,
            replicas,
            late_writes: Vec::new(),
            late_calls: Vec::new(),
            script: (0..scenario.script.len()).collect(),
            rng: Rng::with_seed(seed),
            seed,
            faults,
            moves: 0,
            crash_points: Vec::new(),
            trace_lines: VecDeque::new(),
            events: Vec::new(),
            written: None,
            called: None,
            violated_invariant: None,
        }
    }

    /// Whether there is nothing to do now.
    fn is_quiet(&self) -> bool {
        let idle = self.replicas.iter().all(|it| it.is_idle(&self.server));
        idle && self.late_writes.is_empty() && self.late_calls.is_empty()
    }

    /// Ends a move: crashes the process if it is to crash after it.
    fn end_move(&mut self, place: usize) {
        let sent = self.replicas.iter().map(|it| it.in_flight.len() + it.calls.requests()).sum();
        let (script, ghosts) = (self.script.len(), self.late_writes.len() + self.late_calls.len());
        let (revision, arrivals) = (self.server.revision(), self.server.peers.arrivals);
        let left = (revision, self.server.now(), arrivals, script, ghosts, sent);
        if left != self.external_state {
            self.crash_points.push(CrashPoint { after: self.moves, has_in_flight: sent > 0 });
            self.external_state = left;
        }
        if let Some(Crash { after, in_flight: sent }) = self.faults.crash
            && after == self.moves
        {
            self.crash(place, |_| sent == InFlightRequests::Late);
        }
        self.moves += 1;
        self.check_invariants();
    }

    /// Checks the invariants. The first violation is remembered.
    fn check_invariants(&mut self) {
        for invariant in &self.scenario.external.invariants {
            if self.violated_invariant.is_none()
                && let Err(why) = (invariant.check)(&self.server)
            {
                self.trace_line(&format!("{} does not hold: {why}", invariant.name));
                self.violated_invariant = Some((invariant.name, why));
            }
        }
    }

    /// Ends the run when an invariant was violated.
    fn check_violated(&self) -> Result<(), Box<Failure>> {
        let Some((invariant, why)) = self.violated_invariant.clone() else { return Ok(()) };
        let (seed, moves, trace) = (self.seed, self.moves, self.trace());
        Err(Box::new(Failure::InvariantViolated { seed, moves, invariant, why, trace }))
    }

    /// Makes a random move. Returns whether there was anything to do.
    fn random_move(&mut self) -> bool {
        let mut may: Vec<Move> = Vec::new();
        for (place, replica) in self.replicas.iter().enumerate() {
            // Moves that make progress have a higher weight than those that could also wait.
            if !replica.lagging_kinds(&self.server).is_empty() {
                may.extend([Move::Deliver(place); 3]);
            }
            if !replica.queue.is_empty() {
                may.extend([Move::Plan(place); 3]);
            }
            if !replica.in_flight.is_empty() {
                may.extend([Move::ApplyWrite(place); 4]);
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
        if !self.late_calls.is_empty() {
            may.push(Move::LateCall);
        }
        if !self.late_writes.is_empty() {
            may.push(Move::LateWrite);
        }
        if !self.script.is_empty() {
            may.push(Move::User);
        }
        may.push(Move::CollectGarbage);
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
        self.perform(pick);
        true
    }

    fn perform(&mut self, pick: Move) {
        let place = match pick {
            Move::Deliver(place)
            | Move::Plan(place)
            | Move::ApplyWrite(place)
            | Move::Ask(place)
            | Move::Answer(place)
            | Move::Send(place)
            | Move::Arrive(place)
            | Move::Reply(place) => place,
            Move::LateWrite | Move::LateCall | Move::CollectGarbage | Move::User | Move::Wait => 0,
        };
        self.act(pick);
        self.end_move(place);
    }

    /// Crashes and restarts a process; what it had sent may still arrive.
    fn crash(&mut self, place: usize, arrives: impl Fn(&mut Rng) -> bool) {
        self.trace_line(&format!("#{place} dies"));
        let fresh = Replica::start(self.scenario, &self.server);
        let old = std::mem::replace(&mut self.replicas[place], fresh);
        for call in old.calls.into_requests() {
            if arrives(&mut self.rng) {
                self.late_calls.push(call);
            }
        }
        for (_, step) in old.in_flight {
            if self.failed_precondition(&step).is_none() && arrives(&mut self.rng) {
                self.late_writes.push(step.write);
            }
        }
    }

    /// Crashes and restarts all processes.
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
            self.replicas[place].notify(&change, self.server.now());
        }
    }

    pub(super) fn advance(&mut self, time: SignedDuration) {
        let now = self.server.now();
        let now = now.checked_add(time).unwrap_or(now);
        self.server.set_time(now);
        for replica in &mut self.replicas {
            replica.fire_timers(now);
        }
    }

    /// Continues without faults until nothing is left to do for as long as that.
    pub(super) fn settle(&mut self, horizon: SignedDuration) -> Result<(), Box<Failure>> {
        let end = self.server.now().checked_add(horizon).unwrap_or(Timestamp::MAX);
        let begin = self.moves;
        loop {
            while self.step() {
                self.check_violated()?;
                if self.moves - begin > MAX_MOVES_TO_SETTLE {
                    let (seed, moves, trace) = (self.seed, self.moves, self.trace());
                    return Err(Box::new(Failure::Unsettled { seed, moves, trace }));
                }
            }
            let due = self.replicas.iter().filter_map(|it| it.next_due(self.server.now()));
            let due = due.chain(self.server.peers.next_change()).min();
            let Some(due) = due.filter(|due| *due <= end) else { return Ok(()) };
            let wait = due.duration_since(self.server.now());
            self.advance(wait.max(SignedDuration::ZERO));
            self.end_move(0);
        }
    }

    /// Makes the next move that is due now. Returns whether there was one.
    fn step(&mut self) -> bool {
        for place in 0..self.replicas.len() {
            if !self.replicas[place].lagging_kinds(&self.server).is_empty() {
                self.perform(Move::Deliver(place));
                return true;
            }
            if !self.replicas[place].in_flight.is_empty() {
                self.perform(Move::ApplyWrite(place));
                return true;
            }
            if let Some(slot) = self.replicas[place].queue.first().cloned() {
                self.plan(place, &slot);
                self.end_move(place);
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
                self.perform(next);
                return true;
            }
        }
        if !self.late_calls.is_empty() {
            self.perform(Move::LateCall);
            return true;
        }
        if !self.late_writes.is_empty() {
            self.perform(Move::LateWrite);
            return true;
        }
        let collected = self.server.collect_garbage();
        if collected {
            self.end_move(0);
        }
        collected
    }

    fn chance(&mut self, of_thousand: u32) -> bool {
        of_thousand > 0 && self.rng.u32(..1000) < of_thousand
    }

    fn trace_line(&mut self, line: &str) {
        if self.trace_lines.len() == MAX_TRACE_LINES {
            self.trace_lines.pop_front();
        }
        let time = self.server.now();
        self.trace_lines.push_back(format!("{:>6} {time} {line}", self.moves));
    }

    fn trace(&self) -> String {
        self.trace_lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// The outcome of writes in a world with bad objects: the name of each says what is wrong with it,
/// and objects that are created for it have a name or a namespace that begins with that.
fn intercept_bad_objects(write: &Write) -> Option<Outcome> {
    let key = write.key();
    let is = |what: &str| key.name().starts_with(what) || key.namespace().starts_with(what);
    if is(super::REFUSED_PREFIX) {
        let message = format!("{} {key} is invalid: the test says so", write.resource());
        return Some(refused(422, "Invalid", message));
    }
    let conflict = || Outcome::Conflict("the object has been modified".to_owned());
    is(super::CONFLICTED_PREFIX).then(conflict)
}
