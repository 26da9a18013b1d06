//! What `gantry cluster inventory` prints: the JSON of `ansible-inventory`, a graph, and origins.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use crate::inventory::{Inventory, Layer};
use crate::tree::{ALL, GroupId, HostId};
use crate::value::{Node, Value};

/// Variables that are no variables of an inventory, although files can set them.
const INTERNAL: [&str; 34] = [
    "ansible_async_path",
    "ansible_collection_name",
    "ansible_config_file",
    "ansible_dependent_role_names",
    "ansible_diff_mode",
    "ansible_facts",
    "ansible_forks",
    "ansible_inventory_sources",
    "ansible_limit",
    "ansible_play_batch",
    "ansible_play_hosts",
    "ansible_play_hosts_all",
    "ansible_play_role_names",
    "ansible_playbook_python",
    "ansible_role_name",
    "ansible_role_names",
    "ansible_run_tags",
    "ansible_skip_tags",
    "ansible_verbosity",
    "ansible_version",
    "inventory_dir",
    "inventory_file",
    "inventory_hostname",
    "inventory_hostname_short",
    "groups",
    "group_names",
    "hostvars",
    "playbook_dir",
    "play_hosts",
    "role_name",
    "role_names",
    "role_path",
    "role_uuid",
    "omit",
];

/// Which variables a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListForm {
    /// For each host what its variables come to.
    Resolved,
    /// For each group and host the variables that are set for it.
    Export,
}

impl Inventory {
    /// All groups and the variables of the given hosts, as `ansible-inventory --list` prints them:
    /// expressions stay as they are, and encrypted texts stay encrypted.
    #[must_use]
    pub fn list(&self, hosts: &[HostId], form: ListForm) -> Json {
        let available: HashSet<HostId> = hosts.iter().copied().collect();
        let mut list = Map::new();
        let mut has_group = HashSet::new();
        self.list_group(ALL, form, &available, &mut has_group, &mut list);
        let mut host_variables = Map::new();
        for host in hosts {
            let variables = match form {
                ListForm::Resolved => self.host_json(*host),
                ListForm::Export => own_json(self.own_variables(*host)),
            };
            if variables.as_object().is_some_and(|it| !it.is_empty()) {
                host_variables.insert(self.tree.host(*host).name.clone(), variables);
            }
        }
        let meta = json!({ "hostvars": host_variables, "profile": "inventory_legacy" });
        list.insert("_meta".to_owned(), meta);
        Json::Object(sorted(list))
    }

    fn list_group(
        &self,
        id: GroupId,
        form: ListForm,
        available: &HashSet<HostId>,
        has_group: &mut HashSet<GroupId>,
        list: &mut Map<String, Json>,
    ) {
        let group = self.tree.group(id);
        let mut entry = Map::new();
        let hosts = group.hosts.iter().filter(|host| id != ALL && available.contains(host));
        let hosts: Vec<&str> = hosts.map(|host| self.tree.host(*host).name.as_str()).collect();
        let names = group.children.iter().map(|child| self.tree.group(*child).name.as_str());
        let children: Vec<&str> = names.collect();
        if !children.is_empty() {
            entry.insert("children".to_owned(), json!(children));
        }
        if !hosts.is_empty() {
            entry.insert("hosts".to_owned(), json!(hosts));
        }
        if form == ListForm::Export {
            let mut variables = own_json(self.group_variables(id));
            if let (Json::Object(map), true) = (&mut variables, group.priority != 1) {
                map.insert("ansible_group_priority".to_owned(), group.priority.into());
            }
            if variables.as_object().is_some_and(|it| !it.is_empty()) {
                entry.insert("vars".to_owned(), variables);
            }
        }
        if !entry.is_empty() {
            list.insert(group.name.clone(), Json::Object(entry));
        }
        for child in &group.children {
            if has_group.insert(*child) {
                self.list_group(*child, form, available, has_group, list);
            }
        }
    }

    /// The variables of a host, as `ansible-inventory --host` prints them.
    #[must_use]
    pub fn host_json(&self, host: HostId) -> Json {
        let variables = self.variables(host);
        let winners = variables.iter().filter_map(|(name, candidates)| {
            let value = candidates.last()?.value.to_json();
            (!INTERNAL.contains(name)).then(|| ((*name).to_owned(), sorted_value(value)))
        });
        Json::Object(winners.collect())
    }

    /// The groups and hosts below a group, as `ansible-inventory --graph` prints them.
    #[must_use]
    pub fn graph(&self, group: GroupId) -> String {
        let mut lines = String::new();
        self.graph_group(group, 0, &mut lines);
        lines
    }

    fn graph_group(&self, id: GroupId, depth: usize, lines: &mut String) {
        // The same group below several others is printed below each of them, which doubles with
        // every level of a diamond.
        const MAX_GRAPH_BYTES: usize = 16 << 20;
        let group = self.tree.group(id);
        graph_line(&format!("@{}:", group.name), depth, lines);
        if lines.len() > MAX_GRAPH_BYTES {
            return;
        }
        for child in &group.children {
            self.graph_group(*child, depth + 1, lines);
        }
        if id != ALL {
            for host in &group.hosts {
                graph_line(&self.tree.host(*host).name, depth + 1, lines);
            }
        }
    }

    /// The variables of a host with what each stands for, the place that wins, and the places that
    /// lose.
    #[must_use]
    pub fn origins(&self, host: HostId) -> String {
        let mut text = String::new();
        for (name, candidates) in self.variables(host) {
            let mut candidates = candidates.iter().rev();
            let Some(winner) = candidates.next() else { continue };
            let shown = match self.value(host, name) {
                Ok(Some(value)) => shown(&value),
                Ok(None) => "null".to_owned(),
                Err(error) => format!("error: {}; {}", error.message, error.remedy),
            };
            let _ = writeln!(text, "{name} = {shown}");
            let origin = self.files.origin(winner.at);
            let _ = writeln!(text, "  from {origin} ({})", self.layer_text(winner.layer));
            for loser in candidates {
                let origin = self.files.origin(loser.at);
                let layer = self.layer_text(loser.layer);
                let _ = writeln!(text, "  over {origin} ({layer}): {}", self::shown(loser.value));
            }
        }
        text
    }

    fn layer_text(&self, layer: Layer) -> String {
        match layer {
            Layer::All => "variables of group all".to_owned(),
            Layer::Group(id) => format!("variables of group {}", self.tree.group(id).name),
            Layer::AllFile => "group_vars of all".to_owned(),
            Layer::GroupFile(id) => format!("group_vars of {}", self.tree.group(id).name),
            Layer::Host => "variables of the host".to_owned(),
            Layer::HostFile => "host_vars".to_owned(),
            Layer::Extra => "command line".to_owned(),
        }
    }
}

fn own_json(variables: BTreeMap<&str, &Node>) -> Json {
    let shown = variables.into_iter().filter(|(name, _)| !INTERNAL.contains(name));
    Json::Object(
        shown.map(|(name, node)| (name.to_owned(), sorted_value(node.to_json()))).collect(),
    )
}

fn graph_line(name: &str, depth: usize, lines: &mut String) {
    if depth > 0 {
        lines.push_str(&"  |".repeat(depth));
        lines.push_str("--");
    }
    lines.push_str(name);
    lines.push('\n');
}

/// A value on one line. A secret is not shown.
fn shown(node: &Node) -> String {
    if matches!(node.value, Value::Vault(_)) {
        return "«encrypted»".to_owned();
    }
    hide_secrets(node).to_string()
}

fn hide_secrets(node: &Node) -> Json {
    match &node.value {
        Value::Vault(_) => Json::String("«encrypted»".to_owned()),
        Value::List(items) => Json::Array(items.iter().map(hide_secrets).collect()),
        Value::Map(entries) => Json::Object(
            entries.iter().map(|(key, value)| (key.name.clone(), hide_secrets(value))).collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => node.to_json(),
    }
}

/// The original sorts all keys.
fn sorted(map: Map<String, Json>) -> Map<String, Json> {
    let mut entries: Vec<(String, Json)> =
        map.into_iter().map(|(key, value)| (key, sorted_value(value))).collect();
    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
    entries.into_iter().collect()
}

fn sorted_value(value: Json) -> Json {
    match value {
        Json::Object(map) => Json::Object(sorted(map)),
        Json::Array(items) => Json::Array(items.into_iter().map(sorted_value).collect()),
        other => other,
    }
}
