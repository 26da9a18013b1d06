//! `gantry share`: shows what installations in one cluster share, and which namespaces use it.

use clap::Subcommand;
use gantry_process::clock::Clock;

use super::cluster_client::ClusterFlags;
use super::install::{InstallOptions, print_report};
use super::{CommandOutcome, OutputFormat, render};
use crate::output::Output;
use crate::subsystems::inventory;
use gantry_sharing::effects::cluster_client::ClusterClient;
use gantry_sharing::effects::report::Report;
use gantry_sharing::effects::status::read_status;
use gantry_sharing::effects::sweep::sweep;

/// Show what installations in one cluster share.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry share status
  gantry share status --group fma.llm-d.ai -o json
  gantry share sweep --dry-run")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(Box<Status>),
    Sweep(Sweep),
}

/// Show the shared objects: versions, writers, namespaces that use them, and what an install would
/// change.
///
/// It shows what the caller may read and names the ClusterRole to request for the rest. The flags
/// of `gantry install` change what an install would do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry share status
  gantry share status --mode if-differs --config-dir ../change/config
  gantry share status --group fma.llm-d.ai -o json

Exit codes:
  0  done
  1  the command line is wrong, or the server did not answer")]
struct Status {
    #[command(flatten)]
    contents: InstallOptions,

    /// The caller's namespace; by default that of the context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Print all facts in this format.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,

    #[command(flatten)]
    reach: ClusterFlags,
}

/// Delete expired namespaces of test runs.
///
/// A test run labels its namespace `fma-e2e.llm-d.ai/sweep: "true"` and writes its last day, as
/// `YYYY-MM-DD` in UTC, into the annotation `fma-e2e.llm-d.ai/expires-at`. Namespaces without the
/// label are never touched. Run it once a day. In a namespace that is deleted, the finalizers of
/// controllers that are deleted with it are removed from pods.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry share sweep --dry-run
  gantry share sweep -o json

Exit codes:
  0  done
  1  the command line is wrong, or the server refused or did not answer
  2  a permission is missing
  3  a namespace has the label and no valid day; it is kept, and the others are swept")]
struct Sweep {
    /// Change nothing: send dry-run requests and print what would be done.
    #[arg(long)]
    dry_run: bool,

    /// Print the result for each namespace in this format.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,

    #[command(flatten)]
    reach: ClusterFlags,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    match &arguments.command {
        Command::Status(arguments) => status(arguments, output),
        Command::Sweep(arguments) => sweep_up(arguments, output),
    }
}

fn sweep_up(arguments: &Sweep, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let Sweep { dry_run, output: form, reach } = arguments;
    let clock = Clock::system();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let objects = runtime.block_on(async {
        let client = reach.connect().await?.client;
        let today = clock.now().to_zoned(jiff::tz::TimeZone::UTC).date();
        anyhow::Ok(sweep(&ClusterClient::new(client, clock, *dry_run), today).await?)
    })?;
    print_report(&Report { dry_run: *dry_run, objects, stays: Vec::new() }, *form, output)
}

fn status(arguments: &Status, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let Status { contents, namespace, output: form, reach } = arguments;
    let source = contents.source()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(async {
        let reached = reach.connect().await?;
        let (client, at) = (reached.client, reached.location.to_string());
        let server = ClusterClient::new(client, Clock::system(), true);
        let own = namespace.clone().unwrap_or_else(|| server.own_namespace().to_owned());
        let (mode, foreign) = (contents.mode(), contents.foreign());
        let looked = read_status(&server, at, &source, mode, foreign, &own, inventory());
        anyhow::Ok(looked.await?)
    })?;
    match form {
        None => output.result_text(&status.render())?,
        Some(form) => output.result_text(&render(&status, *form)?)?,
    }
    Ok(CommandOutcome::Success)
}
