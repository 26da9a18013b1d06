//! Sets of small integers.

use std::hash::{Hash, Hasher};

/// A set of integers below a bound that is fixed at its creation.
///
/// Most nodes have no more than 64 devices that matter, and a search creates many sets: the first
/// word needs no heap allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct BitSet {
    first: u64,
    rest: Vec<u64>,
}

impl PartialEq for BitSet {
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first && slices_equal(&self.rest, &other.rest)
    }
}

impl Eq for BitSet {}

impl Hash for BitSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.first, &self.rest).hash(state);
    }
}

/// Whether two slices are equal. They are mostly empty or short, and the `memcmp` that `==` calls
/// takes hundreds of cycles for an empty slice: it does a masked load from the dangling pointer
/// with no bit of the mask set, which the processor treats as a fault that it then suppresses.
pub(crate) fn slices_equal<T: Copy + PartialEq>(one: &[T], other: &[T]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| *one == *other)
}

impl BitSet {
    /// Returns the empty set of integers below `bound`.
    pub(crate) fn below(bound: usize) -> Self {
        Self { first: 0, rest: vec![0; bound.div_ceil(64).saturating_sub(1)] }
    }

    fn word(&self, at: usize) -> u64 {
        if at < 64 { self.first } else { self.rest[at / 64 - 1] }
    }

    fn word_mut(&mut self, at: usize) -> &mut u64 {
        if at < 64 { &mut self.first } else { &mut self.rest[at / 64 - 1] }
    }

    pub(crate) fn insert(&mut self, at: usize) {
        *self.word_mut(at) |= 1 << (at % 64);
    }

    pub(crate) fn remove(&mut self, at: usize) {
        *self.word_mut(at) &= !(1 << (at % 64));
    }

    pub(crate) fn contains(&self, at: usize) -> bool {
        self.word(at) & (1 << (at % 64)) != 0
    }

    pub(crate) fn count(&self) -> usize {
        self.words().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns how many integers are in this and not in the other.
    pub(crate) fn difference_count(&self, other: &Self) -> usize {
        self.pairs(other).map(|(one, other)| (one & !other).count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words().all(|word| word == 0)
    }

    pub(crate) fn intersects(&self, other: &Self) -> bool {
        self.pairs(other).any(|(one, other)| one & other != 0)
    }

    pub(crate) fn union_with(&mut self, other: &Self) {
        self.first |= other.first;
        for (word, other) in self.rest.iter_mut().zip(&other.rest) {
            *word |= other;
        }
    }

    pub(crate) fn difference_with(&mut self, other: &Self) {
        self.first &= !other.first;
        for (word, other) in self.rest.iter_mut().zip(&other.rest) {
            *word &= !other;
        }
    }

    /// Returns the smallest integer that is in both.
    pub(crate) fn first_common(&self, other: &Self) -> Option<usize> {
        self.pairs(other).enumerate().find_map(|(at, (one, other))| {
            let both = one & other;
            (both != 0).then(|| at * 64 + both.trailing_zeros() as usize)
        })
    }

    /// Returns the integers in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words().enumerate().flat_map(|(at, word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| at * 64 + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(bit)
            })
        })
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.first).chain(self.rest.iter().copied())
    }

    fn pairs(&self, other: &Self) -> impl Iterator<Item = (u64, u64)> {
        self.words().zip(other.words())
    }
}
