//! The schemas of embedded Kubernetes types, cut from the OpenAPI documents of a real API server.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use gantry_api::kubernetes::{ROOTS, VERSION};
use serde_json::Value;

/// Writes the roots that `gantry-api` embeds, and all they refer to, from `file`: an object with
/// `components.schemas`, as every OpenAPI v3 document has it.
pub(crate) fn refresh(root: &Path, file: &Path) -> anyhow::Result<()> {
    let text =
        fs::read_to_string(file).with_context(|| format!("could not read {}", file.display()))?;
    let document: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))?;
    let kept = closure(&document["components"]["schemas"], &ROOTS)?;
    let path = root.join(format!("crates/api/src/kubernetes/{VERSION}.json"));
    let text = serde_json::to_string_pretty(&kept)? + "\n";
    fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))
}

/// The named schemas and whatever they refer to, by name.
fn closure<'a>(
    schemas: &'a Value,
    roots: &[&'a str],
) -> anyhow::Result<BTreeMap<&'a str, &'a Value>> {
    let mut kept = BTreeMap::new();
    let mut open = roots.to_vec();
    while let Some(name) = open.pop() {
        if kept.contains_key(name) {
            continue;
        }
        let schema =
            schemas.get(name).with_context(|| format!("no schema {name} in the document"))?;
        kept.insert(name, schema);
        references(schema, &mut open);
    }
    Ok(kept)
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                found.extend(target.rsplit('/').next());
            }
            fields.values().for_each(|part| references(part, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_root_brings_what_it_refers_to_and_nothing_else() {
        let schemas = json!({
            "A": {"properties": {"b": {"allOf": [{"$ref": "#/components/schemas/B"}]}}},
            "B": {"items": {"$ref": "#/components/schemas/A"}},
            "C": {},
        });
        let kept = closure(&schemas, &["A"]).unwrap();
        assert_eq!(kept.keys().copied().collect::<Vec<_>>(), ["A", "B"]);
        assert!(closure(&schemas, &["D"]).is_err());
    }
}
