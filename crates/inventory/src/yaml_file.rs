//! Inventory files in YAML, of which JSON is a part.

use gantry_yaml::written::{Written, WrittenNode};

use crate::finding::{FileId, Place, did_you_mean};
use crate::reader::Reader;
use crate::scalar;
use crate::tree::GroupId;
use crate::value::{Key, Value};

/// What a group may contain.
const GROUP_KEYS: [&str; 3] = ["hosts", "children", "vars"];

/// Reads a file; everything wrong in it becomes a finding.
pub(crate) fn read(reader: &mut Reader<'_>, file: FileId, text: &str) {
    let Some(document) = reader.document(file, text) else {
        if reader.findings.iter().all(|finding| finding.place.file != file) {
            let place = Place { file, ..Place::default() };
            reader.error(place, 1, "the file is empty", "expected groups, for instance `all:`");
        }
        return;
    };
    let at = Place { file, at: document.at };
    let Written::Map(groups) = &document.content else {
        reader.error(at, 1, "not a map of groups", "expected groups, for instance `all:`");
        return;
    };
    for (key, value) in reader.entries(file, groups) {
        if key.name == "plugin" && !matches!(value.content, Written::Map(_)) {
            let remedy = "write the hosts that it finds to a file: ansible-inventory --list --yaml";
            reader.error(key.at, 6, "inventory plugins are not run", remedy);
            continue;
        }
        group(reader, file, &key, value);
    }
}

/// Reads a group and the groups that it contains.
fn group(
    reader: &mut Reader<'_>,
    file: FileId,
    key: &Key,
    written: &WrittenNode,
) -> Option<GroupId> {
    if !key.is_text {
        let remedy = format!("put it in quotes: '{}'", key.name);
        reader.error(key.at, key.name.len(), "the name of a group is not text", remedy);
        return None;
    }
    let id = reader.group(&key.name, key.at)?;
    let at = Place { file, at: written.at };
    let entries = match &written.content {
        Written::Map(entries) => entries,
        Written::Plain(_) if is_null(written) => return Some(id),
        Written::Plain(_) | Written::Quoted(_) | Written::List(_) => {
            let message = format!("group `{}` is not a map", key.name);
            reader.error(at, 1, message, format!("expected keys: {}", GROUP_KEYS.join(", ")));
            return Some(id);
        }
    };
    for (section, value) in reader.entries(file, entries) {
        match section.name.as_str() {
            "hosts" => hosts(reader, file, id, value),
            "children" => {
                for (child, value) in section_entries(reader, file, "children", &key.name, value) {
                    let child_id = group(reader, file, &child, value);
                    if let Some(child_id) = child_id {
                        reader.child(id, child_id, child.at);
                    }
                }
            }
            "vars" => {
                for (name, value) in section_entries(reader, file, "vars", &key.name, value) {
                    let value = reader.value(file, value);
                    reader.set_group_variable(id, &name, value);
                }
            }
            other => {
                let message = format!("unknown key `{other}` in group `{}`", key.name);
                let hint = did_you_mean(other, GROUP_KEYS);
                let remedy = format!("expected one of: {}{hint}", GROUP_KEYS.join(", "));
                reader.error(section.at, other.chars().count(), message, remedy);
            }
        }
    }
    Some(id)
}

fn hosts(reader: &mut Reader<'_>, file: FileId, group: GroupId, written: &WrittenNode) {
    let group_name = reader.tree.group(group).name.clone();
    let listed: Vec<&WrittenNode> = match &written.content {
        Written::List(items) => items.iter().collect(),
        Written::Plain(_) | Written::Quoted(_) if host_name(written).is_some() => vec![written],
        Written::Plain(_) | Written::Quoted(_) | Written::Map(_) => Vec::new(),
    };
    if !listed.is_empty() {
        let at = Place { file, at: written.at };
        let message = format!("`hosts` of group `{group_name}` is not a map");
        reader.warning(at, 1, message, "expected a map: each name followed by a colon");
        for item in listed {
            let at = Place { file, at: item.at };
            match host_name(item) {
                Some(name) => {
                    reader.hosts(name, group, at);
                }
                None => reader.error(at, 1, "not the name of a host", "expected text"),
            }
        }
        return;
    }
    for (key, value) in section_entries(reader, file, "hosts", &group_name, written) {
        if !key.is_text {
            let remedy = format!("put it in quotes: '{}'", key.name);
            reader.error(key.at, key.name.len(), "the name of a host is not text", remedy);
            continue;
        }
        let ids = reader.hosts(&key.name, group, key.at);
        let variables = match &value.content {
            Written::Map(entries) => entries,
            Written::Plain(_) if is_null(value) => continue,
            Written::Plain(_) | Written::Quoted(_) | Written::List(_) => {
                let at = Place { file, at: value.at };
                let message = format!("the variables of host `{}` are not a map", key.name);
                reader.error(at, 1, message, "expected variables, or nothing after the colon");
                continue;
            }
        };
        for (name, value) in reader.entries(file, variables) {
            let value = reader.value(file, value);
            for id in &ids {
                reader.set_host_variable(*id, &name, value.clone());
            }
        }
    }
}

/// The entries of a section of a group, which may be empty.
fn section_entries<'w>(
    reader: &mut Reader<'_>,
    file: FileId,
    section: &str,
    group: &str,
    written: &'w WrittenNode,
) -> Vec<(Key, &'w WrittenNode)> {
    match &written.content {
        Written::Map(entries) => reader.entries(file, entries),
        Written::Plain(_) if is_null(written) => Vec::new(),
        Written::Plain(_) | Written::Quoted(_) | Written::List(_) => {
            let at = Place { file, at: written.at };
            let message = format!("`{section}` of group `{group}` is not a map");
            reader.error(at, 1, message, "expected a map: each name followed by a colon");
            Vec::new()
        }
    }
}

/// The text of a value that is text.
fn host_name(written: &WrittenNode) -> Option<&str> {
    match &written.content {
        Written::Quoted(text) => Some(text),
        Written::Plain(text) => {
            matches!(scalar::plain(text), Ok(Value::Text(_))).then_some(text.as_str())
        }
        Written::List(_) | Written::Map(_) => None,
    }
}

fn is_null(written: &WrittenNode) -> bool {
    matches!(&written.content, Written::Plain(text) if scalar::plain(text) == Ok(Value::Null))
}
