//! Strategic merge patches of objects of Kubernetes' own kinds.
#![no_main]

use arbitrary::Unstructured;
use gantry_fuzz::{kinds, or_skip, tree};
use gantry_patch::strategic;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let kind = or_skip!(kinds::builtin(&mut u));
    let document = or_skip!(tree::shaped(&mut u, &kind.schema));
    let mut patch = or_skip!(tree::shaped(&mut u, &kind.schema));
    or_skip!(tree::direct(&mut u, &mut patch));
    let _ = strategic::apply(&kind.schema, &document, &patch);
    if document.is_object() {
        let same = strategic::apply(&kind.schema, &document, &json!({}));
        assert_eq!(same.expect("nothing is asked for"), document);
    }
});
