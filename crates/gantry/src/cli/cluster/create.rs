//! `gantry cluster create`: which steps would make a cluster on the hosts of an inventory.

use std::path::PathBuf;

use gantry_inventory::{Backend, TagSelection, clusters, has_errors, read};
use gantry_provision::{Behavior, Selection, Step, catalogue, list_tags, list_tasks, user_steps};

use super::super::CommandOutcome;
use super::inventory::{limited, print_findings};
use super::inventory_files;
use crate::output::Output;

/// List the steps that make a cluster on the hosts of an inventory.
///
/// The flags are those of ansible-playbook. This version reaches no hosts: it reads the inventory,
/// selects steps and hosts, and lists them. Without --list-tasks, --list-tags or --list-hosts it
/// also says what is held, changes nothing, and ends with 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry cluster create -i hosts.yaml --list-tasks
  gantry cluster create -i hosts.yaml --tags config --list-tasks
                                          what the tag `config` selects
  gantry cluster create -i hosts.yaml --limit gpu-0 --list-hosts
  gantry cluster create --connection local --inventory local, --tags config -v -K

Exit codes:
  0  done
  1  the inventory is wrong, no host matched, or steps are held; nothing was changed
  5  the command line is wrong")]
pub(in super::super) struct Arguments {
    /// `cluster_create.yaml`, or `post_create.yaml` for the steps that need a cluster.
    #[arg(value_name = "PLAYBOOK", value_parser = ["cluster_create.yaml", "post_create.yaml"])]
    playbook: Option<String>,

    /// A file, a folder, or names of hosts with a comma; of several, later ones win.
    #[arg(short, long, value_name = "FILE|FOLDER|HOST,", required = true)]
    inventory: Vec<String>,

    /// Only hosts that match a pattern.
    #[arg(short, long, value_name = "PATTERN|@FILE")]
    limit: Option<String>,

    /// Only steps with one of these tags.
    #[arg(short, long, value_name = "TAGS", value_delimiter = ',')]
    tags: Vec<String>,

    /// No steps with one of these tags.
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    skip_tags: Vec<String>,

    /// The first step.
    #[arg(long, value_name = "STEP")]
    start_at: Option<String>,

    /// Set variables: name=value, a map in YAML or JSON, or @FILE. They win over all others.
    #[arg(short, long, value_name = "VARIABLES")]
    extra_vars: Vec<String>,

    /// A file with the password of encrypted values.
    #[arg(long, value_name = "FILE")]
    vault_password_file: Vec<PathBuf>,

    #[command(flatten)]
    lists: Lists,

    #[command(flatten)]
    connection: Connection,
}

/// What is listed.
#[derive(Debug, clap::Args)]
struct Lists {
    /// List the steps with their tags, and what each owns.
    #[arg(long)]
    list_tasks: bool,

    /// List the tags of all steps.
    #[arg(long)]
    list_tags: bool,

    /// List the hosts.
    #[arg(long)]
    list_hosts: bool,
}

/// How hosts would be reached. This version reaches none.
#[derive(Debug, clap::Args)]
struct Connection {
    /// How hosts are reached.
    #[arg(long, value_name = "HOW", value_parser = ["ssh", "local", "smart"])]
    connection: Option<String>,

    /// The user to connect as.
    #[arg(short, long)]
    user: Option<String>,

    /// The key to connect with.
    #[arg(long, value_name = "FILE")]
    private_key: Option<PathBuf>,

    /// Ask for the password of sudo.
    #[arg(short = 'K', long)]
    ask_become_pass: bool,

    /// Change nothing.
    #[arg(short = 'C', long)]
    check: bool,

    /// Show what changes in files.
    #[arg(short = 'D', long)]
    diff: bool,
}

/// The catalogue with the steps of the user; nothing if one of those is wrong, which is printed.
pub(super) fn step_list(
    inventories: &[String],
    output: &mut Output,
) -> anyhow::Result<Option<Vec<Step>>> {
    let mut steps = catalogue();
    let mut is_wrong = false;
    for file in inventory_files::step_files(inventories)? {
        match user_steps(&file.path, &file.text) {
            Ok(more) => steps.extend(more),
            Err(errors) => {
                is_wrong = true;
                errors.iter().for_each(|error| output.note(error));
            }
        }
    }
    steps.sort_by_key(|step| step.stage);
    Ok((!is_wrong).then_some(steps))
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let input = inventory_files::input(
        &arguments.inventory,
        &arguments.extra_vars,
        &arguments.vault_password_file,
        output,
    )?;
    let (inventory, mut findings) = read(&input);
    let (clusters, more) = clusters(&inventory);
    findings.extend(more);
    print_findings(&inventory, &findings, output);
    let Some(steps) = step_list(&arguments.inventory, output)? else {
        return Ok(CommandOutcome::Failure);
    };
    if has_errors(&findings) {
        return Ok(CommandOutcome::Failure);
    }
    let playbook = arguments.playbook.as_deref().unwrap_or("cluster_create.yaml");
    let tags = TagSelection { only: arguments.tags.clone(), skip: arguments.skip_tags.clone() };
    let selection = Selection {
        tags,
        start_at: arguments.start_at.clone(),
        is_post_only: playbook == "post_create.yaml",
    };
    if let Some(problem) = selection.problem(&steps) {
        anyhow::bail!("{problem}");
    }
    let selected = selection.steps(&steps);
    let hosts = limited(arguments.limit.as_deref(), &inventory)?;
    let Lists { list_tasks: tasks, list_tags: tags, list_hosts } = &arguments.lists;
    let lists = *tasks || *tags || *list_hosts;
    if *tags {
        output.result_text(&list_tags(playbook, &steps))?;
    }
    if *list_hosts {
        output.result(format_args!("  hosts ({}):", hosts.len()))?;
        for host in &hosts {
            output.result(format_args!("    {}", inventory.tree.host(*host).name))?;
        }
    }
    if *tasks || !lists {
        output.result_text(&list_tasks(playbook, &selected))?;
    }
    if lists {
        return Ok(CommandOutcome::Success);
    }
    for cluster in &clusters {
        let count = cluster.hosts.iter().filter(|host| hosts.contains(host)).count();
        let backend = backend_name(cluster.backend);
        output.note(format_args!("cluster {}: backend {backend}, {count} hosts", cluster.name));
    }
    let is_held = |step: &&&Step| matches!(step.behavior, Behavior::NotBuilt);
    let held: Vec<&str> = selected.iter().filter(is_held).map(|step| step.id.as_ref()).collect();
    output.error(format_args!(
        "nothing was changed: this version reaches no hosts. Steps that it has not: {}. List \
         steps with --list-tasks",
        held.join(", ")
    ));
    Ok(CommandOutcome::Failure)
}

fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Kind => "kind",
        Backend::Kubeadm => "kubeadm",
        Backend::K3s => "k3s",
        Backend::Bare => "bare",
        Backend::Existing => "existing",
        Backend::Embedded => "embedded",
    }
}
