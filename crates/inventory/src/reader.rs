//! Builds the tree from texts, and collects everything that is wrong with them.

use std::collections::HashMap;

use gantry_yaml::node::Position;
use gantry_yaml::written::{Written, WrittenNode};

use crate::finding::{FileId, Files, Finding, Place};
use crate::host_range;
use crate::scalar::{self, ScalarError};
use crate::source::TextFile;
use crate::tree::{Assignment, GroupId, HostId, Tree};
use crate::value::{Key, Node, Value, VaultText};
use crate::vault::{self, VaultPassword};

/// What was read so far.
pub(crate) struct Reader<'a> {
    pub(crate) tree: Tree,
    pub(crate) files: Files,
    pub(crate) findings: Vec<Finding>,
    pub(crate) passwords: &'a [VaultPassword],
    /// Whether the text being read is JSON as a whole, whose numbers are those of JSON.
    is_json: bool,
    /// Names of groups of roles by the file that uses them.
    pub(crate) group_uses: Vec<(GroupId, Place)>,
}

/// The maximum number of hosts in an inventory.
const MAX_HOSTS: usize = 50_000;

impl<'a> Reader<'a> {
    pub(crate) fn new(passwords: &'a [VaultPassword]) -> Self {
        Self {
            tree: Tree::default(),
            files: Files::default(),
            findings: Vec::new(),
            passwords,
            is_json: false,
            group_uses: Vec::new(),
        }
    }

    pub(crate) fn error(
        &mut self,
        place: Place,
        width: usize,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.findings.push(Finding::error(place, width, message, remedy));
    }

    pub(crate) fn warning(
        &mut self,
        place: Place,
        width: usize,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.findings.push(Finding::warning(place, width, message, remedy));
    }

    /// Records a file that is read.
    pub(crate) fn add_file(&mut self, source: &TextFile) -> FileId {
        let file = self.files.add(&source.path, &source.text);
        self.files.set_private(file, source.is_private);
        file
    }

    /// Adds a group, or refuses its name.
    pub(crate) fn group(&mut self, name: &str, place: Place) -> Option<GroupId> {
        let width = name.chars().count();
        if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            self.error(
                place,
                width,
                format!("{name:?} cannot be the name of a group"),
                "expected a name without blanks",
            );
            return None;
        }
        let id = self.tree.add_group(name, place);
        self.group_uses.push((id, place));
        Some(id)
    }

    /// Adds a group to another one, or says which cycle that would be.
    pub(crate) fn child(&mut self, parent: GroupId, child: GroupId, place: Place) {
        let Err(way) = self.tree.add_child(parent, child) else { return };
        let child_name = self.tree.group(child).name.clone();
        let name = |id: &GroupId| self.tree.group(*id).name.as_str();
        let mut cycle: Vec<&str> = way.iter().map(name).collect();
        cycle.push(&child_name);
        let message = format!("groups contain one another: {}", cycle.join(" > "));
        let width = child_name.chars().count();
        self.error(place, width, message, "remove one of these groups from the other's children");
    }

    /// Adds the hosts that a name stands for to a group, and returns them.
    pub(crate) fn hosts(&mut self, text: &str, group: GroupId, place: Place) -> Vec<HostId> {
        let width = text.chars().count();
        let expanded = match host_range::expand(text) {
            Ok(expanded) => expanded,
            Err(expected) => {
                let message = format!("`{text}` is not a range of hosts");
                self.error(place, width, message, expected);
                return Vec::new();
            }
        };
        if let Some(reason) = expanded.names.iter().find_map(|name| refuse_name(name)) {
            let message = format!("{text:?} cannot be the name of a host");
            self.error(place, width, message, reason);
            return Vec::new();
        }
        if expanded.port.is_some_and(|port| !(1..=65_535).contains(&port)) {
            let message = format!("the port of `{text}` is out of range");
            self.error(place, width, message, "expected 1 to 65535");
            return Vec::new();
        }
        if self.tree.host_count() + expanded.names.len() > MAX_HOSTS {
            let message = format!("more than {MAX_HOSTS} hosts");
            self.error(place, width, message, "split the inventory");
            return Vec::new();
        }
        let mut ids = Vec::with_capacity(expanded.names.len());
        let mut has_ignored_port = false;
        for name in &expanded.names {
            let (id, is_new) = self.tree.add_host(name, place);
            self.tree.add_member(group, id);
            ids.push(id);
            match expanded.port {
                Some(port) if is_new => {
                    let value = Node { at: place, value: Value::Number(port.into()) };
                    let name = "ansible_port".to_owned();
                    let assignment = Assignment { name, at: place, value };
                    self.tree.host_mut(id).variables.push(assignment);
                }
                Some(_) => has_ignored_port = true,
                None => {}
            }
        }
        if has_ignored_port {
            let message = format!("the port of `{text}` has no effect: the host is known already");
            self.warning(
                place,
                width,
                message,
                "set ansible_port, or write the port where the host is named first",
            );
        }
        ids
    }

    /// Sets a variable of a group.
    pub(crate) fn set_group_variable(&mut self, group: GroupId, key: &Key, value: Node) {
        if key.name != "ansible_group_priority" {
            let assignment = Assignment { name: key.name.clone(), at: key.at, value };
            self.tree.group_mut(group).variables.push(assignment);
            return;
        }
        let priority = match &value.value {
            Value::Number(number) => number.as_i64(),
            Value::Text(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Vault(_) | Value::List(_) | Value::Map(_) => None,
        };
        match priority {
            Some(priority) => self.tree.group_mut(group).priority = priority,
            None => self.error(
                value.at,
                value.width(),
                "`ansible_group_priority` is not an integer",
                "expected an integer; the default is 1, and the larger one wins",
            ),
        }
    }

    /// Sets a variable of a host.
    pub(crate) fn set_host_variable(&mut self, host: HostId, key: &Key, value: Node) {
        let assignment = Assignment { name: key.name.clone(), at: key.at, value };
        self.tree.host_mut(host).variables.push(assignment);
    }

    /// Reads the only document of a YAML text.
    pub(crate) fn document(&mut self, file: FileId, text: &str) -> Option<WrittenNode> {
        self.is_json = serde_json::from_str::<serde_json::Value>(text).is_ok();
        let documents = match gantry_yaml::written::read_written(text) {
            Ok(documents) => documents,
            Err(error) => {
                let place = Place { file, at: error.at };
                self.error(place, 1, error.what, error.remedy);
                return None;
            }
        };
        let mut documents = documents.into_iter();
        let first = documents.next();
        if let Some(second) = documents.next() {
            let place = Place { file, at: second.at };
            self.error(place, 1, "a second document", "expected one document in a file");
        }
        first
    }

    /// The value of a document: scalars as Python reads them, merge keys merged, vaults opened.
    pub(crate) fn value(&mut self, file: FileId, written: &WrittenNode) -> Node {
        let at = Place { file, at: written.at };
        let value = match (&written.content, written.tag.as_deref()) {
            (Written::Plain(text) | Written::Quoted(text), Some("!vault" | "!vault-encrypted")) => {
                self.vault(text, at)
            }
            (Written::Plain(text) | Written::Quoted(text), Some("!!str")) => {
                Value::Text(text.clone())
            }
            (_, Some(tag)) if !matches!(tag, "!!map" | "!!seq") => {
                let message = format!("unknown tag `{tag}`");
                self.error(at, 1, message, "expected `!vault`, or no tag");
                Value::Null
            }
            (Written::Plain(text), _) => match self.scalar(text) {
                Ok(value) => value,
                Err(error) => {
                    let (message, remedy) = match error {
                        ScalarError::NotFinite => {
                            ("a number that is not finite", "write a finite number, or quotes")
                        }
                        ScalarError::TooLarge => {
                            ("a number of more than 64 bits", "put it in quotes if it is text")
                        }
                    };
                    self.error(at, text.chars().count(), message, remedy);
                    Value::Null
                }
            },
            (Written::Quoted(text), _) => Value::Text(text.clone()),
            (Written::List(items), _) => {
                Value::List(items.iter().map(|item| self.value(file, item)).collect())
            }
            (Written::Map(entries), _) if self.is_json && json_vault(entries).is_some() => {
                self.vault(json_vault(entries).unwrap_or_default(), at)
            }
            (Written::Map(entries), _) => Value::Map(
                self.entries(file, entries)
                    .into_iter()
                    .map(|(key, written)| {
                        let value = self.value(file, written);
                        (key, value)
                    })
                    .collect(),
            ),
        };
        Node { at, value }
    }

    fn scalar(&self, text: &str) -> Result<Value, ScalarError> {
        if self.is_json { scalar::json(text) } else { scalar::plain(text) }
    }

    /// The entries of a map with merge keys merged; a duplicate key is an error.
    pub(crate) fn entries<'w>(
        &mut self,
        file: FileId,
        written: &'w [(WrittenNode, WrittenNode)],
    ) -> Vec<(Key, &'w WrittenNode)> {
        let mut entries = Entries::default();
        for (key, value) in written {
            if key.content == Written::Plain("<<".to_owned()) {
                self.merge(file, value, &mut entries);
            }
        }
        let mut own: HashMap<String, Place> = HashMap::new();
        for (key, value) in written {
            let at = Place { file, at: key.at };
            if key.content == Written::Plain("<<".to_owned()) {
                continue;
            }
            let Some((name, is_text)) = key_name(key) else {
                let remedy = "expected text as the key; braces around an expression need quotes";
                self.error(at, 1, "a key is not a plain value", remedy);
                continue;
            };
            if let Some(first) = own.get(&name) {
                let message = format!("duplicate key `{name}`");
                let remedy = format!("keep one; the first is on line {}", first.at.line);
                self.error(at, name.chars().count(), message, remedy);
                continue;
            }
            own.insert(name.clone(), at);
            entries.replace(Key { at, name, is_text }, value);
        }
        entries.list
    }

    fn merge<'w>(&mut self, file: FileId, value: &'w WrittenNode, merged: &mut Entries<'w>) {
        let maps = match &value.content {
            Written::List(items) => items.iter().collect(),
            Written::Map(_) | Written::Plain(_) | Written::Quoted(_) => vec![value],
        };
        for map in maps {
            let Written::Map(entries) = &map.content else {
                let at = Place { file, at: map.at };
                self.error(at, 1, "`<<` merges maps only", "expected an alias of a map");
                continue;
            };
            // The first of several maps wins.
            for (key, value) in self.entries(file, entries) {
                if !merged.places.contains_key(&key.name) {
                    merged.replace(key, value);
                }
            }
        }
    }

    fn vault(&mut self, text: &str, at: Place) -> Value {
        let content = if self.passwords.is_empty() {
            None
        } else {
            match vault::open(text, self.passwords) {
                Ok(content) => Some(content),
                Err(error) => {
                    let (message, remedy) = error.explain();
                    self.error(at, 1, message, remedy);
                    None
                }
            }
        };
        Value::Vault(VaultText { envelope: text.to_owned(), content })
    }

    /// The text of a file, decrypted if all of it is a vault.
    pub(crate) fn plain_text(
        &mut self,
        file: FileId,
        text: &str,
    ) -> Option<zeroize::Zeroizing<String>> {
        if !vault::is_vault(text) {
            return Some(zeroize::Zeroizing::new(text.to_owned()));
        }
        match vault::open(text, self.passwords) {
            Ok(content) => {
                self.files.forget_text(file);
                Some(content)
            }
            Err(error) => {
                let (message, remedy) = error.explain();
                let place = Place { file, at: Position { line: 1, column: 1 } };
                self.error(place, 1, message, remedy);
                None
            }
        }
    }
}

/// The encrypted text in the form that it has in JSON.
fn json_vault(entries: &[(WrittenNode, WrittenNode)]) -> Option<&str> {
    let [(key, value)] = entries else { return None };
    match (&key.content, &value.content) {
        (Written::Quoted(key), Written::Quoted(text)) if key == "__ansible_vault" => Some(text),
        _ => None,
    }
}

/// The entries of a map in order, with the place of each key among them.
#[derive(Default)]
struct Entries<'w> {
    list: Vec<(Key, &'w WrittenNode)>,
    places: HashMap<String, usize>,
}

impl<'w> Entries<'w> {
    /// Sets the value of a key; one that is there stays where it is.
    fn replace(&mut self, key: Key, value: &'w WrittenNode) {
        match self.places.get(&key.name) {
            Some(place) => self.list[*place] = (key, value),
            None => {
                self.places.insert(key.name.clone(), self.list.len());
                self.list.push((key, value));
            }
        }
    }
}

/// Returns the name of a key as JSON has it, and whether it was written as text.
fn key_name(key: &WrittenNode) -> Option<(String, bool)> {
    match &key.content {
        Written::Quoted(text) => Some((text.clone(), true)),
        Written::Plain(text) => match scalar::plain(text) {
            Ok(Value::Text(text)) => Some((text, true)),
            Ok(Value::Bool(flag)) => Some((flag.to_string(), false)),
            Ok(Value::Number(number)) => Some((number.to_string(), false)),
            Ok(Value::Null) => Some(("null".to_owned(), false)),
            Ok(Value::Vault(_) | Value::List(_) | Value::Map(_)) | Err(_) => None,
        },
        Written::List(_) | Written::Map(_) => None,
    }
}

/// Returns why a text cannot be the name of a host. What the name is given to, `ssh` among them,
/// must not take it for an option or for several words.
fn refuse_name(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("expected a name")
    } else if name.starts_with('-') {
        Some("a name does not begin with `-`; `---` begins a YAML file, named *.yaml")
    } else if name.ends_with(':') {
        Some("a colon is followed by a port")
    } else if name.chars().any(|c| c.is_whitespace() || c.is_control() || c == ',') {
        Some("a name has no blanks, commas and control characters")
    } else {
        None
    }
}
