//! What a pod wants of the node it is given to, and which nodes will do.

use std::collections::{BTreeSet, HashMap};

use gantry_pods::{Misfit, Need, Reason, Site, fit};

use crate::view::{Pod, SpreadConstraint};

use super::board::{Board, Counted, Term};

/// What one pod wants, against the pods that are placed now.
#[derive(Debug)]
pub(super) struct Want<'a> {
    pub(super) need: Need<'a>,
    near: Vec<Near<'a>>,
    /// Whether nobody is there yet that it wants to be near, and it would do itself.
    first_of_its_kind: bool,
    /// Values of labels of nodes where somebody is that it must be far from.
    far: Vec<Places<'a>>,
    /// Values of labels of nodes where somebody is that wants to be far from it.
    unwelcome: Vec<Places<'a>>,
    spread: Vec<Spread<'a>>,
}

/// Values of one label of nodes.
#[derive(Debug)]
struct Places<'a> {
    key: &'a str,
    values: BTreeSet<&'a str>,
}

impl Places<'_> {
    fn contain(&self, site: &Site<'_>) -> bool {
        site.label(self.key).is_some_and(|it| self.values.contains(it))
    }
}

/// Where those are that a pod must be near to.
#[derive(Debug)]
struct Near<'a>(Places<'a>);

/// How a pod must spread by one label of nodes.
#[derive(Debug)]
struct Spread<'a> {
    key: &'a str,
    counts: HashMap<&'a str, i64>,
    /// How many may be at a place before this pod comes.
    most: i64,
}

impl<'a> Want<'a> {
    pub(super) fn new(board: &mut Board<'a>, pod: &'a Pod) -> Self {
        let affinity = &pod.spec.affinity;
        let home = pod.metadata.namespace.as_str();
        let term = |wish| Term { home, wish };
        let wishes: Vec<Term<'a>> = affinity.pod_affinity.required.iter().map(term).collect();
        let mut near = Vec::new();
        if !wishes.is_empty() {
            let counts = board.count(Counted::Wished(wishes.clone())).to_vec();
            for wish in &wishes {
                near.push(Near(places(board, &wish.wish.topology_key, &counts)));
            }
        }
        let nobody = near.iter().all(|it| it.0.values.is_empty());
        let first_of_its_kind = !near.is_empty() && nobody && board.are_about(&wishes, pod);
        let mut far = Vec::new();
        for wish in &affinity.pod_anti_affinity.required {
            let counts = board.count(Counted::Wished(vec![term(wish)])).to_vec();
            far.push(places(board, &wish.topology_key, &counts));
        }
        let unwelcome = board.asked_of(pod).filter_map(|(wish, counts)| match wish {
            Counted::KeepAway(term) => Some(places(board, &term.wish.topology_key, counts)),
            Counted::Likes(..) | Counted::Wished(_) | Counted::Selected { .. } => None,
        });
        let unwelcome = unwelcome.collect();
        let hard = |it: &&SpreadConstraint| it.when_unsatisfiable != "ScheduleAnyway";
        let hard: Vec<&'a SpreadConstraint> =
            pod.spec.topology_spread_constraints.iter().filter(hard).collect();
        let spread = hard.iter().map(|it| Spread::new(board, pod, it, &hard)).collect();
        Self { need: Need::new(pod), near, first_of_its_kind, far, unwelcome, spread }
    }

    /// Why a node will not do, by the first rule it breaks.
    pub(super) fn misfit(&self, site: &Site<'a>) -> Option<Misfit> {
        self.need.misfit(site).or_else(|| self.misplaced(site))
    }

    fn misplaced(&self, site: &Site<'a>) -> Option<Misfit> {
        for spread in &self.spread {
            let Some(place) = site.label(spread.key) else {
                return Some(Misfit::lasting(Reason::SpreadLabel));
            };
            if spread.counts.get(place).copied().unwrap_or_default() > spread.most {
                return Some(Misfit::passing(Reason::Spread));
            }
        }
        if !self.is_near(site) {
            return Some(Misfit::lasting(Reason::Near));
        }
        if self.far.iter().any(|it| it.contain(site)) {
            return Some(Misfit::passing(Reason::Far));
        }
        if self.unwelcome.iter().any(|it| it.contain(site)) {
            return Some(Misfit::passing(Reason::Unwelcome));
        }
        None
    }

    fn is_near(&self, site: &Site<'a>) -> bool {
        let labelled = self.near.iter().all(|it| site.label(it.0.key).is_some());
        labelled && (self.first_of_its_kind || self.near.iter().all(|it| it.0.contain(site)))
    }
}

/// Where of the values of a label pods are.
fn places<'a>(board: &Board<'a>, key: &'a str, counts: &[i64]) -> Places<'a> {
    let there = board.sites.iter().zip(counts).filter(|(_, count)| **count > 0);
    Places { key, values: there.filter_map(|(site, _)| site.label(key)).collect() }
}

/// The pods a spread constraint of `pod` counts; `None` for none at all.
pub(super) fn spread_among<'a>(pod: &'a Pod, by: &'a SpreadConstraint) -> Option<Counted<'a>> {
    let selector = by.label_selector.as_ref()?;
    let keys = by.match_label_keys.iter();
    let shared =
        keys.filter_map(|key| Some((key.as_str(), pod.metadata.labels.get(key)?.as_str())));
    let namespace = pod.metadata.namespace.as_str();
    Some(Counted::Selected { namespace, selector, shared: shared.collect() })
}

/// Whether a node counts as a place for a constraint of a pod.
pub(super) fn is_place(pod: &Pod, by: &SpreadConstraint, site: &Site<'_>) -> bool {
    let wanted = by.node_affinity_policy == "Ignore"
        || fit::wants_node(&pod.spec.node_selector, &pod.spec.affinity, site.node);
    let open = by.node_taints_policy != "Honor"
        || !fit::keeps_away(&site.node.spec.taints, &pod.spec.tolerations);
    wanted && open
}

impl<'a> Spread<'a> {
    fn new(
        board: &mut Board<'a>,
        pod: &'a Pod,
        by: &'a SpreadConstraint,
        all: &[&'a SpreadConstraint],
    ) -> Self {
        let among = spread_among(pod, by);
        let itself = by.label_selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels));
        let none = || vec![0; board.sites.len()];
        let on_sites = match &among {
            // A selector that selects everything counts nobody, as in the original.
            Some(Counted::Selected { selector, shared, .. })
                if selector.is_empty() && shared.is_empty() =>
            {
                none()
            }
            None => none(),
            Some(counted) => board.count(counted.clone()).to_vec(),
        };
        let key = by.topology_key.as_str();
        let mut counts: HashMap<&'a str, i64> = HashMap::new();
        for (site, count) in board.sites.iter().zip(&on_sites) {
            let labelled = all.iter().all(|it| site.label(&it.topology_key).is_some());
            if let Some(place) = site.label(key).filter(|_| labelled && is_place(pod, by, site)) {
                *counts.entry(place).or_default() += count;
            }
        }
        let enough = i64::try_from(counts.len()).unwrap_or(i64::MAX) >= by.min_domains.unwrap_or(1);
        let least = if enough { counts.values().min().copied().unwrap_or_default() } else { 0 };
        let most = by.max_skew.saturating_add(least) - i64::from(itself);
        Self { key, counts, most }
    }
}
