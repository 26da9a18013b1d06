//! Sets of small numbers.

/// A set of numbers below a bound that is fixed when it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// The empty set of numbers below `bound`.
    pub(crate) fn below(bound: usize) -> Self {
        Self { words: vec![0; bound.div_ceil(64)] }
    }

    pub(crate) fn insert(&mut self, at: usize) {
        self.words[at / 64] |= 1 << (at % 64);
    }

    pub(crate) fn remove(&mut self, at: usize) {
        self.words[at / 64] &= !(1 << (at % 64));
    }

    pub(crate) fn contains(&self, at: usize) -> bool {
        self.words[at / 64] & (1 << (at % 64)) != 0
    }

    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// How many numbers are in this and not in the other.
    pub(crate) fn count_without(&self, other: &Self) -> usize {
        let words = self.words.iter().zip(&other.words);
        words.map(|(one, other)| (one & !other).count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(one, other)| one & other != 0)
    }

    pub(crate) fn unite(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
    }

    /// The smallest number that is in both.
    pub(crate) fn first_of_both(&self, other: &Self) -> Option<usize> {
        let mut words = self.words.iter().zip(&other.words).enumerate();
        words.find_map(|(at, (one, other))| {
            let both = one & other;
            (both != 0).then(|| at * 64 + both.trailing_zeros() as usize)
        })
    }

    /// The numbers, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| at * 64 + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(bit)
            })
        })
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }
}
