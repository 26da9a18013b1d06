//! What lies outside the API in a run: models of peers, what is asked of them, and what must always hold.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;

use gantry_reconcile::inquiry::{Asked, Question, QuestionTable, Wanted};
use gantry_reconcile::{Call, Change, FactChange, Inquiry, Key, Kind, Observer, Reply, World};
use jiff::Timestamp;

use crate::server::Server;

/// A model of a peer, such as a registry, an engine or a cloud.
///
/// It changes when it is called, and with time. A call may arrive twice, late, and from a process that is
/// dead; the model must do what the real peer would.
pub trait Edge: Any + fmt::Debug {
    /// Carries out a call that arrived.
    fn call(&mut self, call: &Call, now: Timestamp) -> Reply;

    /// Lets it be this time.
    fn pass(&mut self, now: Timestamp) {
        let _ = now;
    }

    /// When it changes by itself.
    fn next_change(&self) -> Option<Timestamp> {
        None
    }
}

/// Makes a peer anew for each run.
pub type MakeEdge<'a> = Box<dyn Fn() -> Box<dyn Edge> + 'a>;

/// Finds out whether an invariant holds, and says why it does not.
pub type Check<'a> = Box<dyn Fn(&Server) -> Result<(), String> + 'a>;

/// What must hold after every single move.
pub struct Invariant<'a> {
    /// Its name.
    pub name: &'static str,
    /// Whether it holds.
    pub check: Check<'a>,
}

impl fmt::Debug for Invariant<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Invariant({})", self.name)
    }
}

/// Records facts in a world that is new, and returns the changes.
pub type InitialFacts<'a> = &'a dyn Fn(&World) -> Vec<FactChange>;

/// The outside of a scenario. Most scenarios have none.
#[derive(Default)]
pub struct Outside<'a> {
    /// The peers, by the protocol they are called with.
    pub edges: Vec<(&'static str, MakeEdge<'a>)>,
    /// What is asked, and how it is answered.
    pub inquiries: Vec<&'a dyn Ask>,
    /// What follows changes beside the observers of the controllers.
    pub observers: Vec<&'a dyn Observer>,
    /// The facts that a process records when it starts, such as what its files say.
    pub initial_facts: Vec<InitialFacts<'a>>,
    /// What must hold after every move.
    pub always: Vec<Invariant<'a>>,
}

impl fmt::Debug for Outside<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocols: Vec<&str> = self.edges.iter().map(|(protocol, _)| *protocol).collect();
        to.debug_struct("Outside").field("edges", &protocols).finish_non_exhaustive()
    }
}

/// The peers of a run.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    by_protocol: BTreeMap<&'static str, Box<dyn Edge>>,
    /// How many calls arrived.
    pub(crate) arrivals: u64,
}

impl Edges {
    pub(crate) fn new(makers: &[(&'static str, MakeEdge<'_>)]) -> Self {
        let by_protocol = makers.iter().map(|(protocol, make)| (*protocol, make())).collect();
        Self { by_protocol, arrivals: 0 }
    }

    /// Lets a call arrive.
    ///
    /// # Panics
    /// When no peer speaks its protocol: a mistake of the scenario.
    pub(crate) fn call(&mut self, call: &Call, now: Timestamp) -> Reply {
        self.arrivals += 1;
        let edge = self.by_protocol.get_mut(call.target.protocol);
        edge.expect("the scenario has a peer for every protocol that is called").call(call, now)
    }

    pub(crate) fn pass(&mut self, now: Timestamp) {
        self.by_protocol.values_mut().for_each(|edge| edge.pass(now));
    }

    pub(crate) fn next_change(&self) -> Option<Timestamp> {
        self.by_protocol.values().filter_map(|edge| edge.next_change()).min()
    }

    pub(crate) fn get<E: Edge>(&self, protocol: &str) -> Option<&E> {
        let edge: &dyn Any = self.by_protocol.get(protocol)?.as_ref();
        edge.downcast_ref()
    }

    pub(crate) fn get_mut<E: Edge>(&mut self, protocol: &str) -> Option<&mut E> {
        let edge: &mut dyn Any = self.by_protocol.get_mut(protocol)?.as_mut();
        edge.downcast_mut()
    }
}

/// An inquiry, and the model that answers it.
pub struct Asking<I: Inquiry> {
    /// What is asked.
    pub inquiry: I,
    /// What the outside says, or why it says nothing.
    pub answer: fn(&Server, &Question<I>) -> Result<I::Fact, String>,
}

impl<I: Inquiry> fmt::Debug for Asking<I> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Asking({})", self.inquiry.name())
    }
}

/// An inquiry of any sort of facts.
pub trait Ask: fmt::Debug {
    /// The kinds that decide what is asked.
    fn kinds(&self) -> Vec<Kind>;

    /// The keys whose questions may differ after a change.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key>;

    /// A process that has asked nothing yet.
    fn start(&self) -> Box<dyn Asker + '_>;
}

/// What one process asks.
pub trait Asker {
    /// Finds out what a key wants to know. Returns what is forgotten because no key wants it any more.
    fn refresh(&mut self, world: &World, key: &Key, now: Timestamp) -> Vec<FactChange>;

    /// How many questions are due.
    fn due(&self, now: Timestamp) -> usize;

    /// When the next question is due, or the next key is to be refreshed.
    fn next_due(&self, now: Timestamp) -> Option<Timestamp>;

    /// Keys that are to be refreshed by now.
    fn requeued(&mut self, now: Timestamp) -> Vec<Key>;

    /// Sends one of the due questions. The answer is what is true now, and arrives later.
    fn ask(&mut self, which: usize, server: &Server, now: Timestamp);

    /// How many answers are under way.
    fn under_way(&self) -> usize;

    /// Lets one of the answers arrive, or get lost.
    fn arrive(
        &mut self,
        which: usize,
        world: &World,
        now: Timestamp,
        lost: bool,
    ) -> Option<FactChange>;
}

impl<I: Inquiry> Ask for Asking<I> {
    fn kinds(&self) -> Vec<Kind> {
        self.inquiry.kinds()
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        self.inquiry.enqueue(world, change)
    }

    fn start(&self) -> Box<dyn Asker + '_> {
        Box::new(Questions {
            asking: self,
            table: QuestionTable::new(self.inquiry.concurrency()),
            requeue: BTreeMap::new(),
            under_way: Vec::new(),
        })
    }
}

/// The questions of one process.
struct Questions<'a, I: Inquiry> {
    asking: &'a Asking<I>,
    table: QuestionTable<Question<I>, Timestamp>,
    /// When the questions of a key may differ though nothing changes.
    requeue: BTreeMap<Key, Timestamp>,
    under_way: Vec<Answer<I>>,
}

/// An answer on its way.
struct Answer<I: Inquiry> {
    question: Question<I>,
    asked: Asked,
    at: Timestamp,
    said: Result<I::Fact, String>,
}

impl<I: Inquiry> Asker for Questions<'_, I> {
    fn refresh(&mut self, world: &World, key: &Key, now: Timestamp) -> Vec<FactChange> {
        let inquiry = &self.asking.inquiry;
        let Wanted { questions, stale, requeue_at } = inquiry.wanted(world, key, now);
        match requeue_at {
            Some(at) => drop(self.requeue.insert(key.clone(), at)),
            None => drop(self.requeue.remove(key)),
        }
        let dropped = self.table.want(key, questions, |it| inquiry.group(it), now);
        let facts = world.facts::<I::Fact>();
        for question in &stale {
            if facts.get(question).is_none_or(|it| it.failure.is_none()) {
                self.table.expedite(question, now);
            }
        }
        let mut forgotten = Vec::new();
        for (question, asked) in dropped {
            self.under_way.retain(|it| Some(it.asked) != asked);
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
        let said = (self.asking.answer)(server, &question);
        self.under_way.push(Answer { question, asked, at: now, said });
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
        let Answer { question, asked, at, said } = self.under_way.swap_remove(which);
        let said = if lost { Err("the answer was lost".to_owned()) } else { said };
        let inquiry = &self.asking.inquiry;
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

impl fmt::Debug for dyn Asker + '_ {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Asker({} under way)", self.under_way())
    }
}
