//! Who is where: the nodes, what is taken of them, and which pods are on them.
//!
//! Made anew for every plan from the shelves, and kept up to date with what the plan gives. Pods that
//! others want to be near to or far from are counted by node, once for each wish that somebody has;
//! then no pod's turn looks at all other pods.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gantry_pods::Site;
use gantry_reconcile::Selector;

use crate::lot;
use crate::view::{Namespace, Node, Pod, PodAffinityTerm};

/// A wish about other pods, and in whose namespace it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term<'a> {
    pub(super) home: &'a str,
    pub(super) wish: &'a PodAffinityTerm,
}

/// Which pods are counted.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Counted<'a> {
    /// Those that all of these wishes are about.
    Wished(Vec<Term<'a>>),
    /// Those of a namespace that a constraint selects, and that share some labels.
    Selected {
        /// The namespace.
        namespace: &'a str,
        /// What their labels are like.
        selector: &'a Selector,
        /// Labels, and the values they share.
        shared: Vec<(&'a str, &'a str)>,
    },
    /// Those that require to be far from what this wish is about.
    KeepAway(Term<'a>),
    /// Those that like what this wish is about to be near, by how much; far when negative.
    Likes(Term<'a>, i64),
}

/// How many pods of some description are on each node.
#[derive(Debug)]
struct Tally<'a> {
    counted: Counted<'a>,
    by_site: Vec<i64>,
}

/// The nodes by the values of a label: comparing numbers is much cheaper than comparing texts.
#[derive(Debug)]
pub(super) struct Topology<'a> {
    key: &'a str,
    /// The number of each node's place; none without the label.
    pub(super) of: Vec<Option<usize>>,
    /// How many places there are.
    pub(super) places: usize,
}

/// How much those who require to be near a pod like it to be near, of a hundred.
const REQUIRED_LIKES: i64 = 1;

type Labels<'a> = HashMap<&'a str, &'a BTreeMap<String, String>>;

/// The nodes, and who is on them.
#[derive(Debug)]
pub(super) struct Board<'a> {
    pub(super) sites: Vec<Site<'a>>,
    /// A number for each node that stands for it when nodes are alike.
    pub(super) lots: Vec<u64>,
    by_name: HashMap<&'a str, usize>,
    placed: Vec<Vec<&'a Pod>>,
    /// What incoming pods ask for, as far as they have asked.
    asked: Vec<Tally<'a>>,
    /// What pods that are placed ask of incoming ones.
    standing: Vec<Tally<'a>>,
    namespaces: Labels<'a>,
    /// Where the pods of each owner are that are to stay, a place for each pod.
    owned: HashMap<&'a str, Vec<usize>>,
    /// Nodes by the values of a label, as far as somebody has asked.
    topologies: Vec<Arc<Topology<'a>>>,
    /// The priority of the least important pod that is or was placed.
    pub(super) lowest: i32,
}

impl<'a> Board<'a> {
    pub(super) fn new(
        nodes: &'a [Arc<Node>],
        pods: &'a [Arc<Pod>],
        namespaces: &'a [Arc<Namespace>],
    ) -> Self {
        let sites: Vec<Site<'a>> = nodes.iter().map(|it| Site::new(it)).collect();
        let names = sites.iter().map(|it| it.node.metadata.name.as_str());
        let by_name = names.enumerate().map(|(at, name)| (name, at)).collect();
        let lots = sites.iter().map(|it| lot::draw(&[&it.node.metadata.name])).collect();
        let placed = vec![Vec::new(); sites.len()];
        let labels = namespaces.iter().map(|it| (it.metadata.name.as_str(), &it.metadata.labels));
        let (asked, standing, namespaces) = (Vec::new(), Vec::new(), labels.collect());
        let mut board = Self {
            sites,
            lots,
            by_name,
            placed,
            asked,
            standing,
            namespaces,
            owned: HashMap::new(),
            topologies: Vec::new(),
            lowest: i32::MAX,
        };
        for pod in pods.iter().filter(|it| !it.spec.node_name.is_empty() && !it.is_over()) {
            if let Some(at) = board.find(&pod.spec.node_name) {
                board.put(pod, at);
            }
        }
        board
    }

    pub(super) fn find(&self, node: &str) -> Option<usize> {
        self.by_name.get(node).copied()
    }

    /// The pods on a node.
    pub(super) fn on(&self, at: usize) -> &[&'a Pod] {
        &self.placed[at]
    }

    /// Puts a pod on a node.
    pub(super) fn put(&mut self, pod: &'a Pod, at: usize) {
        self.placed[at].push(pod);
        self.lowest = self.lowest.min(pod.spec.priority);
        self.account(pod, at, 1);
    }

    /// Takes a pod off a node.
    pub(super) fn lift(&mut self, pod: &'a Pod, at: usize) {
        self.placed[at].retain(|it| it.metadata.uid != pod.metadata.uid);
        self.account(pod, at, -1);
    }

    fn account(&mut self, pod: &'a Pod, at: usize, sign: i64) {
        let site = &mut self.sites[at];
        if sign > 0 {
            site.put(pod);
        } else {
            site.lift(pod);
        }
        for wish in standing(pod) {
            let known = self.standing.iter().position(|it| it.counted == wish);
            let index = known.unwrap_or_else(|| {
                self.standing.push(Tally { counted: wish, by_site: vec![0; self.sites.len()] });
                self.standing.len() - 1
            });
            self.standing[index].by_site[at] += sign;
        }
        let owner = pod.metadata.controller().filter(|_| !pod.metadata.is_going());
        if let Some(owner) = owner {
            let places = self.owned.entry(owner.uid.as_str()).or_default();
            if sign > 0 {
                places.push(at);
            } else if let Some(one) = places.iter().position(|it| *it == at) {
                places.swap_remove(one);
            }
        }
        let namespaces = &self.namespaces;
        for tally in self.asked.iter_mut().filter(|it| it.counted.counts(pod, namespaces)) {
            tally.by_site[at] += sign;
        }
    }

    /// How many pods of a description are on each node.
    pub(super) fn count(&mut self, counted: Counted<'a>) -> &[i64] {
        let known = self.asked.iter().position(|it| it.counted == counted);
        let index = known.unwrap_or_else(|| {
            let of = |pods: &Vec<&'a Pod>| {
                let of = pods.iter().filter(|it| counted.counts(it, &self.namespaces)).count();
                i64::try_from(of).unwrap_or(i64::MAX)
            };
            let by_site = self.placed.iter().map(of).collect();
            self.asked.push(Tally { counted, by_site });
            self.asked.len() - 1
        });
        &self.asked[index].by_site
    }

    /// How many pods of an owner are on each node.
    pub(super) fn owned_by(&self, uid: &str) -> Vec<i64> {
        let mut by_site = vec![0; self.sites.len()];
        for at in self.owned.get(uid).into_iter().flatten() {
            by_site[*at] += 1;
        }
        by_site
    }

    /// The nodes by the values of a label.
    pub(super) fn topology(&mut self, key: &'a str) -> Arc<Topology<'a>> {
        if let Some(known) = self.topologies.iter().find(|it| it.key == key) {
            return Arc::clone(known);
        }
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let place = |site: &Site<'a>| {
            let next = numbers.len();
            site.label(key).map(|value| *numbers.entry(value).or_insert(next))
        };
        let of = self.sites.iter().map(place).collect();
        let topology = Arc::new(Topology { key, of, places: numbers.len() });
        self.topologies.push(Arc::clone(&topology));
        topology
    }

    /// What pods that are placed ask of this one: each wish that is about it, and who has it where.
    pub(super) fn asked_of<'s>(
        &'s self,
        pod: &'s Pod,
    ) -> impl Iterator<Item = (&'s Counted<'a>, &'s [i64])> {
        self.standing.iter().filter_map(move |tally| {
            let about = match &tally.counted {
                Counted::KeepAway(term) | Counted::Likes(term, _) => {
                    term.is_about(pod, &self.namespaces)
                }
                Counted::Wished(_) | Counted::Selected { .. } => false,
            };
            about.then_some((&tally.counted, &tally.by_site[..]))
        })
    }

    /// Whether all of these wishes are about a pod.
    pub(super) fn are_about(&self, terms: &[Term<'_>], pod: &Pod) -> bool {
        terms.iter().all(|it| it.is_about(pod, &self.namespaces))
    }
}

/// What a pod that is placed asks of incoming ones.
fn standing(pod: &Pod) -> Vec<Counted<'_>> {
    let affinity = &pod.spec.affinity;
    let (near, far) = (&affinity.pod_affinity, &affinity.pod_anti_affinity);
    let term = |wish| Term { home: pod.metadata.namespace.as_str(), wish };
    let away = far.required.iter().map(|it| Counted::KeepAway(term(it)));
    let required = near.required.iter().map(|it| Counted::Likes(term(it), REQUIRED_LIKES));
    let likes = near.preferred.iter().map(|it| (it, it.weight));
    let dislikes = far.preferred.iter().map(|it| (it, -it.weight));
    let liked = likes.chain(dislikes);
    let liked = liked.map(|(it, weight)| Counted::Likes(term(&it.pod_affinity_term), weight));
    away.chain(required).chain(liked).collect()
}

impl Counted<'_> {
    fn counts(&self, pod: &Pod, namespaces: &Labels<'_>) -> bool {
        let (meta, labels) = (&pod.metadata, &pod.metadata.labels);
        match self {
            Self::Wished(terms) => terms.iter().all(|it| it.is_about(pod, namespaces)),
            Self::Selected { namespace, selector, shared } => {
                let shares =
                    |(key, value): &(&str, &str)| labels.get(*key).is_some_and(|it| it == value);
                !meta.is_going()
                    && meta.namespace == *namespace
                    && selector.matches(labels)
                    && shared.iter().all(shares)
            }
            Self::KeepAway(_) | Self::Likes(..) => false,
        }
    }
}

impl Term<'_> {
    fn is_about(&self, pod: &Pod, namespaces: &Labels<'_>) -> bool {
        let wish = self.wish;
        let namespace = pod.metadata.namespace.as_str();
        let within = match (&wish.namespace_selector, wish.namespaces.is_empty()) {
            (None, true) => namespace == self.home,
            (selector, _) => {
                let labels = namespaces.get(namespace);
                let fits = |it: &Selector| {
                    it.is_empty() || labels.is_some_and(|labels| it.matches(labels))
                };
                wish.namespaces.iter().any(|it| it == namespace)
                    || selector.as_ref().is_some_and(fits)
            }
        };
        within && wish.label_selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels))
    }
}
