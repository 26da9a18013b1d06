//! JSON patches of random documents: none may panic, and one without operations changes nothing.
#![no_main]

use arbitrary::{Result, Unstructured};
use gantry_fuzz::{or_skip, tree};
use gantry_patch::{json_patch, unknown_patch_fields};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fn pointer(u: &mut Unstructured<'_>) -> Result<String> {
    let mut text = String::new();
    for _ in 0..u.int_in_range(0..=4)? {
        text.push('/');
        text += &match u.int_in_range(0..=5)? {
            0 => "-".to_owned(),
            1 => u.int_in_range(-2..=4)?.to_string(),
            _ => tree::text(u)?,
        };
    }
    Ok(text)
}

fn patch(u: &mut Unstructured<'_>) -> Result<Value> {
    const OPERATIONS: [&str; 7] = ["add", "remove", "replace", "move", "copy", "test", "other"];
    let mut steps = Vec::new();
    for _ in 0..u.int_in_range(0..=5)? {
        if u.ratio(1, 20)? {
            steps.push(tree::free(u)?);
            continue;
        }
        let mut step = json!({ "op": *u.choose(&OPERATIONS)?, "path": pointer(u)? });
        if u.arbitrary()? {
            step["value"] = tree::free(u)?;
        }
        if u.arbitrary()? {
            step["from"] = pointer(u)?.into();
        }
        steps.push(step);
    }
    Ok(steps.into())
}

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let document = or_skip!(tree::free(&mut u));
    let patch = or_skip!(patch(&mut u));
    let _ = unknown_patch_fields(&patch);
    let once = json_patch(&document, &patch);
    assert_eq!(format!("{once:?}"), format!("{:?}", json_patch(&document, &patch)));
    if patch == json!([]) && document.is_object() {
        assert_eq!(once.expect("nothing is asked for"), document);
    }
});
