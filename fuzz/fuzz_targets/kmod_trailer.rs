//! Splits files at their signatures: each payload is a prefix of the file, and walking ends.
#![no_main]

use gantry_kmod::signature;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Half of the inputs end as signed files do, which random bytes rarely would.
    let signed = [data, signature::MAGIC].concat();
    for file in [data, &signed] {
        let mut length = file.len();
        for part in signature::stack(file) {
            assert!(part.payload.len() < length && file.starts_with(part.payload));
            assert_eq!(part.payload.len() + part.cms.len() + signature::TRAILER_SIZE, length);
            length = part.payload.len();
        }
        assert_eq!(signature::strip(file).len(), length);
        let first = signature::split(file).ok().flatten();
        assert_eq!(first, signature::stack(file).next());
    }
});
