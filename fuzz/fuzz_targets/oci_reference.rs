//! Image references and patterns of files: reading what was printed gives the same value.
#![no_main]

use gantry_oci::{Digest, Pattern, Reference};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(reference) = text.parse::<Reference>() {
        let printed = reference.to_string();
        assert_eq!(printed.parse::<Reference>().as_ref(), Ok(&reference), "{printed}");
        assert_eq!(printed, printed.parse::<Reference>().expect("it was read").to_string());
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.as_str(), text);
    }
    if let Ok(pattern) = text.parse::<Pattern>() {
        assert_eq!(pattern.as_str(), text);
    }
});
