//! An inventory that was read: hosts, groups, and variables with their precedence and origin.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::finding::{Files, Finding, Place, Severity};
use crate::reader::Reader;
use crate::source::{self, Entity, Source, TextFile, VariableFiles};
use crate::tree::{ALL, Assignment, GroupId, HostId, Tree};
use crate::value::Node;
use crate::vault::VaultPassword;
use crate::{expression, extra, variables};

/// What an inventory is read from.
#[derive(Debug, Default)]
pub struct Input {
    /// Where hosts come from; of several, later ones win.
    pub sources: Vec<Source>,
    /// Variables of the command line, which win over all others.
    pub extra_variables: Vec<ExtraVariables>,
    /// Passwords of vaults.
    pub passwords: Vec<VaultPassword>,
    /// The environment, for `lookup('env', …)`.
    pub environment: BTreeMap<String, String>,
}

/// One `--extra-vars`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtraVariables {
    /// `name=value` pairs, or a map in YAML or JSON.
    Text(String),
    /// The content of a file.
    File(TextFile),
}

/// Where a value comes from, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Variables of `all` in the inventory.
    All,
    /// Variables of a group in the inventory.
    Group(GroupId),
    /// A file of `group_vars` for `all`.
    AllFile,
    /// A file of `group_vars` for a group.
    GroupFile(GroupId),
    /// Variables of the host in the inventory.
    Host,
    /// A file of `host_vars`.
    HostFile,
    /// The command line.
    Extra,
}

/// A value that a variable has in one place.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'i> {
    /// The kind of the place.
    pub layer: Layer,
    /// The place of the name.
    pub at: Place,
    /// The value.
    pub value: &'i Node,
}

/// The variables of a host: for each the values it is given, the one that wins last.
pub type HostVariables<'i> = BTreeMap<&'i str, Vec<Candidate<'i>>>;

/// An inventory.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// Groups and hosts.
    pub tree: Tree,
    /// The texts it was read from.
    pub files: Files,
    pub(crate) group_uses: Vec<(GroupId, Place)>,
    /// For each source.
    group_files: Vec<HashMap<GroupId, Vec<Assignment>>>,
    host_files: Vec<HashMap<HostId, Vec<Assignment>>>,
    extra: Vec<Assignment>,
    environment: BTreeMap<String, String>,
}

/// Reads an inventory, and returns it with everything that is wrong with it.
///
/// The inventory is what could be read; with an error among the findings it must not be used.
#[must_use]
pub fn read(input: &Input) -> (Inventory, Vec<Finding>) {
    let mut reader = Reader::new(&input.passwords);
    for source in &input.sources {
        source::read(&mut reader, source);
    }
    if input.sources.is_empty() {
        let file = reader.files.add("--inventory", "");
        let place = Place { file, ..Place::default() };
        reader.error(place, 1, "no inventory", "name a file, a folder, or hosts: `-i local,`");
    }
    reader.tree.reconcile();
    let (mut group_files, mut host_files) = (Vec::new(), Vec::new());
    for source in &input.sources {
        let files = match source {
            Source::Hosts(_) => &[],
            Source::File { file: _, variables } => variables.as_slice(),
            Source::Folder { path: _, files } => files.as_slice(),
        };
        let (groups, hosts) = read_variable_files(&mut reader, files);
        group_files.push(groups);
        host_files.push(hosts);
    }
    let extra = extra::read(&mut reader, &input.extra_variables);
    let Reader { tree, files, mut findings, group_uses, .. } = reader;
    let inventory = Inventory {
        tree,
        files,
        group_uses,
        group_files,
        host_files,
        extra,
        environment: input.environment.clone(),
    };
    findings.extend(expression::check_all(&inventory));
    findings.extend(variables::check_all(&inventory));
    sort(&mut findings);
    (inventory, findings)
}

/// Sorts findings by place, and removes those that say the same.
pub(crate) fn sort(findings: &mut Vec<Finding>) {
    findings.sort_by(|left, right| (left.place, &left.message).cmp(&(right.place, &right.message)));
    findings.dedup();
}

/// Whether there is an error among findings.
#[must_use]
pub fn has_errors(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// The variables of files, of groups and of hosts.
type OwnVariables = (HashMap<GroupId, Vec<Assignment>>, HashMap<HostId, Vec<Assignment>>);

fn read_variable_files(reader: &mut Reader<'_>, files: &[TextFile]) -> OwnVariables {
    let groups: Vec<(GroupId, String)> =
        reader.tree.groups().map(|(id, group)| (id, group.name.clone())).collect();
    let hosts: Vec<(HostId, String)> =
        reader.tree.hosts().map(|(id, host)| (id, host.name.clone())).collect();
    let mut of_groups = HashMap::new();
    let mut of_hosts = HashMap::new();
    if files.is_empty() {
        return (of_groups, of_hosts);
    }
    let files = VariableFiles::new(files);
    for (id, name) in &groups {
        let found = assignments(reader, files.of(Entity::Group, name));
        if !found.is_empty() {
            of_groups.insert(*id, found);
        }
    }
    for (id, name) in &hosts {
        let found = assignments(reader, files.of(Entity::Host, name));
        if !found.is_empty() {
            of_hosts.insert(*id, found);
        }
    }
    let names: Vec<String> = groups.into_iter().map(|(_, name)| name).collect();
    source::warn_of_orphans(reader, Entity::Group, &files, &names);
    let names: Vec<String> = hosts.into_iter().map(|(_, name)| name).collect();
    source::warn_of_orphans(reader, Entity::Host, &files, &names);
    (of_groups, of_hosts)
}

fn assignments(reader: &mut Reader<'_>, files: Vec<&TextFile>) -> Vec<Assignment> {
    let read = |file| source::read_variables(reader, file).assignments;
    files.into_iter().flat_map(read).collect()
}

impl Inventory {
    /// The variables of a host with all the values that they are given.
    #[must_use]
    pub fn variables(&self, host: HostId) -> HostVariables<'_> {
        let groups = self.tree.groups_of(host);
        let mut variables = HostVariables::new();
        collect(&mut variables, Layer::All, &self.tree.group(ALL).variables);
        for group in &groups {
            let assignments = &self.tree.group(*group).variables;
            collect(&mut variables, Layer::Group(*group), assignments);
        }
        for files in &self.group_files {
            collect(&mut variables, Layer::AllFile, of(files, &ALL));
        }
        for files in &self.group_files {
            for group in &groups {
                collect(&mut variables, Layer::GroupFile(*group), of(files, group));
            }
        }
        collect(&mut variables, Layer::Host, &self.tree.host(host).variables);
        for files in &self.host_files {
            collect(&mut variables, Layer::HostFile, of(files, &host));
        }
        collect(&mut variables, Layer::Extra, &self.extra);
        variables
    }

    /// The variables of a group by itself, with those of its files.
    #[must_use]
    pub fn group_variables(&self, group: GroupId) -> BTreeMap<&str, &Node> {
        let own = self.tree.group(group).variables.iter();
        let files = self.group_files.iter().flat_map(|files| of(files, &group));
        own.chain(files).map(|it| (it.name.as_str(), &it.value)).collect()
    }

    /// The variables of a host by itself, with those of its files.
    #[must_use]
    pub fn own_variables(&self, host: HostId) -> BTreeMap<&str, &Node> {
        let own = self.tree.host(host).variables.iter();
        let files = self.host_files.iter().flat_map(|files| of(files, &host));
        own.chain(files).map(|it| (it.name.as_str(), &it.value)).collect()
    }

    /// Every place where a variable is set.
    pub(crate) fn assignments(&self) -> impl Iterator<Item = &Assignment> {
        let groups = self.tree.groups().flat_map(|(_, group)| &group.variables);
        let hosts = self.tree.hosts().flat_map(|(_, host)| &host.variables);
        let group_files = self.group_files.iter().flat_map(HashMap::values).flatten();
        let host_files = self.host_files.iter().flat_map(HashMap::values).flatten();
        let mut has_place = BTreeSet::new();
        // The hosts of a range have the same assignments.
        groups
            .chain(hosts)
            .chain(group_files)
            .chain(host_files)
            .chain(&self.extra)
            .filter(move |it| has_place.insert((it.at, it.value.at, it.name.clone())))
    }

    /// A variable of the environment.
    pub(crate) fn environment(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }
}

fn collect<'i>(variables: &mut HostVariables<'i>, layer: Layer, assignments: &'i [Assignment]) {
    for Assignment { name, at, value } in assignments {
        let candidates = variables.entry(name).or_default();
        // Two sources in one folder have the same files.
        candidates.retain(|other| other.at != *at || other.layer != layer);
        candidates.push(Candidate { layer, at: *at, value });
    }
}

fn of<'f, K: std::hash::Hash + Eq>(
    files: &'f HashMap<K, Vec<Assignment>>,
    key: &K,
) -> &'f [Assignment] {
    files.get(key).map(Vec::as_slice).unwrap_or_default()
}
