//! `gantry devices top`: how many devices are used and free.

use std::path::PathBuf;

use gantry_api::decode;
use gantry_api::finding::Source;
use gantry_devices::schedule::Objects;
use gantry_devices::top::{table, top};

use super::snapshot;
use crate::cli::files::load;
use crate::cli::reach::Reach;
use crate::cli::{End, Form, render};
use crate::output::Output;

/// Show how many devices there are, are used and are free, by node and class.
///
/// A device may be of several classes, and is counted in each. Free are those that a claim could have
/// for itself now; what is neither used nor free is tainted, or lacks something of its pool.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry devices top
  gantry devices top --kubeconfig prod.kubeconfig -o json
  gantry devices top -f cluster/")]
pub(super) struct Arguments {
    /// Files instead of a cluster: folders of *.yaml, *.yml and *.json files, or `-`.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    /// Print all facts in this form.
    #[arg(short, long, value_name = "FORM")]
    output: Option<Form>,

    #[command(flatten)]
    reach: Reach,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
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
        None if rows.is_empty() => output.note("there are no devices"),
        None => output.result_text(&table(&rows))?,
        Some(form) => output.result_text(&render(&rows, *form)?)?,
    }
    Ok(End::Done)
}
