//! Reads one step of a user, and collects what is wrong with it.

use std::borrow::Cow;

use gantry_inventory::Role;
use gantry_yaml::node::{Content as Yaml, Node, Position};

use super::{UserStepError, made};
use crate::action::{Action, Reason, Undo};
use crate::content::Content;
use crate::facts::Facts;
use crate::state::Want;
use crate::step::{Behavior, Change, Stage, Step, StepHosts};

/// Bytes of the content of one file.
const MAX_CONTENT_BYTES: usize = 1 << 20;

const KEYS: [&str; 7] = ["name", "about", "stage", "tags", "hosts", "when", "actions"];
const ACTIONS: [&str; 7] = ["file", "directory", "link", "packages", "sysctl", "unit", "run"];

pub(super) struct Reader<'a> {
    file: &'a str,
    pub(super) errors: Vec<UserStepError>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str) -> Self {
        Self { file, errors: Vec::new() }
    }

    pub(super) fn refuse(&mut self, node: &Node, message: impl Into<String>) {
        self.refuse_at(node.at, message);
    }

    fn refuse_at(&mut self, at: Position, message: impl Into<String>) {
        let (file, message) = (self.file.to_owned(), message.into());
        self.errors.push(UserStepError { file, line: at.line, column: at.column, message });
    }

    /// Checks the keys of a map.
    fn keys(&mut self, node: &Node, known: &[&str]) {
        let Some(entries) = node.entries() else {
            self.refuse(node, format!("expected a map with {}", known.join(", ")));
            return;
        };
        for (key, _) in entries {
            if !known.contains(&key.name.as_str()) {
                let hint = gantry_inventory::suggest(&key.name, known.iter().copied());
                let hint = hint.map(|it| format!(" (did you mean `{it}`?)")).unwrap_or_default();
                let expected = known.join(", ");
                let message = format!("unknown key `{}`; expected {expected}{hint}", key.name);
                self.refuse_at(key.at, message);
            }
        }
    }

    fn text(&mut self, node: &Node, key: &str) -> Option<String> {
        let Some(value) = node.get(key) else {
            self.refuse(node, format!("`{key}` is missing"));
            return None;
        };
        let text = value.scalar_text();
        if text.is_none() {
            self.refuse(value, format!("`{key}` has to be text"));
        }
        text
    }

    fn texts(&mut self, node: &Node) -> Vec<String> {
        let Some(items) = node.items() else {
            return node.scalar_text().into_iter().collect();
        };
        let texts: Vec<Option<String>> = items.iter().map(Node::scalar_text).collect();
        if texts.iter().any(Option::is_none) {
            self.refuse(node, "expected a list of texts");
        }
        texts.into_iter().flatten().collect()
    }

    fn path(&mut self, node: &Node, key: &str) -> Option<String> {
        let path = self.text(node, key)?;
        let is_plain = path.split('/').skip(1).all(|it| !it.is_empty() && it != "." && it != "..");
        if !path.starts_with('/') || !is_plain {
            self.refuse(node, format!("`{key}` has to be an absolute path without . and .."));
            return None;
        }
        Some(path)
    }

    fn mode(&mut self, node: &Node, default: u32) -> u32 {
        let Some(value) = node.get("mode") else { return default };
        let text = value.text().map(|it| it.trim_start_matches("0o").to_owned());
        let mode = text.and_then(|it| u32::from_str_radix(&it, 8).ok()).filter(|it| *it <= 0o7777);
        if mode.is_none() {
            self.refuse(value, "`mode` has to be octal digits in quotes, as \"0644\"");
        }
        mode.unwrap_or(default)
    }

    fn flag(&mut self, node: &Node, key: &str) -> bool {
        match node.get(key).map(|value| (value, &value.value)) {
            None => true,
            Some((_, Yaml::Bool(flag))) => *flag,
            Some((value, _)) => {
                self.refuse(value, format!("`{key}` has to be true or false"));
                true
            }
        }
    }

    pub(super) fn step(&mut self, node: &Node) -> Option<Step> {
        let before = self.errors.len();
        self.keys(node, &KEYS);
        let name = self.text(node, "name")?;
        let is_id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if name.is_empty() || !name.chars().all(is_id) {
            self.refuse(node, "`name` has to be lower-case letters, digits, `-` and `.`");
        }
        let stage = match node.get("stage") {
            None => Some(Stage::AllHosts),
            Some(value) => {
                let stage = value.text().and_then(Stage::named);
                let stage = stage.filter(|it| *it > Stage::Preflight);
                if stage.is_none() {
                    let known: Vec<&str> = Stage::ALL.iter().skip(2).map(|it| it.name()).collect();
                    self.refuse(value, format!("`stage` has to be one of {}", known.join(", ")));
                }
                stage
            }
        };
        let hosts = match node.get("hosts") {
            None => Some(StepHosts::All),
            Some(value) => {
                let hosts = value.text().and_then(step_hosts);
                if hosts.is_none() {
                    let message = "`hosts` has to be all, master, minion, etcd, nfs or front";
                    self.refuse(value, message);
                }
                hosts
            }
        };
        let tags = node.get("tags").map(|tags| self.texts(tags)).unwrap_or_default();
        let conditions = node.get("when").map(|when| self.conditions(when)).unwrap_or_default();
        let changes = self.changes(node);
        let about = node.get("about").and_then(Node::text).unwrap_or("A step of the user.");
        if self.errors.len() > before {
            return None;
        }
        let step = Step {
            id: Cow::Owned(format!("user.{name}")),
            stage: stage?,
            tags: tags.into_iter().map(Cow::Owned).collect(),
            hosts: hosts?,
            needs_root: true,
            about: Cow::Owned(about.to_owned()),
            owns: Cow::Borrowed(""),
            behavior: Behavior::NotBuilt,
        };
        Some(made(step, conditions, changes))
    }

    fn conditions(&mut self, node: &Node) -> Vec<(String, Vec<String>)> {
        let Some(entries) = node.entries() else {
            self.refuse(node, "expected a map of facts and variables to values");
            return Vec::new();
        };
        let mut conditions = Vec::new();
        for (key, value) in entries {
            if let Some(fact) = key.name.strip_prefix("facts.")
                && !Facts::NAMES.contains(&fact)
            {
                let known = Facts::NAMES.join(", ");
                self.refuse_at(key.at, format!("there is no fact `{fact}`; there are: {known}"));
            }
            conditions.push((key.name.clone(), self.texts(value)));
        }
        conditions
    }

    fn changes(&mut self, node: &Node) -> Vec<Change> {
        let Some(actions) = node.get("actions").and_then(Node::items) else {
            self.refuse(node, "`actions` has to be a list");
            return Vec::new();
        };
        if actions.is_empty() {
            self.refuse(node, "`actions` is empty");
        }
        actions.iter().filter_map(|action| self.change(action)).collect()
    }

    fn change(&mut self, node: &Node) -> Option<Change> {
        self.keys(node, &ACTIONS);
        let [(key, body)] = node.entries()? else {
            self.refuse(node, format!("expected one of {}", ACTIONS.join(", ")));
            return None;
        };
        let of = |action| Some(Change::of(action));
        match key.name.as_str() {
            "file" => {
                self.keys(body, &["path", "content", "mode"]);
                let (path, content) = (self.path(body, "path"), self.text(body, "content"));
                let mode = self.mode(body, 0o644);
                let content = content?;
                if content.len() > MAX_CONTENT_BYTES {
                    self.refuse(body, format!("`content` has more than {MAX_CONTENT_BYTES} bytes"));
                }
                Some(Change::file(&path?, mode, Content::public(content)))
            }
            "directory" => {
                self.keys(body, &["path", "mode"]);
                let (path, mode) = (self.path(body, "path"), self.mode(body, 0o755));
                of(Action::Directory { path: path?, mode })
            }
            "link" => {
                self.keys(body, &["path", "target"]);
                let (path, target) = (self.path(body, "path"), self.text(body, "target"));
                of(Action::Link { path: path?, target: target? })
            }
            "packages" => {
                let names = self.texts(body);
                let is_name = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
                let is_fit = |it: &String| {
                    it.starts_with(|c: char| c.is_ascii_alphanumeric()) && it.chars().all(is_name)
                };
                if names.is_empty() || !names.iter().all(is_fit) {
                    self.refuse(body, "`packages` has to be a list of names of packages");
                }
                of(Action::Packages { names })
            }
            "sysctl" => {
                self.keys(body, &["key", "value"]);
                let (key, value) = (self.text(body, "key"), self.text(body, "value"));
                let key = key?;
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                if !key.chars().all(is_plain) || key.split('.').any(str::is_empty) {
                    self.refuse(body, "`key` has to be that of a setting, with dots");
                }
                of(Action::Sysctl { key, value: value? })
            }
            "unit" => {
                self.keys(body, &["name", "enabled", "active"]);
                let name = self.text(body, "name");
                let (enabled, active) = (self.flag(body, "enabled"), self.flag(body, "active"));
                let name = name?;
                let is_name = |c: char| c.is_ascii_alphanumeric() || "@._-:\\".contains(c);
                if !name.contains('.') || name.starts_with('-') || !name.chars().all(is_name) {
                    self.refuse(body, "`name` has to be that of a unit, as chrony.service");
                }
                of(Action::Unit { name, enabled, active, config: None })
            }
            "run" => self.run(body),
            _ => None,
        }
    }

    fn run(&mut self, node: &Node) -> Option<Change> {
        self.keys(node, &["argv", "creates", "undo", "no_undo"]);
        let argv = node.get("argv").map(|it| self.texts(it)).unwrap_or_default();
        let is_program = |argv: &[String]| argv.first().is_some_and(|it| it.starts_with('/'));
        if !is_program(&argv) {
            self.refuse(node, "`argv` has to begin with the absolute path of a program");
        }
        let creates = self.path(node, "creates");
        let undo = match (node.get("undo"), node.get("no_undo")) {
            (Some(undo), None) => {
                let argv = self.texts(undo);
                if !is_program(&argv) {
                    self.refuse(undo, "`undo` has to begin with the absolute path of a program");
                }
                Some(Undo::Argv(argv))
            }
            (None, Some(reason)) => {
                let reason = reason.text().and_then(Reason::new);
                if reason.is_none() {
                    self.refuse(node, "`no_undo` has to say why it cannot be undone");
                }
                reason.map(Undo::Impossible)
            }
            (Some(_), Some(_)) | (None, None) => {
                self.refuse(node, "`run` needs `undo`, or `no_undo` with the reason");
                None
            }
        };
        Some(Change::of(Action::Run { argv, creates: Want::Path(creates?), undo: undo? }))
    }
}

fn step_hosts(name: &str) -> Option<StepHosts> {
    if name == "all" {
        return Some(StepHosts::All);
    }
    let role = Role::ALL.into_iter().find(|role| role.group_names().contains(&name))?;
    Some(StepHosts::With(role))
}
