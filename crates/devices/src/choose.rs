//! On which node: the one that serves best, and of equal ones always the same.

use std::cmp::Reverse;

use crate::allocate::solve;
use crate::eligible::{eligible, judged};
use crate::prepare::{Ask, Prepared};
use crate::problem::{Allocation, Budget, Hold, Inventory, Node, Request, Stock, Undecided};

/// A node that everything but devices has agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The node, as a place in [`Inventory::nodes`].
    pub node: usize,
    /// How much of its cpu and memory is requested; less is better.
    pub load: u64,
}

/// Which of several nodes is better, if they serve equally well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// The one with the fewest devices left that would have done: others stay whole.
    #[default]
    Tight,
    /// The one with the most left.
    Spread,
}

/// What became of the offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The best of them, if any serves.
    pub placement: Option<Placement>,
    /// How many serve.
    pub fitting: usize,
    /// Those of which nobody knows, and why.
    pub undecided: Vec<(usize, Undecided)>,
    /// How long it took in all.
    pub steps: u64,
}

/// A node and what it gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The node, as a place in [`Inventory::nodes`].
    pub node: usize,
    /// What each claim gets there.
    pub allocation: Allocation,
}

/// What is known about all nodes of a shape.
#[derive(Debug)]
enum Outcome {
    Serves { leftover: u64, allocation: Allocation },
    Refuses,
    Undecided(Undecided),
}

/// A shape of which a node was searched.
#[derive(Debug)]
struct Tried {
    outcome: Outcome,
    /// The node that was searched.
    searched: usize,
    /// How many nodes of the shape are offered.
    offers: usize,
    /// The load and the place by name of the best of them.
    rank: (u64, u32),
    /// The best of them.
    node: usize,
}

/// What speaks for a node, the best first: score, what is left over, load and name.
type Merit = (Reverse<u32>, u64, Reverse<u64>, u64, u32);

/// Chooses a node for a request: the highest score, then the packing, then the least load, then
/// the first by name. The order of the offers does not matter.
///
/// Nodes that differ in nothing but names are searched once, so the cost grows with how different
/// nodes are and not with how many there are. The budget is for each search.
#[must_use]
pub fn choose(
    inventory: &Inventory,
    offers: &[Offer],
    request: &Request,
    packing: Packing,
    budget: &Budget<'_>,
) -> Chosen {
    let prepared = Prepared::new(inventory.symbols(), request);
    let shapes = inventory.shapes();
    // For each shape its place in `tried`, from one.
    let mut places: Vec<usize> = vec![0; shapes.count()];
    let mut tried: Vec<Tried> = Vec::new();
    let mut chosen = Chosen { placement: None, fitting: 0, undecided: Vec::new(), steps: 0 };
    // Nodes that were made alike are offered one after another, and stay alike for long.
    for offers in offers.chunk_by(|one, next| shapes.of_node(one.node) == shapes.of_node(next.node))
    {
        let first = offers[0].node;
        let Some(shape) = shapes.of_node(first) else { continue };
        let at = match places[shape].checked_sub(1) {
            Some(at) => at,
            None => {
                let (outcome, steps) =
                    outcome(&prepared, inventory, &inventory.nodes()[first], *budget);
                chosen.steps += steps;
                let rank = (u64::MAX, u32::MAX);
                tried.push(Tried { outcome, searched: first, offers: 0, rank, node: first });
                places[shape] = tried.len();
                tried.len() - 1
            }
        };
        let tried = &mut tried[at];
        match tried.outcome {
            Outcome::Serves { .. } => {
                tried.offers += offers.len();
                let ranks = offers.iter().map(|it| (it.load, shapes.rank(it.node), it.node));
                let best = ranks.fold((tried.rank.0, tried.rank.1, tried.node), Ord::min);
                (tried.rank, tried.node) = ((best.0, best.1), best.2);
            }
            Outcome::Refuses => {}
            Outcome::Undecided(why) => {
                chosen.undecided.extend(offers.iter().map(|offer| (offer.node, why)));
            }
        }
    }
    let mut best: Option<(Merit, Tried)> = None;
    for tried in tried {
        let Outcome::Serves { leftover, allocation } = &tried.outcome else { continue };
        chosen.fitting += tried.offers;
        let (tight, spread) = match packing {
            Packing::Tight => (*leftover, Reverse(0)),
            Packing::Spread => (0, Reverse(*leftover)),
        };
        let merit = (Reverse(allocation.score), tight, spread, tried.rank.0, tried.rank.1);
        if best.as_ref().is_none_or(|(known, _)| merit < *known) {
            best = Some((merit, tried));
        }
    }
    if let Some((_, tried)) = best
        && let Outcome::Serves { mut allocation, .. } = tried.outcome
    {
        let (from, to) = (&inventory.nodes()[tried.searched], &inventory.nodes()[tried.node]);
        transfer(&mut allocation, from, to);
        chosen.placement = Some(Placement { node: tried.node, allocation });
    }
    chosen
}

/// Searches a node, and counts the steps.
fn outcome(
    prepared: &Prepared<'_>,
    inventory: &Inventory,
    node: &Node,
    budget: Budget<'_>,
) -> (Outcome, u64) {
    match solve(prepared, inventory, node, budget) {
        Ok((Some(allocation), steps)) => {
            let leftover = leftover(prepared, inventory, node, &allocation);
            (Outcome::Serves { leftover, allocation }, steps)
        }
        Ok((None, steps)) => (Outcome::Refuses, steps),
        Err(undecided @ Undecided::Steps(steps)) => (Outcome::Undecided(undecided), steps),
        Err(undecided @ (Undecided::TooLarge | Undecided::Stopped)) => {
            (Outcome::Undecided(undecided), 0)
        }
    }
}

/// Makes an allocation on one node into the same on another of its shape.
fn transfer(allocation: &mut Allocation, from: &Node, to: &Node) {
    let holds = allocation.claims.iter_mut().flat_map(|claim| &mut claim.terms);
    for hold in holds.flat_map(|term| &mut term.holds) {
        if let Some(at) = from.pools.iter().position(|pool| *pool == hold.pool) {
            hold.pool = to.pools[at];
        }
    }
}

/// How many devices that nobody holds would have done for what was chosen, and are still there.
fn leftover(
    prepared: &Prepared<'_>,
    inventory: &Inventory,
    node: &Node,
    allocation: &Allocation,
) -> u64 {
    let terms = allocation.claims.iter().flat_map(|claim| &claim.terms);
    let asks: Vec<&Ask<'_>> =
        prepared.terms.iter().zip(terms).map(|(term, got)| &term.asks[got.alternative]).collect();
    let taken: Vec<&Hold> = allocation.holds().filter(|hold| !hold.admin).collect();
    let pools = node.pools.iter().filter_map(|at| Some((*at, inventory.pools().get(*at)?)));
    pools
        .map(|(at, pool)| match &pool.stock {
            Stock::Listed(devices) => {
                let free = devices.iter().enumerate().filter(|(index, device)| {
                    let held = |hold: &&Hold| hold.pool == at && hold.device == Some(*index);
                    device.holds == 0
                        && !taken.iter().any(held)
                        && asks
                            .iter()
                            .any(|ask| eligible(prepared, inventory, pool, device, ask).is_ok())
                });
                free.count() as u64
            }
            Stock::Counted(counted) => {
                let fits = |ask: &&Ask<'_>| {
                    ask.wants.is_empty() && judged(prepared, ask, counted.signature).is_ok()
                };
                let taken = taken.iter().filter(|hold| hold.pool == at).count() as u64;
                let free = u64::from(counted.count.saturating_sub(counted.held));
                if asks.iter().any(fits) { free.saturating_sub(taken) } else { 0 }
            }
        })
        .sum()
}
