//! Replacing daemons of former templates, a few at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::nodes::{self, Fit, fit};
use super::{ByNode, Moves, Seen, pods};
use crate::view::{Pod, PodSpec};

/// Decides which daemons are replaced now.
pub(super) fn moves<'a>(
    seen: &'a Seen,
    spec: &PodSpec,
    hash: &str,
    by_node: &ByNode<'a>,
) -> Moves<'a> {
    let wanted = seen.nodes.iter().filter(|it| fit(spec, it) == Fit::Wanted);
    let wanted: Vec<&str> = wanted.map(|it| it.metadata.name.as_str()).collect();
    let mut places: BTreeMap<&str, Option<Place<'a>>> =
        wanted.iter().map(|it| (*it, Some(Place::default()))).collect();
    for (node, pods) in by_node {
        places.insert(node, Place::of(seen, hash, pods));
    }
    let count = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    let surge = nodes::surge(&seen.set, count);
    let unavailable = nodes::unavailable(&seen.set, count);
    if surge == 0 {
        // With neither, nothing could move.
        replace(seen, &places, unavailable.max(1))
    } else {
        double(seen, &wanted, &places, surge)
    }
}

/// The pods of one node that are not going: at most one old and one new.
#[derive(Clone, Copy, Debug, Default)]
struct Place<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

impl<'a> Place<'a> {
    /// Nothing when there are more of either, which is sorted out first.
    fn of(seen: &Seen, hash: &str, pods: &[&'a Arc<Pod>]) -> Option<Self> {
        let mut place = Self::default();
        for pod in pods.iter().filter(|it| !it.metadata.is_going()) {
            let updated = pods::is_updated(&seen.set, hash, pod);
            let slot = if updated { &mut place.new } else { &mut place.old };
            if slot.replace(pod).is_some() {
                return None;
            }
        }
        Some(place)
    }
}

/// Removes old pods, so that no more nodes than allowed are without an available one. Old pods that
/// are not available may always go: that makes nothing worse.
fn replace<'a>(seen: &Seen, places: &BTreeMap<&str, Option<Place<'a>>>, allowed: i64) -> Moves<'a> {
    let mut missing = 0;
    let mut useless = Vec::new();
    let mut useful = Vec::new();
    for place in places.values() {
        match place.map(|it| (it.new, it.old)) {
            Some((Some(new), None)) => missing += i64::from(!seen.is_available(new)),
            Some((None, Some(old))) if seen.is_available(old) => useful.push(old),
            Some((None, Some(old))) => {
                useless.push(old);
                missing += 1;
            }
            None | Some((None, None) | (Some(_), Some(_))) => missing += 1,
        }
    }
    let left = usize::try_from(allowed - missing).unwrap_or_default();
    useless.extend(useful.into_iter().take(left));
    Moves { remove: useless, ..Moves::default() }
}

/// Makes new pods beside old ones, no more than allowed at a time, and removes an old one when the
/// new one is available.
fn double<'a>(
    seen: &Seen,
    wanted: &[&str],
    places: &BTreeMap<&str, Option<Place<'a>>>,
    allowed: i64,
) -> Moves<'a> {
    let mut moves = Moves::default();
    let (mut doubled, mut available) = (0, 0);
    let mut candidates = Vec::new();
    let mut misplaced = Vec::new();
    for (node, place) in places {
        let Some(place) = place else {
            doubled += 1;
            continue;
        };
        let best = place.old.or(place.new);
        available += i64::from(best.is_some_and(|it| seen.is_available(it)));
        let Some(old) = place.old else { continue };
        let Some(new) = place.new else {
            match (wanted.contains(node), seen.is_available(old)) {
                (true, true) => candidates.push((*node).to_owned()),
                (true, false) => moves.make.push((*node).to_owned()),
                (false, true) => misplaced.push(old),
                (false, false) => moves.remove.push(old),
            }
            continue;
        };
        if seen.is_available(new) {
            moves.remove.push(old);
        } else {
            doubled += 1;
        }
    }
    // A pod on a node that should have none goes when there is an available one for it elsewhere.
    let spare = available - i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    moves.remove.extend(misplaced.into_iter().take(usize::try_from(spare).unwrap_or_default()));
    let left = usize::try_from(allowed - doubled).unwrap_or_default();
    moves.make.extend(candidates.into_iter().take(left));
    moves
}
