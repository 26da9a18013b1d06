//! `gantry devices gen`: inventories to try things on.

use gantry_devices::generate::{Example, Extent, example};

use crate::cli::{End, Form, amounts, render, render_objects};
use crate::output::Output;

/// Print an inventory to try things on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Shapes:
  0 1 2 3                              nodes in the form of the oldest files; as many as you like,
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
    /// The shape.
    shape: String,

    #[command(flatten)]
    amount: Amount,

    /// The form of the output.
    #[arg(short, long, value_name = "FORM", default_value = "yaml")]
    output: Form,
}

/// How much of it.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(in crate::cli) struct Amount {
    /// How many nodes.
    #[arg(long, value_name = "COUNT", value_parser = amounts::count, allow_hyphen_values = true)]
    nodes: Option<u32>,

    /// How many networks the cards of shapes 2 and 3 are on; by default one.
    #[arg(long, value_name = "COUNT", value_parser = amounts::count, allow_hyphen_values = true)]
    nets: Option<u32>,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    print(&arguments.shape, arguments.amount, arguments.output, output)
}

/// Prints a shape.
pub(in crate::cli) fn print(
    shape: &str,
    amount: Amount,
    form: Form,
    output: &mut Output,
) -> anyhow::Result<End> {
    let Amount { nodes, nets } = amount;
    let made = example(shape, Extent { nodes, nets })?;
    let text = match &made {
        Example::Nodes(nodes) => render(nodes, form)?,
        Example::Pools(_) => render_objects(&made.documents()?, form)?,
    };
    output.result_text(&text)?;
    Ok(End::Done)
}
