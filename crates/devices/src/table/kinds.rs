//! Groups equal parts of a request, so that they are evaluated only once.

use crate::bit_set::slices_equal;
use crate::prepare::{Prepared, PreparedAlternative};

/// Groups alternatives that have the same candidates.
pub(super) struct AlternativeKinds<'p> {
    /// One alternative of each kind.
    pub(super) alternatives: Vec<&'p PreparedAlternative<'p>>,
    /// The kind of each alternative of each term.
    pub(super) of: Vec<Vec<usize>>,
}

pub(super) fn kinds<'p>(prepared: &'p Prepared<'p>) -> AlternativeKinds<'p> {
    let mut asks: Vec<&PreparedAlternative<'_>> = Vec::new();
    let of = prepared.terms.iter().map(|term| {
        let kinds = term.alternatives.iter().map(|ask| {
            let known = asks.iter().rposition(|known| known.has_candidates_of(ask));
            known.unwrap_or_else(|| {
                asks.push(ask);
                asks.len() - 1
            })
        });
        kinds.collect()
    });
    let of = of.collect();
    AlternativeKinds { alternatives: asks, of }
}

/// Returns for each term the first of its claim that has the same candidates, in the same groups
/// and counts: what holds for one holds for both.
pub(super) fn first_equivalent_terms(
    prepared: &Prepared<'_>,
    kinds: &AlternativeKinds<'_>,
) -> Vec<usize> {
    let twin = |one: usize, other: usize| {
        let (terms, asks) = ((&prepared.terms[one], &prepared.terms[other]), &kinds.of);
        terms.0.claim == terms.1.claim
            && slices_equal(&asks[one], &asks[other])
            && terms.0.alternatives.iter().zip(&terms.1.alternatives).all(|(one, other)| {
                one.source.count == other.source.count && slices_equal(&one.groups, &other.groups)
            })
    };
    let mut twins: Vec<usize> = Vec::with_capacity(prepared.terms.len());
    for at in 0..prepared.terms.len() {
        // Most terms are equal to the one before, or to none.
        let before = twins.last().copied().filter(|before| twin(*before, at));
        twins.push(before.unwrap_or(at));
    }
    twins
}
