//! Paths to fields that a schema declares, as in `.spec.color` or `.labels['a.b']`.

use crate::props::{Additional, Props};

/// A path, and the schema of what it leads to.
pub(crate) struct FieldPath<'schema> {
    /// The first name.
    pub(crate) first: String,
    /// The path as faults name it.
    pub(crate) text: String,
    /// What it leads to.
    pub(crate) schema: Option<Props<'schema>>,
}

/// Follows a path. Names in brackets are for fields that cannot be written after a point.
pub(crate) fn valid_field_path<'schema>(
    path: &str,
    schema: Props<'schema>,
    brackets: bool,
) -> Result<FieldPath<'schema>, String> {
    let mut found = FieldPath { first: String::new(), text: String::new(), schema: Some(schema) };
    let mut rest = path;
    while let Some(token) = token(&mut rest) {
        let end = || "unexpected end of JSON path".to_owned();
        match token {
            "." => step(&mut found, self::token(&mut rest).ok_or_else(end)?)?,
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = self::token(&mut rest).ok_or_else(end)?;
                let name = quoted.strip_prefix('\'').and_then(|name| name.strip_suffix('\''));
                let name =
                    name.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                step(&mut found, &unescaped(name)?)?;
                match self::token(&mut rest).ok_or_else(end)? {
                    "]" => {}
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(found)
}

/// Takes the next point, bracket, quoted text or name.
fn token<'path>(rest: &mut &'path str) -> Option<&'path str> {
    if rest.is_empty() {
        return None;
    }
    let end = if rest.starts_with('\'') {
        let bytes = rest.as_bytes();
        let close = (1..bytes.len()).find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\');
        close.map_or(rest.len(), |at| at + 1)
    } else {
        rest.find(['.', '[', ']']).map_or(rest.len(), |at| at.max(1))
    };
    let (token, after) = rest.split_at(end);
    *rest = after;
    Some(token)
}

fn step(found: &mut FieldPath<'_>, name: &str) -> Result<(), String> {
    let nowhere = || "does not refer to a valid field".to_owned();
    let schema = found.schema.ok_or_else(nowhere)?;
    let properties = schema.properties();
    if found.text.is_empty() {
        name.clone_into(&mut found.first);
    }
    if properties.is_empty() {
        found.schema = match schema.additional() {
            Additional::Absent => return Err(nowhere()),
            Additional::Allowed(_) => None,
            Additional::Schema(schema) => Some(schema),
        };
        found.text.push_str(&format!("[{name}]"));
    } else {
        found.schema = Some(*properties.get(name).ok_or_else(nowhere)?);
        if !found.text.is_empty() {
            found.text.push('.');
        }
        found.text.push_str(name);
    }
    Ok(())
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        out.push(match letters.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(letter @ ('\'' | '\\')) => letter,
            Some(other) => {
                return Err(format!("invalid string literal: invalid escape char \\{other}"));
            }
            None => '\\',
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_declared_fields() {
        let schema = json!({ "properties": {
            "spec": { "properties": { "a.b": { "type": "string" } } },
            "map": { "additionalProperties": { "type": "integer" } },
        } });
        let props = Props::of(&schema).unwrap();
        let table = [
            (".spec", Ok("spec")),
            (".spec['a.b']", Ok("spec.a.b")),
            (".map.k", Ok("map[k]")),
            (".map['it\\'s']", Ok("map[it's]")),
            ("spec", Err("expected [ or . but got: spec")),
            (".", Err("unexpected end of JSON path")),
            (".nope", Err("does not refer to a valid field")),
            (".spec[0]", Err("expected single quoted string but got 0")),
            (".spec['a.b'", Err("unexpected end of JSON path")),
            (".map.k.more", Err("does not refer to a valid field")),
        ];
        for (path, expected) in table {
            let found = valid_field_path(path, props, true).map(|found| found.text);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{path}");
        }
        let refused = valid_field_path(".spec['a.b']", props, false).map(|found| found.text);
        assert_eq!(refused, Err("array notation is not allowed".to_owned()));
    }
}
