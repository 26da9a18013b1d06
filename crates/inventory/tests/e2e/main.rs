//! Inventories as ansible-core reads them; `make e2e` gets it, and without it these tests say so.
//!
//! Generated inventories are resolved by this crate and by the original: hosts, groups, variables,
//! patterns and expressions. There may be no difference.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod generate;
mod oracle;

use std::io::Write as _;
use std::path::Path;

use gantry_inventory::{ALL, HostId, Inventory, ListForm, Node, has_errors, read, select, split};
use serde_json::{Value, json};

use generate::Generated;
use oracle::{Oracle, Reply};

/// `make inventory-oracle SEED=7 CASES=1000` changes them; they are part of the build.
const SEED: Option<&str> = option_env!("GANTRY_ORACLE_SEED");
const CASES: Option<&str> = option_env!("GANTRY_ORACLE_CASES");

/// How many inventories are generated at the most to find two with hosts.
const MAX_SEEDS: u64 = 20;

/// Prints to the user who runs the tests, past the harness, which captures the output of passing
/// tests.
fn say(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

#[test]
fn pvs_8_generated_inventories_mean_what_the_original_says() {
    let Some(mut oracle) = Oracle::start() else { return };
    let seed: u64 = SEED.and_then(|text| text.parse().ok()).unwrap_or(20_261_119);
    let cases: u64 = CASES.and_then(|text| text.parse().ok()).unwrap_or(200);
    let mut differences = Vec::new();
    let mut counts = Counts::default();
    for case in 0..cases {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let generated = Generated::new(seed.wrapping_add(case), &folder);
        generated.write();
        let reply = oracle.ask(&generated.sources, &generated.patterns);
        let found = compare(&generated, &reply, &mut counts);
        if !found.is_empty() {
            let text = generated.show();
            differences.push(format!("seed {}:\n{}\n{text}", seed + case, found.join("\n")));
        }
    }
    let Counts { hosts, patterns, values, vaults } = counts;
    say(&format!(
        "{cases} inventories from seed {seed}, {} differences: {hosts} hosts, {patterns} patterns, \
         {values} expressions, {vaults} encrypted values",
        differences.len()
    ));
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    // A generator that makes nothing would find nothing.
    assert!(hosts > cases && patterns > cases && values > cases / 2 && vaults > 0);
}

#[derive(Default)]
struct Counts {
    hosts: u64,
    patterns: u64,
    values: u64,
    vaults: u64,
}

fn compare(generated: &Generated, reply: &Reply, counts: &mut Counts) -> Vec<String> {
    let mut found = Vec::new();
    let (inventory, findings) = read(&generated.input());
    if has_errors(&findings) {
        let text: String = findings.iter().map(|it| it.render(&inventory.files)).collect();
        return vec![format!("not read: {text}")];
    }
    let Reply::Answer(theirs) = reply else { return vec![format!("the original: {reply:?}")] };
    let all = inventory.tree.members(ALL);
    counts.hosts += all.len() as u64;
    for (form, key) in [(ListForm::Resolved, "list"), (ListForm::Export, "export")] {
        let ours = inventory.list(&all, form);
        counts.vaults += ours.to_string().matches("__ansible_vault").count() as u64;
        differ(key, &ours, &theirs[key], &mut found);
    }
    for (pattern, theirs) in generated.patterns.iter().zip(theirs["patterns"].as_array().unwrap()) {
        counts.patterns += 1;
        let ours = select(&inventory.tree, &split(pattern));
        let ours = ours.map(|hosts| names(&inventory, &hosts)).map_or(Value::Null, |it| json!(it));
        // The original walks groups below groups in the order of their addresses in memory.
        let sorted = |value: &Value| {
            let mut names: Vec<String> = serde_json::from_value(value.clone()).unwrap_or_default();
            names.sort();
            (value.is_null(), names)
        };
        if sorted(&ours) != sorted(theirs) {
            found.push(format!("pattern {pattern}: {ours}, the original {theirs}"));
        }
    }
    for (id, host) in inventory.tree.hosts() {
        let theirs = theirs["values"][&host.name].as_object().unwrap();
        let variables = inventory.variables(id);
        for name in variables.keys().filter(|name| name.starts_with('t')) {
            counts.values += 1;
            let ours = match inventory.value(id, name) {
                Ok(value) => json!({"value": value.map_or(Value::Null, |it| reveal(&it))}),
                Err(error) => json!({"error": error.message}),
            };
            let theirs = &theirs[*name];
            let both_fail = ours.get("error").is_some() && theirs.get("error").is_some();
            // The original prints such values as Python does; here that is refused by design.
            let is_refused = ours["error"] == "a list, a map or a secret inside of a text";
            if !both_fail
                && !is_refused
                && !same(&sorted_names(ours.clone()), &sorted_names(theirs.clone()))
            {
                found.push(format!("{} {name}: {ours}, the original {theirs}", host.name));
            }
        }
    }
    found
}

fn names(inventory: &Inventory, hosts: &[HostId]) -> Vec<String> {
    hosts.iter().map(|host| inventory.tree.host(*host).name.clone()).collect()
}

/// A value with its secrets, which the original shows where an expression stands for one.
fn reveal(node: &Node) -> Value {
    match &node.value {
        gantry_inventory::Value::Vault(vault) => json!(vault.secret()),
        gantry_inventory::Value::List(items) => items.iter().map(reveal).collect(),
        gantry_inventory::Value::Map(entries) => {
            entries.iter().map(|(key, value)| (key.name.clone(), reveal(value))).collect()
        }
        _ => node.to_json(),
    }
}

/// A list of hosts has no determined order in the original.
fn sorted_names(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().map(|(key, value)| (key, sorted_names(value))).collect()
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(sorted_names).collect();
            if items.iter().all(Value::is_string) {
                items.sort_by_key(ToString::to_string);
            }
            Value::Array(items)
        }
        other => other,
    }
}

/// Lists what differs by its path.
fn differ(path: &str, ours: &Value, theirs: &Value, into: &mut Vec<String>) {
    if same(ours, theirs) {
        return;
    }
    if let (Value::Object(left), Value::Object(right)) = (ours, theirs) {
        let keys: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
        for key in keys {
            let (left, right) = (left.get(key), right.get(key));
            match (left, right) {
                (Some(left), Some(right)) => differ(&format!("{path}.{key}"), left, right, into),
                _ => into.push(format!("{path}.{key}: {left:?}, the original {right:?}")),
            }
        }
        return;
    }
    into.push(format!("{path}: {ours}, the original {theirs}"));
}

/// Compares numbers by what they are, and not by how they are written.
fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(left), Value::Number(right)) => {
            left.is_f64() == right.is_f64() && (left == right || left.as_f64() == right.as_f64())
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(a, b)| same(a, b))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, a)| right.get(key).is_some_and(|b| same(a, b)))
        }
        _ => ours == theirs,
    }
}

/// The programs themselves, as people start them: what the oracle says is what they print.
#[test]
fn pvs_8_the_oracle_says_what_the_programs_print() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut compared = 0;
    for seed in 1..=MAX_SEEDS {
        if compared == 2 {
            break;
        }
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let generated = Generated::new(seed, &folder);
        generated.write();
        let (inventory, _) = read(&generated.input());
        // Some generated inventories have no hosts.
        let Some((id, host)) = inventory.tree.hosts().next() else { continue };
        compared += 1;
        let reply = oracle.ask(&generated.sources, &generated.patterns);
        let Reply::Answer(answer) = reply else { panic!("{reply:?}") };
        let source = &generated.sources;
        let list = oracle.run("ansible-inventory", source, &["--list"], &folder);
        assert_eq!(serde_json::from_str::<Value>(&list).unwrap(), answer["list"]);
        let printed = oracle.run("ansible-inventory", source, &["--host", &host.name], &folder);
        let printed: Value = serde_json::from_str(&printed).unwrap();
        assert!(same(&inventory.host_json(id), &printed), "{printed}");
        let graph = oracle.run("ansible-inventory", source, &["--graph"], &folder);
        assert_eq!(inventory.graph(ALL), graph);
        let hosts = oracle.run("ansible", source, &["all", "--list-hosts"], &folder);
        let mut theirs: Vec<&str> = hosts.lines().skip(1).map(str::trim).collect();
        theirs.sort_unstable();
        let mut ours = names(&inventory, &inventory.tree.members(ALL));
        ours.sort();
        assert_eq!(ours, theirs);
    }
    assert_eq!(compared, 2, "inventories with hosts");
}

fn testbed() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed")
}
