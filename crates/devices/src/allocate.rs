//! Allocates the claims of a pod on one node.

use crate::prepare::Prepared;
use crate::problem::{Allocation, AllocationOutcome, Budget, Inventory, Node, Request, Undecided};
use crate::report;
use crate::search::Search;
use crate::table::Table;

/// Allocates all claims of a request on a node, given as an index in [`Inventory::nodes`].
///
/// The outcome is [`AllocationOutcome::Allocated`] if and only if there is a solution, and then the
/// first in the order that [`problem`](crate::problem) defines; it is
/// [`AllocationOutcome::Unsatisfiable`] if and only if there is none. Only if the budget ends
/// before either is known it is [`AllocationOutcome::Indeterminate`]. The same input has the same
/// outcome, in the same number of steps, on every machine.
#[must_use]
pub fn allocate(
    inventory: &Inventory,
    node: usize,
    request: &Request,
    budget: &Budget<'_>,
) -> AllocationOutcome {
    let nowhere = Node::default();
    let node = inventory.nodes().get(node).unwrap_or(&nowhere);
    let prepared = Prepared::new(inventory.symbols(), request);
    match solve(&prepared, inventory, node, *budget) {
        Ok((Some(allocation), _)) => AllocationOutcome::Allocated(allocation),
        Ok((None, steps)) => AllocationOutcome::Unsatisfiable(report::report(
            &prepared, inventory, node, *budget, steps,
        )),
        Err(undecided) => AllocationOutcome::Indeterminate(undecided),
    }
}

/// Searches one node, without a report on why there is no solution.
pub(crate) fn solve(
    prepared: &Prepared<'_>,
    inventory: &Inventory,
    node: &Node,
    budget: Budget<'_>,
) -> Result<(Option<Allocation>, u64), Undecided> {
    let table = Table::new(prepared, inventory, node)?;
    Search::new(prepared, &table, budget).run()
}
