//! Byte ranges: `Range` of requests, and `Content-Range` in its two forms.

/// The bytes from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The offset of the first byte.
    pub first: u64,
    /// The offset of the last byte; not before the first.
    pub last: u64,
}

impl ByteRange {
    /// The number of bytes.
    #[must_use]
    pub fn length(self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    /// Reads `<first>-<last>`, as uploads have it in `Content-Range` and `Range`; a prefix `bytes=`
    /// or `bytes ` is allowed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bare = text.strip_prefix("bytes=").or_else(|| text.strip_prefix("bytes "));
        let (first, last) = bare.unwrap_or(text).split_once('-')?;
        let range = Self { first: number(first)?, last: number(last)? };
        (range.first <= range.last).then_some(range)
    }
}

/// Which part of a blob a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedRange {
    /// All of it: there is no range, or one that this server may ignore.
    Whole,
    /// One part.
    Part(ByteRange),
    /// A part that lies outside of the blob.
    Unsatisfiable,
}

/// Reads the header `Range` of a request for a blob with `size` bytes.
///
/// Several ranges, other units and anything malformed are ignored, as RFC 9110 allows: the response
/// is the whole blob.
#[must_use]
pub fn requested_range(header: &str, size: u64) -> RequestedRange {
    let Some(text) = header.trim().strip_prefix("bytes=") else { return RequestedRange::Whole };
    let Some((first, last)) = text.trim().split_once('-') else { return RequestedRange::Whole };
    let end = size.saturating_sub(1);
    let range = match (first, last) {
        ("", suffix) => match number(suffix) {
            None => return RequestedRange::Whole,
            Some(0) => return RequestedRange::Unsatisfiable,
            Some(suffix) => ByteRange { first: size.saturating_sub(suffix), last: end },
        },
        (first, last) => {
            let last_number = if last.is_empty() { Some(end) } else { number(last) };
            let (Some(first), Some(last_number)) = (number(first), last_number) else {
                return RequestedRange::Whole;
            };
            if !last.is_empty() && last_number < first {
                return RequestedRange::Whole;
            }
            ByteRange { first, last: last_number.min(end) }
        }
    };
    match range.first < size {
        true => RequestedRange::Part(range),
        false => RequestedRange::Unsatisfiable,
    }
}

/// Reads `bytes <first>-<last>/<size>` of a response; the size is `None` where it is `*`.
#[must_use]
pub fn content_range(header: &str) -> Option<(ByteRange, Option<u64>)> {
    let (range, size) = header.trim().strip_prefix("bytes ")?.split_once('/')?;
    let range = ByteRange::parse(range)?;
    let size = match size.trim() {
        "*" => None,
        size => Some(number(size)?),
    };
    size.is_none_or(|size| range.last < size).then_some((range, size))
}

/// A decimal number of digits only; `u64::from_str` also reads a sign.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requested_ranges_are_read_as_in_rfc_9110() {
        let part = |first, last| RequestedRange::Part(ByteRange { first, last });
        let table = [
            // header, size, expected
            ("bytes=0-0", 10, part(0, 0)),
            ("bytes=2-", 10, part(2, 9)),
            ("bytes=2-100", 10, part(2, 9)),
            ("bytes=-3", 10, part(7, 9)),
            ("bytes=-30", 10, part(0, 9)),
            ("bytes=9-9", 10, part(9, 9)),
            ("bytes=10-", 10, RequestedRange::Unsatisfiable),
            ("bytes=10-12", 10, RequestedRange::Unsatisfiable),
            ("bytes=-0", 10, RequestedRange::Unsatisfiable),
            ("bytes=0-", 0, RequestedRange::Unsatisfiable),
            ("bytes=-1", 0, RequestedRange::Unsatisfiable),
            ("bytes=5-2", 10, RequestedRange::Whole),
            ("bytes=0-1,3-4", 10, RequestedRange::Whole),
            ("bytes=a-b", 10, RequestedRange::Whole),
            ("bytes=+1-2", 10, RequestedRange::Whole),
            ("lines=1-2", 10, RequestedRange::Whole),
            ("bytes=", 10, RequestedRange::Whole),
            ("bytes=99999999999999999999-", 10, RequestedRange::Whole),
        ];
        for (header, size, expected) in table {
            assert_eq!(requested_range(header, size), expected, "{header} of {size}");
        }
    }

    #[test]
    fn ranges_of_uploads_and_responses() {
        let range = |first, last| Some(ByteRange { first, last });
        let table = [
            ("0-9", range(0, 9)),
            (" 3-3 ", range(3, 3)),
            ("bytes=0-9", range(0, 9)),
            ("bytes 0-9", range(0, 9)),
            ("9-0", None),
            ("-9", None),
            ("0-", None),
            ("0", None),
            ("", None),
            ("0-9/10", None),
        ];
        for (text, expected) in table {
            assert_eq!(ByteRange::parse(text), expected, "{text}");
        }
        let of = |first, last, size| Some((ByteRange { first, last }, size));
        let table = [
            ("bytes 5-9/10", of(5, 9, Some(10))),
            ("bytes 5-9/*", of(5, 9, None)),
            ("bytes 5-10/10", None),
            ("bytes */10", None),
            ("5-9/10", None),
        ];
        for (text, expected) in table {
            assert_eq!(content_range(text), expected, "{text}");
        }
    }

    proptest! {
        /// A part is never empty and never leaves the blob.
        #[test]
        fn parts_lie_within_the_blob(
            first in prop::option::of(any::<u64>()), last in prop::option::of(any::<u64>()),
            size in any::<u64>(),
        ) {
            let text = |it: Option<u64>| it.map(|it| it.to_string()).unwrap_or_default();
            let header = format!("bytes={}-{}", text(first), text(last));
            if let RequestedRange::Part(range) = requested_range(&header, size) {
                prop_assert!(range.first <= range.last && range.last < size);
            }
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,40}", size: u64) {
            let _ = requested_range(&text, size);
            let _ = content_range(&text);
            let _ = ByteRange::parse(&text);
        }
    }
}
