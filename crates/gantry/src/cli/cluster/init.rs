//! `gantry cluster init`: an inventory to begin with.

use anyhow::bail;
use gantry_inventory::{Input, Source, TextFile, clusters, has_errors, read};

use super::super::CommandOutcome;
use crate::output::Output;

/// Print an inventory for hosts, to be edited: the first host is the master.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry cluster init gpu-0 > hosts.yaml
                                          one host: a cluster of kind
  gantry cluster init gpu-0 gpu-1 gpu-2 --user ops > hosts.yaml

Exit codes:
  0  done
  1  a name cannot be that of a host
  5  the command line is wrong")]
pub(in super::super) struct Arguments {
    /// Names or addresses of hosts; the first is the master.
    #[arg(value_name = "HOST", required = true)]
    hosts: Vec<String>,

    /// The user to connect as.
    #[arg(short, long, default_value = "root")]
    user: String,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let text = inventory(&arguments.hosts, &arguments.user)?;
    let file = TextFile {
        path: "hosts.yaml".to_owned(),
        inside: "hosts.yaml".to_owned(),
        text: text.clone(),
        is_private: false,
    };
    let sources = vec![Source::File { file, variables: Vec::new() }];
    let (inventory, mut findings) = read(&Input { sources, ..Input::default() });
    findings.extend(clusters(&inventory).1);
    if has_errors(&findings) {
        super::inventory::print_findings(&inventory, &findings, output);
        return Ok(CommandOutcome::Failure);
    }
    output.result_text(&text)?;
    Ok(CommandOutcome::Success)
}

fn inventory(hosts: &[String], user: &str) -> anyhow::Result<String> {
    let is_plain = |name: &&String| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
        !name.starts_with('-') && !name.is_empty() && name.chars().all(is_part)
    };
    let user = user.to_owned();
    if let Some(wrong) = hosts.iter().chain([&user]).find(|it| !is_plain(it)) {
        bail!("`{wrong}` is not a name; write letters, digits, `-`, `.` and `_`");
    }
    let (master, minions) = hosts.split_first().map_or((&user, hosts), |it| it);
    let backend = if minions.is_empty() { "kind" } else { "kubeadm" };
    let minions: String = match minions {
        [] => " {}\n".to_owned(),
        all => all.iter().fold("\n".to_owned(), |text, name| text + "        " + name + ": {}\n"),
    };
    Ok(format!(
        "# Hosts of a cluster. Check it:    gantry cluster inventory -i hosts.yaml --graph
# What every variable means:         gantry cluster explain gantry_backend
all:
  vars:
    ansible_user: {user}
    # ansible_ssh_private_key_file: ~/.ssh/cluster
    gantry_cluster_name: gantry
    gantry_backend: {backend}
    # gantry_data_dir: /data
    # gantry_swap: report
  children:
    master:
      hosts:
        {master}: {{}}
    minion:
      hosts:{minions}"
    ))
}
