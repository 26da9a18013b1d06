//! Which bytes of a log a request asks for. Pure.

/// The most bytes of one response, unless the request names an end.
pub(super) const MAX_LOG_BYTES: u64 = 1 << 20;

/// The answer to a request for a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogAnswer {
    /// Status 200, with these bytes.
    Whole { start: u64, end: u64 },
    /// Status 200 without bytes.
    Empty,
    /// Status 206, with these bytes; the end is excluded.
    Part { start: u64, end: u64 },
    /// Status 416.
    NotSatisfiable,
    /// Status 400.
    Malformed,
}

/// Returns the answer for a log of `total` bytes and the value of header `Range`.
pub(super) fn answer(range: Option<&str>, total: u64) -> LogAnswer {
    let Some(range) = range else {
        return match total {
            0 => LogAnswer::Empty,
            _ => LogAnswer::Whole { start: 0, end: total.min(MAX_LOG_BYTES) },
        };
    };
    let number = |text: &str| {
        // A sign is no digit, though numbers may be read with one.
        let digits = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let parts = range.trim().strip_prefix("bytes=").and_then(|it| it.split_once('-'));
    let Some((first, last)) = parts else { return LogAnswer::Malformed };
    match (number(first), number(last)) {
        (Some(start), end) => {
            // A length that is no number, or an end before the start.
            if (end.is_none() && !last.is_empty()) || end.is_some_and(|end| end < start) {
                return LogAnswer::Malformed;
            }
            if start >= total {
                return LogAnswer::NotSatisfiable;
            }
            let end = match end {
                Some(end) => end.saturating_add(1),
                None => start.saturating_add(MAX_LOG_BYTES),
            };
            LogAnswer::Part { start, end: end.min(total) }
        }
        (None, Some(length)) if first.is_empty() && length > 0 => match total {
            0 => LogAnswer::NotSatisfiable,
            _ => LogAnswer::Part { start: total.saturating_sub(length), end: total },
        },
        (None, Some(_) | None) => LogAnswer::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_63_ranges_are_accepted_and_refused() {
        use LogAnswer::*;
        let part = |start, end| Part { start, end };
        let table = [
            (None, 10, Whole { start: 0, end: 10 }),
            (None, 0, Empty),
            (None, MAX_LOG_BYTES + 1, Whole { start: 0, end: MAX_LOG_BYTES }),
            (Some("bytes=0-4"), 10, part(0, 5)),
            (Some("bytes=0-0"), 10, part(0, 1)),
            (Some("bytes=9-"), 10, part(9, 10)),
            (Some("bytes=0-99"), 10, part(0, 10)),
            (Some("bytes=2-"), MAX_LOG_BYTES * 2, part(2, MAX_LOG_BYTES + 2)),
            (Some("bytes=0-2097151"), MAX_LOG_BYTES * 2, part(0, MAX_LOG_BYTES * 2)),
            (Some("bytes=10-"), 10, NotSatisfiable),
            (Some("bytes=10-12"), 10, NotSatisfiable),
            (Some("bytes=0-"), 0, NotSatisfiable),
            (Some("bytes=18446744073709551615-"), 10, NotSatisfiable),
            (Some("bytes=0-18446744073709551615"), 10, part(0, 10)),
            (Some("bytes=5-4"), 10, Malformed),
            (Some("bytes=-0"), 10, Malformed),
            (Some("bytes=-"), 10, Malformed),
            (Some("bytes=+1-2"), 10, Malformed),
            (Some("bytes=1-+2"), 10, Malformed),
            (Some("bytes=a-b"), 10, Malformed),
            (Some("bytes=1-2,4-5"), 10, Malformed),
            (Some("bytes=1"), 10, Malformed),
            (Some("lines=1-2"), 10, Malformed),
            (Some(""), 10, Malformed),
            (Some("bytes=99999999999999999999-"), 10, Malformed),
        ];
        for (range, total, expected) in table {
            assert_eq!(answer(range, total), expected, "{range:?} of {total}");
        }
    }

    /// The later form of the original: the end of a log by its length.
    #[test]
    fn as_85_the_tail_of_a_log_is_a_suffix_range() {
        let table = [
            ("bytes=-4096", 10_000, LogAnswer::Part { start: 5904, end: 10_000 }),
            ("bytes=-4096", 10, LogAnswer::Part { start: 0, end: 10 }),
            ("bytes=-1", 10, LogAnswer::Part { start: 9, end: 10 }),
            ("bytes=-4096", 0, LogAnswer::NotSatisfiable),
        ];
        for (range, total, expected) in table {
            assert_eq!(answer(Some(range), total), expected, "{range} of {total}");
        }
    }
}
