//! `gantry cluster`: works with the hosts of an inventory, and the clusters that they form.

mod cp;
mod create;
mod exec;
mod explain;
mod hosts;
mod init;
mod inventory;
mod inventory_files;
mod outcome;
mod password;

use std::ffi::OsString;

use clap::Subcommand;

use super::{CommandOutcome, LogControl};
use crate::output::Output;

/// Work with an inventory of hosts, and the clusters that they form.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry cluster init gpu-0 gpu-1 > hosts.yaml
  gantry cluster create -i hosts.yaml --list-tasks
  gantry cluster explain config
  gantry cluster inventory -i hosts.yaml --graph
  gantry cluster inventory -i hosts.yaml --host gpu-0 --origin
  gantry cluster exec -i hosts.yaml all -- uptime
  gantry cluster cp -i hosts.yaml --become motd all:/etc/motd

Here -v, -vv, -vvv and -vvvv have no value; each v prints more.

Exit codes:
  0  done
  1  the inventory is wrong, no host matched, or steps are held; the errors say what to do
  2  a host failed
  4  a host was not reached
  5  the command line is wrong")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Create(Box<create::Arguments>),
    Init(init::Arguments),
    Explain(explain::Arguments),
    Cp(Box<cp::Arguments>),
    Exec(Box<exec::Arguments>),
    Inventory(Box<inventory::Arguments>),
}

/// The exit code of these commands for a wrong command line: 2 means that a host failed.
pub(super) const USAGE_CODE: u8 = 5;

pub(super) fn run(
    arguments: &Arguments,
    log: &LogControl,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let verbosity = log.verbosity.unwrap_or_default();
    match &arguments.command {
        Command::Create(arguments) => create::run(arguments, output),
        Command::Init(arguments) => init::run(arguments, output),
        Command::Explain(arguments) => explain::run(arguments, output),
        Command::Cp(arguments) => cp::run(arguments, output),
        Command::Exec(arguments) => exec::run(arguments, verbosity, output),
        Command::Inventory(arguments) => inventory::run(arguments, verbosity, output),
    }
}

/// Returns the command line with `-v`…`-vvvv` after `cluster` as the level that they count to: the
/// same letter takes a level everywhere else.
pub(super) fn translate_verbosity(arguments: Vec<OsString>) -> Vec<OsString> {
    let words = arguments.iter().map(|word| word.to_str().unwrap_or_default());
    let Some(at) = words.clone().position(|word| word == "cluster") else { return arguments };
    // Before the command there are global options only.
    let known = super::command();
    let is_command = |word: &&str| known.find_subcommand(word).is_some();
    if words.skip(1).find(is_command) != Some("cluster") {
        return arguments;
    }
    let is_level = |word: &OsString| {
        let letters = word.to_str().and_then(|word| word.strip_prefix('-'));
        letters.is_some_and(|it| !it.is_empty() && it.chars().all(|c| c == 'v'))
    };
    let mut level = 0;
    let mut rest = Vec::with_capacity(arguments.len());
    let mut has_ended = false;
    for (place, word) in arguments.into_iter().enumerate() {
        has_ended |= word == "--";
        if place > at && !has_ended && is_level(&word) {
            level += word.len() - 1;
        } else {
            rest.push(word);
        }
    }
    if level > 0 {
        rest.insert(at + 1, OsString::from(format!("--v={}", level.min(MAX_LEVEL))));
    }
    rest
}

/// The highest level of the log.
const MAX_LEVEL: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn prv_4_each_v_counts_and_has_no_value() {
        let table = [
            (
                "gantry cluster create -i hosts.yaml --tags config -v",
                "gantry cluster --v=1 create -i hosts.yaml --tags config",
            ),
            (
                "gantry cluster inventory -i hosts.yaml -v",
                "gantry cluster --v=1 inventory -i hosts.yaml",
            ),
            ("gantry cluster inventory -v -K", "gantry cluster --v=1 inventory -K"),
            ("gantry cluster inventory -vv -vvv", "gantry cluster --v=5 inventory"),
            ("gantry -v 4 cluster inventory --list", "gantry -v 4 cluster inventory --list"),
            ("gantry cluster inventory -i x -- -v", "gantry cluster inventory -i x -- -v"),
            ("gantry check -v 3 cluster", "gantry check -v 3 cluster"),
            ("gantry up -v 2", "gantry up -v 2"),
        ];
        for (given, expected) in table {
            assert_eq!(translate_verbosity(line(given)), line(expected), "{given}");
        }
    }
}
