//! `gantry devices inject`: manifests made fit for an API server.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use gantry_api::decode;
use gantry_devices::inject::{Keep, Names, inject};

use crate::cli::files::{Loaded, load};
use crate::cli::{End, Form, render_objects};
use crate::output::Output;

/// Rewrite manifests so that an API server takes them.
///
/// What pods and templates of pods say about devices in fields that Kubernetes does not have is moved
/// to annotations. Old spellings of Gantry's kinds become the present ones, names lose their upper
/// case letters wherever they are mentioned, and values of ConfigMaps are put in quotes. What was done
/// is said on standard error; everything else comes out as it went in.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry devices inject -f classes.yaml -f pod.yaml | kubectl apply -f -
  kubectl get deployment web -o yaml | gantry devices inject -f - --keep gate

Exit code 1 if any document is refused; nothing is printed then.")]
pub(super) struct Arguments {
    /// Files, folders of *.yaml, *.yml and *.json files, or `-` for standard input.
    #[arg(short, long, value_name = "FILE", required = true)]
    filename: Vec<PathBuf>,

    /// Look into folders below the given ones too.
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Drop unknown fields with a warning instead of refusing the document.
    #[arg(long)]
    lenient: bool,

    /// How pods that want devices are kept from being started without them.
    #[arg(long, value_name = "HOW", default_value = "scheduler")]
    keep: KeepFlag,

    /// The form of the output.
    #[arg(short, long, value_name = "FORM", default_value = "yaml")]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeepFlag {
    /// By a scheduler of their own, unless they name one.
    Scheduler,
    /// By a gate.
    Gate,
    /// They are not: a webhook sees to it.
    None,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let Arguments { filename, recursive, lenient, keep, output: form } = arguments;
    let keep = match keep {
        KeepFlag::Scheduler => Keep::Scheduler,
        KeepFlag::Gate => Keep::Gate,
        KeepFlag::None => Keep::Not,
    };
    let options = decode::Options { lenient: *lenient };
    let mut names = Names::default();
    let mut objects = Vec::new();
    for Loaded { file, document } in load(filename, *recursive, options, output)? {
        let place = format!("{file}[{}] {}", document.index, document.subject);
        let injected = inject(&document.content, keep).with_context(|| place.clone())?;
        names.take(&injected).with_context(|| place.clone())?;
        for remark in &injected.remarks {
            output.note(format_args!("{place}: {remark}"));
        }
        objects.push(injected.object);
    }
    output.result_text(&render_objects(&objects, *form)?)?;
    Ok(End::Done)
}
