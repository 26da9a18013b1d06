//! A request with its names resolved once, for any number of nodes.

use gantry_api::devices::{AccessMode, RequestedCapacity, TopologyPolicy, TopologyRule};

use crate::problem::{Alternative, Count, Draws, Granularity, Request, Symbol, Symbols};

/// A request whose names are symbols, and whose terms are one list.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    pub(crate) request: &'a Request,
    pub(crate) terms: Vec<PreparedTerm<'a>>,
    /// Attributes that some group reads; `None` for a name that no device has.
    pub(crate) slots: Vec<Option<Symbol>>,
    /// Match and distinct groups of claims and alternatives.
    pub(crate) groups: Vec<AttributeGroup>,
    /// Topology rules of the pod, of claims and of alternatives.
    pub(crate) rules: Vec<PreparedTopologyRule>,
}

#[derive(Debug)]
pub(crate) struct PreparedTerm<'a> {
    pub(crate) claim: usize,
    pub(crate) alternatives: Vec<PreparedAlternative<'a>>,
    /// The groups of its claim.
    pub(crate) claim_groups: Vec<usize>,
    /// The rules of its claim and of the pod.
    pub(crate) outer_rules: Vec<usize>,
}

/// An alternative.
#[derive(Debug)]
pub(crate) struct PreparedAlternative<'a> {
    pub(crate) source: &'a Alternative,
    pub(crate) amounts: Vec<AmountRequest<'a>>,
    /// The requests for access, which must name the capacity of that kind.
    pub(crate) access: Vec<(&'a str, Option<Symbol>)>,
    /// Whether each device serves the requests alone.
    pub(crate) each: bool,
    /// How devices are shared, before a device upgrades the mode.
    pub(crate) mode: AccessMode,
    /// Every group its devices are members of.
    pub(crate) groups: Vec<usize>,
    /// Every rule that applies to its parts.
    pub(crate) rules: Vec<usize>,
}

/// A request for an amount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AmountRequest<'a> {
    pub(crate) text: &'a str,
    pub(crate) name: Option<Symbol>,
    pub(crate) kind: AmountRequestKind,
    /// In 10⁻⁹ units.
    pub(crate) amount: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmountRequestKind {
    Counter,
    Quantity,
    /// Either kind of capacity.
    Either,
}

impl AmountRequest<'_> {
    /// Whether a capacity is of a kind that can serve it.
    pub(crate) fn fits(&self, grain: Granularity) -> bool {
        match (self.kind, grain) {
            (AmountRequestKind::Counter, Granularity::Counter)
            | (
                AmountRequestKind::Quantity | AmountRequestKind::Either,
                Granularity::Any | Granularity::Block(_),
            ) => true,
            (AmountRequestKind::Either, Granularity::Counter) => {
                self.amount % Granularity::UNIT == 0
            }
            (AmountRequestKind::Counter, Granularity::Any | Granularity::Block(_))
            | (AmountRequestKind::Quantity, Granularity::Counter) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributeGroup {
    pub(crate) slot: usize,
    pub(crate) kind: GroupKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupKind {
    Match,
    Distinct,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PreparedTopologyRule {
    /// The kind of topology domain; `None` if there is none of that kind.
    pub(crate) kind: Option<Symbol>,
    pub(crate) policy: TopologyPolicy,
}

impl PreparedAlternative<'_> {
    /// Returns the least number of devices; for all of them, one.
    pub(crate) fn least(&self) -> usize {
        match self.source.count {
            Count::Between { least, .. } => usize::try_from(least.max(1)).unwrap_or(usize::MAX),
            Count::All => 1,
        }
    }

    /// Whether the same devices are candidates of both. Groups, topologies and counts are not
    /// compared: they are about sets of devices.
    pub(crate) fn has_candidates_of(&self, other: &PreparedAlternative<'_>) -> bool {
        let (one, other) = (self.source, other.source);
        one.selector == other.selector
            && one.admin == other.admin
            && one.mode == other.mode
            && one.draws == other.draws
            && one.tolerations == other.tolerations
    }

    /// Whether amounts of several devices add up.
    pub(crate) fn adds_up(&self) -> bool {
        !self.each && !self.amounts.is_empty()
    }
}

impl<'a> Prepared<'a> {
    /// Whether some term of a claim has administrator access.
    pub(crate) fn has_admin_terms(&self, claim: usize) -> bool {
        let terms = self.terms.iter().filter(|term| term.claim == claim);
        terms.flat_map(|term| &term.alternatives).any(|ask| ask.source.admin)
    }

    pub(crate) fn new(symbols: &Symbols, request: &'a Request) -> Self {
        let terms = Vec::with_capacity(request.claims.iter().map(|it| it.terms.len()).sum());
        let mut prepared = Self { request, terms, slots: vec![], groups: vec![], rules: vec![] };
        let mut slots = Vec::new();
        let pod_rules = prepared.add_rules(symbols, &request.topologies);
        for (at, claim) in request.claims.iter().enumerate() {
            let lists = [&claim.match_attributes, &claim.distinct_attributes];
            let claim_groups = prepared.add_groups(symbols, &mut slots, lists, &[]);
            let mut outer_rules = pod_rules.clone();
            outer_rules.extend(prepared.add_rules(symbols, &claim.topologies));
            for term in &claim.terms {
                let asks = term.alternatives.iter();
                let asks = asks.map(|alternative| {
                    let lists = [&alternative.match_attributes, &alternative.distinct_attributes];
                    let own = prepared.add_groups(symbols, &mut slots, lists, &claim_groups);
                    let groups = claim_groups.iter().copied().chain(own).collect();
                    let mut rules = outer_rules.clone();
                    rules.extend(prepared.add_rules(symbols, &alternative.topologies));
                    prepare_alternative(symbols, alternative, groups, rules)
                });
                let asks = asks.collect();
                prepared.terms.push(PreparedTerm {
                    claim: at,
                    alternatives: asks,
                    claim_groups: claim_groups.clone(),
                    outer_rules: outer_rules.clone(),
                });
            }
        }
        prepared
    }

    /// Adds match and distinct groups, except those that a wider group of the same kind implies.
    fn add_groups(
        &mut self,
        symbols: &Symbols,
        slots: &mut Vec<&'a str>,
        lists: [&'a Vec<String>; 2],
        wider: &[usize],
    ) -> Vec<usize> {
        let mut added = Vec::new();
        for (kind, names) in [GroupKind::Match, GroupKind::Distinct].into_iter().zip(lists) {
            for name in names {
                let known = slots.iter().position(|known| *known == name.as_str());
                let slot = known.unwrap_or_else(|| {
                    slots.push(name);
                    self.slots.push(symbols.find(name));
                    self.slots.len() - 1
                });
                let group = AttributeGroup { slot, kind };
                let mut known = wider.iter().chain(&added);
                if !known.any(|known| self.groups[*known] == group) {
                    added.push(self.groups.len());
                    self.groups.push(group);
                }
            }
        }
        added
    }

    fn add_rules(&mut self, symbols: &Symbols, rules: &[TopologyRule]) -> Vec<usize> {
        let first = self.rules.len();
        self.rules.extend(rules.iter().map(|rule| PreparedTopologyRule {
            kind: symbols.find(&rule.r#type),
            policy: rule.policy,
        }));
        (first..self.rules.len()).collect()
    }
}

fn prepare_alternative<'a>(
    symbols: &Symbols,
    source: &'a Alternative,
    groups: Vec<usize>,
    rules: Vec<usize>,
) -> PreparedAlternative<'a> {
    let mut ask = PreparedAlternative {
        source,
        amounts: Vec::new(),
        access: Vec::new(),
        each: matches!(source.draws, Draws::Each(_)),
        mode: AccessMode::ReadWriteExclusive,
        groups,
        rules,
    };
    let mut asked = None;
    match &source.draws {
        Draws::Each(list) => {
            for request in list {
                let (text, name) = (request.name.as_str(), symbols.find(&request.name));
                let (kind, amount) = match &request.draw {
                    RequestedCapacity::Counter { request } => {
                        (AmountRequestKind::Counter, i128::from(*request) * Granularity::UNIT)
                    }
                    RequestedCapacity::Quantity { request } => {
                        (AmountRequestKind::Quantity, request.nanos())
                    }
                    RequestedCapacity::AccessMode { request } => {
                        asked = asked.or(Some(*request));
                        ask.access.push((text, name));
                        continue;
                    }
                };
                ask.amounts.push(AmountRequest { text, name, kind, amount: amount.max(0) });
            }
        }
        Draws::Together(list) => {
            ask.amounts.extend(list.iter().map(|(text, amount)| AmountRequest {
                text,
                name: symbols.find(text),
                kind: AmountRequestKind::Either,
                amount: amount.nanos().max(0),
            }));
        }
    }
    let usual = match ask.amounts.is_empty() {
        true => AccessMode::ReadWriteExclusive,
        false => AccessMode::ReadWriteShared,
    };
    ask.mode = asked.or(source.mode).unwrap_or(usual);
    ask
}
