//! `gantry cluster inventory`: shows what an inventory means, and what is wrong with it.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use gantry_inventory::{
    ALL, Finding, HostId, Inventory, ListForm, Severity, clusters, has_errors, read, select,
};
use serde::Serialize as _;
use serde_json::Value;

use super::super::CommandOutcome;
use super::inventory_files;
use crate::output::Output;

/// The options of which one has to be given.
const ACTIONS: [&str; 4] = ["list", "host", "graph", "list_hosts"];

/// Show the hosts, groups and variables of an inventory, and what is wrong with it.
///
/// It reads what ansible-inventory reads: files in YAML, JSON and INI, folders of them, group_vars
/// and host_vars, and lists of hosts. What is printed by --list and --host has the same form. Every
/// error names file, line and column; with an error in the files only errors are printed.
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("action").required(true).args(ACTIONS)),
    after_help = "Examples:
  gantry cluster inventory -i hosts.yaml --graph
  gantry cluster inventory -i hosts.yaml --list
  gantry cluster inventory -i hosts.yaml --host gpu-0
  gantry cluster inventory -i hosts.yaml --host gpu-0 --origin
                                          which file and line sets a variable, and which lose
  gantry cluster inventory -i hosts/ --limit 'master:!gpu-1' --list-hosts
  gantry cluster inventory -i local, --list

Patterns of --limit:
  all, *, HOST, GROUP, gpu-?, [cg]pu-*    names, and globs
  ~gpu-(0|1)                              a regular expression
  GROUP[0], GROUP[-1], GROUP[1:]          some hosts of a group
  A:B or A,B                              hosts of either
  A:&B, A:!B                              of these the hosts of B, or the others
  @FILE                                   a pattern on each line of a file

Exit codes:
  0  done
  1  the inventory is wrong, or no host matched; the errors say where and what to do
  5  the command line is wrong"
)]
pub(in super::super) struct Arguments {
    /// A file, a folder, or names of hosts with a comma; of several, later ones win.
    #[arg(short, long, value_name = "FILE|FOLDER|HOST,", required = true)]
    inventory: Vec<String>,

    /// Only hosts that match a pattern; for --list and --list-hosts.
    #[arg(short, long, value_name = "PATTERN|@FILE")]
    limit: Option<String>,

    /// Set variables: name=value, a map in YAML or JSON, or @FILE. They win over all others.
    #[arg(short, long, value_name = "VARIABLES")]
    extra_vars: Vec<String>,

    /// A file with the password of encrypted values.
    #[arg(long, value_name = "FILE")]
    vault_password_file: Vec<PathBuf>,

    #[command(flatten)]
    actions: Actions,

    /// With --list: the variables of groups and hosts where they are set, not what they come to.
    // An argument that conflicts with one that is given is not required, so conflicts are named.
    #[arg(long, requires = "list", conflicts_with_all = ["host", "graph", "list_hosts"])]
    export: bool,

    /// With --host: where each variable is set, and which places lose.
    #[arg(long, requires = "host", conflicts_with_all = ["list", "graph", "list_hosts"])]
    origin: bool,

    /// With --graph: the group at the top.
    #[arg(
        value_name = "GROUP",
        requires = "graph",
        conflicts_with_all = ["list", "host", "list_hosts"]
    )]
    group: Option<String>,
}

/// What is printed.
#[derive(Debug, clap::Args)]
struct Actions {
    /// Print all groups, and the variables of all hosts, as JSON.
    #[arg(long)]
    list: bool,

    /// Print the variables of a host as JSON.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,

    /// Print groups and their hosts as a graph.
    #[arg(long)]
    graph: bool,

    /// Print the names of hosts.
    #[arg(long)]
    list_hosts: bool,
}

pub(super) fn run(
    arguments: &Arguments,
    verbosity: u8,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let input = inventory_files::input(
        &arguments.inventory,
        &arguments.extra_vars,
        &arguments.vault_password_file,
        output,
    )?;
    let (inventory, mut findings) = read(&input);
    if has_errors(&findings) {
        print_findings(&inventory, &findings, output);
        return Ok(CommandOutcome::Failure);
    }
    findings.extend(clusters(&inventory).1);
    print(arguments, &inventory, output)?;
    print_findings(&inventory, &findings, output);
    let ignored = inventory.ignored_variables();
    if verbosity > 0 && !ignored.is_empty() {
        let names: Vec<&str> = ignored.into_iter().collect();
        output.note(format_args!("variables without effect here: {}", names.join(", ")));
    }
    Ok(if has_errors(&findings) { CommandOutcome::Failure } else { CommandOutcome::Success })
}

fn print(arguments: &Arguments, inventory: &Inventory, output: &mut Output) -> anyhow::Result<()> {
    let Actions { list: _, host, graph, list_hosts } = &arguments.actions;
    if let Some(name) = host {
        let id = inventory.tree.host_named(name).with_context(|| {
            let names = inventory.tree.hosts().map(|(_, host)| host.name.as_str());
            let hint = gantry_inventory::suggest(name, names);
            let hint = hint.map(|it| format!("; did you mean {it}?")).unwrap_or_default();
            format!("no host is named {name}{hint}")
        })?;
        return if arguments.origin {
            Ok(output.result_text(&inventory.origins(id))?)
        } else {
            print_json(&inventory.host_json(id), output)
        };
    }
    if *graph {
        let name = arguments.group.as_deref().unwrap_or("all");
        let group = inventory.tree.group_named(name);
        let group = group.with_context(|| format!("no group is named {name}"))?;
        return Ok(output.result_text(&inventory.graph(group))?);
    }
    let hosts = limited(arguments.limit.as_deref(), inventory)?;
    if *list_hosts {
        output.result(format_args!("  hosts ({}):", hosts.len()))?;
        for host in hosts {
            output.result(format_args!("    {}", inventory.tree.host(host).name))?;
        }
        return Ok(());
    }
    let form = if arguments.export { ListForm::Export } else { ListForm::Resolved };
    print_json(&inventory.list(&hosts, form), output)
}

/// The hosts that match the limit, in the order of the inventory.
pub(super) fn limited(limit: Option<&str>, inventory: &Inventory) -> anyhow::Result<Vec<HostId>> {
    let all = inventory.tree.members(ALL);
    let Some(limit) = limit else { return Ok(all) };
    let patterns = inventory_files::limit(limit)?;
    if patterns.is_empty() {
        bail!("--limit {limit} has no pattern");
    }
    let selected = select(&inventory.tree, &patterns).map_err(|error| anyhow::anyhow!("{error}"));
    let selected: HashSet<HostId> = selected?.into_iter().collect();
    Ok(all.into_iter().filter(|host| selected.contains(host)).collect())
}

/// Prints JSON with the indentation of the original.
fn print_json(value: &Value, output: &mut Output) -> anyhow::Result<()> {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter))?;
    Ok(output.result(String::from_utf8(text)?)?)
}

pub(super) fn print_findings(inventory: &Inventory, findings: &[Finding], output: &mut Output) {
    for finding in findings {
        output.note(finding.render(&inventory.files).trim_end());
    }
    let count = |severity: Severity| findings.iter().filter(|it| it.severity == severity).count();
    let plural =
        |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    if has_errors(findings) {
        let errors = plural(count(Severity::Error), "error");
        let warnings = plural(count(Severity::Warning), "warning");
        output.note(format_args!("the inventory has {errors} and {warnings}"));
    }
}
