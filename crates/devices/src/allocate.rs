//! The one question: can this pod's claims be allocated on this node, and how?

use crate::prepare::Prepared;
use crate::problem::{Allocation, Answer, Budget, Inventory, Node, Request, Undecided};
use crate::report;
use crate::search::Search;
use crate::table::Table;

/// Allocates all claims of a request on a node, given as a place in [`Inventory::nodes`].
///
/// The answer is [`Answer::Allocated`] if and only if there is a solution, and then the first in
/// the order that [`problem`](crate::problem) defines; it is [`Answer::Unsatisfiable`] if and only
/// if there is none. Only when the budget ends before either is known it is
/// [`Answer::Indeterminate`]. The same question has the same answer, in the same number of steps,
/// everywhere and always.
#[must_use]
pub fn allocate(
    inventory: &Inventory,
    node: usize,
    request: &Request,
    budget: &Budget<'_>,
) -> Answer {
    let nowhere = Node::default();
    let node = inventory.nodes().get(node).unwrap_or(&nowhere);
    let prepared = Prepared::new(inventory.symbols(), request);
    match solve(&prepared, inventory, node, *budget) {
        Ok((Some(allocation), _)) => Answer::Allocated(allocation),
        Ok((None, steps)) => {
            Answer::Unsatisfiable(report::report(&prepared, inventory, node, *budget, steps))
        }
        Err(undecided) => Answer::Indeterminate(undecided),
    }
}

/// Searches one node; nobody is told why there is no solution.
pub(crate) fn solve(
    prepared: &Prepared<'_>,
    inventory: &Inventory,
    node: &Node,
    budget: Budget<'_>,
) -> Result<(Option<Allocation>, u64), Undecided> {
    let table = Table::new(prepared, inventory, node)?;
    Search::new(prepared, &table, budget).run()
}
