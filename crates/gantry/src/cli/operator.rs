//! `gantry operator`: runs the controllers against a cluster.

use std::path::PathBuf;

use anyhow::Context as _;
use gantry_api::meta::dns_subdomain_problem;
use gantry_process::clock::Clock;
use gantry_process::health::Health;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::shutdown::Signals;
use gantry_process::tasks::{self, Tasks};
use http::Uri;
use tokio_util::sync::CancellationToken;

use super::{CommandOutcome, LogControl, run_to_end};
use crate::config::fetch::{FetchOutcome, WritePolicy};
use crate::config::legacy::{FlagOverrides, HEADING};
use crate::config::load::{ConfigSources, LoadedConfig};
use crate::config::operator::CheckedConfig;
use crate::config::render;
use crate::config::source::OWN;
use crate::config::values::{ConfigReport, Origin};
use crate::operator::cluster::kube_config;
use crate::operator::controllers::lost_lease;
use crate::operator::reload::ConfigWatch;
use crate::operator::{
    self, EXIT_LOST_LEADERSHIP, EXIT_MISSING_DEFINITIONS, OperatorExit, ProcessContext,
    StartOptions, definitions,
};
use crate::output::Output;
use crate::subsystems::CONTROLLERS;
use crate::version::VERSION;

/// Run Gantry's controllers against a Kubernetes cluster.
///
/// The configuration is a file, or a ConfigMap that is created with the defaults if it does not
/// exist. Flags override environment variables, and those override the file or the ConfigMap.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry operator --namespace gantry-system --leader-elect
  gantry operator --config-file gantry.yaml --kubeconfig ~/.kube/config
  gantry operator --config-file gantry.yaml --check-config
  gantry operator --config-file gantry.yaml --print-config

Exit codes:
  0  stopped by a signal; or the configuration is valid
  1  the configuration is invalid, or a required component failed: the error says which
  2  the command line is wrong
  3  the cluster lacks CustomResourceDefinitions: the error says which
  4  lost the lease: another operator leads, or the API server did not answer in time")]
pub(super) struct Arguments {
    /// The name of the ConfigMap with the configuration, in the operator's namespace.
    #[arg(long, value_name = "NAME", default_value = OWN, value_parser = object_name)]
    config: String,

    /// A file with the configuration; if it exists, no ConfigMap is read.
    #[arg(long, value_name = "PATH")]
    config_file: Option<PathBuf>,

    /// The operator's own namespace. By default it is that of its pod.
    #[arg(long, value_name = "NAME", env = "NAMESPACE", hide_env_values = true)]
    namespace: Option<String>,

    /// Print the effective configuration with the source of each value, and exit.
    #[arg(long, conflicts_with = "check_config")]
    print_config: bool,

    /// Check the configuration, print what is wrong with it, and exit.
    #[arg(long)]
    check_config: bool,

    #[command(flatten)]
    given: FlagOverrides,

    /// The URL of the API server, instead of the one in the kubeconfig.
    #[arg(long, value_name = "URL", help_heading = HEADING, hide_short_help = true)]
    master: Option<Uri>,

    /// The namespace of the ConfigMap instascale-config, whose values then override the
    /// configuration.
    #[arg(long, value_name = "NAME", help_heading = HEADING, hide_short_help = true)]
    configs_namespace: Option<String>,

    /// The namespace of the Secret instascale-ocm-secret, which is then referenced if it exists.
    #[arg(long, value_name = "NAME", help_heading = HEADING, hide_short_help = true)]
    ocm_secret_namespace: Option<String>,
}

pub(super) fn run(
    arguments: Arguments,
    log: LogControl,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    run_to_end(operate(arguments, log, output))
}

async fn operate(
    arguments: Arguments,
    log: LogControl,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let clock = Clock::system();
    let print = arguments.print_config;
    let rehearsal = print || arguments.check_config;
    let sources = arguments.sources(log.verbosity);
    if !rehearsal {
        operator::announce();
    }
    let found = tokio::select! {
        // Either future may be dropped: a ConfigMap that is half created is found by the next
        // start, and the other only waits.
        found = load_configuration(&sources, &clock, rehearsal, output) => found?,
        signal = signals.next() => {
            tracing::info!(%signal, "stopped before the configuration was loaded");
            return Ok(CommandOutcome::Success);
        }
    };
    let (source, found) = found;
    let checked = match found {
        Ok(checked) => checked,
        Err(ConfigReport { errors, warnings, unknown_keys: _ }) => {
            warnings.iter().for_each(|warning| output.warning(warning));
            errors.iter().for_each(|error| output.error(error));
            return Ok(CommandOutcome::Failure);
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
        return Ok(CommandOutcome::Success);
    }
    let lease_namespace = lease_namespace(&checked, &sources)?;
    let kubeconfig = &checked.settings.client_connection.kubeconfig;
    let config = kube_config(kubeconfig, sources.server.as_ref()).await?;
    let metrics = Metrics::new(&BuildInfo { version: VERSION.version, revision: VERSION.commit });
    let counters = tasks::TaskMetrics::register(&metrics)?;
    let tasks = Tasks::new(clock, counters, fastrand::Rng::new(), &CancellationToken::new());
    let shell = ProcessContext { tasks, metrics, health: Health::default() };
    let follow = ConfigWatch { sources, source, log: log.handle };
    let start = StartOptions { checked, config, lease_namespace, config_watch: follow };
    match operator::run(start, shell, &mut signals).await? {
        OperatorExit::MissingDefinitions(missing) => {
            output.error(definitions::missing_message(&missing));
            Ok(CommandOutcome::FailureWithCode(EXIT_MISSING_DEFINITIONS))
        }
        OperatorExit::Stopped(ending) => {
            if let Some(lost) = lost_lease(&ending.lost) {
                output.error(lost);
                return Ok(CommandOutcome::FailureWithCode(EXIT_LOST_LEADERSHIP));
            }
            ending.lost.iter().for_each(|loss| output.error(loss));
            Ok(if ending.is_clean() { CommandOutcome::Success } else { CommandOutcome::Failure })
        }
    }
}

impl Arguments {
    /// Returns the sources of the configuration. The verbosity flag is a global one, and overrides
    /// like any other flag.
    fn sources(self, verbosity: Option<u8>) -> ConfigSources {
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
        ConfigSources {
            config,
            config_file,
            namespace,
            server: master,
            instascale: configs_namespace,
            instascale_secret: ocm_secret_namespace,
            overrides: given,
        }
    }
}

/// Loads the configuration from all its sources, checks it as a whole, and returns the name of its
/// text.
async fn load_configuration(
    sources: &ConfigSources,
    clock: &Clock,
    rehearsal: bool,
    output: &mut Output,
) -> anyhow::Result<(String, Result<CheckedConfig, ConfigReport>)> {
    let writes = if rehearsal { WritePolicy::ReadOnly } else { WritePolicy::Create };
    let places = sources.namespaces(clock);
    let LoadedConfig { source, outcome: how, result: found } =
        sources.load(&places, writes, &CONTROLLERS).await?;
    // The volume of the file may be optional, so a missing file is not an error by itself.
    if let Some(file) =
        sources.config_file.as_ref().filter(|it| matches!(it.try_exists(), Ok(false)))
    {
        let text = format!("{}: does not exist; {source} is used instead", file.display());
        match rehearsal {
            true => output.warning(text),
            false => tracing::info!("configuration: {text}"),
        }
    }
    match how {
        FetchOutcome::WouldCreate => {
            output.note(format_args!("{source}: does not exist; it would be created"));
        }
        FetchOutcome::Existing | FetchOutcome::Legacy | FetchOutcome::Created if rehearsal => {}
        FetchOutcome::Existing => tracing::info!(source, "read the configuration"),
        FetchOutcome::Legacy => {
            tracing::info!(source, "read the configuration under its older name");
        }
        FetchOutcome::Created => {
            tracing::info!(source, "wrote the configuration with the defaults");
        }
    }
    Ok((source, found))
}

/// Returns the namespace of the lease, if there is leader election: an operator that cannot
/// determine it must not start.
fn lease_namespace(
    checked: &CheckedConfig,
    sources: &ConfigSources,
) -> anyhow::Result<Option<String>> {
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
