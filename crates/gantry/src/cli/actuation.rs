//! `gantry dual-pods-controller` and `launcher-populator`: the controllers of actuation as the
//! original project runs them, one in each process.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context as _;
use clap::ArgAction;
use gantry_actuation::labels::{PAIRING_MANAGER, POPULATION_MANAGER};
use gantry_actuation::{CollectionController, ObjectStatusController};
use gantry_api::kind::Kind;
use gantry_api::meta::dns_label_problem;
use gantry_api::object::KINDS;
use gantry_process::clock::Clock;
use gantry_process::health::Health;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::shutdown::Signals;
use gantry_process::tasks::{self, Tasks};
use gantry_subsystem::settings::duration;
use tokio_util::sync::CancellationToken;

use super::{CommandOutcome, run_to_end};
use crate::config::operator::merge_and_check;
use crate::config::values::{ConfigReport, Layer, Origin, Values};
use crate::operator::ProcessContext;
use crate::operator::cluster::{KubeconfigEntries, kube_config_for_entries};
use crate::operator::standalone::{self, EXIT_MISSING_KINDS, StandaloneExit, StandaloneOptions};
use crate::output::Output;
use crate::subsystems::CONTROLLERS;
use crate::version::VERSION;

/// Pair pods that request models with pods that serve them, in one namespace.
///
/// The controller of the original project under its own name, with its flags. `gantry operator`
/// runs it beside all others: see actuation.enabled.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry dual-pods-controller --namespace models
  gantry dual-pods-controller -n models --sleeper-limit 2 --debug-accelerator-memory=false -v 2
  gantry dual-pods-controller -n models --kubeconfig ~/.kube/config --context test

Exit codes:
   0  stopped by a signal
   1  the namespace is missing, or a required component failed: the error says which
   2  the command line is wrong
  78  the cluster does not define the kinds of fma.llm-d.ai")]
pub(super) struct PairingArguments {
    #[command(flatten)]
    common: CommonArguments,

    /// How many sleeping direct providers may share an accelerator with an awake one.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    sleeper_limit: u32,

    /// Read and not used: servers of one node do not wait for one another.
    #[arg(long, value_name = "COUNT", default_value_t = 2, hide_short_help = true)]
    num_workers: u32,

    /// Wake an engine only while its accelerators have little memory in use, as its requester
    /// reports.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(action = ArgAction::Set, default_value_t = true, default_missing_value = "true")]
    debug_accelerator_memory: bool,
}

/// Keep the stock of idle launchers that policies ask for, in one namespace.
///
/// The controller of the original project under its own name, with its flags. `gantry operator`
/// runs it beside all others: see actuation.population.enabled.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry launcher-populator --namespace models
  gantry launcher-populator -n models --stuck-starting-threshold 10m -v 2

Exit codes:
   0  stopped by a signal
   1  the namespace is missing, or a required component failed: the error says which
   2  the command line is wrong
  78  the cluster does not define the kinds of fma.llm-d.ai")]
pub(super) struct PopulationArguments {
    #[command(flatten)]
    common: CommonArguments,

    /// Read and not used: what was written is in the cache before the watch shows it.
    #[arg(long, value_name = "DURATION", default_value = "5s", hide_short_help = true)]
    #[arg(value_parser = go_duration)]
    expectation_timeout: String,

    /// After how long a launcher that is not scheduled is reported as stuck.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = go_duration)]
    stuck_scheduling_threshold: String,

    /// After how long a scheduled launcher that is not ready is reported as stuck.
    #[arg(long, value_name = "DURATION", default_value = "7m30s", value_parser = go_duration)]
    stuck_starting_threshold: String,
}

/// The flags of both.
#[derive(Debug, clap::Args)]
struct CommonArguments {
    /// The namespace to work in; required.
    #[arg(short, long, value_name = "NAME", default_value = "", hide_default_value = true)]
    namespace: String,

    /// The kubeconfig. By default that of kubectl, or the service account of the pod.
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    kubeconfig: String,

    /// The context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The user of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// The cluster of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// The port of metrics and probes.
    #[arg(long, value_name = "PORT", default_value_t = 8002)]
    metrics_port: u16,

    /// The port of the state of the process, at /debug/state, for callers in its pod.
    #[arg(long, value_name = "PORT", default_value_t = 8003)]
    debug_port: u16,

    /// A file with the bearer token that requesters and launchers ask for.
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    token_file: String,

    /// Call pods whose addresses are loopback addresses, as those of simulated nodes are.
    #[arg(long)]
    allow_loopback: bool,
}

/// What one of them runs.
struct Standalone {
    common: CommonArguments,
    controllers: Vec<&'static str>,
    layer: Layer,
    /// The plural names of the kinds that must be defined.
    kinds: &'static [&'static str],
}

/// Makes a command line of Gantry of one that begins with the executable of a controller.
pub(super) fn by_executable(mut words: Vec<OsString>) -> Vec<OsString> {
    let program = words.first().map(Path::new).and_then(Path::file_name);
    let command = [PAIRING_MANAGER, POPULATION_MANAGER]
        .into_iter()
        .find(|it| program.is_some_and(|program| program == *it));
    let Some(command) = command else { return words };
    // Of the many options of the original's log only the verbosity has a meaning here.
    words.retain(|word| !word.to_str().is_some_and(is_log_option));
    words.splice(1..1, [OsString::from(command)]);
    words
}

/// Whether a word is an option of the original's log library that is of no use here.
fn is_log_option(word: &str) -> bool {
    const OPTIONS: [&str; 12] = [
        "add_dir_header",
        "alsologtostderr",
        "log_backtrace_at",
        "log_dir",
        "log_file",
        "log_file_max_size",
        "logtostderr",
        "one_output",
        "skip_headers",
        "skip_log_headers",
        "stderrthreshold",
        "vmodule",
    ];
    let Some(name) = word.strip_prefix("--") else { return false };
    let (name, has_value) = name.split_once('=').map_or((name, false), |(name, _)| (name, true));
    let name = name.replace('-', "_");
    // Without a value only switches are complete in one word.
    let is_switch = !matches!(
        name.as_str(),
        "log_backtrace_at"
            | "log_dir"
            | "log_file"
            | "log_file_max_size"
            | "stderrthreshold"
            | "vmodule"
    );
    OPTIONS.contains(&name.as_str()) && (has_value || is_switch)
}

fn go_duration(text: &str) -> Result<String, String> {
    let length = duration::parse(text).filter(|it| !it.is_zero());
    let length = length.ok_or("expected a duration such as 7m30s, greater than 0s")?;
    Ok(duration::write(length))
}

pub(super) fn run_pairing(
    arguments: PairingArguments,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let PairingArguments { common, sleeper_limit, num_workers: _, debug_accelerator_memory } =
        arguments;
    let mut layer = Layer::default();
    layer.set("actuation.sleeperLimit", sleeper_limit.into(), Origin::Flag("sleeper-limit"));
    let origin = Origin::Flag("debug-accelerator-memory");
    layer.set("actuation.debugAcceleratorMemory", debug_accelerator_memory.into(), origin);
    let origin = Origin::Object("dual-pods-controller".to_owned());
    layer.set("actuation.population.enabled", false.into(), origin);
    let kinds = &["inferenceserverconfigs", "launcherconfigs"];
    let controllers = vec![PAIRING_MANAGER, CollectionController::NAME];
    run(Standalone { common, controllers, layer, kinds }, output)
}

pub(super) fn run_population(
    arguments: PopulationArguments,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let PopulationArguments {
        common,
        expectation_timeout: _,
        stuck_scheduling_threshold,
        stuck_starting_threshold,
    } = arguments;
    let mut layer = Layer::default();
    layer.set(
        "actuation.stuckSchedulingThreshold",
        stuck_scheduling_threshold.into(),
        Origin::Flag("stuck-scheduling-threshold"),
    );
    layer.set(
        "actuation.stuckStartingThreshold",
        stuck_starting_threshold.into(),
        Origin::Flag("stuck-starting-threshold"),
    );
    let kinds = &["launcherconfigs", "launcherpopulationpolicies"];
    let controllers = vec![POPULATION_MANAGER, ObjectStatusController::NAME];
    run(Standalone { common, controllers, layer, kinds }, output)
}

fn run(standalone: Standalone, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let namespace = &standalone.common.namespace;
    if let Some(problem) = dns_label_problem(namespace) {
        output.error(format_args!(
            "--namespace: {namespace:?} {problem}; name the namespace to work in"
        ));
        return Ok(CommandOutcome::Failure);
    }
    let values = match standalone.values() {
        Ok(values) => values,
        Err(report) => {
            report.errors.iter().for_each(|error| output.error(error));
            return Ok(CommandOutcome::Failure);
        }
    };
    run_to_end(operate(standalone, values, output))
}

impl Standalone {
    /// The settings of the subsystems: nothing but actuation runs.
    fn values(&self) -> Result<Values, ConfigReport> {
        let CommonArguments { namespace, token_file, allow_loopback, .. } = &self.common;
        let mut layer = self.layer.clone();
        let own = || Origin::Object("command line".to_owned());
        layer.set("actuation.enabled", true.into(), own());
        layer.set("mcadEnabled", false.into(), own());
        layer.set("actuation.namespace", namespace.clone().into(), Origin::Flag("namespace"));
        layer.set("actuation.tokenFile", token_file.clone().into(), Origin::Flag("token-file"));
        let origin = Origin::Flag("allow-loopback");
        layer.set("actuation.allowLoopback", (*allow_loopback).into(), origin);
        merge_and_check([&layer], ConfigReport::default(), &CONTROLLERS).map(|it| it.values)
    }

    fn kinds(&self) -> Vec<&'static Kind> {
        let is_own =
            |kind: &&Kind| kind.group == "fma.llm-d.ai" && self.kinds.contains(&kind.plural);
        KINDS.iter().filter(is_own).collect()
    }
}

async fn operate(
    standalone: Standalone,
    values: Values,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let kinds = standalone.kinds();
    let Standalone { common, controllers, .. } = standalone;
    tracing::info!(
        version = VERSION.version,
        controllers = controllers.join(", "),
        namespace = common.namespace,
        "starting"
    );
    let CommonArguments { namespace, kubeconfig, context, user, cluster, .. } = common;
    let entries = KubeconfigEntries { context, cluster, user };
    let config = kube_config_for_entries(&kubeconfig, entries).await?;
    let metrics = Metrics::new(&BuildInfo { version: VERSION.version, revision: VERSION.commit });
    let counters = tasks::TaskMetrics::register(&metrics)?;
    let token = CancellationToken::new();
    let tasks = Tasks::new(Clock::system(), counters, fastrand::Rng::new(), &token);
    let shell = ProcessContext { tasks, metrics, health: Health::default() };
    let options = StandaloneOptions {
        controllers,
        values,
        config,
        namespace,
        kinds,
        metrics_port: common.metrics_port,
        debug_port: common.debug_port,
    };
    match standalone::run(options, shell, &mut signals).await? {
        StandaloneExit::MissingKinds(missing) => {
            output.error(missing);
            Ok(CommandOutcome::FailureWithCode(EXIT_MISSING_KINDS))
        }
        StandaloneExit::Stopped(ending) => {
            ending.lost.iter().for_each(|loss| output.error(loss));
            Ok(if ending.is_clean() { CommandOutcome::Success } else { CommandOutcome::Failure })
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn translated(words: &str) -> String {
        let words = words.split(' ').map(OsString::from).collect();
        let words: Vec<String> =
            by_executable(words).iter().map(|it| it.to_string_lossy().into_owned()).collect();
        words.join(" ")
    }

    /// The executables that manifests of the original start, with its spellings of options.
    #[test]
    fn executables_of_the_original_are_commands() {
        let table = [
            (
                "/ko-app/dual-pods-controller --namespace=x -v=5 --sleeper-limit=2",
                "/ko-app/dual-pods-controller dual-pods-controller --namespace=x -v=5 \
                 --sleeper-limit=2",
            ),
            (
                "/ko-app/launcher-populator --namespace x --v 5 --logtostderr --vmodule=a=1",
                "/ko-app/launcher-populator launcher-populator --namespace x --v 5",
            ),
            ("gantry up -v 2", "gantry up -v 2"),
        ];
        for (words, expected) in table {
            assert_eq!(translated(words), expected);
        }
    }

    #[derive(Debug, clap::Parser)]
    struct Pairing {
        #[command(flatten)]
        arguments: PairingArguments,
    }

    #[derive(Debug, clap::Parser)]
    struct Population {
        #[command(flatten)]
        arguments: PopulationArguments,
    }

    #[test]
    fn flags_have_the_defaults_of_the_original() {
        let parse = |words: &str| Pairing::try_parse_from(words.split(' ')).map(|it| it.arguments);
        let given = parse("c --namespace x").unwrap();
        assert_eq!((given.sleeper_limit, given.num_workers), (1, 2));
        assert!(given.debug_accelerator_memory);
        assert_eq!((given.common.metrics_port, given.common.debug_port), (8002, 8003));
        let given = parse("c -n x --debug-accelerator-memory=false --num-workers=4").unwrap();
        assert!(!given.debug_accelerator_memory);
        assert!(parse("c -n x --debug-accelerator-memory").unwrap().debug_accelerator_memory);
        let words = "c -n x --expectation-timeout=10s --stuck-starting-threshold 90s";
        let given = Population::try_parse_from(words.split(' ')).unwrap().arguments;
        assert_eq!(given.stuck_starting_threshold, "1m30s");
        assert_eq!(given.stuck_scheduling_threshold, "2m0s");
        assert!(Population::try_parse_from(["c", "--stuck-starting-threshold", "x"]).is_err());
    }

    #[test]
    fn nothing_but_actuation_is_enabled() {
        let words = ["c", "--namespace", "x", "--allow-loopback"];
        let PairingArguments { common, .. } = Pairing::try_parse_from(words).unwrap().arguments;
        let kinds = &["launcherconfigs"];
        let layer = Layer::default();
        let standalone = Standalone { common, controllers: Vec::new(), layer, kinds };
        let values = standalone.values().unwrap();
        let enabled = crate::subsystems::features().filter(|it| (it.enabled)(&values));
        let names: Vec<&str> = enabled.map(|it| it.name).collect();
        assert_eq!(names, ["actuation", "launcher-population"]);
        assert_eq!(values.text("actuation.namespace"), "x");
        assert!(values.is_on("actuation.allowLoopback"));
        assert_eq!(standalone.kinds().len(), 1);
    }
}
