//! Chooses which AppWrappers are preempted for one of higher priority: as few as suffice, the least
//! important first.
//!
//! Candidates are sorted by what is lost with them: lower priority first, and of equal priority
//! those admitted last, because they have done the least work. The shortest prefix of that list
//! that frees enough capacity is found, and then every candidate that is not needed is spared, the
//! most valuable first. So no AppWrapper is preempted without effect, and none while a less
//! important one alone would suffice in its place.

use jiff::Timestamp;

/// An AppWrapper that may be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its priority.
    pub priority: i32,
    /// When it was admitted.
    pub since: Timestamp,
}

/// Chooses the AppWrappers to preempt so that something fits, as indexes into `candidates`: `None`
/// if it does not fit even without all of them, and no index if it fits already. `fits` returns
/// whether it fits without these candidates; it must not fit worse with more of them gone.
#[must_use]
pub fn choose_victims(
    candidates: &[Candidate],
    mut fits: impl FnMut(&[usize]) -> bool,
) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|at| {
        let Candidate { priority, since } = candidates[*at];
        (priority, std::cmp::Reverse(since), *at)
    });
    if !fits(&order) {
        return None;
    }
    // `enough` candidates suffice, `few` do not.
    let (mut enough, mut few) = (order.len(), None);
    while enough > few.map_or(0, |few| few + 1) {
        let least = few.map_or(0, |few| few + 1);
        let middle = least + (enough - least) / 2;
        match fits(&order[..middle]) {
            true => enough = middle,
            false => few = Some(middle),
        }
    }
    let mut chosen = order[..enough].to_vec();
    for at in (0..chosen.len()).rev() {
        let mut without = chosen.clone();
        without.remove(at);
        if fits(&without) {
            chosen = without;
        }
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(priority: i32, since: i64) -> Candidate {
        Candidate { priority, since: Timestamp::from_second(since).unwrap() }
    }

    /// Returns the victims when each candidate frees its size, and this much is needed.
    fn victims(sizes: &[(i32, i64, i64)], needed: i64) -> Option<Vec<usize>> {
        let candidates: Vec<Candidate> =
            sizes.iter().map(|(priority, since, _)| candidate(*priority, *since)).collect();
        choose_victims(&candidates, |gone| {
            gone.iter().map(|at| sizes[*at].2).sum::<i64>() >= needed
        })
    }

    #[test]
    fn the_lowest_priorities_are_chosen_first() {
        let table = [
            ("no candidate", vec![(0, 1, 5)], 0, Some(vec![])),
            ("all are not enough", vec![(0, 1, 5)], 6, None),
            ("the lowest", vec![(2, 1, 5), (1, 1, 5)], 5, Some(vec![1])),
            ("of equals the last to pass", vec![(1, 1, 5), (1, 9, 5)], 5, Some(vec![1])),
            ("small ones do not help a large one", vec![(1, 9, 1), (2, 1, 5)], 5, Some(vec![1])),
            ("several", vec![(1, 9, 2), (2, 1, 5), (1, 8, 3)], 5, Some(vec![0, 2])),
            ("no candidates", vec![], 0, Some(vec![])),
        ];
        for (why, sizes, needed, expected) in table {
            assert_eq!(victims(&sizes, needed), expected, "{why}");
        }
    }

    proptest! {
        /// Every victim is needed, and none of them could stay in place of all more important ones.
        #[test]
        fn no_victim_is_unnecessary(
            sizes in prop::collection::vec((0..4_i32, 0..9_i64, 0..6_i64), 0..9),
            needed in 0..20_i64,
        ) {
            let sum = |of: &[usize]| of.iter().map(|at| sizes[*at].2).sum::<i64>();
            let all: Vec<usize> = (0..sizes.len()).collect();
            match victims(&sizes, needed) {
                None => prop_assert!(sum(&all) < needed),
                Some(chosen) => {
                    prop_assert!(sum(&chosen) >= needed, "it fits already");
                    for at in &chosen {
                        let others: Vec<usize> =
                            chosen.iter().copied().filter(|it| it != at).collect();
                        prop_assert!(sum(&others) < needed, "every victim is needed");
                    }
                    let top = chosen.iter().map(|at| sizes[*at].0).max();
                    let below: Vec<usize> =
                        all.into_iter().filter(|at| Some(sizes[*at].0) < top).collect();
                    prop_assert!(top.is_none() || sum(&below) < needed, "no victim more important than needed");
                }
            }
        }
    }
}
