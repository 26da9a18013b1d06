//! Candidates, a server between them, and everything that can go wrong on the way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use gantry_process::clock::Moment;
use jiff::Timestamp;
use proptest::prelude::*;

use super::super::{Action, Election, Heard, Move, Record, Seen, Timing};

/// When the faults end, and when the contest does, in milliseconds.
const FAULTS: u64 = 1_000_000;
const END: u64 = 1_100_000;

/// What happens at a time; who it happens to comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A process goes on, if it was not told otherwise since.
    Step(usize, u64),
    /// What a process waited for is there; it counts only if the process still waits for it.
    Reply(usize, u64),
    /// A process has waited for long enough.
    Timeout(usize, u64),
    /// A request arrives at the server.
    Arrive(usize, u64),
    /// A process is told to leave, dies, or is stopped for a while.
    Leave(usize),
    Die(usize),
    Pause(usize),
}

struct Process {
    election: Election,
    life: u32,
    paused_until: u64,
    /// The number of the request it waits for, what it asked and when.
    waits: Option<(u64, Move, Moment)>,
    reply: Option<Heard>,
    /// The number of the step it waits for.
    step: u64,
}

struct Contest {
    now: u64,
    chance: fastrand::Rng,
    timing: Timing,
    processes: Vec<Process>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    requests: Vec<Move>,
    lease: Option<(Record, u64)>,
    revision: u64,
    steps: u64,
    /// How many in a hundred messages are lost, and how many are slow.
    losses: (u32, u32),
    /// How often the lease went to another.
    terms: u64,
}

fn at(now: u64) -> Moment {
    Moment::default() + Duration::from_millis(now)
}

impl Contest {
    fn new(seed: u64, candidates: usize, timing: Timing, losses: (u32, u32)) -> Self {
        let mut contest = Self {
            now: 0,
            chance: fastrand::Rng::with_seed(seed),
            timing,
            processes: Vec::new(),
            events: BinaryHeap::new(),
            requests: Vec::new(),
            lease: None,
            revision: 0,
            steps: 0,
            losses,
            terms: 0,
        };
        for who in 0..candidates {
            let process = contest.born(who, 0);
            contest.processes.push(process);
            contest.step_after(0, who);
            for event in [Event::Leave(who), Event::Die(who), Event::Pause(who)] {
                contest.again(event);
            }
        }
        contest
    }

    fn born(&mut self, who: usize, life: u32) -> Process {
        let identity = format!("{who}.{life}");
        let election = Election::new(identity, self.timing, self.chance.fork());
        Process { election, life, paused_until: 0, waits: None, reply: None, step: 0 }
    }

    fn after(&mut self, wait: u64, event: Event) {
        let ticket = self.chance.u64(..);
        self.events.push(Reverse((self.now + wait, ticket, event)));
    }

    fn step_after(&mut self, wait: u64, who: usize) {
        self.steps += 1;
        self.processes[who].step = self.steps;
        self.after(wait, Event::Step(who, self.steps));
    }

    fn is_faulty(&self) -> bool {
        self.now < FAULTS
    }

    /// The way of one message; nothing when it is lost.
    fn way(&mut self) -> Option<u64> {
        if !self.is_faulty() {
            return Some(self.chance.u64(1..20));
        }
        let (lost, slow) = self.losses;
        match self.chance.u32(0..100) {
            number if number < lost => None,
            number if number < lost + slow => Some(self.chance.u64(1..12_000)),
            _ => Some(self.chance.u64(1..200)),
        }
    }

    /// Runs to the end and says what went wrong.
    fn run(mut self) -> Result<(), String> {
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > END {
                break;
            }
            self.now = now;
            self.happens(event);
            let leaders = self.leaders();
            if leaders.len() > 1 {
                return Err(format!("at {now} ms these lead at once: {leaders:?}"));
            }
        }
        self.now = END;
        match (self.leaders().len(), self.terms) {
            (1, 1..) => Ok(()),
            (leaders, terms) => Err(format!("{leaders} lead at the end, after {terms} terms")),
        }
    }

    fn leaders(&self) -> Vec<usize> {
        let now = at(self.now);
        let leads =
            |who: &usize| self.processes[*who].election.leads_until().is_some_and(|end| now < end);
        (0..self.processes.len()).filter(leads).collect()
    }

    fn happens(&mut self, event: Event) {
        if let Event::Step(who, _) | Event::Reply(who, _) | Event::Timeout(who, _) = event {
            let paused_until = self.processes[who].paused_until;
            if self.now < paused_until {
                // It happens when the process goes on. What comes first then is anybody's guess.
                return self.after(paused_until - self.now, event);
            }
        }
        match event {
            Event::Step(who, number) if self.processes[who].step == number => self.step(who),
            Event::Step(..) => {}
            Event::Reply(who, number) => {
                let process = &mut self.processes[who];
                if process.waits.as_ref().is_some_and(|it| it.0 == number) {
                    let heard = process.reply.take().unwrap();
                    self.hears(who, heard);
                }
            }
            Event::Timeout(who, number) => {
                let process = &mut self.processes[who];
                if process.waits.as_ref().is_some_and(|it| it.0 == number) {
                    self.hears(who, Heard::Nothing("late".to_owned()));
                }
            }
            Event::Arrive(who, number) => self.arrives(who, number),
            Event::Leave(who) => {
                if let Some(what) = self.processes[who].election.release(Timestamp::UNIX_EPOCH) {
                    // Its permit goes first; then it says so, once.
                    self.reborn(who);
                    self.send(who, what);
                }
                self.again(Event::Leave(who));
            }
            Event::Die(who) => {
                self.reborn(who);
                self.again(Event::Die(who));
            }
            Event::Pause(who) => {
                if self.is_faulty() {
                    self.processes[who].paused_until = self.now + self.chance.u64(0..40_000);
                }
                self.again(Event::Pause(who));
            }
        }
    }

    fn again(&mut self, event: Event) {
        let wait = self.chance.u64(1..200_000);
        if self.now + wait < FAULTS {
            self.after(wait, event);
        }
    }

    fn reborn(&mut self, who: usize) {
        let life = self.processes[who].life + 1;
        let waking = self.processes[who].paused_until;
        self.processes[who] = self.born(who, life);
        self.processes[who].paused_until = waking;
        let wait = self.chance.u64(0..5_000);
        self.step_after(wait, who);
    }

    fn step(&mut self, who: usize) {
        if self.processes[who].waits.is_some() {
            return;
        }
        let now = at(self.now);
        let process = &mut self.processes[who];
        match process.election.step(now, Timestamp::UNIX_EPOCH) {
            Action::Wait(until) => {
                let wait = u64::try_from((until - now).as_millis()).unwrap() + 1;
                self.step_after(wait, who);
            }
            Action::Stop(_) => self.reborn(who),
            Action::Send(what) => {
                let limit = u64::try_from(process.election.limit(now).as_millis()).unwrap();
                let number = self.send(who, what.clone());
                self.processes[who].waits = Some((number, what, now));
                self.after(limit, Event::Timeout(who, number));
            }
        }
    }

    fn send(&mut self, who: usize, what: Move) -> u64 {
        self.requests.push(what);
        let number = self.requests.len() as u64 - 1;
        if let Some(way) = self.way() {
            self.after(way, Event::Arrive(who, number));
        }
        number
    }

    /// The server: one lease, whose revisions grow.
    fn arrives(&mut self, who: usize, number: u64) {
        let what = self.requests[usize::try_from(number).unwrap()].clone();
        let heard = match (what, &self.lease) {
            (Move::Read, None) | (Move::Update(..), None) => Heard::Absent,
            (Move::Read, Some((record, revision))) => {
                Heard::Found(Seen { record: record.clone(), revision: revision.to_string() })
            }
            (Move::Create(_), Some(_)) => Heard::Stale,
            (Move::Update(_, fence), Some((_, revision))) if fence != revision.to_string() => {
                Heard::Stale
            }
            (Move::Create(record) | Move::Update(record, _), _) => {
                self.revision += 1;
                self.lease = Some((record.clone(), self.revision));
                Heard::Wrote(Seen { record, revision: self.revision.to_string() })
            }
        };
        let process = &mut self.processes[who];
        if process.waits.as_ref().is_some_and(|it| it.0 == number) {
            process.reply = Some(heard);
            if let Some(way) = self.way() {
                self.after(way, Event::Reply(who, number));
            }
        }
    }

    fn hears(&mut self, who: usize, heard: Heard) {
        let now = at(self.now);
        let process = &mut self.processes[who];
        let (_, what, sent) = process.waits.take().unwrap();
        let led = process.election.leads_until().is_some();
        process.election.heard(&what, heard, sent, now);
        self.terms += u64::from(!led && process.election.leads_until().is_some());
        self.step(who);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whatever is delayed or lost and whoever is stopped, dies or leaves: no two lead at once, and
    /// when the faults end, one does.
    #[test]
    fn no_two_lead_at_once(
        seed: u64, candidates in 2_usize..4, margin in 1_u64..6_000,
        lost in 0_u32..20, slow in 0_u32..30,
    ) {
        let renew_deadline = Duration::from_secs(10);
        let lease = renew_deadline + Duration::from_millis(margin);
        let timing = Timing { lease, renew_deadline, retry: Duration::from_secs(2) };
        let end = Contest::new(seed, candidates, timing, (lost, slow)).run();
        prop_assert_eq!(end, Ok(()));
    }
}
