//! Random inventories that are valid, in every form.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use gantry_inventory::{Input, Source, TextFile, VaultPassword, is_read};

/// The password of every vault.
pub(super) const PASSWORD: &str = "open sesame";
const VAULT: &str = include_str!("../data/vault-1.1.txt");
const VAULT_FILE: &str = include_str!("../data/vault-file.txt");

const GROUPS: [&str; 12] = [
    "alpha",
    "beta",
    "gamma",
    "web",
    "db",
    "master",
    "minion",
    "kube_node",
    "x-1",
    "y.z",
    "site",
    "nfs",
];
const HOSTS: [&str; 14] = [
    "h1",
    "h2",
    "h3.example.org",
    "n[01:03]",
    "n[1:9:4]",
    "r[a:c]x",
    "r[a:b]n[1:2]",
    "10.0.0.[1:2]",
    "p1:2222",
    "[fe80::1]:22",
    "q-1",
    "Z9",
    "_under",
    "m[008:010].lan",
];
/// Values in YAML.
const YAML_VALUES: [&str; 44] = [
    "yes",
    "No",
    "off",
    "y",
    "~",
    "",
    "null",
    "0",
    "7",
    "-3",
    "+4",
    "0644",
    "08",
    "0o17",
    "0x1F",
    "0b101",
    "1_000",
    "1:30",
    "01:30",
    "190:20:30",
    "1.5",
    "1.",
    ".5",
    "-.5",
    "1e3",
    "1.0e+3",
    "2024-01-02",
    "'yes'",
    "\"a\\tb\"",
    "'it''s'",
    "plain text",
    "a: b",
    "[1, two, {a: b}]",
    "{k: v, n: [1, ~]}",
    "{1: a, 2.5: c}",
    "!!str 12",
    "[]",
    "{}",
    "/data",
    "10.0.0.1",
    "1.34.11",
    "\"# no comment\"",
    "é",
    "v # a comment",
];
/// Values in JSON, whose numbers are others than those of YAML.
const JSON_VALUES: [&str; 9] =
    ["1e3", "-0", "1E-2", "12", "true", "null", "\"yes\"", "[1.5, {\"a\": 1e2}]", "{}"];
/// Values on host lines of INI.
const INI_WORDS: [&str; 24] = [
    "1",
    "010",
    "-1",
    "1.5",
    "True",
    "true",
    "None",
    "none",
    "text",
    "'two words'",
    "\"'12'\"",
    "\"[1, 'a']\"",
    "\"{'k': 1}\"",
    "a\\ b",
    "x=y",
    "",
    "1,2",
    "\"(1, 2)\"",
    "1_0",
    "0x1f",
    "1e3",
    "/data",
    "yes",
    "\"a#b\"",
];
/// Values of INI sections.
const INI_VALUES: [&str; 22] = [
    "1",
    "010",
    "-1",
    "1.5",
    "True",
    "no",
    "None",
    "two words",
    "'quoted'",
    "\"quoted\" # comment",
    "text # no comment",
    "[1, 'a', None]",
    "{'k': [1]}",
    "()",
    "(1,)",
    "1, 2",
    "",
    "a=b",
    "'a' 'b'",
    "0o17",
    "'it\\'s'",
    ".5",
];
/// Values of variables that expressions name: scalars, so that they fit into text.
const SCALARS: [&str; 6] = ["7", "word", "yes", "'1.0'", "two words", "''"];
/// Expressions; `s0` to `s2` are scalars and `v0` to `v3` anything.
const EXPRESSIONS: [&str; 18] = [
    "{{ s0 }}",
    "{{ v0 }}",
    "{{ v1 }}",
    "{{ s0 }}-{{ s1 }}",
    "x{{ s2 }}y",
    "{{ inventory_hostname }}",
    "{{ groups['ungrouped'] }}",
    "{{ groups[\"all\"] }}",
    "{{ lookup('env', 'SITE') }}",
    "{{ lookup('env', 'UNSET') }}",
    "{{ missing | default('d') }}",
    "{{missing|default(s0)}}",
    "{{ missing | default(12) }}",
    "{{ missing | default([]) }}",
    "{{ v2 | default('d') }}",
    "{{ t0 }}",
    "{{ missing }}",
    "{{ groups['none'] | default('d') }}",
];

/// An inventory on disk.
pub(super) struct Generated {
    folder: PathBuf,
    /// Texts by their path below the folder.
    files: BTreeMap<String, String>,
    /// What is given to `-i`.
    pub(super) sources: Vec<String>,
    pub(super) patterns: Vec<String>,
}

/// A group that is generated.
struct Group {
    name: &'static str,
    hosts: Vec<&'static str>,
    children: Vec<usize>,
}

impl Generated {
    pub(super) fn new(seed: u64, folder: &Path) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut generated = Self {
            folder: folder.to_owned(),
            files: BTreeMap::new(),
            sources: Vec::new(),
            patterns: Vec::new(),
        };
        let groups = groups(&mut rng);
        let count = 1 + usize::from(rng.u8(..3) == 0);
        for index in 0..count {
            generated.source(index, &groups, &mut rng);
        }
        generated.patterns = (0..10).map(|_| pattern(&groups, &mut rng)).collect();
        generated
    }

    fn source(&mut self, index: usize, groups: &[Group], rng: &mut Rng) {
        let base = format!("s{index}");
        let is_folder = rng.u8(..3) == 0;
        let inventories = if is_folder { 1 + rng.usize(..2) } else { 1 };
        let mut first = String::new();
        for number in 0..inventories {
            let is_yaml = rng.bool();
            let text = if is_yaml { yaml(groups, rng) } else { ini(groups, rng) };
            let ends: &[&str] = if is_yaml { &[".yaml", ".yml", ""] } else { &[".ini", ""] };
            let name = format!("{base}/{number}0-hosts{}", pick(ends, rng));
            self.files.insert(name.clone(), text);
            first = name;
        }
        for group in groups.iter().map(|group| group.name).chain(["all", "ungrouped"]) {
            if rng.u8(..4) == 0 {
                self.variables(&format!("{base}/group_vars/{group}"), rng);
            }
        }
        for host in ["h1", "h2", "n01", "n1", "rax", "10.0.0.1", "p1", "h3.example.org"] {
            if rng.u8(..5) == 0 {
                self.variables(&format!("{base}/host_vars/{host}"), rng);
            }
        }
        if is_folder {
            self.files.insert(format!("{base}/README.md"), "not an inventory".to_owned());
            self.files.insert(format!("{base}/.hidden"), "not an inventory".to_owned());
        }
        let source = if is_folder { base } else { first };
        self.sources.push(self.folder.join(source).to_str().unwrap().to_owned());
    }

    /// Files of variables of one group or host.
    fn variables(&mut self, path: &str, rng: &mut Rng) {
        match rng.u8(..8) {
            0 => {
                for name in ["b.yml", "a.yaml", "sub/c.json", "d", ".hidden.yml", "e.txt", "f.yml~"]
                {
                    if rng.bool() {
                        self.files.insert(format!("{path}/{name}"), assignments(rng));
                    }
                }
                // Without a file there would be an empty folder, which also hides other files.
                self.files.insert(format!("{path}/z.yaml"), assignments(rng));
            }
            1 => {
                self.files.insert(format!("{path}.yaml"), assignments(rng));
                self.files.insert(format!("{path}.yml"), assignments(rng));
            }
            2 => {
                self.files.insert(path.to_owned(), VAULT_FILE.to_owned());
            }
            3 => {
                let values = (0..rng.usize(..4)).map(|_| (name(rng), pick(&JSON_VALUES, rng)));
                let values: BTreeMap<String, &str> = values.collect();
                let entries = values.iter().map(|(name, value)| format!("\"{name}\": {value}"));
                let text = format!("{{{}}}\n", entries.collect::<Vec<_>>().join(", "));
                self.files.insert(format!("{path}.json"), text);
            }
            _ => {
                let end = pick(&["", ".yaml", ".yml", ".json"], rng);
                self.files.insert(format!("{path}{end}"), assignments(rng));
            }
        }
    }

    pub(super) fn write(&self) {
        for (name, text) in &self.files {
            let path = self.folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    /// The same for this crate.
    pub(super) fn input(&self) -> Input {
        let file = |name: &str, inside: &str| TextFile {
            path: name.to_owned(),
            inside: inside.to_owned(),
            text: self.files[name].clone(),
            is_private: false,
        };
        let below = |base: &str| -> Vec<TextFile> {
            let prefix = format!("{base}/");
            let names =
                self.files.keys().filter_map(|name| Some((name, name.strip_prefix(&prefix)?)));
            names.filter(|(_, inside)| is_read(inside)).map(|(name, it)| file(name, it)).collect()
        };
        let source = |source: &String| {
            let name = Path::new(source).strip_prefix(&self.folder).unwrap().to_str().unwrap();
            match name.split_once('/') {
                None => Source::Folder { path: source.clone(), files: below(name) },
                Some((base, inside)) => {
                    let mut variables = below(base);
                    variables.retain(|file| file.inside.contains("_vars/"));
                    Source::File { file: file(name, inside), variables }
                }
            }
        };
        Input {
            sources: self.sources.iter().map(source).collect(),
            passwords: vec![VaultPassword {
                label: None,
                password: PASSWORD.as_bytes().to_vec().into(),
            }],
            environment: [("SITE".to_owned(), "lab".to_owned())].into(),
            ..Input::default()
        }
    }

    /// The texts, to look for a difference.
    pub(super) fn show(&self) -> String {
        let mut text = format!("sources {:?}\n", self.sources);
        for (name, content) in &self.files {
            let _ = writeln!(text, "--- {name}\n{content}");
        }
        text
    }
}

fn pick<'a>(from: &[&'a str], rng: &mut Rng) -> &'a str {
    from[rng.usize(..from.len())]
}

/// Groups without a cycle: each contains only later ones.
fn groups(rng: &mut Rng) -> Vec<Group> {
    let mut names = GROUPS.to_vec();
    rng.shuffle(&mut names);
    names.truncate(2 + rng.usize(..6));
    let count = names.len();
    let group = |(index, name): (usize, &'static str)| {
        let hosts = (0..rng.usize(..4)).map(|_| pick(&HOSTS, rng)).collect();
        let later = (index + 1)..count;
        let children = later.filter(|_| rng.u8(..3) == 0).collect();
        Group { name, hosts, children }
    };
    names.into_iter().enumerate().map(group).collect()
}

fn name(rng: &mut Rng) -> String {
    let prefix = pick(&["v", "v", "s", "t"], rng);
    let number = match prefix {
        "s" => rng.u8(..3),
        _ => rng.u8(..4),
    };
    format!("{prefix}{number}")
}

/// `name: value` lines with this indentation; names are unique.
fn yaml_variables(indent: usize, rng: &mut Rng) -> String {
    let blanks = " ".repeat(indent);
    let mut entries = BTreeMap::new();
    for _ in 0..rng.usize(..4) {
        let name = name(rng);
        let value = match name.chars().next() {
            Some('s') => pick(&SCALARS, rng).to_owned(),
            Some('t') => match rng.u8(..5) {
                0 => format!("[1, \"{}\"]", pick(&EXPRESSIONS, rng).replace('"', "'")),
                _ => format!("'{}'", pick(&EXPRESSIONS, rng).replace('\'', "''")),
            },
            _ => match rng.u8(..12) {
                0 => {
                    let inner = format!("\n{blanks}  ");
                    format!("!vault |{inner}{}", VAULT.trim_end().replace('\n', &inner))
                }
                1 => format!("|\n{blanks}  two\n{blanks}  lines"),
                2 => format!(">-\n{blanks}  two\n{blanks}  lines"),
                3 => format!("\n{blanks}  <<: {{a: 1, b: 2}}\n{blanks}  b: 3"),
                _ => pick(&YAML_VALUES, rng).to_owned(),
            },
        };
        // A colon and a blank in plain text would make a map.
        let value = if value == "a: b" { "'a: b'".to_owned() } else { value };
        entries.insert(name, value);
    }
    let mut text = String::new();
    for (name, value) in entries {
        let _ = writeln!(text, "{blanks}{name}: {value}");
    }
    text
}

/// A file of variables.
fn assignments(rng: &mut Rng) -> String {
    let mut text = yaml_variables(0, rng);
    if rng.u8(..6) == 0 {
        text += "ansible_group_priority: 7\n";
    }
    if text.is_empty() || rng.u8(..4) == 0 { format!("---\n# variables\n{text}") } else { text }
}

fn yaml(groups: &[Group], rng: &mut Rng) -> String {
    let mut text = String::new();
    // A key stands once in a map, so some groups are below `all` and the others beside it.
    let (below, beside): (Vec<usize>, Vec<usize>) = (0..groups.len()).partition(|_| rng.bool());
    if !below.is_empty() || rng.bool() {
        text += "all:\n";
        section(&mut text, "vars", 2, &yaml_variables(4, rng));
        let hosts = if rng.bool() { vec![pick(&HOSTS, rng)] } else { Vec::new() };
        section(&mut text, "hosts", 2, &yaml_hosts(&hosts, 4, rng));
        let mut inner = String::new();
        for index in below {
            yaml_group(groups, index, 4, rng, &mut inner);
        }
        section(&mut text, "children", 2, &inner);
    }
    for index in beside {
        yaml_group(groups, index, 0, rng, &mut text);
    }
    if text.is_empty() { "ungrouped:\n  hosts:\n    h1:\n".to_owned() } else { text }
}

fn section(text: &mut String, name: &str, indent: usize, inner: &str) {
    if !inner.is_empty() {
        let _ = write!(text, "{}{name}:\n{inner}", " ".repeat(indent));
    }
}

fn yaml_group(groups: &[Group], index: usize, indent: usize, rng: &mut Rng, text: &mut String) {
    let Group { name, hosts, children } = &groups[index];
    let _ = writeln!(text, "{}{name}:", " ".repeat(indent));
    let mut parts = vec!["vars", "hosts", "children"];
    rng.shuffle(&mut parts);
    for part in parts {
        let inner = match part {
            "vars" => {
                let mut inner = yaml_variables(indent + 4, rng);
                if rng.u8(..4) == 0 {
                    let blanks = " ".repeat(indent + 4);
                    let _ = writeln!(inner, "{blanks}ansible_group_priority: {}", rng.u8(..4));
                }
                inner
            }
            "hosts" => yaml_hosts(hosts, indent + 4, rng),
            _ => {
                let mut inner = String::new();
                for child in children {
                    if rng.u8(..4) == 0 {
                        yaml_group(groups, *child, indent + 4, rng, &mut inner);
                    } else {
                        let _ =
                            writeln!(inner, "{}{}:", " ".repeat(indent + 4), groups[*child].name);
                    }
                }
                inner
            }
        };
        section(text, part, indent + 2, &inner);
    }
}

fn yaml_hosts(hosts: &[&str], indent: usize, rng: &mut Rng) -> String {
    let unique: std::collections::BTreeSet<&&str> = hosts.iter().collect();
    let mut text = String::new();
    for host in unique {
        let variables = yaml_variables(indent + 2, rng);
        let blanks = " ".repeat(indent);
        let _ = write!(text, "{blanks}\"{host}\":\n{variables}");
    }
    text
}

fn ini(groups: &[Group], rng: &mut Rng) -> String {
    let mut text = "# an inventory\n".to_owned();
    if rng.bool() {
        ini_host(pick(&HOSTS, rng), rng, &mut text);
    }
    let mut sections: Vec<(usize, &str)> = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        sections.push((index, ""));
        if !group.children.is_empty() {
            sections.push((index, ":children"));
        }
        if rng.bool() {
            sections.push((index, ":vars"));
        }
    }
    rng.shuffle(&mut sections);
    for (index, kind) in sections {
        let Group { name, hosts, children } = &groups[index];
        let comment = pick(&["", "  # comment"], rng);
        let _ = writeln!(text, "\n[{name}{kind}]{comment}");
        match kind {
            "" => hosts.iter().for_each(|host| ini_host(host, rng, &mut text)),
            ":children" => {
                for child in children {
                    let _ = writeln!(text, "{}{comment}", groups[*child].name);
                }
            }
            _ => ini_variables(rng, &mut text),
        }
    }
    if rng.bool() {
        text += "[all:vars]\n";
        ini_variables(rng, &mut text);
    }
    text
}

fn ini_host(host: &str, rng: &mut Rng, text: &mut String) {
    text.push_str(pick(&["", "  "], rng));
    text.push_str(host);
    for _ in 0..rng.usize(..3) {
        let name = name(rng);
        let value = match name.chars().next() {
            Some('s') => pick(&["7", "word", "True", "''"], rng).to_owned(),
            Some('t') => format!("\"{}\"", pick(&EXPRESSIONS, rng).replace('"', "'")),
            _ => pick(&INI_WORDS, rng).to_owned(),
        };
        let _ = write!(text, " {name}={value}");
    }
    text.push_str(pick(&["", " # comment"], rng));
    text.push('\n');
}

fn ini_variables(rng: &mut Rng, text: &mut String) {
    for _ in 0..rng.usize(..4) {
        let name = name(rng);
        let value = match name.chars().next() {
            Some('s') => pick(&["7", "word", "True", "two words"], rng),
            Some('t') => pick(&EXPRESSIONS, rng),
            _ => pick(&INI_VALUES, rng),
        };
        let _ = writeln!(text, "{name}{}{value}", pick(&["=", " = ", "= "], rng));
    }
    if rng.u8(..4) == 0 {
        let _ = writeln!(text, "ansible_group_priority={}", rng.u8(..4));
    }
}

/// A pattern whose parts mostly exist.
fn pattern(groups: &[Group], rng: &mut Rng) -> String {
    let part = |rng: &mut Rng| -> String {
        let group = &groups[rng.usize(..groups.len())];
        match rng.u8(..14) {
            0 => "all".to_owned(),
            1 => "*".to_owned(),
            2 => "ungrouped".to_owned(),
            3 => format!("{}*", &group.name[..1]),
            4 => pick(&["h?", "n0*", "*.example.org", "10.0.0.*", "r[ab]x", "[!hn]*"], rng)
                .to_owned(),
            5 => pick(&["~h[12]$", "~(n|r).*", "~.*\\d", "~^p1", "~web|db"], rng).to_owned(),
            6 => pick(&["h1", "h2", "n01", "n1", "rax", "10.0.0.1", "nothing"], rng).to_owned(),
            // Which hosts come first in a group below another one is not determined there.
            7 | 8 if group.children.is_empty() && !group.name.contains(['.', '-']) => {
                let subscript =
                    pick(&["[0]", "[-1]", "[1:]", "[0:1]", "[0:0]", "[2]", "[0-1]"], rng);
                format!("{}{subscript}", group.name)
            }
            _ => group.name.to_owned(),
        }
    };
    let mut text = part(rng);
    let separator = pick(&[":", ",", ", "], rng);
    for _ in 0..rng.usize(..3) {
        let prefix = pick(&["", "&", "!"], rng);
        let _ = write!(text, "{separator}{prefix}{}", part(rng));
    }
    text
}
