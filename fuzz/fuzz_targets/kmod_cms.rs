//! Reads CMS messages, certificates and keys: no panic, and a certificate read from its own DER is
//! the same.
#![no_main]

use gantry_kmod::cms::ModuleSignature;
use gantry_kmod::{Certificate, PrivateKey};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let message = ModuleSignature::parse(data);
    assert_eq!(message, ModuleSignature::parse(data));
    if let Ok(certificate) = Certificate::parse(data) {
        assert_eq!(Certificate::parse(certificate.as_der()), Ok(certificate));
    }
    // No passphrase: an encrypted key may ask for seconds of work.
    let _ = PrivateKey::parse(data, None);
});
