//! `gantry operator`: the controllers against a cluster.

use std::path::PathBuf;

use anyhow::Context as _;
use gantry_api::meta::dns_subdomain_problem;
use gantry_process::clock::Clock;
use gantry_process::health::Health;
use gantry_process::metrics::{Build, Metrics};
use gantry_process::shutdown::Signals;
use gantry_process::tasks::{self, Tasks};
use http::Uri;
use tokio_util::sync::CancellationToken;

use super::{End, Log, run_to_end};
use crate::config::fetch::{How, Writes};
use crate::config::gather::{Gathered, Sources};
use crate::config::legacy::{Given, HEADING};
use crate::config::operator::Checked;
use crate::config::render;
use crate::config::source::OWN;
use crate::config::values::{Origin, Report};
use crate::operator::cluster::configure;
use crate::operator::controllers::lost_lease;
use crate::operator::reload::Follow;
use crate::operator::{
    self, Ended, LOST_LEADERSHIP, MISSING_DEFINITIONS, Shell, Start, definitions,
};
use crate::output::Output;
use crate::subsystems::CONTROLLERS;
use crate::version::VERSION;

/// Run Gantry's controllers against a Kubernetes cluster.
///
/// The configuration is a file, or a ConfigMap that is created with the defaults if it is absent.
/// Flags win over variables of the environment, and those over the file or the ConfigMap.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry operator --namespace gantry-system --leader-elect
  gantry operator --config-file gantry.yaml --kubeconfig ~/.kube/config
  gantry operator --config-file gantry.yaml --check-config
  gantry operator --config-file gantry.yaml --print-config

Exit codes:
  0  stopped as it was told to; or the configuration is valid
  1  the configuration is wrong, or something that is needed failed: the error says what
  2  the command line is wrong
  3  the cluster lacks CustomResourceDefinitions: the error says which
  4  lost the lease: another operator leads, or the API server did not answer in time")]
pub(super) struct Arguments {
    /// The name of the ConfigMap with the configuration, in the operator's namespace.
    #[arg(long, value_name = "NAME", default_value = OWN, value_parser = object_name)]
    config: String,

    /// A file with the configuration; if it is there, no ConfigMap is looked at.
    #[arg(long, value_name = "PATH")]
    config_file: Option<PathBuf>,

    /// The operator's own namespace. By default it is that of its pod.
    #[arg(long, value_name = "NAME", env = "NAMESPACE", hide_env_values = true)]
    namespace: Option<String>,

    /// Print the configuration that is in effect, with where each value came from, and exit.
    #[arg(long, conflicts_with = "check_config")]
    print_config: bool,

    /// Say what is wrong with the configuration, and exit.
    #[arg(long)]
    check_config: bool,

    #[command(flatten)]
    given: Given,

    /// The API server, in place of the one in the kubeconfig.
    #[arg(long, value_name = "URL", help_heading = HEADING, hide_short_help = true)]
    master: Option<Uri>,

    /// The namespace of the ConfigMap instascale-config, whose values then win over the
    /// configuration.
    #[arg(long, value_name = "NAME", help_heading = HEADING, hide_short_help = true)]
    configs_namespace: Option<String>,

    /// The namespace of the Secret instascale-ocm-secret, which is then referred to if it is there.
    #[arg(long, value_name = "NAME", help_heading = HEADING, hide_short_help = true)]
    ocm_secret_namespace: Option<String>,
}

pub(super) fn run(arguments: Arguments, log: Log, output: &mut Output) -> anyhow::Result<End> {
    run_to_end(operate(arguments, log, output))
}

async fn operate(arguments: Arguments, log: Log, output: &mut Output) -> anyhow::Result<End> {
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let clock = Clock::system();
    let print = arguments.print_config;
    let rehearsal = print || arguments.check_config;
    let sources = arguments.sources(log.verbosity);
    if !rehearsal {
        operator::announce();
    }
    let found = tokio::select! {
        // Either may be dropped: a ConfigMap that is half created is found by the next start, and
        // the other only waits.
        found = find(&sources, &clock, rehearsal, output) => found?,
        signal = signals.next() => {
            tracing::info!(%signal, "told to stop before there was a configuration");
            return Ok(End::Done);
        }
    };
    let (source, found) = found;
    let checked = match found {
        Ok(checked) => checked,
        Err(Report { errors, warnings, unknown: _ }) => {
            warnings.iter().for_each(|warning| output.warning(warning));
            errors.iter().for_each(|error| output.error(error));
            return Ok(End::Refused);
        }
    };
    if rehearsal {
        checked.warnings.iter().for_each(|warning| output.warning(warning));
        match print {
            true => output.result_text(&render::effective(&checked.values)?)?,
            false => output.result(format_args!(
                "the configuration of {source} is valid ({} warnings)",
                checked.warnings.len()
            ))?,
        }
        return Ok(End::Done);
    }
    let lease_namespace = lease_namespace(&checked, &sources)?;
    let kubeconfig = &checked.settings.client_connection.kubeconfig;
    let config = configure(kubeconfig, sources.server.as_ref()).await?;
    let metrics = Metrics::new(&Build { version: VERSION.version, revision: VERSION.commit });
    let counters = tasks::Counters::register(&metrics)?;
    let tasks = Tasks::new(clock, counters, fastrand::Rng::new(), &CancellationToken::new());
    let shell = Shell { tasks, metrics, health: Health::default() };
    let follow = Follow { sources, source, log: log.handle };
    let start = Start { checked, config, lease_namespace, follow };
    match operator::run(start, shell, &mut signals).await? {
        Ended::Missing(missing) => {
            output.error(definitions::complaint(&missing));
            Ok(End::Failed(MISSING_DEFINITIONS))
        }
        Ended::Stopped(ending) => {
            if let Some(lost) = lost_lease(&ending.lost) {
                output.error(lost);
                return Ok(End::Failed(LOST_LEADERSHIP));
            }
            ending.lost.iter().for_each(|loss| output.error(loss));
            Ok(if ending.is_clean() { End::Done } else { End::Refused })
        }
    }
}

impl Arguments {
    /// Where the configuration is said. The flag about the log is one of all commands, and wins like
    /// any other.
    fn sources(self, verbosity: Option<u8>) -> Sources {
        let Self {
            config,
            config_file,
            namespace,
            print_config: _,
            check_config: _,
            mut given,
            master,
            configs_namespace,
            ocm_secret_namespace,
        } = self;
        if let Some(verbosity) = verbosity {
            given.flags.set("logging.verbosity", verbosity.into(), Origin::Flag("v"));
        }
        Sources {
            config,
            config_file,
            namespace,
            server: master,
            instascale: configs_namespace,
            instascale_secret: ocm_secret_namespace,
            given,
        }
    }
}

/// The configuration from everywhere it is said, checked as a whole, and what its text is called.
async fn find(
    sources: &Sources,
    clock: &Clock,
    rehearsal: bool,
    output: &mut Output,
) -> anyhow::Result<(String, Result<Checked, Report>)> {
    let writes = if rehearsal { Writes::Nothing } else { Writes::Create };
    let places = sources.places(clock);
    let Gathered { source, how, found } = sources.gather(&places, writes, &CONTROLLERS).await?;
    // The volume of the file may be optional, so this is no mistake by itself.
    if let Some(file) =
        sources.config_file.as_ref().filter(|it| matches!(it.try_exists(), Ok(false)))
    {
        let text = format!("{}: is not there; {source} is used instead", file.display());
        match rehearsal {
            true => output.warning(text),
            false => tracing::info!("configuration: {text}"),
        }
    }
    match how {
        How::WouldCreate => output.note(format_args!("{source}: absent; it would be created")),
        How::Found | How::Legacy | How::Created if rehearsal => {}
        How::Found => tracing::info!(source, "read the configuration"),
        How::Legacy => tracing::info!(source, "read the configuration under its older name"),
        How::Created => tracing::info!(source, "wrote the configuration with the defaults"),
    }
    Ok((source, found))
}

/// Where the lease is, if there is one: an operator that cannot tell must not start.
fn lease_namespace(checked: &Checked, sources: &Sources) -> anyhow::Result<Option<String>> {
    let election = &checked.settings.leader_election;
    match (&election.leader_elect, &election.resource_namespace) {
        (false, _) => Ok(None),
        (true, Some(namespace)) => Ok(Some(namespace.clone())),
        (true, None) => Ok(Some(sources.own_namespace()?)),
    }
}

fn object_name(text: &str) -> Result<String, &'static str> {
    dns_subdomain_problem(text).map_or_else(|| Ok(text.to_owned()), Err)
}
