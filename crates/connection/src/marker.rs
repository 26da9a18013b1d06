//! The marker with which the output of a command begins, and the trailer with which it ends.

use std::fmt;

/// Bytes of a marker.
pub const MARKER_BYTES: usize = 32;

/// How much may come before the marker: what login shells print.
pub const MAX_PREAMBLE_BYTES: usize = 1 << 20;

/// A random text that no output contains by accident.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Marker([u8; MARKER_BYTES]);

impl Marker {
    /// A new marker.
    #[must_use]
    pub fn random(random: &mut fastrand::Rng) -> Self {
        Self(std::array::from_fn(|_| b"0123456789abcdef"[random.usize(..16)]))
    }

    /// Its text: hexadecimal digits.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Where the marker is in a text.
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        text.windows(MARKER_BYTES).position(|window| window == self.0)
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(to, "{}", char::from(*byte)))
    }
}

impl fmt::Debug for Marker {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Marker({self})")
    }
}

/// Looks for the marker in output that arrives in pieces.
#[derive(Debug)]
pub struct MarkerScanner {
    marker: Marker,
    preamble: Vec<u8>,
}

/// More came before the marker than a login shell prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the login shell printed more than {MAX_PREAMBLE_BYTES} bytes before the command began")]
pub struct PreambleTooLong;

impl MarkerScanner {
    /// Looks for this marker.
    #[must_use]
    pub fn new(marker: Marker) -> Self {
        Self { marker, preamble: Vec::new() }
    }

    /// Takes a piece, and returns what comes after the marker once it is found. After that no more
    /// pieces are given to it.
    ///
    /// # Errors
    /// The marker is not in the first [`MAX_PREAMBLE_BYTES`] bytes.
    pub fn push(&mut self, piece: &[u8]) -> Result<Option<Vec<u8>>, PreambleTooLong> {
        // The marker may have begun in an earlier piece.
        let from = self.preamble.len().saturating_sub(MARKER_BYTES - 1);
        self.preamble.extend_from_slice(piece);
        if let Some(at) = self.marker.find(&self.preamble[from..]).map(|at| at + from) {
            let rest = self.preamble.split_off(at + MARKER_BYTES);
            self.preamble.truncate(at);
            return Ok(Some(rest));
        }
        if self.preamble.len() > MAX_PREAMBLE_BYTES {
            return Err(PreambleTooLong);
        }
        Ok(None)
    }

    /// What came before the marker, or everything if it was not found.
    #[must_use]
    pub fn preamble(&self) -> &[u8] {
        &self.preamble
    }
}

/// Digits of the exit status in a trailer.
const STATUS_DIGITS: usize = 3;

/// Separates output that arrives in pieces from the trailer at its end: the marker, and the exit
/// status as three digits.
#[derive(Debug)]
pub struct TrailerScanner {
    marker: Marker,
    /// The last bytes, which may be the trailer.
    tail: Vec<u8>,
}

impl TrailerScanner {
    /// Looks for the trailer with this marker.
    #[must_use]
    pub fn new(marker: Marker) -> Self {
        Self { marker, tail: Vec::new() }
    }

    /// Takes a piece, and returns the bytes that are output for certain.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.tail.extend_from_slice(piece);
        let certain = self.tail.len().saturating_sub(MARKER_BYTES + STATUS_DIGITS);
        let rest = self.tail.split_off(certain);
        std::mem::replace(&mut self.tail, rest)
    }

    /// At the end of the output: the exit status, and the output that was held until now. There is
    /// no status if the command did not reach its end.
    #[must_use]
    pub fn finish(self) -> (Option<u8>, Vec<u8>) {
        let status = self.tail.strip_prefix(self.marker.as_bytes()).and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            (digits.len() == STATUS_DIGITS).then(|| digits.parse().ok())?
        });
        match status {
            Some(status) => (Some(status), Vec::new()),
            None => (None, self.tail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Splits bytes into pieces of at most these sizes, the last one repeated.
    fn pieces<'b>(bytes: &'b [u8], sizes: &[usize]) -> Vec<&'b [u8]> {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        let mut sizes = sizes.iter().copied().chain(std::iter::repeat(7));
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).clamp(1, rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces
    }

    fn scan(marker: Marker, bytes: &[u8], sizes: &[usize]) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut scanner = MarkerScanner::new(marker);
        let mut found: Option<Vec<u8>> = None;
        for piece in pieces(bytes, sizes) {
            match &mut found {
                Some(rest) => rest.extend_from_slice(piece),
                None => found = scanner.push(piece).unwrap(),
            }
        }
        (scanner.preamble().to_vec(), found)
    }

    #[test]
    fn a_marker_is_32_random_bytes() {
        let mut random = fastrand::Rng::with_seed(1);
        let (one, other) = (Marker::random(&mut random), Marker::random(&mut random));
        assert_ne!(one, other);
        assert_eq!(one.to_string().len(), MARKER_BYTES);
        assert_eq!(one.find(format!("ab{one}c").as_bytes()), Some(2));
        assert_eq!(one.find(b"ab"), None);
    }

    #[test]
    fn a_shell_that_never_ends_its_greeting_is_an_error() {
        let mut scanner = MarkerScanner::new(Marker::random(&mut fastrand::Rng::with_seed(1)));
        let piece = vec![b'x'; MAX_PREAMBLE_BYTES];
        assert_eq!(scanner.push(&piece), Ok(None));
        assert_eq!(scanner.push(b"x"), Err(PreambleTooLong));
    }

    proptest! {
        /// However the output is split, what is before and after the marker is found.
        #[test]
        fn the_marker_is_found_in_any_pieces(
            before in prop::collection::vec(any::<u8>(), 0..200),
            after in prop::collection::vec(any::<u8>(), 0..200),
            sizes in prop::collection::vec(1..50_usize, 0..20),
            seed in any::<u64>(),
        ) {
            let marker = Marker::random(&mut fastrand::Rng::with_seed(seed));
            let all = [&before[..], marker.as_bytes(), &after[..]].concat();
            prop_assert_eq!(scan(marker, &all, &sizes), (before.clone(), Some(after)));
            prop_assert_eq!(scan(marker, &before, &sizes), (before, None));
        }

        /// However the output is split, the trailer is separated from it; output that only looks
        /// like a trailer, or ends too early, is output.
        #[test]
        fn the_trailer_is_separated_in_any_pieces(
            output in prop::collection::vec(any::<u8>(), 0..200),
            status in any::<u8>(),
            sizes in prop::collection::vec(1..50_usize, 0..20),
            cut in 1..35_usize,
            seed in any::<u64>(),
        ) {
            let marker = Marker::random(&mut fastrand::Rng::with_seed(seed));
            let trailer = format!("{marker}{status:03}");
            let read = |bytes: &[u8]| {
                let mut scanner = TrailerScanner::new(marker);
                let mut all = Vec::new();
                for piece in pieces(bytes, &sizes) {
                    all.extend(scanner.push(piece));
                }
                let (status, rest) = scanner.finish();
                all.extend(rest);
                (status, all)
            };
            let all = [&output[..], trailer.as_bytes()].concat();
            prop_assert_eq!(read(&all), (Some(status), output));
            let short = &all[..all.len() - cut];
            prop_assert_eq!(read(short), (None, short.to_vec()));
        }
    }
}
