//! Typed reading: any tree is an object or refused, and reading again changes nothing.
#![no_main]

use arbitrary::Unstructured;
use gantry_fuzz::{kinds, or_skip, tree};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let kind = or_skip!(kinds::builtin(&mut u));
    let value = or_skip!(tree::shaped(&mut u, &kind.schema));
    let Ok(mut once) = gantry_builtin::read(kind.type_id, value) else { return };
    if once.value.to_string().contains(r#""items":null"#) {
        // A value that is neither a schema nor a list of schemas becomes null, and null is dropped
        // by the next reading. Kubernetes also needs two readings of such a definition.
        once = gantry_builtin::read(kind.type_id, once.value).expect("it was read before");
    }
    let twice = gantry_builtin::read(kind.type_id, once.value.clone());
    let twice = twice.expect("it was read before");
    assert_eq!(twice.value.to_string(), once.value.to_string());
    assert_eq!(twice.unknown, [""; 0]);
});
