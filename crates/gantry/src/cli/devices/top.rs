//! `gantry devices top`: shows how many devices are used and free.

use std::path::PathBuf;

use gantry_api::decode;
use gantry_api::finding::Source;
use gantry_devices::schedule::Objects;
use gantry_devices::top::{table, top};

use super::snapshot;
use crate::cli::cluster_client::ClusterFlags;
use crate::cli::files::load;
use crate::cli::{CommandOutcome, OutputFormat, render};
use crate::output::Output;

/// Show how many devices there are, are used and are free, by node and class.
///
/// A device may be in several classes, and is counted in each. A device is free if a claim could be
/// allocated it exclusively now; devices that are neither used nor free are tainted, or their pool
/// lacks something they need.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry devices top
  gantry devices top --kubeconfig prod.kubeconfig -o json
  gantry devices top -f cluster/")]
pub(super) struct Arguments {
    /// Read files instead of a cluster: files, folders of *.yaml, *.yml and *.json files, or `-`.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    /// Print all facts in this format.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,

    #[command(flatten)]
    reach: ClusterFlags,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let Arguments { filename, output: form, reach } = arguments;
    let objects = match filename.is_empty() {
        true => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(snapshot::read(reach, "default", None, true, output))?
        }
        false => {
            let mut objects = Objects::of(Source::File);
            for loaded in load(filename, false, decode::Options::default(), output)? {
                objects.add(loaded.document.content);
            }
            objects
        }
    };
    let rows = top(&objects)?;
    match form {
        None if rows.is_empty() => output.note("no devices found"),
        None => output.result_text(&table(&rows))?,
        Some(form) => output.result_text(&render(&rows, *form)?)?,
    }
    Ok(CommandOutcome::Success)
}
