//! `gantry devices gen`: generates sample inventories.

use gantry_devices::generate::{Example, Extent, example};

use crate::cli::{CommandOutcome, OutputFormat, amounts, render, render_objects};
use crate::output::Output;

/// Print a sample inventory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Shapes:
  0 1 2 3                              nodes in the original file format; any number of nodes,
                                       by default one: cores and memory, and cards in 1, 2 and 3
  zero one two three foozer-barzer     pools that only count their devices, one for each half of a
                                       node; by default two nodes
  foozer-1000-SIZE foozer-4000-SIZE    pools of devices with names; SIZE is tiny, small, medium or
                                       large: 2, 4, 8 or 16 of them; by default two nodes

Examples:
  gantry devices gen foozer-1000-small | kubectl apply -f -
  gantry devices gen 1 --nodes 3 > nodes.yaml
  gantry devices gen zero | gantry schedule -f - -f claim.yaml")]
pub(super) struct Arguments {
    /// The shape of the inventory.
    shape: String,

    #[command(flatten)]
    amount: ShapeSize,

    /// The output format.
    #[arg(short, long, value_name = "FORM", default_value = "yaml")]
    output: OutputFormat,
}

/// The size of a generated inventory.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(in crate::cli) struct ShapeSize {
    /// The number of nodes.
    #[arg(long, value_name = "COUNT", value_parser = amounts::count, allow_hyphen_values = true)]
    nodes: Option<u32>,

    /// The number of networks of the cards of shapes 2 and 3; by default one.
    #[arg(long, value_name = "COUNT", value_parser = amounts::count, allow_hyphen_values = true)]
    nets: Option<u32>,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    print(&arguments.shape, arguments.amount, arguments.output, output)
}

/// Prints a shape.
pub(in crate::cli) fn print(
    shape: &str,
    amount: ShapeSize,
    form: OutputFormat,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let ShapeSize { nodes, nets } = amount;
    let made = example(shape, Extent { nodes, nets })?;
    let text = match &made {
        Example::Nodes(nodes) => render(nodes, form)?,
        Example::Pools(_) => render_objects(&made.documents()?, form)?,
    };
    output.result_text(&text)?;
    Ok(CommandOutcome::Success)
}
