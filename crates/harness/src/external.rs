//! Systems outside the API in a run: models of peers, inquiries, and invariants.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;

use gantry_reconcile::inquiry::{InquiryAttempt, Question, QuestionTable, WantedQuestions};
use gantry_reconcile::{
    Call, Change, FactChange, FactKind, Inquiry, Key, Kind, Observer, Reply, World,
};
use jiff::Timestamp;

use crate::server::Server;

/// A model of an external system, such as a registry, an engine or a cloud.
///
/// It changes when it is called, and with time. A call may arrive twice, late, and from a process
/// that has crashed; the model must do what the real system would.
pub trait SimulatedPeer: Any + fmt::Debug {
    /// Executes a call that arrived.
    fn call(&mut self, call: &Call, now: Timestamp) -> Reply;

    /// Sets the time.
    fn advance_to(&mut self, now: Timestamp) {
        let _ = now;
    }

    /// When it changes by itself.
    fn next_change(&self) -> Option<Timestamp> {
        None
    }
}

/// Creates a new peer for each run.
pub type MakePeer<'a> = Box<dyn Fn() -> Box<dyn SimulatedPeer> + 'a>;

/// Checks an invariant, and returns why it is violated.
pub type InvariantCheck<'a> = Box<dyn Fn(&Server) -> Result<(), String> + 'a>;

/// A property that must hold after every single move.
pub struct Invariant<'a> {
    /// Its name.
    pub name: &'static str,
    /// Checks whether it holds.
    pub check: InvariantCheck<'a>,
}

impl fmt::Debug for Invariant<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Invariant({})", self.name)
    }
}

/// Records facts in a new world, and returns the changes.
pub type InitialFacts<'a> = &'a dyn Fn(&World) -> Vec<FactChange>;

/// The external systems of a scenario. Most scenarios have none.
#[derive(Default)]
pub struct ExternalSystems<'a> {
    /// The peers, by the protocol they are called with.
    pub peers: Vec<(&'static str, MakePeer<'a>)>,
    /// The inquiries, and how they are answered.
    pub inquiries: Vec<&'a dyn AnySimulatedInquiry>,
    /// The observers beside those of the controllers.
    pub observers: Vec<&'a dyn Observer>,
    /// The facts that a process records when it starts, such as the content of its files.
    pub initial_facts: Vec<InitialFacts<'a>>,
    /// The invariants, checked after every move.
    pub invariants: Vec<Invariant<'a>>,
}

impl fmt::Debug for ExternalSystems<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocols: Vec<&str> = self.peers.iter().map(|(protocol, _)| *protocol).collect();
        to.debug_struct("Outside").field("edges", &protocols).finish_non_exhaustive()
    }
}

/// The peers of a run.
#[derive(Debug, Default)]
pub(crate) struct SimulatedPeers {
    by_protocol: BTreeMap<&'static str, Box<dyn SimulatedPeer>>,
    /// How many calls arrived.
    pub(crate) arrivals: u64,
}

impl SimulatedPeers {
    pub(crate) fn new(makers: &[(&'static str, MakePeer<'_>)]) -> Self {
        let by_protocol = makers.iter().map(|(protocol, make)| (*protocol, make())).collect();
        Self { by_protocol, arrivals: 0 }
    }

    /// Delivers a call.
    ///
    /// # Panics
    /// If no peer is registered for its protocol: a mistake in the scenario.
    pub(crate) fn call(&mut self, call: &Call, now: Timestamp) -> Reply {
        self.arrivals += 1;
        let edge = self.by_protocol.get_mut(call.target.protocol);
        edge.expect("the scenario has a peer for every protocol that is called").call(call, now)
    }

    pub(crate) fn advance_to(&mut self, now: Timestamp) {
        self.by_protocol.values_mut().for_each(|edge| edge.advance_to(now));
    }

    pub(crate) fn next_change(&self) -> Option<Timestamp> {
        self.by_protocol.values().filter_map(|edge| edge.next_change()).min()
    }

    pub(crate) fn get<E: SimulatedPeer>(&self, protocol: &str) -> Option<&E> {
        let edge: &dyn Any = self.by_protocol.get(protocol)?.as_ref();
        edge.downcast_ref()
    }

    pub(crate) fn get_mut<E: SimulatedPeer>(&mut self, protocol: &str) -> Option<&mut E> {
        let edge: &mut dyn Any = self.by_protocol.get_mut(protocol)?.as_mut();
        edge.downcast_mut()
    }
}

/// An inquiry, and the model that answers it.
pub struct SimulatedInquiry<I: Inquiry> {
    /// The inquiry.
    pub inquiry: I,
    /// The answer of the external system, or why there is none.
    pub answer: fn(&Server, &Question<I>) -> Result<I::Fact, String>,
}

impl<I: Inquiry> fmt::Debug for SimulatedInquiry<I> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Asking({})", self.inquiry.name())
    }
}

/// An inquiry of any kind of fact.
pub trait AnySimulatedInquiry: fmt::Debug {
    /// The kinds that determine which questions are open.
    fn kinds(&self) -> Vec<Kind>;

    /// The keys whose questions may differ after a change.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key>;

    /// The kinds of facts that determine which questions are open.
    fn facts(&self) -> Vec<FactKind>;

    /// The keys whose questions may differ after a change of a fact.
    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key>;

    /// The inquiry in a process that has asked nothing yet.
    fn start(&self) -> Box<dyn InquiryRunner + '_>;
}

/// The questions of one process.
pub trait InquiryRunner {
    /// Updates the questions of a key. Returns the facts that are forgotten because no key wants
    /// them any more.
    fn refresh(&mut self, world: &World, key: &Key, now: Timestamp) -> Vec<FactChange>;

    /// The number of due questions.
    fn due(&self, now: Timestamp) -> usize;

    /// When the next question is due, or the next key is to be refreshed.
    fn next_due(&self, now: Timestamp) -> Option<Timestamp>;

    /// The keys that are to be refreshed by now.
    fn requeued(&mut self, now: Timestamp) -> Vec<Key>;

    /// Sends one of the due questions. The answer is determined now, and arrives later.
    fn ask(&mut self, which: usize, server: &Server, now: Timestamp);

    /// The number of answers in flight.
    fn under_way(&self) -> usize;

    /// Delivers or loses one of the answers.
    fn arrive(
        &mut self,
        which: usize,
        world: &World,
        now: Timestamp,
        lost: bool,
    ) -> Option<FactChange>;
}

impl<I: Inquiry> AnySimulatedInquiry for SimulatedInquiry<I> {
    fn kinds(&self) -> Vec<Kind> {
        self.inquiry.kinds()
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        self.inquiry.enqueue(world, change)
    }

    fn facts(&self) -> Vec<FactKind> {
        self.inquiry.facts()
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        self.inquiry.enqueue_for_fact(world, change)
    }

    fn start(&self) -> Box<dyn InquiryRunner + '_> {
        Box::new(OpenQuestions {
            inquiry: self,
            table: QuestionTable::new(self.inquiry.concurrency()),
            requeue: BTreeMap::new(),
            under_way: Vec::new(),
        })
    }
}

/// The questions of one process.
struct OpenQuestions<'a, I: Inquiry> {
    inquiry: &'a SimulatedInquiry<I>,
    table: QuestionTable<Question<I>, Timestamp>,
    /// When the questions of a key may differ even if nothing changes.
    requeue: BTreeMap<Key, Timestamp>,
    under_way: Vec<PendingAnswer<I>>,
}

/// An answer in flight.
struct PendingAnswer<I: Inquiry> {
    question: Question<I>,
    attempt: InquiryAttempt,
    at: Timestamp,
    result: Result<I::Fact, String>,
}

impl<I: Inquiry> InquiryRunner for OpenQuestions<'_, I> {
    fn refresh(&mut self, world: &World, key: &Key, now: Timestamp) -> Vec<FactChange> {
        let inquiry = &self.inquiry.inquiry;
        let WantedQuestions { questions, stale, expedited, requeue_at } =
            inquiry.wanted_questions(world, key, now);
        match requeue_at {
            Some(at) => drop(self.requeue.insert(key.clone(), at)),
            None => drop(self.requeue.remove(key)),
        }
        let dropped = self.table.set_wanted(key, questions, |it| inquiry.group(it), now);
        let facts = world.facts::<I::Fact>();
        for question in &stale {
            if facts.get(question).is_none_or(|it| it.failure.is_none()) {
                self.table.expedite(question, now);
            }
        }
        expedited.iter().for_each(|it| self.table.expedite(it, now));
        let mut forgotten = Vec::new();
        for (question, asked) in dropped {
            self.under_way.retain(|it| Some(it.attempt) != asked);
            forgotten.extend(facts.forget(&question));
        }
        forgotten
    }

    fn due(&self, now: Timestamp) -> usize {
        self.table.startable(now).len()
    }

    fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.table.next_due(now).into_iter().chain(self.requeue.values().copied()).min()
    }

    fn requeued(&mut self, now: Timestamp) -> Vec<Key> {
        let due = self.requeue.iter().filter(|(_, at)| **at <= now);
        let due: Vec<Key> = due.map(|(key, _)| key.clone()).collect();
        self.requeue.retain(|_, at| *at > now);
        due
    }

    fn ask(&mut self, which: usize, server: &Server, now: Timestamp) {
        let Some(question) = self.table.startable(now).into_iter().nth(which) else { return };
        let Some(asked) = self.table.start(&question) else { return };
        let said = (self.inquiry.answer)(server, &question);
        self.under_way.push(PendingAnswer { question, attempt: asked, at: now, result: said });
    }

    fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn arrive(
        &mut self,
        which: usize,
        world: &World,
        now: Timestamp,
        lost: bool,
    ) -> Option<FactChange> {
        let PendingAnswer { question, attempt: asked, at, result: said } =
            self.under_way.swap_remove(which);
        let said = if lost { Err("the answer was lost".to_owned()) } else { said };
        let inquiry = &self.inquiry.inquiry;
        let facts = world.facts::<I::Fact>();
        let known = facts.get(&question);
        let failures = known.and_then(|it| it.failure.as_ref().map(|it| it.count)).unwrap_or(0);
        let wait = match &said {
            Ok(fact) => inquiry.refresh_interval(&question, fact),
            Err(_) => inquiry.policy(&question).retry_delay(failures + 1),
        };
        let next = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        if !self.table.end(&question, asked, next) {
            return None;
        }
        Some(match said {
            Ok(fact) => facts.record(question, fact, at),
            Err(message) => facts.fail(question, message, now),
        })
    }
}

impl fmt::Debug for dyn InquiryRunner + '_ {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Asker({} under way)", self.under_way())
    }
}
