//! Many pods at once: a node for each, with room for it, and devices for all of them.
//!
//! What one pod is given changes what is left for the next, and a choice that was made for the first may
//! be what keeps the last from starting. Whoever admits all pods of a job or none must therefore ask
//! about all of them together, and that is one question: [`allocate_group`].
//!
//! # What a solution is
//! Every pod is on one node that it may be on; on every node, what its pods need of each resource is
//! there; pods that share a claim are on one node; and all claims of all pods can be allocated at the same
//! time, each where its pod is, as [`problem`](crate::problem) defines it.
//!
//! # How it is found
//! Members are taken in turn, those with the fewest places first. For each, nodes are filled one after the
//! other, the tightest first and as full as they get; when a later member finds no place, less is tried.
//! Of nodes that differ in nothing, those tried first get at least as much as the others. Which devices the
//! pods get that are on nodes with common pools is always decided together and anew, so no choice of
//! devices is ever in the way of another. A state in which the rest failed once is not entered again.
//!
//! Pods of one kind without claims are decided without a search: as many find room as the nodes have
//! room for, one by one. Mixed pods are bin packing, and that takes time in bad cases: there is a budget,
//! and a third answer.

mod equip;
mod search;
#[cfg(test)]
mod tests;

use crate::problem::{Budget, ClaimAllocation, Inventory, Request, Undecided};

/// Pods that are to run together, and the nodes there are.
#[derive(Clone, Debug, Default)]
pub struct Gang<'a> {
    /// What is left of each node, resource by resource. With devices, in the order of
    /// [`Inventory::nodes`].
    pub rooms: Vec<Vec<i64>>,
    /// The pods, alike ones together.
    pub members: Vec<Member<'a>>,
    /// Claims that several pods use: allocated once, where all of their users are.
    pub shared: Vec<&'a Request>,
}

/// Pods that are alike.
#[derive(Clone, Debug, Default)]
pub struct Member<'a> {
    /// How many.
    pub count: usize,
    /// What each needs of its node, in the order of [`Gang::rooms`]; nothing where it is not above zero.
    pub needs: Vec<i64>,
    /// For each node, whether they may be there.
    pub nodes: Vec<bool>,
    /// The claims that each of them has for itself.
    pub request: Option<&'a Request>,
    /// The claims that they share, as places in [`Gang::shared`].
    pub shared: Vec<usize>,
}

/// Whether all pods find a place.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupAnswer {
    /// They do; this is one way.
    Placed(Vec<Placed>),
    /// They do not, whatever is tried.
    Unsatisfiable(Shortfall),
    /// The search ended before it knew. It may not be taken for a no.
    Indeterminate(Undecided),
}

/// Where one pod is, and what it gets there.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Which member of the gang it is of.
    pub member: usize,
    /// The node, as a place in [`Gang::rooms`].
    pub node: usize,
    /// What its own claims get, in the order of its request.
    pub claims: Vec<ClaimAllocation>,
}

/// How far the search came at best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The member of which not all found a place.
    pub member: usize,
    /// How many of it did, beside all that were placed before.
    pub placed: usize,
}

/// Finds a place for every pod of a gang, with all of their claims.
///
/// The answer is [`GroupAnswer::Placed`] only if there is a solution, and [`GroupAnswer::Unsatisfiable`]
/// only if there is none; if neither is known when the budget ends, or if there is more than is looked at,
/// it is [`GroupAnswer::Indeterminate`]. The budget is for the whole question. The same question has the
/// same answer everywhere.
///
/// A claim that pods share is looked for on one node only. Where nodes have pools in common there may be
/// more ways than that, and then there is no certain no.
#[must_use]
pub fn allocate_group(inventory: &Inventory, gang: &Gang<'_>, budget: &Budget<'_>) -> GroupAnswer {
    search::Search::new(inventory, gang, *budget).run()
}
