//! `gantry devices`: commands about devices that need no controller.

pub(super) mod generate;
mod inject;
mod sample_driver;
pub(super) mod snapshot;
mod top;

use clap::Subcommand;

use super::{CommandOutcome, crds, schedule};
use crate::output::Output;

/// Work with devices: show what pods would be allocated, generate examples, rewrite old manifests.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry devices schedule -f cluster/ -f pod.yaml
  gantry devices top
  gantry devices gen foozer-1000-small | kubectl apply -f -
  gantry devices inject -f old/ | kubectl apply -f -
  gantry devices crds | kubectl apply --server-side -f -
  gantry devices sample-driver --pools pools.yaml")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Schedule(Box<schedule::Arguments>),
    Top(Box<top::Arguments>),
    Gen(generate::Arguments),
    Inject(inject::Arguments),
    Crds(Crds),
    SampleDriver(Box<sample_driver::Arguments>),
}

/// Print the CustomResourceDefinitions of the device kinds.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry devices crds | kubectl apply --server-side -f -
  gantry devices crds -o json")]
struct Crds {
    /// The output format.
    #[arg(short, long, value_name = "FORM", default_value = "yaml")]
    output: super::OutputFormat,
}

/// The API group of devices.
const GROUP: &str = "devmgmtproto.k8s.io";

pub(super) fn run(arguments: Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    match arguments.command {
        Command::Schedule(arguments) => schedule::run(&arguments, output),
        Command::Top(arguments) => top::run(&arguments, output),
        Command::Gen(arguments) => generate::run(&arguments, output),
        Command::Inject(arguments) => inject::run(&arguments, output),
        Command::Crds(Crds { output: form }) => crds::print(&[GROUP.to_owned()], form, output),
        Command::SampleDriver(arguments) => sample_driver::run(*arguments, output),
    }
}
