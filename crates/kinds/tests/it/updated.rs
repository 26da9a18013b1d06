//! Updates that kube-apiserver accepted or rejected.

use gantry_kinds::{SubresourceKind, admission_plugins, validate_metadata};
use serde_json::Value;

use crate::created::difference;
use crate::golden::{
    NOW, Row, all_agree, allocate, causes, recorded_causes, without_volatile_fields,
};

fn rows() -> Vec<Row> {
    Row::read(include_str!("../golden/updated.json"))
}

/// Does everything a server does to an update before it is stored.
fn update(row: &Row) -> Result<Value, Vec<String>> {
    let (kind, old) = (row.behaviour(), &row.0["old"]);
    let part = SubresourceKind::of(row.text("subresource")).unwrap();
    let mut new = row.0["send"].clone();
    kind.default(&mut new);
    if row.text("resource") == "pods" && part == SubresourceKind::Main {
        admission_plugins::default_tolerations(&mut new);
    }
    kind.prepare_update(&mut new, old, part, NOW);
    if row.text("resource") == "services" && part == SubresourceKind::Main {
        allocate(&mut new, Some(old)).map_err(|faults| causes(&faults))?;
    }
    let (mut faults, _) = validate_metadata(&new, Some(old), row.namespaced(), kind);
    faults.extend(kind.validate_update(&new, old, part));
    if !faults.is_empty() {
        return Err(causes(&faults));
    }
    Ok(new)
}

/// kube-apiserver prints its own structures and diffs in some values; the text before and after is
/// the same.
fn comparable(cause: &str) -> String {
    let head = cause.split('\n').next().unwrap_or_default();
    match (head.split_once("Invalid value: {"), head.rsplit_once("}: ")) {
        (Some((head, _)), Some((_, detail))) => format!("{head}Invalid value: {{…}}: {detail}"),
        _ => head.to_owned(),
    }
}

#[test]
fn changes_are_stored_or_refused_as_a_real_server_does() {
    all_agree(&rows(), |row| match (update(row), row.0.get("stored")) {
        (Ok(object), Some(stored)) => {
            let (ours, theirs) =
                (without_volatile_fields(&object), without_volatile_fields(stored));
            (ours != theirs).then(|| difference("", &ours, &theirs))
        }
        (Ok(_), None) => Some(format!("accepted, theirs {:#?}", recorded_causes(row))),
        (Err(ours), Some(_)) => Some(format!("refused: {ours:#?}")),
        (Err(ours), None) => {
            let ours: Vec<String> = ours.iter().map(|it| comparable(it)).collect();
            let theirs: Vec<String> =
                recorded_causes(row).iter().map(|it| comparable(it)).collect();
            (ours != theirs).then(|| format!("ours   {ours:#?}\ntheirs {theirs:#?}"))
        }
    });
}
