//! Caches search results for all pods that need the same.
//!
//! Pods of one template need the same, and if one does not fit the next does not either: with two
//! thousand of them pending before a full cluster every plan would search it two thousand times. So
//! a plan searches once for each [`SearchKey`], which is everything that a search reads of a pod
//! and its claims.
//!
//! A result is valid for as long as everything else that a search reads stays the same. Within a
//! plan the cycle state tracks that: it counts its changes, and any of them invalidates all
//! results. A finer rule, such as that free capacity only shrinks when something is allocated,
//! would not hold: a request for all devices may be satisfied by fewer then; a device that uses too
//! much of a node may be skipped for one that uses less; and the messages of rejections contain how
//! many devices are in use. A plan allocates to few pods, so few results are lost.
//!
//! Between plans results are stored with the inputs they depend on, and dropped when those have
//! changed.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_devices::lower::ClaimSpecRef;
use gantry_pods::Requests;
use gantry_pods::node_info::{NodeUsageSnapshot, same_node_requirements};
use gantry_pods::view::Pod;
use gantry_reconcile::World;

use crate::claim::Claim;
use crate::pod_claims::PendingReason;
use crate::scheduling_gate;

use super::cycle_state::CycleState;
use super::inventory_cache::SourceObjects;
use super::search::NodeAssignment;

/// The result of a search.
pub(super) type SearchResult = Result<Arc<NodeAssignment>, PendingReason>;

/// How many results are cached. Beyond that the cache is cleared: those in use are searched again
/// at once.
const MAX_CACHED_RESULTS: usize = 4_096;

/// Everything that a search reads of a pod and its claims.
#[derive(Debug)]
pub(super) struct SearchKey {
    /// One of the pods with this key.
    pod: Arc<Pod>,
    /// What it requests of a node. It follows from the pod, and tells most keys apart.
    requests: Requests,
    /// The node that the pod is bound or pinned to; empty if it has none.
    assigned_node: String,
    /// Nodes that must not be chosen for it.
    refused_nodes: Vec<String>,
    /// The unallocated claims: the name of each in the pod, and its exact spec. Quantities are
    /// written in the suffixes in which they are requested.
    unallocated: Vec<(String, String)>,
    /// The allocated claims. Their devices have a location, so they must be the same objects.
    allocated: Vec<Claim>,
}

impl SearchKey {
    /// Creates the key for a pod; `None` if its claims cannot be serialized.
    pub(super) fn new(
        scene: &CycleState<'_>,
        pod: &Arc<Pod>,
        open: &[&(String, Claim)],
        had: &[&Claim],
    ) -> Option<Self> {
        let spelled = open.iter().map(|(entry, claim)| Some((entry.clone(), spec_text(claim)?)));
        Some(Self {
            pod: Arc::clone(pod),
            requests: Requests::of(pod),
            assigned_node: scheduling_gate::assigned_node(pod).into_owned(),
            refused_nodes: scene
                .refusals
                .for_pod(pod)
                .iter()
                .map(|it| it.node_name.clone())
                .collect(),
            unallocated: spelled.collect::<Option<_>>()?,
            allocated: had.iter().map(|it| (*it).clone()).collect(),
        })
    }
}

fn spec_text(claim: &Claim) -> Option<String> {
    match claim.spec().ok()? {
        ClaimSpecRef::Claim(spec) => serde_json::to_string(&("devices", spec)).ok(),
        ClaimSpecRef::Privileged(spec) => serde_json::to_string(&("all devices", spec)).ok(),
    }
}

impl PartialEq for SearchKey {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            pod,
            requests,
            assigned_node: place,
            refused_nodes: refused,
            unallocated: open,
            allocated: had,
        } = self;
        let mut pairs = had.iter().zip(&other.allocated);
        *requests == other.requests
            && *place == other.assigned_node
            && *refused == other.refused_nodes
            && *open == other.unallocated
            && had.len() == other.allocated.len()
            && pairs.all(|(one, other)| one.is_same_version(other))
            && (Arc::ptr_eq(pod, &other.pod) || same_node_requirements(&pod.spec, &other.pod.spec))
    }
}

impl Eq for SearchKey {}

impl Hash for SearchKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Hashes as much of the pod as tells most keys apart: equality decides.
        let Self {
            pod,
            requests,
            assigned_node: place,
            refused_nodes: refused,
            unallocated: open,
            allocated: had,
        } = self;
        (requests, place, refused, open, &pod.spec.node_selector).hash(state);
        had.iter().for_each(|it| it.uid().hash(state));
    }
}

/// The results of this plan, and those of earlier plans that are still valid.
#[derive(Debug)]
pub(super) struct SearchCache {
    results: HashMap<SearchKey, SearchResult>,
    /// The revision of the cycle state that all results are about.
    revision: u64,
    /// The inputs of the results while the cycle state is as it was when the plan began.
    inputs: Option<SearchInputs>,
    max_results: usize,
    searches: u64,
}

impl SearchCache {
    /// Returns the cache with the results that are valid when a plan begins.
    pub(super) fn new(scene: &CycleState<'_>) -> Self {
        let (before, most) = scene.world.derived::<StoredSearchCache>().take();
        let ground = scene.is_untouched().then(|| SearchInputs::of(scene));
        let known = match before {
            Some((stood_on, known)) if ground.as_ref() == Some(&stood_on) => known,
            Some(_) | None => HashMap::new(),
        };
        Self {
            results: known,
            revision: scene.revision(),
            inputs: ground,
            max_results: most,
            searches: 0,
        }
    }

    /// Returns the result for a key at this revision of the cycle state; searches if it is not
    /// cached.
    pub(super) fn get_or_search(
        &mut self,
        revision: u64,
        question: SearchKey,
        search: impl FnOnce() -> Result<NodeAssignment, PendingReason>,
    ) -> SearchResult {
        if self.revision != revision {
            self.results.clear();
            self.revision = revision;
            self.inputs = None;
        }
        if let Some(known) = self.results.get(&question) {
            return known.clone();
        }
        self.searches += 1;
        let answer = search().map(Arc::new);
        if self.results.len() >= self.max_results {
            self.results.clear();
        }
        if self.max_results > 0 {
            self.results.insert(question, answer.clone());
        }
        answer
    }

    /// Stores the results that may be valid for the next plan: those about the state in which this
    /// one began.
    pub(super) fn finish(self, world: &World) {
        let answers = self.inputs.map(|ground| (ground, self.results));
        world.derived::<StoredSearchCache>().store(answers, self.searches);
    }
}

/// Holds results between two plans.
#[derive(Debug, Default)]
pub(crate) struct StoredSearchCache(Mutex<StoredState>);

/// Results, and the inputs they depend on.
type CachedResults = (SearchInputs, HashMap<SearchKey, SearchResult>);

#[derive(Debug)]
struct StoredState {
    results: Option<CachedResults>,
    max_results: usize,
    /// How often a result was not cached.
    searches: u64,
}

impl Default for StoredState {
    fn default() -> Self {
        Self { results: None, max_results: MAX_CACHED_RESULTS, searches: 0 }
    }
}

impl StoredSearchCache {
    /// Takes the cached results, and how many are stored at most. Results that are not stored again
    /// are searched again.
    fn take(&self) -> (Option<CachedResults>, usize) {
        let mut memory = self.lock();
        (memory.results.take(), memory.max_results)
    }

    fn store(&self, answers: Option<CachedResults>, searches: u64) {
        let mut memory = self.lock();
        memory.results = answers;
        memory.searches += searches;
    }

    fn lock(&self) -> MutexGuard<'_, StoredState> {
        // Nothing can panic under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl StoredSearchCache {
    /// Returns the number of searches since the last call.
    pub(crate) fn searches(&self) -> u64 {
        std::mem::take(&mut self.lock().searches)
    }

    /// Turns caching off.
    pub(crate) fn disable(&self) {
        *self.lock() = StoredState { max_results: 0, ..StoredState::default() };
    }
}

/// Everything that a search reads beside a key, when every held device is in a ledger and no pool
/// is closed.
#[derive(Debug)]
struct SearchInputs {
    objects: SourceObjects,
    node_usage: Vec<NodeUsageSnapshot>,
}

impl SearchInputs {
    fn of(scene: &CycleState<'_>) -> Self {
        let sites = scene.nodes().iter().map(|it| it.usage_snapshot()).collect();
        Self { objects: scene.inventory.sources().clone(), node_usage: sites }
    }
}

impl PartialEq for SearchInputs {
    fn eq(&self, other: &Self) -> bool {
        self.node_usage == other.node_usage && self.objects.is_search_equivalent(&other.objects)
    }
}
