//! `gantry crds`: the CustomResourceDefinitions of every kind.

use gantry_api::object;

use super::{CommandOutcome, OutputFormat, render_objects};
use crate::output::Output;

/// Print the CustomResourceDefinitions of Gantry's kinds.
///
/// Some are larger than the annotation that client-side `kubectl apply` needs: install them with
/// `--server-side`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry crds | kubectl apply --server-side -f -
  gantry crds --group fma.llm-d.ai
  gantry crds --group quota.codeflare.dev --group workload.codeflare.dev -o json")]
pub(super) struct Arguments {
    /// Only this API group; may be repeated.
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,

    /// The output format.
    #[arg(short, long, value_name = "FORM", default_value = "yaml")]
    output: OutputFormat,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    print(&arguments.group, arguments.output, output)
}

/// Prints the definitions of these groups; of all groups if none is named.
pub(super) fn print(
    wanted: &[String],
    form: OutputFormat,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let groups = object::groups();
    for wanted in wanted {
        if !groups.contains(&wanted.as_str()) {
            anyhow::bail!("--group {wanted}: no such API group; choose from {}", groups.join(", "));
        }
    }
    let chosen = |group: &str| wanted.is_empty() || wanted.iter().any(|g| g == group);
    let crds: Vec<_> = object::KINDS
        .iter()
        .filter(|kind| chosen(kind.group))
        .map(gantry_api::kind::Kind::crd)
        .collect();
    output.result_text(&render_objects(&crds, form)?)?;
    Ok(CommandOutcome::Success)
}
