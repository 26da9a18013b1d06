//! What an inventory is read from, and which of its files hold what.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use crate::finding::{FileId, Place, did_you_mean};
use crate::ini_file;
use crate::reader::Reader;
use crate::tree::{Assignment, UNGROUPED};
use crate::yaml_file;

/// The text of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// The name that messages give the file.
    pub path: String,
    /// The path below the folder of its source, with `/` between the parts.
    pub inside: String,
    /// The content.
    pub text: String,
    /// Whether only its owner can read the file; others may not hold passwords in plain text.
    pub is_private: bool,
}

/// Where hosts come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Names of hosts with commas between them: `local,`.
    Hosts(String),
    /// A file, with the files of folders `group_vars` and `host_vars` beside it.
    File {
        /// The file.
        file: TextFile,
        /// The files of variables.
        variables: Vec<TextFile>,
    },
    /// All files below a folder, those of variables among them.
    Folder {
        /// The name that messages give the folder.
        path: String,
        /// The files.
        files: Vec<TextFile>,
    },
}

/// Ends of names that are no inventories in a folder.
const IGNORED_ENDS: [&str; 12] =
    [".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry"];
/// Folders that are no inventories.
const IGNORED_NAMES: [&str; 3] = ["host_vars", "group_vars", "vars_plugins"];

/// Reads the hosts and groups of a source.
pub(crate) fn read(reader: &mut Reader<'_>, source: &Source) {
    match source {
        Source::Hosts(list) => host_list(reader, list),
        Source::File { file, variables: _ } => inventory_file(reader, file),
        Source::Folder { path, files } => {
            let mut files: Vec<&TextFile> =
                files.iter().filter(|file| is_inventory(&file.inside)).collect();
            files.sort_by(|left, right| by_parts(&left.inside, &right.inside));
            if files.is_empty() {
                let file = reader.files.add(path, "");
                let place = Place { file, ..Place::default() };
                let remedy = "expected *.yaml, *.yml, *.json, *.ini or a file without an ending";
                reader.error(place, 1, "no inventory in this folder", remedy);
            }
            for file in files {
                inventory_file(reader, file);
            }
        }
    }
}

/// Whether a file below the folder of an inventory is read, by its path with `/` between the parts.
/// Others need not be text.
#[must_use]
pub fn is_read(inside: &str) -> bool {
    let variables = [Entity::Group, Entity::Host]
        .iter()
        .find_map(|entity| inside.strip_prefix(entity.folder())?.strip_prefix('/'));
    match variables.map(|rest| rest.split_once('/').map_or(rest, |(_, rest)| rest)) {
        // The name of a group or a host may have dots.
        Some(rest) => !rest.starts_with('.') && (holds_variables(rest) || !rest.contains('/')),
        None => is_inventory(inside),
    }
}

fn is_inventory(inside: &str) -> bool {
    inside.split('/').all(|part| {
        !part.starts_with('.')
            && !IGNORED_NAMES.contains(&part)
            && !IGNORED_ENDS.iter().any(|end| part.ends_with(end))
    })
}

/// The order in which folders are walked.
fn by_parts(left: &str, right: &str) -> Ordering {
    left.split('/').cmp(right.split('/'))
}

fn host_list(reader: &mut Reader<'_>, list: &str) {
    let file = reader.files.add("--inventory", list);
    reader.files.set_host_list(file);
    let mut column = 1;
    for part in list.split(',') {
        let name = part.trim();
        let blanks = part.chars().take_while(|c| c.is_whitespace()).count();
        let at = gantry_yaml::node::Position {
            line: 1,
            column: u32::try_from(column + blanks).unwrap_or(u32::MAX),
        };
        column += part.chars().count() + 1;
        if !name.is_empty() {
            let place = Place { file, at };
            if name.contains('[') && !name.starts_with('[') {
                let remedy = "expected names; ranges are for files";
                reader.error(place, name.chars().count(), "a range in a list of hosts", remedy);
                continue;
            }
            let known = reader.tree.host_named(plain_name(name)).is_some();
            if !known {
                reader.hosts(name, UNGROUPED, place);
            }
        }
    }
}

fn plain_name(text: &str) -> &str {
    crate::host_range::split_port(text).map_or(text, |(name, _)| name)
}

fn inventory_file(reader: &mut Reader<'_>, source: &TextFile) {
    let file = reader.add_file(source);
    let Some(text) = reader.plain_text(file, &source.text) else { return };
    match form(&source.inside, &text) {
        Form::Yaml => yaml_file::read(reader, file, &text),
        Form::Ini => ini_file::read(reader, file, &text),
        Form::Unknown(message) => {
            let remedy = "write the hosts to a file: ansible-inventory --list --yaml";
            let place = Place { file, ..Place::default() };
            reader.error(place, 1, message, remedy);
        }
    }
}

enum Form {
    Yaml,
    Ini,
    Unknown(&'static str),
}

/// Decides by the end of the name, and without one by the first line that is not a comment.
fn form(inside: &str, text: &str) -> Form {
    let name = inside.rsplit('/').next().unwrap_or(inside);
    let end = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, end)| end);
    match end {
        Some("yaml" | "yml" | "json") => Form::Yaml,
        Some("toml") => Form::Unknown("inventories in TOML are not read"),
        _ if text.starts_with("#!") => Form::Unknown("inventory scripts are not run"),
        Some(_) => Form::Ini,
        None => {
            let mut lines = text.lines().map(str::trim);
            let first = lines.find(|line| !line.is_empty() && !line.starts_with(['#', ';']));
            let first = first.unwrap_or_default();
            let key = first.split_once(':').map(|(_, rest)| rest);
            let is_map = key.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
            let is_yaml = first.starts_with("---") || first.starts_with('{') || is_map;
            if is_yaml && !first.starts_with('[') { Form::Yaml } else { Form::Ini }
        }
    }
}

/// The variables of a file below `group_vars` or `host_vars`.
pub(crate) struct VariableFile {
    pub(crate) assignments: Vec<Assignment>,
}

/// The kind of what a file of variables is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entity {
    Group,
    Host,
}

impl Entity {
    fn folder(self) -> &'static str {
        match self {
            Self::Group => "group_vars",
            Self::Host => "host_vars",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Host => "host",
        }
    }
}

/// Ends of the names of files of variables, in the order in which they are looked for.
const ENDS: [&str; 4] = ["", ".yml", ".yaml", ".json"];

/// The files of variables of a source by the first part of their path below `group_vars` or
/// `host_vars`: there may be thousands of hosts, and of files.
pub(crate) struct VariableFiles<'f> {
    files: &'f [TextFile],
    by_name: HashMap<(Entity, &'f str), Vec<&'f TextFile>>,
}

impl<'f> VariableFiles<'f> {
    pub(crate) fn new(files: &'f [TextFile]) -> Self {
        let mut by_name: HashMap<_, Vec<&TextFile>> = HashMap::new();
        for file in files {
            let Some((folder, rest)) = file.inside.split_once('/') else { continue };
            let first = rest.split('/').next().unwrap_or(rest);
            for entity in [Entity::Group, Entity::Host] {
                if entity.folder() == folder {
                    by_name.entry((entity, first)).or_default().push(file);
                }
            }
        }
        Self { files, by_name }
    }

    /// Returns the files of a group or a host: a folder with its name, or the first file.
    pub(crate) fn of(&self, entity: Entity, name: &str) -> Vec<&'f TextFile> {
        if name.starts_with('/') {
            return Vec::new();
        }
        for end in ENDS {
            let path = format!("{name}{end}");
            let first = path.split('/').next().unwrap_or(&path);
            let Some(files) = self.by_name.get(&(entity, first)) else { continue };
            let path = format!("{}/{path}", entity.folder());
            let below = format!("{path}/");
            let mut inside: Vec<&TextFile> =
                files.iter().copied().filter(|file| file.inside.starts_with(&below)).collect();
            if !inside.is_empty() {
                inside.retain(|file| holds_variables(&file.inside[below.len()..]));
                inside.sort_by(|left, right| by_parts(&left.inside, &right.inside));
                return inside;
            }
            if let Some(file) = files.iter().find(|file| file.inside == path) {
                return vec![file];
            }
        }
        Vec::new()
    }
}

fn holds_variables(rest: &str) -> bool {
    let mut parts = rest.split('/').rev();
    let end = |part: &str| {
        part.rfind('.').filter(|at| *at > 0).map(|at| part[at..].to_owned()).unwrap_or_default()
    };
    let is_shown = |part: &str| !part.starts_with('.') && !part.ends_with('~');
    let file = parts.next().unwrap_or_default();
    is_shown(file)
        && ENDS.contains(&end(file).as_str())
        && parts.all(|part| is_shown(part) && end(part).is_empty())
}

/// Reads a file of variables.
pub(crate) fn read_variables(reader: &mut Reader<'_>, source: &TextFile) -> VariableFile {
    let file = reader.add_file(source);
    let mut assignments = Vec::new();
    if let Some(text) = reader.plain_text(file, &source.text) {
        read_map(reader, file, &text, &mut assignments);
    }
    VariableFile { assignments }
}

/// Reads a map of variables.
pub(crate) fn read_map(
    reader: &mut Reader<'_>,
    file: FileId,
    text: &str,
    assignments: &mut Vec<Assignment>,
) {
    let Some(document) = reader.document(file, text) else { return };
    let node = reader.value(file, &document);
    let crate::value::Value::Map(entries) = node.value else {
        if node.value != crate::value::Value::Null {
            let remedy = "expected variables: `name: value`";
            reader.error(node.at, 1, "not a map of variables", remedy);
        }
        return;
    };
    for (key, value) in entries {
        if !key.is_text {
            let message = "the name of a variable is not text";
            reader.error(
                key.at,
                key.name.len(),
                message,
                "expected a name that begins with a letter",
            );
            continue;
        }
        assignments.push(Assignment { name: key.name, at: key.at, value });
    }
}

/// Warns about files of variables that no group or host has.
pub(crate) fn warn_of_orphans(
    reader: &mut Reader<'_>,
    entity: Entity,
    files: &VariableFiles<'_>,
    known: &[String],
) {
    let names: HashSet<&str> = known.iter().map(String::as_str).collect();
    let prefix = format!("{}/", entity.folder());
    for source in files.files {
        let Some(rest) = source.inside.strip_prefix(&prefix) else { continue };
        let first = rest.split('/').next().unwrap_or_default();
        if first.starts_with('.') || first.ends_with('~') {
            continue;
        }
        let stems = ENDS.iter().filter_map(|end| first.strip_suffix(end));
        let used: Vec<&str> = stems.filter(|stem| names.contains(stem)).collect();
        let is_read =
            |name: &&str| files.of(entity, name).iter().any(|it| it.inside == source.inside);
        // Files of a folder that are no variables need no warning.
        if used.iter().any(is_read) || !used.is_empty() && rest.contains('/') {
            continue;
        }
        let (message, remedy) = if used.is_empty() {
            let stem = ENDS.iter().skip(1).find_map(|end| first.strip_suffix(end));
            let stem = stem.unwrap_or(first);
            let word = entity.word();
            let hint = did_you_mean(stem, names.iter().copied());
            let message = format!("not read: there is no {word} `{stem}`");
            (message, format!("name the file after a {word}{hint}"))
        } else {
            let remedy = "keep one; without an ending is read first, then .yml, .yaml and .json";
            ("not read: another file has these variables".to_owned(), remedy.to_owned())
        };
        let file = reader.files.add(&source.path, &source.text);
        reader.warning(Place { file, ..Place::default() }, 1, message, remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inside: &str) -> TextFile {
        TextFile {
            path: inside.to_owned(),
            inside: inside.to_owned(),
            text: String::new(),
            is_private: false,
        }
    }

    #[test]
    fn pvs_8_files_of_variables_are_those_of_the_original() {
        let table: [(&[&str], &[&str]); 7] = [
            (&["group_vars/g.yaml"], &["group_vars/g.yaml"]),
            (&["group_vars/g.yaml", "group_vars/g.yml"], &["group_vars/g.yml"]),
            (&["group_vars/g.yml", "group_vars/g"], &["group_vars/g"]),
            (
                &["group_vars/g.yml", "group_vars/g/b", "group_vars/g/a.json"],
                &["group_vars/g/a.json", "group_vars/g/b"],
            ),
            (
                &[
                    "group_vars/g/x/1.yml",
                    "group_vars/g/x.yml",
                    "group_vars/g/.h",
                    "group_vars/g/b~",
                    "group_vars/g/n.txt",
                    "group_vars/g/d.x/1.yml",
                ],
                &["group_vars/g/x/1.yml", "group_vars/g/x.yml"],
            ),
            (&["group_vars/gg.yml", "host_vars/g.yml"], &[]),
            (&["group_vars/g.json"], &["group_vars/g.json"]),
        ];
        for (names, expected) in table {
            let files: Vec<TextFile> = names.iter().map(|name| file(name)).collect();
            let found = VariableFiles::new(&files).of(Entity::Group, "g");
            let found: Vec<&str> = found.iter().map(|file| file.inside.as_str()).collect();
            assert_eq!(found, expected, "{names:?}");
        }
    }

    #[test]
    fn pvs_8_the_form_of_a_file() {
        let table = [
            ("hosts", "# c\nall:\n", "yaml"),
            ("hosts", "web:22\n", "ini"),
            ("hosts", "[web]\n", "ini"),
            ("hosts", "{\"all\": {}}", "yaml"),
            ("hosts.ini", "all:\n", "ini"),
            ("hosts.yml", "[web]\n", "yaml"),
            ("hosts.toml", "", "unknown"),
            ("hosts", "#!/bin/sh\n", "unknown"),
            ("hosts.example", "a\n", "ini"),
        ];
        for (name, text, expected) in table {
            let form = match form(name, text) {
                Form::Yaml => "yaml",
                Form::Ini => "ini",
                Form::Unknown(_) => "unknown",
            };
            assert_eq!(form, expected, "{name} {text:?}");
        }
    }

    #[test]
    fn pvs_8_files_of_a_folder_that_are_no_inventories() {
        for name in ["a.yaml", "b", "sub/c.ini"] {
            assert!(is_inventory(name), "{name}");
        }
        for name in [".git/config", "group_vars/all", "a.retry", "a~", "README.md", "sub/.x"] {
            assert!(!is_inventory(name), "{name}");
        }
    }
}
