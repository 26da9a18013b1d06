//! Headers of registries and of their clients: challenges, ranges, waits, credentials.
#![no_main]

use gantry_registry::{
    ByteRange, RequestedRange, content_range, parse_challenges, parse_retry_after,
    presented_credentials, requested_range,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, u64)| {
    let (text, size) = input;
    let _ = parse_challenges(text);
    let _ = parse_retry_after(text, jiff::Timestamp::UNIX_EPOCH);
    if let Some(presented) = presented_credentials(text) {
        assert!(format!("{presented:?}").contains('…'));
    }
    // A part is never empty and never leaves the blob.
    if let RequestedRange::Part(range) = requested_range(text, size) {
        assert!(range.first <= range.last && range.last < size);
    }
    if let Some((range, Some(size))) = content_range(text) {
        assert!(range.last < size);
    }
    // What was read is read again from how it is written.
    if let Some(range) = ByteRange::parse(text) {
        assert_eq!(ByteRange::parse(&format!("{}-{}", range.first, range.last)), Some(range));
    }
});
