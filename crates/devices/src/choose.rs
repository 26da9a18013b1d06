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
#[derive(Clone, Debug)]
enum Outcome {
    Serves { score: u32, leftover: u64, found: usize },
    Refuses,
    Undecided(Undecided),
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
    let mut outcomes: Vec<Option<Outcome>> = vec![None; shapes.count()];
    let mut found: Vec<(usize, Allocation)> = Vec::new();
    let mut chosen = Chosen { placement: None, fitting: 0, undecided: Vec::new(), steps: 0 };
    let mut best: Option<(Merit, usize, usize)> = None;
    for offer in offers {
        let Some(shape) = shapes.of_node(offer.node) else { continue };
        let outcome = outcomes[shape].get_or_insert_with(|| {
            let node = &inventory.nodes()[offer.node];
            match solve(&prepared, inventory, node, *budget) {
                Ok((Some(allocation), steps)) => {
                    chosen.steps += steps;
                    let leftover = leftover(&prepared, inventory, node, &allocation);
                    let score = allocation.score;
                    found.push((offer.node, allocation));
                    Outcome::Serves { score, leftover, found: found.len() - 1 }
                }
                Ok((None, steps)) => {
                    chosen.steps += steps;
                    Outcome::Refuses
                }
                Err(undecided) => {
                    if let Undecided::Steps(steps) = undecided {
                        chosen.steps += steps;
                    }
                    Outcome::Undecided(undecided)
                }
            }
        });
        match outcome {
            Outcome::Serves { score, leftover, found } => {
                chosen.fitting += 1;
                let (tight, spread) = match packing {
                    Packing::Tight => (*leftover, Reverse(0)),
                    Packing::Spread => (0, Reverse(*leftover)),
                };
                let rank = shapes.rank(offer.node);
                let key = (Reverse(*score), tight, spread, offer.load, rank);
                if best.as_ref().is_none_or(|(known, ..)| key < *known) {
                    best = Some((key, offer.node, *found));
                }
            }
            Outcome::Refuses => {}
            Outcome::Undecided(why) => chosen.undecided.push((offer.node, *why)),
        }
    }
    if let Some((_, node, at)) = best {
        let (searched, mut allocation) = found.swap_remove(at);
        transfer(&mut allocation, &inventory.nodes()[searched], &inventory.nodes()[node]);
        chosen.placement = Some(Placement { node, allocation });
    }
    chosen
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
                        && asks
                            .iter()
                            .any(|ask| eligible(prepared, inventory, pool, device, ask).is_ok())
                        && !taken.iter().any(held)
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
