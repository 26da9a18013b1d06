//! The published versions of kinds that other installations use, and their frozen copies.
//!
//! Installations of different age share a cluster and with it one set of CustomResourceDefinitions.
//! The first installation decides what a version contains, and it is not changed afterwards; so a
//! published version stays the same for ever, down to its descriptions, and a change needs a new
//! version. The copies are compared by `cargo xtask tidy`, and written once by `cargo xtask
//! freeze`.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use gantry_api::object;
use gantry_yaml as yaml;
use serde_json::{Value, json};

/// The folder of the copies: `<group>/<version>/<plural>.yaml` below it.
pub(crate) const FOLDER: &str = "config/published";

/// The header of a copy, for its readers.
const HEADER: &str = "# Published: others in the cluster use this version, so it never changes. To \
                      change a kind, add a version.\n";

/// What may change in a published version: whether it is the newest, and how long it is kept.
const MUTABLE_FIELDS: [&str; 4] = ["served", "storage", "deprecated", "deprecationWarning"];

/// One version of one kind, without what may change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Version {
    /// The group and the version, as in `apiVersion`.
    pub(crate) name: String,
    /// The path of its copy.
    pub(crate) path: String,
    /// The content that others rely on.
    pub(crate) content: Value,
}

impl Version {
    /// Renders the copy.
    fn text(&self) -> anyhow::Result<String> {
        Ok(format!("{HEADER}---\n{}", yaml::write(&self.content)?))
    }
}

/// Returns the versions of all kinds, as they are now.
pub(crate) fn current() -> Vec<Version> {
    object::KINDS.iter().flat_map(|kind| versions(&kind.crd())).collect()
}

/// Returns the versions in one definition.
pub(crate) fn versions(definition: &Value) -> Vec<Version> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let version = |version: &Value| {
        let name = format!("{group}/{}", text(&version["name"]));
        let mut version = version.clone();
        if let Some(fields) = version.as_object_mut() {
            fields.retain(|field, _| !MUTABLE_FIELDS.contains(&field.as_str()));
        }
        let content = json!({
            "group": group, "names": spec["names"], "scope": spec["scope"], "version": version,
        });
        Version { path: format!("{FOLDER}/{name}/{plural}.yaml"), name, content }
    };
    spec["versions"].as_array().into_iter().flatten().map(version).collect()
}

/// Writes the copies of every kind of a version; an existing copy stays as it is.
pub(crate) fn freeze(root: &Path, name: &str, out: &mut impl Write) -> anyhow::Result<()> {
    freeze_these(&current(), root, name, out)
}

fn freeze_these(
    versions: &[Version],
    root: &Path,
    name: &str,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let wanted: Vec<_> = versions.iter().filter(|version| version.name == name).collect();
    if wanted.is_empty() {
        let mut names: Vec<_> = versions.iter().map(|version| version.name.as_str()).collect();
        names.dedup();
        bail!("no kind has the version `{name}`; there are {}", names.join(", "));
    }
    // Nothing is written if any of them is rejected.
    let mut missing = Vec::new();
    for version in wanted {
        let path = root.join(&version.path);
        if !path.exists() {
            missing.push((path, version));
            continue;
        }
        let text = fs::read_to_string(&path)
            .with_context(|| format!("could not read {}", version.path))?;
        let differs = difference(&text, version)?;
        ensure!(
            differs.is_none(),
            "{name} is published and never changes, and {}: {}",
            version.path,
            differs.unwrap_or_default()
        );
    }
    for (path, version) in missing {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("could not make {}", folder.display()))?;
        }
        fs::write(&path, version.text()?)
            .with_context(|| format!("could not write {}", version.path))?;
        writeln!(out, "wrote {}", version.path)?;
    }
    Ok(())
}

/// Describes how a version differs from its copy; `None` if it does not.
pub(crate) fn difference(copy: &str, now: &Version) -> anyhow::Result<Option<String>> {
    // A large copy takes a while to parse, and is nearly always the same to the letter.
    if now.text().is_ok_and(|text| text == copy) {
        return Ok(None);
    }
    let documents = yaml::read(copy).with_context(|| format!("cannot read {}", now.path))?;
    let [document] = documents.as_slice() else {
        bail!("{} holds {} documents, not one", now.path, documents.len());
    };
    Ok(first_difference(&document.to_json(), &now.content, &mut Vec::new()))
}

/// Returns the first path at which two values differ, and how.
fn first_difference<'a>(was: &'a Value, is: &'a Value, place: &mut Vec<&'a str>) -> Option<String> {
    if let (Value::Object(old), Value::Object(new)) = (was, is) {
        let gone = old.keys().filter(|key| !new.contains_key(*key));
        for key in old.keys().filter(|key| new.contains_key(*key)).chain(gone).chain(new.keys()) {
            place.push(key);
            let found = match (old.get(key), new.get(key)) {
                (Some(was), Some(is)) => first_difference(was, is, place),
                (Some(_), None) => Some(format!("{} is gone", place.join("."))),
                (None, _) => Some(format!("{} is new", place.join("."))),
            };
            place.pop();
            if found.is_some() {
                return found;
            }
        }
        return None;
    }
    let changed = || format!("{} was {} and is {}", place.join("."), short(was), short(is));
    (was != is).then(changed)
}

/// Renders a value on one line.
fn short(value: &Value) -> String {
    const WIDTH: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A definition with these versions, each with this limit on its one field.
    pub(crate) fn definition(versions: &[(&str, u64)]) -> Value {
        let version = |(name, most): &(&str, u64)| {
            json!({
                "name": name, "served": true, "storage": *name == versions[0].0,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "port": { "type": "integer", "maximum": most } },
                } },
            })
        };
        json!({ "spec": {
            "group": "x.test", "names": { "kind": "Thing", "plural": "things" },
            "scope": "Namespaced", "versions": versions.iter().map(version).collect::<Vec<_>>(),
        } })
    }

    /// The copy of the first of these versions.
    pub(crate) fn copy(versions_in: &[(&str, u64)]) -> (String, String) {
        let version = versions(&definition(versions_in)).remove(0);
        (version.path.clone(), version.text().unwrap())
    }

    #[test]
    fn differences_are_found_and_named() {
        let table = [
            ("the same", json!({"a": {"b": 1}}), json!({"a": {"b": 1}}), None),
            ("order is nothing", json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}), None),
            ("a value", json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), Some("a.b was 1 and is 2")),
            ("a field more", json!({"a": {}}), json!({"a": {"b": 1}}), Some("a.b is new")),
            ("a field less", json!({"a": {"b": 1}}), json!({"a": {}}), Some("a.b is gone")),
            ("a list", json!({"a": [1]}), json!({"a": [1, 2]}), Some("a was [1] and is [1,2]")),
            ("another type", json!({"a": "1"}), json!({"a": 1}), Some("a was \"1\" and is 1")),
            ("a null is something", json!({"a": null}), json!({}), Some("a is gone")),
        ];
        for (why, was, is, expected) in table {
            let found = first_difference(&was, &is, &mut Vec::new());
            assert_eq!(found.as_deref(), expected, "{why}");
        }
        let long = json!("ä".repeat(100));
        assert_eq!(short(&long).chars().count(), 61);
    }

    #[test]
    fn mutable_fields_are_not_part_of_a_version() {
        let older = versions(&definition(&[("v1", 1)]));
        let newer = versions(&definition(&[("v2", 2), ("v1", 1)]));
        assert_eq!(older[0], newer[1]);
        assert_eq!(older[0].path, "config/published/x.test/v1/things.yaml");
        assert_eq!(older[0].name, "x.test/v1");
    }

    #[test]
    fn another_way_to_write_the_same_is_no_change() {
        let now = versions(&definition(&[("v1", 1)])).remove(0);
        assert_eq!(difference(&now.content.to_string(), &now).unwrap(), None);
        assert!(difference("a: [", &now).is_err());
        assert!(difference("a: 1\n---\nb: 2\n", &now).is_err());
    }

    #[test]
    fn cs_12_a_version_is_frozen_once() {
        let folder = tempfile::tempdir().unwrap();
        let freeze = |limit: u64, name: &str| {
            let mut out = Vec::new();
            let versions = versions(&definition(&[("v1", limit), ("v2", 5)]));
            freeze_these(&versions, folder.path(), name, &mut out)
                .map(|()| String::from_utf8(out).unwrap())
                .map_err(|error| format!("{error:#}"))
        };
        let v1 = "config/published/x.test/v1/things.yaml";
        assert_eq!(freeze(1, "x.test/v1"), Ok(format!("wrote {v1}\n")));
        let frozen = fs::read_to_string(folder.path().join(v1)).unwrap();
        assert_eq!(freeze(1, "x.test/v1"), Ok(String::new()), "nothing is left to do");
        let refused = freeze(2, "x.test/v1").unwrap_err();
        assert_eq!(
            refused,
            format!(
                "x.test/v1 is published and never changes, and {v1}: version.schema.\
                 openAPIV3Schema.properties.port.maximum was 1 and is 2"
            )
        );
        assert_eq!(fs::read_to_string(folder.path().join(v1)).unwrap(), frozen);
        let unknown = freeze(1, "x.test/v3").unwrap_err();
        assert_eq!(unknown, "no kind has the version `x.test/v3`; there are x.test/v1, x.test/v2");
        assert!(freeze(1, "x.test/v2").unwrap().contains("/v2/"));
    }
}
