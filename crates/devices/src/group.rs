//! Schedules many pods at once: a node with free capacity for each, and devices for all of them.
//!
//! What one pod is allocated changes what is left for the next, and a choice that was made for the
//! first may be what keeps the last from starting. A controller that admits all pods of a job or
//! none must therefore decide about all of them together, with one call: [`allocate_group`].
//!
//! # What a solution is
//! Every pod is on one node that it may be on; on every node, its pods need no more of each
//! resource than there is; pods that share a claim are on one node; and all claims of all pods can
//! be allocated at the same time, each where its pod is, as [`problem`](crate::problem) defines it.
//!
//! # How it is found
//! Members are taken in turn, those with the fewest feasible nodes first. For each, nodes are
//! filled one after the other, the tightest first and as full as possible; when a later member
//! cannot be placed, less is tried. Of equal nodes, those tried first get at least as much as the
//! others. The devices of the pods on nodes with common pools are always decided together and from
//! scratch, so no earlier choice of devices blocks another. A state in which the rest failed once
//! is not entered again.
//!
//! Pods of one kind without claims are decided without a search: as many fit as the nodes have free
//! capacity for, one by one. Mixed pods are bin packing, which takes long in bad cases: there is a
//! budget, and a third outcome.

mod device_regions;
mod member;
mod search;
#[cfg(test)]
mod tests;

use crate::problem::{Budget, ClaimAllocation, Inventory, Request, Undecided};

/// Pods that must run together, and the nodes there are.
#[derive(Clone, Debug, Default)]
pub struct Gang<'a> {
    /// The free capacity of each node, resource by resource. With devices, in the order of
    /// [`Inventory::nodes`].
    pub free_capacity: Vec<Vec<i64>>,
    /// The pods, with identical pods grouped together.
    pub members: Vec<GangMember<'a>>,
    /// Claims that several pods use: allocated once, on the node of all of their users.
    pub shared: Vec<&'a Request>,
}

/// A group of identical pods.
#[derive(Clone, Debug, Default)]
pub struct GangMember<'a> {
    /// How many there are.
    pub count: usize,
    /// What each needs of its node, in the order of [`Gang::free_capacity`]; values that are not
    /// above zero mean nothing.
    pub needs: Vec<i64>,
    /// For each node, whether they may be there.
    pub nodes: Vec<bool>,
    /// The claims that each of them has for itself.
    pub request: Option<&'a Request>,
    /// The claims that they share, as indexes in [`Gang::shared`].
    pub shared: Vec<usize>,
}

/// Whether all pods can be placed.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupOutcome {
    /// They can; this is one way.
    Placed(Vec<PlacedPod>),
    /// They cannot, whatever is tried.
    Unsatisfiable(Shortfall),
    /// The search ended without a result. This must not be treated as unsatisfiable.
    Indeterminate(Undecided),
}

/// The node of one pod, and what it gets there.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedPod {
    /// The member of the gang it belongs to.
    pub member: usize,
    /// The node, as an index in [`Gang::free_capacity`].
    pub node: usize,
    /// What its own claims get, in the order of its request.
    pub claims: Vec<ClaimAllocation>,
}

/// How far the search came at best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The member of which not all could be placed.
    pub member: usize,
    /// How many of it could, beside all that were placed before.
    pub placed: usize,
}

/// Finds a node for every pod of a gang, with all of their claims.
///
/// The outcome is [`GroupOutcome::Placed`] only if there is a solution, and
/// [`GroupOutcome::Unsatisfiable`] only if there is none; if neither is known when the budget ends,
/// or if there is more than can be searched, it is [`GroupOutcome::Indeterminate`]. The budget is
/// for the whole call. The same input has the same outcome on every machine.
///
/// A claim that pods share is searched on one node only. Where nodes have pools in common there may
/// be more ways than that, and then the outcome is never certainly unsatisfiable.
#[must_use]
pub fn allocate_group(inventory: &Inventory, gang: &Gang<'_>, budget: &Budget<'_>) -> GroupOutcome {
    search::Search::new(inventory, gang, *budget).run()
}
