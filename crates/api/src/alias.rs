//! Reads legacy field names, which are listed as data.
//!
//! One table per kind drives both directions: reading rewrites an old name to the canonical one,
//! and the served schema declares the old name so that a server neither refuses nor drops it before
//! the controller can read it.

use serde_json::{Map, Value, json};

use crate::finding::Findings;
use gantry_yaml::node::{Node, Path};

/// An old name for a field.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The object that holds the field: dotted, `[]` for every element of a list (`spec.claims[]`).
    pub within: &'static str,
    /// The old name.
    pub old: &'static str,
    /// The canonical name, possibly dotted to move the field deeper (`container.build`).
    pub new: &'static str,
    /// Whether the user is warned.
    pub notice: AliasNotice,
}

/// The warning for an old name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasNotice {
    /// None: both names are equally right.
    Silent,
    /// A warning that another name is canonical.
    Rename,
    /// A warning that the field has another place.
    Move,
    /// The warning about the name, and why it matters.
    Because(&'static str),
}

/// Rewrites every old name in `object` to the canonical one.
///
/// Both names with equal values are one field; with different values the object is rejected,
/// because both were written on purpose.
pub fn rewrite(aliases: &[Alias], object: &mut Node, findings: &mut Findings) {
    rewrite_at(aliases, object, &Path::root(), findings);
}

/// Rewrites every old name in a part of an object; the table is relative to that part.
pub fn rewrite_at(aliases: &[Alias], part: &mut Node, path: &Path, findings: &mut Findings) {
    for alias in aliases {
        visit(part, alias.within, path, &mut |holder, path| {
            apply(alias, holder, path, findings);
        });
    }
}

/// Declares every old name in a schema, beside the canonical one, as deprecated.
pub fn declare(aliases: &[Alias], schema: &mut Value) {
    for alias in aliases {
        let Some(holder) = schema_at(schema, alias.within) else { continue };
        let Some(new) = schema_at(holder, alias.new) else { continue };
        let mut old = new.clone();
        strip_defaults(&mut old);
        old["description"] = json!(format!("Deprecated: use `{}`.", alias.new));
        if let Some(properties) = holder.get_mut("properties").and_then(Value::as_object_mut) {
            properties.entry(alias.old).or_insert(old);
        }
        make_optional(holder, alias.new);
    }
}

/// Calls `act` on every map that `within` leads to, with its path.
fn visit(node: &mut Node, within: &str, path: &Path, act: &mut dyn FnMut(&mut Node, &Path)) {
    let Some((step, rest)) = next_step(within) else {
        if node.entries().is_some() {
            act(node, path);
        }
        return;
    };
    if step == "[]" {
        for (index, item) in node.items_mut().into_iter().flatten().enumerate() {
            visit(item, rest, &path.index(index), act);
        }
    } else if let Some(child) = node.get_mut(step) {
        visit(child, rest, &path.key(step), act);
    }
}

fn next_step(within: &str) -> Option<(&str, &str)> {
    let within = within.trim_start_matches('.');
    if within.is_empty() {
        return None;
    }
    if let Some(rest) = within.strip_prefix("[]") {
        return Some(("[]", rest));
    }
    let end = within.find(['.', '[']).unwrap_or(within.len());
    Some((&within[..end], &within[end..]))
}

fn apply(alias: &Alias, holder: &mut Node, path: &Path, findings: &mut Findings) {
    let Some((key, value)) = holder.take(alias.old) else { return };
    let old_path = path.key(alias.old);
    let (parents, name) = alias.new.rsplit_once('.').unwrap_or(("", alias.new));
    let mut target = holder;
    for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
        if target.get(parent).is_none_or(Node::is_null) {
            target.set(parent, Node::empty_map(key.at));
        }
        match target.get_mut(parent) {
            Some(child) => target = child,
            None => return,
        }
    }
    match target.get(name) {
        Some(present) if !present.is_null() && !present.same_value(&value) => {
            let new = path.join(alias.new);
            let place =
                if parents.is_empty() { format!("at {new}") } else { format!("under {parents}") };
            findings.error_at(
                &old_path,
                key.at,
                format!("set here and {place} with different values; keep {new}"),
            );
            return;
        }
        _ => target.set(name, value),
    }
    // The entry moves, but findings about it should point at the line the user wrote.
    if let Some(entries) = target.entries_mut()
        && let Some((moved, _)) = entries.iter_mut().find(|(moved, _)| moved.name == name)
    {
        moved.at = key.at;
    }
    match alias.notice {
        AliasNotice::Silent => {}
        AliasNotice::Rename => {
            findings.warn_at(&old_path, key.at, format!("deprecated name; use \"{}\"", alias.new));
        }
        AliasNotice::Move => {
            let new = path.join(alias.new);
            findings.warn_at(&old_path, key.at, format!("deprecated place; move it to {new}"));
        }
        AliasNotice::Because(why) => findings.warn_at(
            &old_path,
            key.at,
            format!("read as \"{}\": {why}; use that name", alias.new),
        ),
    }
}

/// Returns the part of a schema at a dotted path, `[]` for the elements of a list.
pub(crate) fn schema_at<'a>(schema: &'a mut Value, within: &str) -> Option<&'a mut Value> {
    match next_step(within) {
        None => Some(schema),
        Some(("[]", rest)) => schema_at(schema.get_mut("items")?, rest),
        Some((name, rest)) => schema_at(schema.get_mut("properties")?.get_mut(name)?, rest),
    }
}

/// Makes a canonical field with an old name optional: a schema that admits the old name cannot
/// require it.
fn make_optional(holder: &mut Value, new: &str) {
    let mut schema = holder;
    for name in new.split('.') {
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|entry| entry != name);
            if required.is_empty()
                && let Some(fields) = schema.as_object_mut()
            {
                fields.shift_remove("required");
            }
        }
        let Some(next) = schema.get_mut("properties").and_then(|p| p.get_mut(name)) else { return };
        schema = next;
    }
}

/// Removes defaults below a deprecated field: the server would write that field into objects.
fn strip_defaults(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        fields.shift_remove("default");
        fields.shift_remove("x-kubernetes-validations");
    }
}

/// Copies the properties of one schema into another as deprecated ones; present names stay.
pub fn declare_all(from: &Map<String, Value>, into: &mut Value, instead: &str) {
    let Some(properties) = into.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, schema) in from {
        let mut schema = schema.clone();
        strip_defaults(&mut schema);
        schema["description"] = json!(format!("Deprecated: use `{instead}.{name}`."));
        properties.entry(name.clone()).or_insert(schema);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIASES: [Alias; 3] = [
        Alias {
            within: "spec.parts[]",
            old: "deviceMaxCount",
            new: "maxDeviceCount",
            notice: AliasNotice::Rename,
        },
        Alias { within: "spec", old: "build", new: "container.build", notice: AliasNotice::Silent },
        Alias {
            within: "spec",
            old: "contstraints",
            new: "constraints",
            notice: AliasNotice::Because("a typo"),
        },
    ];

    fn read(text: &str) -> (Value, Findings) {
        let mut node = gantry_yaml::read(text).unwrap().remove(0);
        let mut findings = Findings::default();
        rewrite(&ALIASES, &mut node, &mut findings);
        (node.to_json(), findings)
    }

    #[test]
    fn old_names_are_rewritten_in_place() {
        let table = [
            (
                "renamed in every element",
                "spec: {parts: [{deviceMaxCount: 1}, {maxDeviceCount: 2}]}",
                json!({"spec": {"parts": [{"maxDeviceCount": 1}, {"maxDeviceCount": 2}]}}),
                vec!["spec.parts[0].deviceMaxCount"],
            ),
            (
                "moved deeper, silently",
                "spec: {build: {a: 1}}",
                json!({"spec": {"container": {"build": {"a": 1}}}}),
                vec![],
            ),
            (
                "equal twins are one",
                "spec: {build: 1, container: {build: 1}}",
                json!({"spec": {"container": {"build": 1}}}),
                vec![],
            ),
            (
                "a reason is given",
                "spec: {contstraints: x}",
                json!({"spec": {"constraints": "x"}}),
                vec!["spec.contstraints"],
            ),
            ("nothing to do", "spec: [1]", json!({"spec": [1]}), vec![]),
        ];
        for (why, text, expected, warned) in table {
            let (value, findings) = read(text);
            assert_eq!(value, expected, "{why}");
            let paths: Vec<_> = findings.warnings.iter().map(|w| w.path.to_string()).collect();
            assert_eq!(paths, warned, "{why}");
            assert!(findings.is_accepted(), "{why}");
        }
    }

    #[test]
    fn a_part_is_rewritten_under_its_own_path() {
        let mut node = gantry_yaml::read("deviceMaxCount: 1").unwrap().remove(0);
        let mut findings = Findings::default();
        let alias = Alias { within: "", ..ALIASES[0] };
        rewrite_at(&[alias], &mut node, &Path::of("spec").index(3), &mut findings);
        assert_eq!(node.to_json(), json!({"maxDeviceCount": 1}));
        assert_eq!(findings.warnings[0].path.to_string(), "spec[3].deviceMaxCount");
    }

    #[test]
    fn conflicting_aliases_are_refused() {
        let (_, findings) = read("spec:\n  container: {build: 1}\n  build: 2\n");
        assert_eq!(findings.errors[0].path.to_string(), "spec.build");
        assert_eq!(findings.errors[0].at.unwrap().line, 3);
        let text = "set here and under container with different values; keep spec.container.build";
        assert_eq!(findings.errors[0].text, text);
    }

    #[test]
    fn the_served_schema_knows_the_old_name_and_requires_neither() {
        let mut schema = json!({"type": "object", "properties": {"spec": {"type": "object",
            "required": ["constraints"], "properties": {"constraints": {"type": "string", "default": "x"}}}}});
        declare(&ALIASES, &mut schema);
        let spec = &schema["properties"]["spec"];
        assert_eq!(
            spec["properties"]["contstraints"],
            json!({"type": "string", "description": "Deprecated: use `constraints`."})
        );
        assert_eq!(spec.get("required"), None);
    }
}
