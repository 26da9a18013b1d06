//! `gantry cluster explain`: what a step, a tag or a variable is.

use super::super::CommandOutcome;
use super::create::step_list;
use crate::output::Output;

/// Explain a step, a tag or a variable: why it exists, and what it writes.
///
/// The text comes from the data that the steps are run from.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry cluster explain kernel.sysctl
  gantry cluster explain config
  gantry cluster explain gantry_swap
  gantry cluster explain user.tuned -i hosts.yaml
                                          a step of gantry_steps beside the inventory

Exit codes:
  0  done
  1  nothing has this name; the error suggests one
  5  the command line is wrong")]
pub(in super::super) struct Arguments {
    /// The id of a step, a tag, or the name of a variable.
    #[arg(value_name = "STEP|TAG|VARIABLE")]
    name: String,

    /// An inventory, for steps of the user beside it.
    #[arg(short, long, value_name = "FILE|FOLDER|HOST,")]
    inventory: Vec<String>,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let Some(steps) = step_list(&arguments.inventory, output)? else {
        return Ok(CommandOutcome::Failure);
    };
    let text = gantry_provision::explain(&arguments.name, &steps);
    output.result_text(&text.map_err(|error| anyhow::anyhow!("{error}"))?)?;
    Ok(CommandOutcome::Success)
}
