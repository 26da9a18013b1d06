//! Simulates candidates, a server between them, and faults on the way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use gantry_process::clock::Moment;
use jiff::Timestamp;
use proptest::prelude::*;

use super::super::{
    Action, Election, LeaseRecord, LeaseRequest, LeaseResponse, ObservedLease, Timing,
};

/// When the faults end, and when the simulation does, in milliseconds.
const FAULTS_END_MS: u64 = 1_000_000;
const SIMULATION_END_MS: u64 = 1_100_000;

/// An event; the process it happens to comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    /// A process takes its next step, unless it was rescheduled since.
    Step(usize, u64),
    /// A response arrives; it counts only if the process still waits for it.
    Reply(usize, u64),
    /// A request times out.
    Timeout(usize, u64),
    /// A request arrives at the server.
    Arrive(usize, u64),
    /// A process is shut down, crashes, or is suspended for a while.
    Leave(usize),
    Crash(usize),
    Pause(usize),
}

struct Process {
    election: Election,
    incarnation: u32,
    paused_until: u64,
    /// The number of the request it waits for, the request and when it was sent.
    pending_request: Option<(u64, LeaseRequest, Moment)>,
    reply: Option<LeaseResponse>,
    /// The number of the step it waits for.
    step: u64,
}

struct ElectionSimulation {
    now: u64,
    chance: fastrand::Rng,
    timing: Timing,
    processes: Vec<Process>,
    events: BinaryHeap<Reverse<(u64, u64, SimulatedEvent)>>,
    requests: Vec<LeaseRequest>,
    lease: Option<(LeaseRecord, u64)>,
    revision: u64,
    steps: u64,
    /// How many in a hundred messages are lost, and how many are slow.
    losses: (u32, u32),
    /// How often the lease changed its holder.
    terms: u64,
}

fn at(now: u64) -> Moment {
    Moment::default() + Duration::from_millis(now)
}

impl ElectionSimulation {
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
            let process = contest.new_process(who, 0);
            contest.processes.push(process);
            contest.step_after(0, who);
            for event in
                [SimulatedEvent::Leave(who), SimulatedEvent::Crash(who), SimulatedEvent::Pause(who)]
            {
                contest.reschedule(event);
            }
        }
        contest
    }

    fn new_process(&mut self, who: usize, life: u32) -> Process {
        let identity = format!("{who}.{life}");
        let election = Election::new(identity, self.timing, self.chance.fork());
        Process {
            election,
            incarnation: life,
            paused_until: 0,
            pending_request: None,
            reply: None,
            step: 0,
        }
    }

    fn schedule_after(&mut self, wait: u64, event: SimulatedEvent) {
        let ticket = self.chance.u64(..);
        self.events.push(Reverse((self.now + wait, ticket, event)));
    }

    fn step_after(&mut self, wait: u64, who: usize) {
        self.steps += 1;
        self.processes[who].step = self.steps;
        self.schedule_after(wait, SimulatedEvent::Step(who, self.steps));
    }

    fn is_faulty(&self) -> bool {
        self.now < FAULTS_END_MS
    }

    /// The delay of one message; `None` when it is lost.
    fn message_delay(&mut self) -> Option<u64> {
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

    /// Runs to the end and returns what went wrong.
    fn run(mut self) -> Result<(), String> {
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > SIMULATION_END_MS {
                break;
            }
            self.now = now;
            self.handle(event);
            let leaders = self.leaders();
            if leaders.len() > 1 {
                return Err(format!("at {now} ms these lead at once: {leaders:?}"));
            }
        }
        self.now = SIMULATION_END_MS;
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

    fn handle(&mut self, event: SimulatedEvent) {
        if let SimulatedEvent::Step(who, _)
        | SimulatedEvent::Reply(who, _)
        | SimulatedEvent::Timeout(who, _) = event
        {
            let paused_until = self.processes[who].paused_until;
            if self.now < paused_until {
                // It happens when the process resumes, in random order.
                return self.schedule_after(paused_until - self.now, event);
            }
        }
        match event {
            SimulatedEvent::Step(who, number) if self.processes[who].step == number => {
                self.step(who);
            }
            SimulatedEvent::Step(..) => {}
            SimulatedEvent::Reply(who, number) => {
                let process = &mut self.processes[who];
                if process.pending_request.as_ref().is_some_and(|it| it.0 == number) {
                    let heard = process.reply.take().unwrap();
                    self.receive(who, heard);
                }
            }
            SimulatedEvent::Timeout(who, number) => {
                let process = &mut self.processes[who];
                if process.pending_request.as_ref().is_some_and(|it| it.0 == number) {
                    self.receive(who, LeaseResponse::Unknown("late".to_owned()));
                }
            }
            SimulatedEvent::Arrive(who, number) => self.serve_request(who, number),
            SimulatedEvent::Leave(who) => {
                if let Some(what) = self.processes[who].election.release(Timestamp::UNIX_EPOCH) {
                    // Its permit is revoked first; then it releases the lease, once.
                    self.restart(who);
                    self.send(who, what);
                }
                self.reschedule(SimulatedEvent::Leave(who));
            }
            SimulatedEvent::Crash(who) => {
                self.restart(who);
                self.reschedule(SimulatedEvent::Crash(who));
            }
            SimulatedEvent::Pause(who) => {
                if self.is_faulty() {
                    self.processes[who].paused_until = self.now + self.chance.u64(0..40_000);
                }
                self.reschedule(SimulatedEvent::Pause(who));
            }
        }
    }

    fn reschedule(&mut self, event: SimulatedEvent) {
        let wait = self.chance.u64(1..200_000);
        if self.now + wait < FAULTS_END_MS {
            self.schedule_after(wait, event);
        }
    }

    fn restart(&mut self, who: usize) {
        let life = self.processes[who].incarnation + 1;
        let waking = self.processes[who].paused_until;
        self.processes[who] = self.new_process(who, life);
        self.processes[who].paused_until = waking;
        let wait = self.chance.u64(0..5_000);
        self.step_after(wait, who);
    }

    fn step(&mut self, who: usize) {
        if self.processes[who].pending_request.is_some() {
            return;
        }
        let now = at(self.now);
        let process = &mut self.processes[who];
        match process.election.step(now, Timestamp::UNIX_EPOCH) {
            Action::Wait(until) => {
                let wait = u64::try_from((until - now).as_millis()).unwrap() + 1;
                self.step_after(wait, who);
            }
            Action::Stop(_) => self.restart(who),
            Action::Send(what) => {
                let limit =
                    u64::try_from(process.election.request_timeout(now).as_millis()).unwrap();
                let number = self.send(who, what.clone());
                self.processes[who].pending_request = Some((number, what, now));
                self.schedule_after(limit, SimulatedEvent::Timeout(who, number));
            }
        }
    }

    fn send(&mut self, who: usize, what: LeaseRequest) -> u64 {
        self.requests.push(what);
        let number = self.requests.len() as u64 - 1;
        if let Some(way) = self.message_delay() {
            self.schedule_after(way, SimulatedEvent::Arrive(who, number));
        }
        number
    }

    /// The server: one lease, whose revisions grow.
    fn serve_request(&mut self, who: usize, number: u64) {
        let what = self.requests[usize::try_from(number).unwrap()].clone();
        let heard = match (what, &self.lease) {
            (LeaseRequest::Read, None) | (LeaseRequest::Update(..), None) => {
                LeaseResponse::NotFound
            }
            (LeaseRequest::Read, Some((record, revision))) => LeaseResponse::Found(ObservedLease {
                record: record.clone(),
                revision: revision.to_string(),
            }),
            (LeaseRequest::Create(_), Some(_)) => LeaseResponse::Conflict,
            (LeaseRequest::Update(_, fence), Some((_, revision)))
                if fence != revision.to_string() =>
            {
                LeaseResponse::Conflict
            }
            (LeaseRequest::Create(record) | LeaseRequest::Update(record, _), _) => {
                self.revision += 1;
                self.lease = Some((record.clone(), self.revision));
                LeaseResponse::Written(ObservedLease {
                    record,
                    revision: self.revision.to_string(),
                })
            }
        };
        let process = &mut self.processes[who];
        if process.pending_request.as_ref().is_some_and(|it| it.0 == number) {
            process.reply = Some(heard);
            if let Some(way) = self.message_delay() {
                self.schedule_after(way, SimulatedEvent::Reply(who, number));
            }
        }
    }

    fn receive(&mut self, who: usize, heard: LeaseResponse) {
        let now = at(self.now);
        let process = &mut self.processes[who];
        let (_, what, sent) = process.pending_request.take().unwrap();
        let led = process.election.leads_until().is_some();
        process.election.observe_response(&what, heard, sent, now);
        self.terms += u64::from(!led && process.election.leads_until().is_some());
        self.step(who);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whatever is delayed or lost and whichever process is suspended, crashes or shuts down: no
    /// two lead at once, and when the faults end, one does.
    #[test]
    fn no_two_lead_at_once(
        seed: u64, candidates in 2_usize..4, margin in 1_u64..6_000,
        lost in 0_u32..20, slow in 0_u32..30,
    ) {
        let renew_deadline = Duration::from_secs(10);
        let lease = renew_deadline + Duration::from_millis(margin);
        let timing = Timing { lease, renew_deadline, retry: Duration::from_secs(2) };
        let end = ElectionSimulation::new(seed, candidates, timing, (lost, slow)).run();
        prop_assert_eq!(end, Ok(()));
    }
}
