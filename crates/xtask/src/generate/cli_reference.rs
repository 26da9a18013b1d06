//! Generates `docs/cli.md`: the `--help` of every command, on one page.

use std::fmt::Write as _;

use super::Generated;
use crate::tree::Tree;

/// Width the help is wrapped at: two columns less than a page of 100 with its code margin.
const WIDTH: usize = 98;

/// Makes the page from the command tree of the binary.
pub(super) fn make(_: &Tree) -> anyhow::Result<Vec<Generated>> {
    let mut page = String::from(
        "# Command line\n\nThis page is what `gantry --help` and `gantry COMMAND --help` print.\n",
    );
    let mut root = gantry::cli::command().term_width(WIDTH);
    root.build();
    section(&mut root, &mut page)?;
    Ok(vec![Generated { path: "docs/cli.md".to_owned(), content: page }])
}

fn section(command: &mut clap::Command, page: &mut String) -> anyhow::Result<()> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    let help = command.render_long_help().to_string();
    let help: String = help.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n");
    write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end())?;
    for child in command.get_subcommands_mut().filter(|child| child.get_name() != "help") {
        section(child, page)?;
    }
    Ok(())
}
