//! `gantry cluster exec`: runs a command on hosts.

use anyhow::Context as _;
use futures_util::{StreamExt as _, stream};
use gantry_connection::{CommandResult, ConnectionError, Request};

use super::super::CommandOutcome;
use super::hosts::{ConnectedHost, HostOptions, hosts};
use super::outcome::{self, Outcomes};
use crate::output::Output;

/// Run a command on the hosts of an inventory.
///
/// It is run by the system's ssh, over one connection to each host, and no shell reads its words;
/// for pipes and variables run sh -c. What each host prints is printed when it has ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry cluster exec -i hosts.yaml all -- uptime
  gantry cluster exec -i hosts.yaml 'master:!gpu-1' --become -- systemctl restart containerd
  gantry cluster exec -i hosts.yaml minion -b -K -- sh -c 'journalctl -u kubelet | tail'
  gantry cluster exec -i local, all --connection local -- id

Where the password of sudo is needed it comes from -K, --become-password-file, or
ansible_become_password; it is only ever written to the input of sudo. Patterns are those of
gantry cluster inventory.

Exit codes:
  0  the command succeeded on every host
  1  no host was tried: the inventory is wrong, or no host matched
  2  it failed on a host, or sudo refused
  4  a host was not reached; the message says why, and what to do
  5  the command line is wrong")]
pub(in super::super) struct Arguments {
    /// The hosts.
    #[arg(value_name = "PATTERN")]
    pattern: String,

    #[command(flatten)]
    hosts: HostOptions,

    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "WORD")]
    words: Vec<String>,
}

pub(super) fn run(
    arguments: &Arguments,
    verbosity: u8,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let Some(hosts) = hosts(&arguments.hosts, &arguments.pattern, output)? else {
        return Ok(CommandOutcome::Failure);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcomes = runtime.block_on(async {
        let forks = usize::from(arguments.hosts.forks);
        let work = hosts.iter().map(|host| async move { (host, execute(arguments, host).await) });
        let mut results = stream::iter(work).buffer_unordered(forks);
        let mut outcomes = Outcomes::default();
        while let Some((host, result)) = results.next().await {
            let (text, code) = match &result {
                Ok(result) => outcome::command(host.name(), result),
                Err(error) => outcome::failure(host.name(), error),
            };
            if verbosity >= 2
                && let Ok(result) = &result
                && !result.preamble.is_empty()
            {
                let name = host.name();
                output.note(format_args!("{name}: before the command: {}", result.preamble.trim()));
            }
            output.result(text).context("could not print a result")?;
            outcomes.add(code);
        }
        anyhow::Ok(outcomes)
    })?;
    Ok(outcomes.outcome())
}

async fn execute(
    arguments: &Arguments,
    host: &ConnectedHost,
) -> Result<CommandResult, ConnectionError> {
    let request = Request {
        words: arguments.words.clone(),
        r#become: host.r#become.as_ref(),
        limit: arguments.hosts.timeout,
    };
    let result = host.connection.run(&request).await;
    host.connection.close().await;
    result
}
