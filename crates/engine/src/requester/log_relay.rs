//! Which bytes of a relayed chunk are new. Pure.

/// How much of a log was relayed.
#[derive(Debug, Default)]
pub(super) struct LogRelay {
    length: u64,
}

/// Why a chunk is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LogRelayError {
    #[error("startPos is missing: say where in the log the chunk begins")]
    NoPosition,
    #[error("startPos {0:?} is not a number of bytes")]
    Unreadable(String),
    #[error("startPos {position} is beyond the {length} bytes that were relayed so far")]
    Gap { position: u64, length: u64 },
    #[error("could not write to standard output: {0}")]
    NotWritten(String),
}

impl LogRelay {
    /// Returns how many bytes at the end of a chunk are new.
    pub(super) fn accept(
        &self,
        position: Option<&str>,
        chunk: &[u8],
    ) -> Result<usize, LogRelayError> {
        let text = position.ok_or(LogRelayError::NoPosition)?;
        let position = text.parse().map_err(|_| LogRelayError::Unreadable(text.to_owned()))?;
        let length = self.length;
        if position > length {
            return Err(LogRelayError::Gap { position, length });
        }
        let known = usize::try_from(length - position).unwrap_or(usize::MAX);
        Ok(chunk.len().saturating_sub(known))
    }

    /// Records that new bytes were written.
    pub(super) fn commit(&mut self, count: usize) {
        self.length = self.length.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_47_bad_positions_are_refused() {
        let mut relay = LogRelay::default();
        relay.commit(5);
        let table = [
            (None, LogRelayError::NoPosition),
            (Some("-1"), LogRelayError::Unreadable("-1".into())),
            (Some("x"), LogRelayError::Unreadable("x".into())),
            (Some(""), LogRelayError::Unreadable(String::new())),
            (Some("6"), LogRelayError::Gap { position: 6, length: 5 }),
        ];
        for (position, expected) in table {
            assert_eq!(relay.accept(position, b"abc"), Err(expected));
        }
        assert_eq!(relay.accept(Some("5"), b"abc"), Ok(3));
        assert_eq!(relay.accept(Some("3"), b"abc"), Ok(1));
        assert_eq!(relay.accept(Some("0"), b"abc"), Ok(0));
    }

    proptest! {
        /// Chunks that overlap and come again, in any order, reproduce the log exactly.
        #[test]
        fn as_47_chunks_in_any_order_reproduce_the_log(
            log in prop::collection::vec(any::<u8>(), 0..200),
            moves in prop::collection::vec((0_usize..200, 0_usize..60), 0..80),
        ) {
            let mut relay = LogRelay::default();
            let mut written = Vec::new();
            let all = moves.into_iter().chain((0..=log.len()).step_by(7).map(|it| (it, 7)));
            for (from, count) in all {
                let from = from.min(log.len());
                let chunk = &log[from..log.len().min(from + count)];
                if let Ok(fresh) = relay.accept(Some(&from.to_string()), chunk) {
                    written.extend_from_slice(&chunk[chunk.len() - fresh..]);
                    relay.commit(fresh);
                }
            }
            prop_assert_eq!(written, log);
        }
    }
}
