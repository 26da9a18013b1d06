//! The wire format: any bytes are an object or refused, and an object is written the same again.
#![no_main]

use arbitrary::Unstructured;
use gantry_builtin::wire;
use gantry_fuzz::{kinds, or_skip};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let kind = or_skip!(kinds::builtin(&mut u));
    let bytes = u.take_rest();
    let _ = wire::envelope(bytes);
    if let Ok(decoded) = wire::decode(bytes) {
        let _ = decoded.value.to_string();
    }
    let mut enveloped = b"k8s\0\x0a\x06\x0a\x02v1\x12\x00\x12".to_vec();
    enveloped.extend_from_slice(bytes);
    let _ = wire::decode(&enveloped);
    if let Ok(value) = wire::decode_message(kind.type_id, bytes) {
        let read = gantry_builtin::read(kind.type_id, value.clone()).expect("it was read before");
        assert_eq!(read.value, value);
        assert_eq!(read.unknown, [""; 0]);
    }
});
