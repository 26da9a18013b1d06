//! What was found for a pod, for all others that ask for the same.
//!
//! Pods of one template ask for the same, and where there is no room for one there is none for the next:
//! with two thousand of them before a full cluster every plan would search it two thousand times. So a
//! plan searches once for each [`Question`], which is all that a search looks at of a pod and its claims.
//!
//! An answer holds for as long as everything else stays as it is that a search looks at. Within a plan
//! that is told by the scene, which counts its changes; any of them ends all answers. That room only
//! shrinks when something is given would not do as a rule: what is all of it, is so of less then; what
//! takes too much of a node may be passed over for what takes less; and the words in which a pod is
//! refused say how many devices are in use. A plan gives to few pods, so few answers are lost.
//!
//! Between plans answers are kept with the ground they stand on, and forgotten when it has changed.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_devices::lower::Wanted;
use gantry_pods::Requests;
use gantry_pods::site::{Taken, alike};
use gantry_pods::view::Pod;
use gantry_reconcile::World;

use crate::carrier::Trouble;
use crate::claim::Claim;
use crate::gate;

use super::scene::Scene;
use super::search::Found;
use super::stock::Objects;

/// What came of a search.
pub(super) type Answer = Result<Arc<Found>, Trouble>;

/// How many answers are remembered. Past it all are forgotten: those in use come back at once.
const MOST: usize = 4_096;

/// Everything that a search looks at of a pod and its claims.
#[derive(Debug)]
pub(super) struct Question {
    /// One of those who ask.
    pod: Arc<Pod>,
    /// What it takes of a node. It follows from the pod, and tells most questions apart.
    requests: Requests,
    /// The node that the pod is on or pinned to; empty if it has none.
    place: String,
    /// Nodes that are not to be chosen for it.
    refused: Vec<String>,
    /// Claims that have no devices: what the pod calls each, and what that asks for, to the letter.
    /// Amounts are given in the suffixes in which they are asked for.
    open: Vec<(String, String)>,
    /// Claims that have devices. They are where they are, so it has to be the same ones.
    had: Vec<Claim>,
}

impl Question {
    /// What is asked for a pod; nothing if it cannot be spelled.
    pub(super) fn new(
        scene: &Scene<'_>,
        pod: &Arc<Pod>,
        open: &[&(String, Claim)],
        had: &[&Claim],
    ) -> Option<Self> {
        let spelled = open.iter().map(|(entry, claim)| Some((entry.clone(), spell(claim)?)));
        Some(Self {
            pod: Arc::clone(pod),
            requests: Requests::of(pod),
            place: gate::node_of(pod).into_owned(),
            refused: scene.refusals.of(pod).iter().map(|it| it.node_name.clone()).collect(),
            open: spelled.collect::<Option<_>>()?,
            had: had.iter().map(|it| (*it).clone()).collect(),
        })
    }
}

fn spell(claim: &Claim) -> Option<String> {
    match claim.wanted().ok()? {
        Wanted::Claim(spec) => serde_json::to_string(&("devices", spec)).ok(),
        Wanted::Privileged(spec) => serde_json::to_string(&("all devices", spec)).ok(),
    }
}

impl PartialEq for Question {
    fn eq(&self, other: &Self) -> bool {
        let Self { pod, requests, place, refused, open, had } = self;
        let mut pairs = had.iter().zip(&other.had);
        *requests == other.requests
            && *place == other.place
            && *refused == other.refused
            && *open == other.open
            && had.len() == other.had.len()
            && pairs.all(|(one, other)| one.is(other))
            && (Arc::ptr_eq(pod, &other.pod) || alike(&pod.spec, &other.pod.spec))
    }
}

impl Eq for Question {}

impl Hash for Question {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Of the pod as much as tells most apart: comparing has the last word.
        let Self { pod, requests, place, refused, open, had } = self;
        (requests, place, refused, open, &pod.spec.node_selector).hash(state);
        had.iter().for_each(|it| it.uid().hash(state));
    }
}

/// What this plan knows already, and what those before it knew that still holds.
#[derive(Debug)]
pub(super) struct Answers {
    known: HashMap<Question, Answer>,
    /// The state of the scene that all of them are about.
    revision: u64,
    /// What they stand on while the scene is as it was when the plan began.
    ground: Option<Ground>,
    most: usize,
    searches: u64,
}

impl Answers {
    /// Those that hold when a plan begins.
    pub(super) fn new(scene: &Scene<'_>) -> Self {
        let (before, most) = scene.world.kept::<Kept>().take();
        let ground = scene.is_untouched().then(|| Ground::of(scene));
        let known = match before {
            Some((stood_on, known)) if ground.as_ref() == Some(&stood_on) => known,
            Some(_) | None => HashMap::new(),
        };
        Self { known, revision: scene.revision(), ground, most, searches: 0 }
    }

    /// The answer to a question in this state of the scene, which is searched for if nobody knows it.
    pub(super) fn ask(
        &mut self,
        revision: u64,
        question: Question,
        search: impl FnOnce() -> Result<Found, Trouble>,
    ) -> Answer {
        if self.revision != revision {
            self.known.clear();
            self.revision = revision;
            self.ground = None;
        }
        if let Some(known) = self.known.get(&question) {
            return known.clone();
        }
        self.searches += 1;
        let answer = search().map(Arc::new);
        if self.known.len() >= self.most {
            self.known.clear();
        }
        if self.most > 0 {
            self.known.insert(question, answer.clone());
        }
        answer
    }

    /// Keeps what may hold for the next plan: what is about the scene as it was when this one began.
    pub(super) fn finish(self, world: &World) {
        let answers = self.ground.map(|ground| (ground, self.known));
        world.kept::<Kept>().bring_back(answers, self.searches);
    }
}

/// Where answers are between two plans.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Memory>);

/// Answers, and what they stand on.
type Founded = (Ground, HashMap<Question, Answer>);

#[derive(Debug)]
struct Memory {
    answers: Option<Founded>,
    most: usize,
    /// How often nobody knew the answer.
    searches: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self { answers: None, most: MOST, searches: 0 }
    }
}

impl Kept {
    /// What there is, and how many are remembered. What is not brought back is searched for anew.
    fn take(&self) -> (Option<Founded>, usize) {
        let mut memory = self.lock();
        (memory.answers.take(), memory.most)
    }

    fn bring_back(&self, answers: Option<Founded>, searches: u64) {
        let mut memory = self.lock();
        memory.answers = answers;
        memory.searches += searches;
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // Nothing can panic under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Kept {
    /// How often was searched since this was last asked.
    pub(crate) fn searches(&self) -> u64 {
        std::mem::take(&mut self.lock().searches)
    }

    /// Remembers nothing from now on.
    pub(crate) fn forget(&self) {
        *self.lock() = Memory { most: 0, ..Memory::default() };
    }
}

/// Everything that a search looks at beside a question, when nothing is held that is in no ledger and no
/// pool is closed.
#[derive(Debug)]
struct Ground {
    objects: Objects,
    sites: Vec<Taken>,
}

impl Ground {
    fn of(scene: &Scene<'_>) -> Self {
        let sites = scene.sites().iter().map(|it| it.taken()).collect();
        Self { objects: scene.stock.made_of().clone(), sites }
    }
}

impl PartialEq for Ground {
    fn eq(&self, other: &Self) -> bool {
        self.sites == other.sites && self.objects.answer_alike(&other.objects)
    }
}
