//! `gantry devices inject`: rewrites manifests so that an API server accepts them.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use gantry_api::decode;
use gantry_devices::inject::{LowercaseNames, SchedulingHold, inject};

use crate::cli::files::{LoadedDocument, load};
use crate::cli::{CommandOutcome, OutputFormat, render_objects};
use crate::output::Output;

/// Rewrite manifests so that an API server accepts them.
///
/// Device claims of pods and pod templates in fields that Kubernetes does not have are moved to
/// annotations. Old spellings of Gantry's kinds become the current ones, upper case letters in
/// names are lowered wherever the names occur, and values of ConfigMaps are quoted. Changes are
/// reported on standard error; everything else is printed unchanged.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry devices inject -f classes.yaml -f pod.yaml | kubectl apply -f -
  kubectl get deployment web -o yaml | gantry devices inject -f - --keep gate

Exit code 1 if any document is rejected; nothing is printed then.")]
pub(super) struct Arguments {
    /// Files, folders of *.yaml, *.yml and *.json files, or `-` for standard input.
    #[arg(short, long, value_name = "FILE", required = true)]
    filename: Vec<PathBuf>,

    /// Also read folders below the given ones.
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Drop unknown fields with a warning instead of rejecting the document.
    #[arg(long)]
    lenient: bool,

    /// How pods that claim devices are kept from starting without them.
    #[arg(long, value_name = "HOW", default_value = "scheduler")]
    keep: HoldMode,

    /// The output format.
    #[arg(short, long, value_name = "FORM", default_value = "yaml")]
    output: OutputFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HoldMode {
    /// Set the scheduler name, unless the pod names one.
    Scheduler,
    /// Add a scheduling gate.
    Gate,
    /// Add nothing: a webhook does it.
    None,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let Arguments { filename, recursive, lenient, keep, output: form } = arguments;
    let keep = match keep {
        HoldMode::Scheduler => SchedulingHold::Scheduler,
        HoldMode::Gate => SchedulingHold::Gate,
        HoldMode::None => SchedulingHold::Unchanged,
    };
    let options = decode::Options { lenient: *lenient };
    let mut names = LowercaseNames::default();
    let mut objects = Vec::new();
    for LoadedDocument { file, document } in load(filename, *recursive, options, output)? {
        let place = format!("{file}[{}] {}", document.index, document.subject);
        let injected = inject(&document.content, keep).with_context(|| place.clone())?;
        names.reserve(&injected).with_context(|| place.clone())?;
        for remark in &injected.remarks {
            output.note(format_args!("{place}: {remark}"));
        }
        objects.push(injected.object);
    }
    output.result_text(&render_objects(&objects, *form)?)?;
    Ok(CommandOutcome::Success)
}
