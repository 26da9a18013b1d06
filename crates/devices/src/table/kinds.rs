//! What of a request is alike, and has to be looked at only once.

use crate::bits::same;
use crate::prepare::{Ask, Prepared};

/// Alternatives that have the same candidates are asked about once.
pub(super) struct Kinds<'p> {
    /// One alternative of each kind.
    pub(super) asks: Vec<&'p Ask<'p>>,
    /// The kind of each alternative of each term.
    pub(super) of: Vec<Vec<usize>>,
}

pub(super) fn kinds<'p>(prepared: &'p Prepared<'p>) -> Kinds<'p> {
    let mut asks: Vec<&Ask<'_>> = Vec::new();
    let of = prepared.terms.iter().map(|term| {
        let kinds = term.asks.iter().map(|ask| {
            let known = asks.iter().rposition(|known| known.has_candidates_of(ask));
            known.unwrap_or_else(|| {
                asks.push(ask);
                asks.len() - 1
            })
        });
        kinds.collect()
    });
    let of = of.collect();
    Kinds { asks, of }
}

/// For each term the first of its claim that has the same candidates, in the same groups and numbers:
/// what is found out about one is true of both.
pub(super) fn twins(prepared: &Prepared<'_>, kinds: &Kinds<'_>) -> Vec<usize> {
    let twin = |one: usize, other: usize| {
        let (terms, asks) = ((&prepared.terms[one], &prepared.terms[other]), &kinds.of);
        terms.0.claim == terms.1.claim
            && same(&asks[one], &asks[other])
            && terms.0.asks.iter().zip(&terms.1.asks).all(|(one, other)| {
                one.source.count == other.source.count && same(&one.groups, &other.groups)
            })
    };
    let mut twins: Vec<usize> = Vec::with_capacity(prepared.terms.len());
    for at in 0..prepared.terms.len() {
        // Most terms are like the one before, or like none.
        let before = twins.last().copied().filter(|before| twin(*before, at));
        twins.push(before.unwrap_or(at));
    }
    twins
}
