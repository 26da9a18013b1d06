//! Defaults, prepares, validates and prints objects of Kubernetes' own kinds, as a write does.
#![no_main]

use arbitrary::{Result, Unstructured};
use gantry_fuzz::kinds::{Kind, named};
use gantry_fuzz::{kinds, tree};
use gantry_kinds::{SubresourceKind, behaviour, field_selectors, print, validate_metadata};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const NOW: &str = "2026-01-02T15:04:05Z";

fn object(u: &mut Unstructured<'_>, kind: &Kind) -> Result<Option<Value>> {
    let sent = named(tree::shaped(u, &kind.schema)?, &kind.api_version, &kind.name);
    Ok(gantry_builtin::read(kind.type_id, sent).ok().map(|read| read.value))
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let kind = kinds::builtin(u)?;
    let (Some(mut old), Some(mut new)) = (object(u, kind)?, object(u, kind)?) else {
        return Ok(());
    };
    let behaviour = behaviour(kind.group, &kind.plural);
    behaviour.default(&mut old);
    let mut again = old.clone();
    behaviour.default(&mut again);
    assert_eq!(again, old, "{} have all defaults after they were set once", kind.plural);
    behaviour.prepare_create(&mut old, NOW);
    let _ = validate_metadata(&old, None, kind.namespaced, behaviour);
    let _ = behaviour.validate_create(&old);
    let _ = behaviour.warnings(&old, None);
    let row = print::row(kind.group, &kind.plural, &old, Timestamp::UNIX_EPOCH);
    let columns = print::columns(kind.group, &kind.plural).len();
    // Its rows have an age that no column declares.
    let surplus = usize::from(kind.plural == "ipaddresses");
    assert_eq!(row.cells.len(), columns + surplus, "{} {:?}", kind.plural, row.cells);
    for field in field_selectors::selectable_fields(kind.group, &kind.plural) {
        let _ = field_selectors::field_value(&old, field);
    }
    behaviour.default(&mut new);
    for part in ["", "status", "scale", "resize", "ephemeralcontainers", "approval", "finalize"] {
        let Some(part) = SubresourceKind::of(part) else { continue };
        let mut new = new.clone();
        behaviour.prepare_update(&mut new, &old, part, NOW);
        let _ = validate_metadata(&new, Some(&old), kind.namespaced, behaviour);
        let _ = behaviour.validate_update(&new, &old, part);
        let _ = behaviour.warnings(&new, Some(&old));
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});
