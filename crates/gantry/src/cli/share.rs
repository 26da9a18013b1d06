//! `gantry share`: what installations in one cluster share, and who uses it.

use clap::Subcommand;
use gantry_process::clock::Clock;

use super::install::Contents;
use super::reach::Reach;
use super::{End, Form, render};
use crate::output::Output;
use crate::sharing::server::Server;
use crate::sharing::status::look;

/// Show what installations in one cluster share.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry share status
  gantry share status --group fma.llm-d.ai -o json")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(Box<Status>),
}

/// Show who uses what: versions, writers, namespaces, what an install would change and why not.
///
/// It shows what the caller may see and says what they may not, with the ClusterRole to ask for. The
/// flags of `gantry install` change what an install would do.
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
    contents: Contents,

    /// The caller's namespace; by default that of the context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Print all facts in this form.
    #[arg(short, long, value_name = "FORM")]
    output: Option<Form>,

    #[command(flatten)]
    reach: Reach,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let Command::Status(arguments) = &arguments.command;
    let Status { contents, namespace, output: form, reach } = &**arguments;
    let source = contents.source()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(async {
        let reached = reach.reach().await?;
        let (client, at) = (reached.client, reached.place.to_string());
        let server = Server::new(client, Clock::system(), true);
        let own = namespace.clone().unwrap_or_else(|| server.own_namespace().to_owned());
        let looked = look(&server, at, &source, contents.mode(), contents.foreign(), &own);
        anyhow::Ok(looked.await?)
    })?;
    match form {
        None => output.result_text(&status.render())?,
        Some(form) => output.result_text(&render(&status, *form)?)?,
    }
    Ok(End::Done)
}
