//! Sets of completion indexes, as jobs spell them: `1,3-5`.

use std::collections::BTreeMap;
use std::fmt;

/// A set of indexes, kept as ranges: most jobs have few gaps and many indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexSet(BTreeMap<u32, u32>);

impl IndexSet {
    /// Parses the indexes below `end`. Unreadable parts are left out, because a corrupted status
    /// must not stop a job.
    pub(crate) fn parse(text: &str, end: u32) -> Self {
        let mut indexes = Self::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
                continue;
            };
            let Some(greatest) = end.checked_sub(1) else { continue };
            if first <= last.min(greatest) {
                indexes.add(first, last.min(greatest));
            }
        }
        indexes
    }

    pub(crate) fn insert(&mut self, index: u32) {
        self.add(index, index);
    }

    fn add(&mut self, mut first: u32, mut last: u32) {
        if let Some((&before, &until)) = self.0.range(..=first).next_back()
            && until.saturating_add(1) >= first
        {
            first = before;
            last = last.max(until);
        }
        let absorbed: Vec<u32> =
            self.0.range(first..=last.saturating_add(1)).map(|(start, _)| *start).collect();
        for start in absorbed {
            last = last.max(self.0.remove(&start).unwrap_or(last));
        }
        self.0.insert(first, last);
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        self.0.range(..=index).next_back().is_some_and(|(_, last)| *last >= index)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> i64 {
        self.0.iter().map(|(first, last)| i64::from(last - first) + 1).sum()
    }

    /// Returns how many indexes are in both sets.
    pub(crate) fn intersection_len(&self, other: &Self) -> i64 {
        let mut common = 0;
        for (first, last) in &self.0 {
            let within = other.0.range(..=last).rev().take_while(|(_, until)| *until >= first);
            common += within
                .map(|(from, until)| i64::from(*last.min(until)) - i64::from(*first.max(from)) + 1)
                .sum::<i64>();
        }
        common
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        for (first, last) in &other.0 {
            self.add(*first, *last);
        }
    }

    /// Returns the first `count` indexes below `end` that are not in the set.
    pub(crate) fn missing(&self, count: usize, end: u32) -> Vec<u32> {
        let mut missing = Vec::new();
        let mut next = 0;
        for (first, last) in &self.0 {
            missing.extend((next..(*first).min(end)).take(count - missing.len()));
            next = last.saturating_add(1);
        }
        missing.extend((next..end).take(count - missing.len()));
        missing
    }
}

impl fmt::Display for IndexSet {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            if at > 0 {
                to.write_str(",")?;
            }
            match last - first {
                0 => write!(to, "{first}")?,
                1 => write!(to, "{first},{last}")?,
                _ => write!(to, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unreadable_parts_of_index_lists_are_skipped() {
        let table = [
            ("", 10, "", 0),
            ("0", 10, "0", 1),
            ("0-2", 10, "0-2", 3),
            ("0,1,2", 10, "0-2", 3),
            ("1,2", 10, "1,2", 2),
            ("5,1-2,3", 10, "1-3,5", 4),
            ("2-9", 5, "2-4", 3),
            ("7,8", 5, "", 0),
            ("a,3,4-x,5-2", 10, "3", 1),
            ("0-3", 0, "", 0),
            ("4294967295", u32::MAX, "", 0),
        ];
        for (text, end, expected, count) in table {
            let indexes = IndexSet::parse(text, end);
            assert_eq!((indexes.to_string().as_str(), indexes.len()), (expected, count), "{text}");
        }
    }

    fn index_set(numbers: &BTreeSet<u32>) -> IndexSet {
        let mut indexes = IndexSet::default();
        for number in numbers {
            indexes.insert(*number);
        }
        indexes
    }

    proptest! {
        /// Ranges behave as a plain set does.
        #[test]
        fn index_ranges_behave_as_a_set(
            one in prop::collection::vec(0_u32..40, 0..40),
            other in prop::collection::btree_set(0_u32..40, 0..30),
            count in 0_usize..20, end in 0_u32..50,
        ) {
            let mut indexes = IndexSet::default();
            for number in &one {
                indexes.insert(*number);
            }
            let plain: BTreeSet<u32> = one.iter().copied().collect();
            prop_assert_eq!(&indexes, &index_set(&plain), "the order does not matter");
            prop_assert_eq!(IndexSet::parse(&indexes.to_string(), 40), indexes.clone());
            prop_assert_eq!(usize::try_from(indexes.len()).unwrap(), plain.len());
            for number in 0..45 {
                prop_assert_eq!(indexes.contains(number), plain.contains(&number));
            }
            let missing: Vec<u32> = (0..end).filter(|it| !plain.contains(it)).take(count).collect();
            prop_assert_eq!(indexes.missing(count, end), missing);
            let both = plain.intersection(&other).count();
            prop_assert_eq!(usize::try_from(indexes.intersection_len(&index_set(&other))).unwrap(), both);
            indexes.extend(&index_set(&other));
            let union: BTreeSet<u32> = plain.union(&other).copied().collect();
            prop_assert_eq!(indexes, index_set(&union));
        }
    }
}
