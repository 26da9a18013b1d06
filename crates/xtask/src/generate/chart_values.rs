//! The values of a chart: one table, from which `values.yaml`, its schema and the README are
//! generated.

use std::fmt::Write as _;

use gantry_yaml as yaml;
use serde_json::{Map, Value, json};

/// One value.
#[derive(Debug)]
pub(super) struct ChartValue {
    /// Its path from the root: a section and a name.
    pub(super) path: [&'static str; 2],
    /// Its default.
    pub(super) default: Value,
    /// Its JSON schema.
    pub(super) form: Value,
    /// Its description.
    pub(super) about: &'static str,
}

/// Renders `values.yaml`: every value with its default, below its description.
pub(super) fn values_yaml(entries: &[ChartValue]) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut section = "";
    for ChartValue { path: [above, name], default, about, .. } in entries {
        if *above != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            writeln!(text, "{gap}{above}:")?;
            section = above;
        }
        for line in wrapped(about, 94) {
            writeln!(text, "  # {line}")?;
        }
        for line in yaml::write(&json!({ *name: default }))?.lines() {
            writeln!(text, "  {line}")?;
        }
    }
    Ok(text)
}

/// Renders `values.schema.json`, which helm checks before it installs anything.
pub(super) fn schema(chart: &str, entries: &[ChartValue]) -> Value {
    let mut sections = Map::new();
    for ChartValue { path: [section, name], form, about, .. } in entries {
        let mut form = form.clone();
        form["description"] = json!(about);
        // Values of a parent chart for all of its subcharts are in `global` too.
        let open = *section == "global";
        let empty = json!({
            "type": "object", "properties": {}, "additionalProperties": open,
        });
        let properties = sections.entry(*section).or_insert(empty);
        properties["properties"][*name] = form;
    }
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": format!("Values of the chart {chart}"),
        "type": "object",
        "properties": sections,
        "additionalProperties": false,
    })
}

/// Renders the README: this text, with the table of values where it says `VALUES`.
pub(super) fn readme(text: &str, entries: &[ChartValue]) -> anyhow::Result<String> {
    let mut table = String::from("| Value | Default | Meaning |\n|---|---|---|\n");
    for ChartValue { path: [section, name], default, about, .. } in entries {
        writeln!(table, "| `{section}.{name}` | `{default}` | {about} |")?;
    }
    Ok(text.replace("VALUES\n", &table))
}

/// Wraps text in lines of at most this many letters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}
