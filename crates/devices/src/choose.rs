//! Chooses the best node for a request, deterministically.

use std::cmp::Reverse;

use crate::allocate::solve;
use crate::eligible::{check_eligible, check_selector};
use crate::prepare::{Prepared, PreparedAlternative};
use crate::problem::{Allocation, Budget, Hold, Inventory, Node, PoolDevices, Request, Undecided};

/// A node that is feasible in every respect other than devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeasibleNode {
    /// The node, as an index in [`Inventory::nodes`].
    pub node: usize,
    /// How much of its cpu and memory is requested; less is better.
    pub load: u64,
}

/// Which of several nodes with equal scores is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// The one with the fewest suitable devices left: others stay free as a whole.
    #[default]
    BinPack,
    /// The one with the most suitable devices left.
    Spread,
}

/// The result for the offered nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeChoice {
    /// The best of them, if any is feasible.
    pub placement: Option<Placement>,
    /// How many are feasible.
    pub fitting: usize,
    /// The nodes for which the search had no result, and why.
    pub undecided: Vec<(usize, Undecided)>,
    /// The number of search steps in all.
    pub steps: u64,
}

/// A node and its allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The node, as an index in [`Inventory::nodes`].
    pub node: usize,
    /// What each claim gets there.
    pub allocation: Allocation,
}

/// The result for all nodes of a shape.
#[derive(Debug)]
enum Outcome {
    Fits { leftover: u64, allocation: Allocation },
    DoesNotFit,
    Undecided(Undecided),
}

/// A shape of which one node was searched.
#[derive(Debug)]
struct SearchedShape {
    outcome: Outcome,
    /// The node that was searched.
    searched: usize,
    /// How many nodes of the shape are offered.
    offers: usize,
    /// The load and the position by name of the best of them.
    rank: (u64, u32),
    /// The best of them.
    node: usize,
}

/// The sort key of a node, the best first: score, what is left over, load and name.
type NodeRank = (Reverse<u32>, u64, Reverse<u64>, u64, u32);

/// Chooses a node for a request: the highest score, then the packing, then the least load, then the
/// first by name. The order of the offers does not matter.
///
/// Nodes that differ in nothing but names are searched once, so the cost grows with the number of
/// different nodes and not with the number of nodes. The budget applies to each search.
#[must_use]
pub fn choose(
    inventory: &Inventory,
    offers: &[FeasibleNode],
    request: &Request,
    packing: Packing,
    budget: &Budget<'_>,
) -> NodeChoice {
    let prepared = Prepared::new(inventory.symbols(), request);
    let shapes = inventory.shapes();
    // For each shape its index in `tried`, plus one.
    let mut places: Vec<usize> = vec![0; shapes.count()];
    let mut tried: Vec<SearchedShape> = Vec::new();
    let mut chosen = NodeChoice { placement: None, fitting: 0, undecided: Vec::new(), steps: 0 };
    // Identical nodes are mostly offered one after another, and stay identical for long.
    for offers in offers.chunk_by(|one, next| shapes.of_node(one.node) == shapes.of_node(next.node))
    {
        let first = offers[0].node;
        let Some(shape) = shapes.of_node(first) else { continue };
        let at = match places[shape].checked_sub(1) {
            Some(at) => at,
            None => {
                let (outcome, steps) =
                    search_node(&prepared, inventory, &inventory.nodes()[first], *budget);
                chosen.steps += steps;
                let rank = (u64::MAX, u32::MAX);
                tried.push(SearchedShape {
                    outcome,
                    searched: first,
                    offers: 0,
                    rank,
                    node: first,
                });
                places[shape] = tried.len();
                tried.len() - 1
            }
        };
        let tried = &mut tried[at];
        match tried.outcome {
            Outcome::Fits { .. } => {
                tried.offers += offers.len();
                let ranks = offers.iter().map(|it| (it.load, shapes.rank(it.node), it.node));
                let best = ranks.fold((tried.rank.0, tried.rank.1, tried.node), Ord::min);
                (tried.rank, tried.node) = ((best.0, best.1), best.2);
            }
            Outcome::DoesNotFit => {}
            Outcome::Undecided(why) => {
                chosen.undecided.extend(offers.iter().map(|offer| (offer.node, why)));
            }
        }
    }
    let mut best: Option<(NodeRank, SearchedShape)> = None;
    for tried in tried {
        let Outcome::Fits { leftover, allocation } = &tried.outcome else { continue };
        chosen.fitting += tried.offers;
        let (tight, spread) = match packing {
            Packing::BinPack => (*leftover, Reverse(0)),
            Packing::Spread => (0, Reverse(*leftover)),
        };
        let merit = (Reverse(allocation.score), tight, spread, tried.rank.0, tried.rank.1);
        if best.as_ref().is_none_or(|(known, _)| merit < *known) {
            best = Some((merit, tried));
        }
    }
    if let Some((_, tried)) = best
        && let Outcome::Fits { mut allocation, .. } = tried.outcome
    {
        let (from, to) = (&inventory.nodes()[tried.searched], &inventory.nodes()[tried.node]);
        move_to_node(&mut allocation, from, to);
        chosen.placement = Some(Placement { node: tried.node, allocation });
    }
    chosen
}

/// Searches a node, and counts the steps.
fn search_node(
    prepared: &Prepared<'_>,
    inventory: &Inventory,
    node: &Node,
    budget: Budget<'_>,
) -> (Outcome, u64) {
    match solve(prepared, inventory, node, budget) {
        Ok((Some(allocation), steps)) => {
            let leftover = leftover(prepared, inventory, node, &allocation);
            (Outcome::Fits { leftover, allocation }, steps)
        }
        Ok((None, steps)) => (Outcome::DoesNotFit, steps),
        Err(undecided @ Undecided::Steps(steps)) => (Outcome::Undecided(undecided), steps),
        Err(undecided @ (Undecided::TooLarge | Undecided::Stopped)) => {
            (Outcome::Undecided(undecided), 0)
        }
    }
}

/// Translates an allocation from one node to another of the same shape.
fn move_to_node(allocation: &mut Allocation, from: &Node, to: &Node) {
    let holds = allocation.claims.iter_mut().flat_map(|claim| &mut claim.terms);
    for hold in holds.flat_map(|term| &mut term.holds) {
        if let Some(at) = from.pools.iter().position(|pool| *pool == hold.pool) {
            hold.pool = to.pools[at];
        }
    }
}

/// Returns how many free devices would have been suitable for what was chosen, and are still there.
fn leftover(
    prepared: &Prepared<'_>,
    inventory: &Inventory,
    node: &Node,
    allocation: &Allocation,
) -> u64 {
    let terms = allocation.claims.iter().flat_map(|claim| &claim.terms);
    let asks: Vec<&PreparedAlternative<'_>> = prepared
        .terms
        .iter()
        .zip(terms)
        .map(|(term, got)| &term.alternatives[got.alternative])
        .collect();
    let taken: Vec<&Hold> = allocation.holds().filter(|hold| !hold.admin).collect();
    let pools = node.pools.iter().filter_map(|at| Some((*at, inventory.pools().get(*at)?)));
    pools
        .map(|(at, pool)| match &pool.devices {
            PoolDevices::Listed(devices) => {
                let free = devices.iter().enumerate().filter(|(index, device)| {
                    let held = |hold: &&Hold| hold.pool == at && hold.device == Some(*index);
                    device.holds == 0
                        && !taken.iter().any(held)
                        && asks.iter().any(|ask| {
                            check_eligible(prepared, inventory, pool, device, ask).is_ok()
                        })
                });
                free.count() as u64
            }
            PoolDevices::Counted(counted) => {
                let fits = |ask: &&PreparedAlternative<'_>| {
                    ask.amounts.is_empty()
                        && check_selector(prepared, ask, counted.signature).is_ok()
                };
                let taken = taken.iter().filter(|hold| hold.pool == at).count() as u64;
                let free = u64::from(counted.count.saturating_sub(counted.held));
                if asks.iter().any(fits) { free.saturating_sub(taken) } else { 0 }
            }
        })
        .sum()
}
