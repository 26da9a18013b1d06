//! Merge patches of random documents: applying a patch again changes nothing.
//!
//! That is so unless there are nulls in lists of the patch: Kubernetes keeps or drops them by what
//! was there before.
#![no_main]

use arbitrary::Unstructured;
use gantry_fuzz::{or_skip, tree};
use gantry_patch::merge_patch;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn has_null(tree: &Value, in_list: bool) -> bool {
    match tree {
        Value::Null => in_list,
        Value::Array(items) => items.iter().any(|item| has_null(item, true)),
        Value::Object(entries) => entries.values().any(|entry| has_null(entry, in_list)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let document = or_skip!(tree::free(&mut u));
    let patch = or_skip!(tree::free(&mut u));
    let Ok(once) = merge_patch(&document, &patch) else { return };
    let twice = merge_patch(&once, &patch).expect("it could be patched before");
    if !has_null(&patch, false) {
        assert_eq!(once, twice, "{document} {patch}");
    }
});
