//! Who is taken back for one who is more important: as few as will do, and the least important of all.
//!
//! Those that may be are sorted by what is lost with them: lower priority first, and of equal priority those
//! that passed last, because they have done the least. The shortest beginning of that list with which there
//! is room is found, and then everybody is let off, the most valuable first, without whom there is room as
//! well. So nobody is taken back in vain, and nobody while a less important one would do in their place alone.

use jiff::Timestamp;

/// One that may be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its priority.
    pub priority: i32,
    /// When it passed.
    pub since: Timestamp,
}

/// Chooses who is taken back so that something fits, as places in `candidates`; nothing if it does not fit
/// even without all of them, and nobody if it fits as it is. `fits` says whether it fits when these are gone; it
/// must not fit worse with more of them gone.
#[must_use]
pub fn choose(
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
    // So many do, and so many do not.
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

    /// Who is taken back when each gives as much as is said, and so much is needed.
    fn victims(sizes: &[(i32, i64, i64)], needed: i64) -> Option<Vec<usize>> {
        let candidates: Vec<Candidate> =
            sizes.iter().map(|(priority, since, _)| candidate(*priority, *since)).collect();
        choose(&candidates, |gone| gone.iter().map(|at| sizes[*at].2).sum::<i64>() >= needed)
    }

    #[test]
    fn the_least_important_go_and_no_more_than_needed() {
        let table = [
            ("nobody", vec![(0, 1, 5)], 0, Some(vec![])),
            ("nobody is enough", vec![(0, 1, 5)], 6, None),
            ("the lowest", vec![(2, 1, 5), (1, 1, 5)], 5, Some(vec![1])),
            ("of equals the last to pass", vec![(1, 1, 5), (1, 9, 5)], 5, Some(vec![1])),
            ("small ones do not help a large one", vec![(1, 9, 1), (2, 1, 5)], 5, Some(vec![1])),
            ("several", vec![(1, 9, 2), (2, 1, 5), (1, 8, 3)], 5, Some(vec![0, 2])),
            ("nobody to choose from", vec![], 0, Some(vec![])),
        ];
        for (why, sizes, needed, expected) in table {
            assert_eq!(victims(&sizes, needed), expected, "{why}");
        }
    }

    proptest! {
        /// Whoever is chosen is needed, and none of them could stay instead of all more important ones.
        #[test]
        fn nobody_is_taken_back_in_vain(
            sizes in prop::collection::vec((0..4_i32, 0..9_i64, 0..6_i64), 0..9),
            needed in 0..20_i64,
        ) {
            let sum = |of: &[usize]| of.iter().map(|at| sizes[*at].2).sum::<i64>();
            let all: Vec<usize> = (0..sizes.len()).collect();
            match victims(&sizes, needed) {
                None => prop_assert!(sum(&all) < needed),
                Some(chosen) => {
                    prop_assert!(sum(&chosen) >= needed, "there is room");
                    for at in &chosen {
                        let others: Vec<usize> =
                            chosen.iter().copied().filter(|it| it != at).collect();
                        prop_assert!(sum(&others) < needed, "everybody is needed");
                    }
                    let top = chosen.iter().map(|at| sizes[*at].0).max();
                    let below: Vec<usize> =
                        all.into_iter().filter(|at| Some(sizes[*at].0) < top).collect();
                    prop_assert!(top.is_none() || sum(&below) < needed, "nobody more important than must be");
                }
            }
        }
    }
}
