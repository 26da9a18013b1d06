//! A snapshot of the cluster: the nodes, their used capacity, and the pods on them.
//!
//! It is built from the stores for every plan, and updated with what the plan assigns. Pods that
//! match affinity terms are counted by node, once for each term; then scheduling one pod need not
//! look at all other pods.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gantry_pods::NodeInfo;
use gantry_reconcile::Selector;

use crate::deterministic_random;
use crate::view::{Namespace, Node, Pod, PodAffinityTerm};

/// An affinity term, and the namespace of its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AffinityTerm<'a> {
    pub(super) namespace: &'a str,
    pub(super) term: &'a PodAffinityTerm,
}

/// A filter of the pods that are counted.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodFilter<'a> {
    /// Pods that match all of these terms.
    MatchesTerms(Vec<AffinityTerm<'a>>),
    /// Pods of a namespace that a constraint selects, and that share some label values.
    MatchesSelector {
        /// The namespace.
        namespace: &'a str,
        /// The label selector.
        selector: &'a Selector,
        /// Labels, and the values the pods share.
        shared: Vec<(&'a str, &'a str)>,
    },
    /// Pods with this required anti-affinity term.
    AntiAffinity(AffinityTerm<'a>),
    /// Pods with this preferred term and weight; anti-affinity when negative.
    Preferred(AffinityTerm<'a>, i64),
}

/// How many pods match a filter on each node.
#[derive(Debug)]
struct PodCounts<'a> {
    filter: PodFilter<'a>,
    by_node: Vec<i64>,
}

/// The nodes by the values of a label: comparing numbers is much cheaper than comparing texts.
#[derive(Debug)]
pub(super) struct Topology<'a> {
    key: &'a str,
    /// The domain number of each node; `None` without the label.
    pub(super) domains: Vec<Option<usize>>,
    /// The number of domains.
    pub(super) domain_count: usize,
}

/// The weight that required affinity of placed pods adds to the score of preferred affinity, of a
/// hundred.
const HARD_AFFINITY_WEIGHT: i64 = 1;

type NamespaceLabels<'a> = HashMap<&'a str, &'a BTreeMap<String, String>>;

/// The nodes, and the pods on them.
#[derive(Debug)]
pub(super) struct SchedulingSnapshot<'a> {
    pub(super) node_infos: Vec<NodeInfo<'a>>,
    /// A number for each node that breaks ties.
    pub(super) tie_breakers: Vec<u64>,
    by_name: HashMap<&'a str, usize>,
    assigned_pods: Vec<Vec<&'a Pod>>,
    /// The counts for incoming pods, as far as they were requested.
    filter_counts: Vec<PodCounts<'a>>,
    /// The affinity terms of placed pods towards incoming ones.
    affinity_counts: Vec<PodCounts<'a>>,
    namespaces: NamespaceLabels<'a>,
    /// The nodes of each owner's pods that are not terminating, one entry for each pod.
    nodes_by_owner: HashMap<&'a str, Vec<usize>>,
    /// Nodes by the values of a label, as far as they were requested.
    topologies: Vec<Arc<Topology<'a>>>,
    /// The lowest priority of a pod that is or was placed.
    pub(super) lowest_priority: i32,
}

impl<'a> SchedulingSnapshot<'a> {
    pub(super) fn new(
        nodes: &'a [Arc<Node>],
        pods: &'a [Arc<Pod>],
        namespaces: &'a [Arc<Namespace>],
    ) -> Self {
        let node_infos: Vec<NodeInfo<'a>> = nodes.iter().map(|it| NodeInfo::new(it)).collect();
        let names = node_infos.iter().map(|it| it.node.metadata.name.as_str());
        let by_name = names.enumerate().map(|(at, name)| (name, at)).collect();
        let tie_breakers = node_infos
            .iter()
            .map(|it| deterministic_random::draw(&[&it.node.metadata.name]))
            .collect();
        let placed = vec![Vec::new(); node_infos.len()];
        let labels = namespaces.iter().map(|it| (it.metadata.name.as_str(), &it.metadata.labels));
        let (asked, standing, namespaces) = (Vec::new(), Vec::new(), labels.collect());
        let mut snapshot = Self {
            node_infos,
            tie_breakers,
            by_name,
            assigned_pods: placed,
            filter_counts: asked,
            affinity_counts: standing,
            namespaces,
            nodes_by_owner: HashMap::new(),
            topologies: Vec::new(),
            lowest_priority: i32::MAX,
        };
        for pod in pods.iter().filter(|it| !it.spec.node_name.is_empty() && !it.is_terminal()) {
            if let Some(at) = snapshot.node_index(&pod.spec.node_name) {
                snapshot.add_pod(pod, at);
            }
        }
        snapshot
    }

    pub(super) fn node_index(&self, node: &str) -> Option<usize> {
        self.by_name.get(node).copied()
    }

    /// Returns the pods on a node.
    pub(super) fn pods_on(&self, at: usize) -> &[&'a Pod] {
        &self.assigned_pods[at]
    }

    /// Adds a pod to a node.
    pub(super) fn add_pod(&mut self, pod: &'a Pod, at: usize) {
        self.assigned_pods[at].push(pod);
        self.lowest_priority = self.lowest_priority.min(pod.spec.priority);
        self.update_counts(pod, at, 1);
    }

    /// Removes a pod from a node.
    pub(super) fn remove_pod(&mut self, pod: &'a Pod, at: usize) {
        self.assigned_pods[at].retain(|it| it.metadata.uid != pod.metadata.uid);
        self.update_counts(pod, at, -1);
    }

    fn update_counts(&mut self, pod: &'a Pod, at: usize, sign: i64) {
        let node_info = &mut self.node_infos[at];
        if sign > 0 {
            node_info.add_pod(pod);
        } else {
            node_info.remove_pod(pod);
        }
        for affinity_term in affinity_filters(pod) {
            let known = self.affinity_counts.iter().position(|it| it.filter == affinity_term);
            let index = known.unwrap_or_else(|| {
                self.affinity_counts.push(PodCounts {
                    filter: affinity_term,
                    by_node: vec![0; self.node_infos.len()],
                });
                self.affinity_counts.len() - 1
            });
            self.affinity_counts[index].by_node[at] += sign;
        }
        let owner = pod.metadata.controller().filter(|_| !pod.metadata.is_terminating());
        if let Some(owner) = owner {
            let places = self.nodes_by_owner.entry(owner.uid.as_str()).or_default();
            if sign > 0 {
                places.push(at);
            } else if let Some(one) = places.iter().position(|it| *it == at) {
                places.swap_remove(one);
            }
        }
        let namespaces = &self.namespaces;
        for counts in self.filter_counts.iter_mut().filter(|it| it.filter.matches(pod, namespaces))
        {
            counts.by_node[at] += sign;
        }
    }

    /// Returns how many pods match a filter on each node.
    pub(super) fn count_pods(&mut self, counted: PodFilter<'a>) -> &[i64] {
        let known = self.filter_counts.iter().position(|it| it.filter == counted);
        let index = known.unwrap_or_else(|| {
            let of = |pods: &Vec<&'a Pod>| {
                let of = pods.iter().filter(|it| counted.matches(it, &self.namespaces)).count();
                i64::try_from(of).unwrap_or(i64::MAX)
            };
            let by_node = self.assigned_pods.iter().map(of).collect();
            self.filter_counts.push(PodCounts { filter: counted, by_node });
            self.filter_counts.len() - 1
        });
        &self.filter_counts[index].by_node
    }

    /// Returns how many pods of an owner are on each node.
    pub(super) fn count_owned(&self, uid: &str) -> Vec<i64> {
        let mut by_node = vec![0; self.node_infos.len()];
        for at in self.nodes_by_owner.get(uid).into_iter().flatten() {
            by_node[*at] += 1;
        }
        by_node
    }

    /// Returns the nodes by the values of a label.
    pub(super) fn topology(&mut self, key: &'a str) -> Arc<Topology<'a>> {
        if let Some(known) = self.topologies.iter().find(|it| it.key == key) {
            return Arc::clone(known);
        }
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let place = |node_info: &NodeInfo<'a>| {
            let next = numbers.len();
            node_info.label(key).map(|value| *numbers.entry(value).or_insert(next))
        };
        let of = self.node_infos.iter().map(place).collect();
        let topology = Arc::new(Topology { key, domains: of, domain_count: numbers.len() });
        self.topologies.push(Arc::clone(&topology));
        topology
    }

    /// Returns the affinity terms of placed pods that match this one, and how many pods have each
    /// on which node.
    pub(super) fn affinity_toward<'s>(
        &'s self,
        pod: &'s Pod,
    ) -> impl Iterator<Item = (&'s PodFilter<'a>, &'s [i64])> {
        self.affinity_counts.iter().filter_map(move |counts| {
            let about = match &counts.filter {
                PodFilter::AntiAffinity(term) | PodFilter::Preferred(term, _) => {
                    term.matches_pod(pod, &self.namespaces)
                }
                PodFilter::MatchesTerms(_) | PodFilter::MatchesSelector { .. } => false,
            };
            about.then_some((&counts.filter, &counts.by_node[..]))
        })
    }

    /// Returns whether all of these terms match a pod.
    pub(super) fn all_match(&self, terms: &[AffinityTerm<'_>], pod: &Pod) -> bool {
        terms.iter().all(|it| it.matches_pod(pod, &self.namespaces))
    }
}

/// Returns the affinity terms of a placed pod towards incoming ones.
fn affinity_filters(pod: &Pod) -> Vec<PodFilter<'_>> {
    let affinity = &pod.spec.affinity;
    let (near, far) = (&affinity.pod_affinity, &affinity.pod_anti_affinity);
    let term = |affinity_term| AffinityTerm {
        namespace: pod.metadata.namespace.as_str(),
        term: affinity_term,
    };
    let away = far.required.iter().map(|it| PodFilter::AntiAffinity(term(it)));
    let required =
        near.required.iter().map(|it| PodFilter::Preferred(term(it), HARD_AFFINITY_WEIGHT));
    let likes = near.preferred.iter().map(|it| (it, it.weight));
    let dislikes = far.preferred.iter().map(|it| (it, -it.weight));
    let liked = likes.chain(dislikes);
    let liked = liked.map(|(it, weight)| PodFilter::Preferred(term(&it.pod_affinity_term), weight));
    away.chain(required).chain(liked).collect()
}

impl PodFilter<'_> {
    fn matches(&self, pod: &Pod, namespaces: &NamespaceLabels<'_>) -> bool {
        let (meta, labels) = (&pod.metadata, &pod.metadata.labels);
        match self {
            Self::MatchesTerms(terms) => terms.iter().all(|it| it.matches_pod(pod, namespaces)),
            Self::MatchesSelector { namespace, selector, shared } => {
                let shares =
                    |(key, value): &(&str, &str)| labels.get(*key).is_some_and(|it| it == value);
                !meta.is_terminating()
                    && meta.namespace == *namespace
                    && selector.matches(labels)
                    && shared.iter().all(shares)
            }
            Self::AntiAffinity(_) | Self::Preferred(..) => false,
        }
    }
}

impl AffinityTerm<'_> {
    fn matches_pod(&self, pod: &Pod, namespaces: &NamespaceLabels<'_>) -> bool {
        let affinity_term = self.term;
        let namespace = pod.metadata.namespace.as_str();
        let within = match (&affinity_term.namespace_selector, affinity_term.namespaces.is_empty())
        {
            (None, true) => namespace == self.namespace,
            (selector, _) => {
                let labels = namespaces.get(namespace);
                let fits = |it: &Selector| {
                    it.is_empty() || labels.is_some_and(|labels| it.matches(labels))
                };
                affinity_term.namespaces.iter().any(|it| it == namespace)
                    || selector.as_ref().is_some_and(fits)
            }
        };
        within
            && affinity_term
                .label_selector
                .as_ref()
                .is_some_and(|it| it.matches(&pod.metadata.labels))
    }
}
