//! Sets of small numbers.

use std::hash::{Hash, Hasher};

/// A set of numbers below a bound that is fixed when it is made.
///
/// Most nodes have no more than 64 devices that matter, and a search makes many sets: the first word
/// needs no memory of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    first: u64,
    rest: Vec<u64>,
}

impl PartialEq for Bits {
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first && same(&self.rest, &other.rest)
    }
}

impl Eq for Bits {}

impl Hash for Bits {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.first, &self.rest).hash(state);
    }
}

/// Whether two lists of numbers are the same. They are mostly empty or short, and the `memcmp` that
/// `==` calls takes hundreds of cycles for nothing at all: it looks at the address of nothing with no
/// bit of the mask set, which the processor takes for a fault that it then suppresses.
pub(crate) fn same<T: Copy + PartialEq>(one: &[T], other: &[T]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| *one == *other)
}

impl Bits {
    /// The empty set of numbers below `bound`.
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

    /// How many numbers are in this and not in the other.
    pub(crate) fn count_without(&self, other: &Self) -> usize {
        self.pairs(other).map(|(one, other)| (one & !other).count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words().all(|word| word == 0)
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.pairs(other).any(|(one, other)| one & other != 0)
    }

    pub(crate) fn unite(&mut self, other: &Self) {
        self.first |= other.first;
        for (word, other) in self.rest.iter_mut().zip(&other.rest) {
            *word |= other;
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.first &= !other.first;
        for (word, other) in self.rest.iter_mut().zip(&other.rest) {
            *word &= !other;
        }
    }

    /// The smallest number that is in both.
    pub(crate) fn first_of_both(&self, other: &Self) -> Option<usize> {
        self.pairs(other).enumerate().find_map(|(at, (one, other))| {
            let both = one & other;
            (both != 0).then(|| at * 64 + both.trailing_zeros() as usize)
        })
    }

    /// The numbers, ascending.
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
