//! Inventory files in INI form: sections with hosts, `:children` and `:vars`.

use std::collections::BTreeMap;

use gantry_yaml::node::Position;

use crate::finding::{FileId, Place, did_you_mean};
use crate::literal;
use crate::reader::Reader;
use crate::shell_words::{self, WordError};
use crate::tree::{GroupId, UNGROUPED};
use crate::value::Key;

/// Reads a file; everything wrong in it becomes a finding.
pub(crate) fn read(reader: &mut Reader<'_>, file: FileId, text: &str) {
    let mut section = Section { group: Some(UNGROUPED), kind: Kind::Hosts };
    let mut undeclared: BTreeMap<String, Undeclared> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let indent = line.chars().take_while(|c| c.is_whitespace()).count();
        let content = line.trim();
        let line = Line { file, number, indent, content };
        if content.is_empty() || content.starts_with([';', '#']) {
            continue;
        }
        if let Some(header) = Header::parse(content) {
            section = begin(reader, &line, &header, &mut undeclared);
            continue;
        }
        if content.starts_with('[') && content.ends_with(']') {
            let remedy = "expected [group], [group:children] or [group:vars] without blanks";
            reader.error(line.place(0), line.width(), "not the name of a section", remedy);
            section = Section { group: None, kind: Kind::Hosts };
            continue;
        }
        // What follows a wrong section is not judged.
        let Some(group) = section.group else { continue };
        match section.kind {
            Kind::Hosts => hosts(reader, &line, group),
            Kind::Children => children(reader, &line, group, &mut undeclared),
            Kind::Vars => variable(reader, &line, group),
        }
    }
    for (name, Undeclared { place, parents }) in undeclared {
        let known: Vec<String> =
            reader.tree.groups().map(|(_, group)| group.name.clone()).collect();
        let others = known.iter().map(String::as_str).filter(|known| *known != name);
        let hint = did_you_mean(&name, others);
        let message = match parents.first() {
            Some(parent) => {
                let parent = &reader.tree.group(*parent).name;
                format!("[{parent}:children] names `{name}`, which is not a group")
            }
            None => format!("[{name}:vars] is of no group"),
        };
        let remedy = format!("expected a section [{name}] in this file{hint}");
        reader.error(place, name.chars().count(), message, remedy);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hosts,
    Children,
    Vars,
}

struct Section {
    /// Nothing after a header that could not be read.
    group: Option<GroupId>,
    kind: Kind,
}

/// A group that is named, and has no section of its own yet.
struct Undeclared {
    place: Place,
    parents: Vec<GroupId>,
}

/// A line without the blanks around it.
struct Line<'t> {
    file: FileId,
    number: u32,
    indent: usize,
    content: &'t str,
}

impl Line<'_> {
    /// The place of a character of the content, counted from 0.
    fn place(&self, column: usize) -> Place {
        let column = u32::try_from(self.indent + column + 1).unwrap_or(u32::MAX);
        Place { file: self.file, at: Position { line: self.number, column } }
    }

    fn width(&self) -> usize {
        self.content.chars().count()
    }
}

/// The header of a section.
struct Header<'t> {
    name: &'t str,
    kind: Option<&'t str>,
}

impl<'t> Header<'t> {
    fn parse(content: &'t str) -> Option<Self> {
        let (inner, rest) = content.strip_prefix('[')?.split_once(']')?;
        let rest = rest.trim_start();
        if !(rest.is_empty() || rest.starts_with('#')) {
            return None;
        }
        let (name, kind) = match inner.split_once(':') {
            Some((name, kind)) => (name, Some(kind)),
            None => (inner, None),
        };
        let is_word =
            |kind: &str| !kind.is_empty() && kind.chars().all(|c| c == '_' || c.is_alphanumeric());
        let is_header =
            !name.is_empty() && !name.contains(char::is_whitespace) && kind.is_none_or(is_word);
        is_header.then_some(Self { name, kind })
    }
}

fn begin(
    reader: &mut Reader<'_>,
    line: &Line<'_>,
    header: &Header<'_>,
    undeclared: &mut BTreeMap<String, Undeclared>,
) -> Section {
    let place = line.place(1);
    let kind = match header.kind {
        None | Some("hosts") => Kind::Hosts,
        Some("children") => Kind::Children,
        Some("vars") => Kind::Vars,
        Some(other) => {
            let message = format!("unknown kind `{other}` of section [{}]", header.name);
            let hint = did_you_mean(other, ["hosts", "children", "vars"]);
            let remedy = format!("expected one of: hosts, children, vars{hint}");
            let column = 2 + header.name.chars().count();
            reader.error(line.place(column), other.chars().count(), message, remedy);
            return Section { group: None, kind: Kind::Hosts };
        }
    };
    let is_new = reader.tree.group_named(header.name).is_none();
    let Some(group) = reader.group(header.name, place) else {
        return Section { group: None, kind };
    };
    if kind == Kind::Vars {
        if is_new && !undeclared.contains_key(header.name) {
            let first = Undeclared { place, parents: Vec::new() };
            undeclared.insert(header.name.to_owned(), first);
        }
    } else if let Some(Undeclared { place, parents }) = undeclared.remove(header.name) {
        for parent in parents {
            reader.child(parent, group, place);
        }
    }
    Section { group: Some(group), kind }
}

fn hosts(reader: &mut Reader<'_>, line: &Line<'_>, group: GroupId) {
    let words = match shell_words::split(line.content, true) {
        Ok(words) => words,
        Err(WordError::OpenQuote(column)) => {
            reader.error(line.place(column), 1, "a quote is not closed", "expected a second quote");
            return;
        }
        Err(WordError::EscapedEnd(column)) => {
            let remedy = "expected a character after the backslash";
            reader.error(line.place(column), 1, "a backslash ends the line", remedy);
            return;
        }
    };
    let Some((host, variables)) = words.split_first() else { return };
    let ids = reader.hosts(&host.text, group, line.place(host.column));
    for word in variables {
        let place = line.place(word.column);
        let width = word.text.chars().count();
        let Some((name, value)) = word.text.split_once('=').filter(|(name, _)| !name.is_empty())
        else {
            let remedy = "expected name=value; blanks need quotes";
            reader.error(place, width, "not a variable", remedy);
            continue;
        };
        let key = Key { at: place, name: name.to_owned(), is_text: true };
        let at = line.place(word.column + name.chars().count() + 1);
        match literal::read(value, at) {
            Ok(value) => {
                for id in &ids {
                    reader.set_host_variable(*id, &key, value.clone());
                }
            }
            Err(remedy) => {
                let message = format!("the value of `{name}` is not read");
                reader.error(at, value.chars().count(), message, remedy);
            }
        }
    }
}

fn children(
    reader: &mut Reader<'_>,
    line: &Line<'_>,
    group: GroupId,
    undeclared: &mut BTreeMap<String, Undeclared>,
) {
    let name = line.content.split('#').next().unwrap_or_default().trim_end();
    let place = line.place(0);
    if name.is_empty() || name.contains([':', ']']) || name.contains(char::is_whitespace) {
        let remedy = "expected the name of a group alone on its line";
        reader.error(place, line.width(), "not the name of a group", remedy);
        return;
    }
    match reader.tree.group_named(name) {
        Some(child) => reader.child(group, child, place),
        None => undeclared
            .entry(name.to_owned())
            .or_insert_with(|| Undeclared { place, parents: Vec::new() })
            .parents
            .push(group),
    }
}

fn variable(reader: &mut Reader<'_>, line: &Line<'_>, group: GroupId) {
    let Some((name, value)) =
        line.content.split_once('=').filter(|(name, _)| !name.trim().is_empty())
    else {
        let message = "not a variable";
        reader.error(line.place(0), line.width(), message, "expected name=value");
        return;
    };
    let blanks = value.chars().take_while(|c| c.is_whitespace()).count();
    let at = line.place(name.chars().count() + 1 + blanks);
    let (name, value) = (name.trim(), value.trim());
    match literal::read(value, at) {
        Ok(value) => {
            let key = Key { at: line.place(0), name: name.to_owned(), is_text: true };
            reader.set_group_variable(group, &key, value);
        }
        Err(remedy) => {
            let message = format!("the value of `{name}` is not read");
            reader.error(at, value.chars().count(), message, remedy);
        }
    }
}
