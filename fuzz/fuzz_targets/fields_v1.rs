//! Field sets and path elements: what is read is written the same, and sets obey their laws.
#![no_main]

use arbitrary::{Result, Unstructured};
use gantry_fuzz::tree;
use gantry_patch::{FieldSet, PathElement};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

fn element(u: &mut Unstructured<'_>) -> Result<String> {
    Ok(match u.int_in_range(0..=6)? {
        0 => ".".to_owned(),
        1 => format!("i:{}", u.int_in_range(-2..=5)?),
        2 => format!("v:{}", tree::free(u)?),
        3 => format!(
            "k:{}",
            json!({ tree::text(u)?: tree::free(u)?, tree::text(u)?: tree::number(u)? })
        ),
        4 => tree::text(u)?,
        _ => format!("f:{}", tree::text(u)?),
    })
}

fn fields(u: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    let mut entries = Map::new();
    if u.ratio(1, 30)? {
        return tree::free(u);
    }
    if depth > 0 {
        for _ in 0..u.int_in_range(0..=3)? {
            entries.insert(element(u)?, fields(u, depth - 1)?);
        }
    }
    Ok(entries.into())
}

fn check_round_trip(set: &FieldSet) {
    let written = set.to_fields();
    let again = FieldSet::from_fields(&written).expect("what is written can be read");
    assert_eq!(&again, set, "{written}");
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let text = element(u)?;
    if let Ok(Some(element)) = PathElement::from_text(&text) {
        let written = element.to_text();
        assert_eq!(PathElement::from_text(&written).ok(), Some(Some(element)), "{text} {written}");
    }
    let (a, b) = (fields(u, 4)?, fields(u, 4)?);
    let (Ok(a), Ok(b)) = (FieldSet::from_fields(&a), FieldSet::from_fields(&b)) else {
        return Ok(());
    };
    check_round_trip(&a);
    let (union, both) = (a.union(&b), a.intersection(&b));
    for set in [&union, &both, &a.difference(&b), &a.recursive_difference(&b), &a.leaves()] {
        check_round_trip(set);
    }
    assert_eq!(union, b.union(&a));
    assert_eq!(both, b.intersection(&a));
    assert_eq!(a.difference(&b).union(&both), a);
    assert_eq!(a.paths().iter().collect::<FieldSet>(), a);
    for path in a.paths() {
        assert!(a.contains(&path.0) && union.contains(&path.0), "{path:?}");
        assert_eq!(both.contains(&path.0), b.contains(&path.0), "{path:?}");
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});
