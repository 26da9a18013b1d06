//! `gantry dual-pods-controller` and `launcher-populator`: the controllers of actuation as the
//! original project runs them, one in each process.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use clap::ArgAction;
use gantry_actuation::labels::{PAIRING_MANAGER, POPULATION_MANAGER};
use gantry_actuation::{
    CollectionController, ObjectStatusController, ServerConfigStatusController,
};
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
use crate::config::operator::{CheckedConfig, merge_and_check};
use crate::config::values::{ConfigReport, Layer, Origin};
use crate::operator::cluster::{KubeconfigEntries, kube_config_for_entries};
use crate::operator::controllers::lost_lease;
use crate::operator::standalone::{
    self, EXIT_MISSING_KINDS, NeededKind, StandaloneExit, StandaloneOptions,
};
use crate::operator::{EXIT_LOST_LEADERSHIP, ProcessContext};
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
  gantry dual-pods-controller -n models --leader-elect

Exit codes:
   0  stopped by a signal
   1  the namespace is missing, or a required component failed: the error says which
   2  the command line is wrong
   4  lost the lease: another replica leads, or the API server did not answer in time
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
  gantry launcher-populator -n models --leader-elect --retention-time 10m

Exit codes:
   0  stopped by a signal
   1  the namespace is missing, or a required component failed: the error says which
   2  the command line is wrong
   4  lost the lease: another replica leads, or the API server did not answer in time
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

    /// How long launchers beyond the policies are kept for the instances that sleep in them; 0s
    /// deletes them at once.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration_or_zero)]
    retention_time: String,
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

    #[command(flatten)]
    election: ElectionArguments,
}

/// The heading of the flags of leader election in the help.
const ELECTION: &str = "Leader election";

/// The flags of leader election, with the names that components of Kubernetes have.
#[derive(Debug, clap::Args)]
struct ElectionArguments {
    /// Work only while holding a lease, so that of several replicas one works and the others wait.
    #[arg(long, help_heading = ELECTION, value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true)]
    #[arg(action = ArgAction::Set, default_value_t = false, default_missing_value = "true")]
    leader_elect: bool,

    /// How long the others wait for a replica that does not renew the lease.
    #[arg(long, help_heading = ELECTION, value_name = "DURATION")]
    #[arg(default_value = "15s", value_parser = go_duration)]
    leader_elect_lease_duration: String,

    /// How long a replica tries to renew the lease before it ends.
    #[arg(long, help_heading = ELECTION, value_name = "DURATION")]
    #[arg(default_value = "10s", value_parser = go_duration)]
    leader_elect_renew_deadline: String,

    /// How long replicas wait between two attempts.
    #[arg(long, help_heading = ELECTION, value_name = "DURATION")]
    #[arg(default_value = "2s", value_parser = go_duration)]
    leader_elect_retry_period: String,

    /// The name of the lease, in the namespace of --namespace. By default that of the controller.
    #[arg(long, help_heading = ELECTION, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
}

impl ElectionArguments {
    /// Adds the settings to a layer. `name` is the name of the lease without a flag.
    fn set(&self, layer: &mut Layer, name: &str) {
        let Self {
            leader_elect,
            leader_elect_lease_duration,
            leader_elect_renew_deadline,
            leader_elect_retry_period,
            leader_elect_resource_name,
        } = self;
        let name = leader_elect_resource_name.as_deref().unwrap_or(name);
        for (key, value, flag) in [
            ("leaderElection.leaderElect", (*leader_elect).into(), "leader-elect"),
            ("leaderElection.resourceName", name.into(), "leader-elect-resource-name"),
            (
                "leaderElection.leaseDuration",
                leader_elect_lease_duration.as_str().into(),
                "leader-elect-lease-duration",
            ),
            (
                "leaderElection.renewDeadline",
                leader_elect_renew_deadline.as_str().into(),
                "leader-elect-renew-deadline",
            ),
            (
                "leaderElection.retryPeriod",
                leader_elect_retry_period.as_str().into(),
                "leader-elect-retry-period",
            ),
        ] {
            layer.set(key, value, Origin::Flag(flag));
        }
    }
}

/// Where Kubernetes reads why a container has ended, unless its pod says otherwise.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// What one of them runs.
struct Standalone {
    common: CommonArguments,
    controllers: Vec<&'static str>,
    layer: Layer,
    /// The plural names of the kinds that must be served, and whether their status is written.
    kinds: &'static [(&'static str, bool)],
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

fn duration_or_zero(text: &str) -> Result<String, String> {
    let length = duration::parse(text).ok_or("expected a duration such as 10m, or 0s")?;
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
    let kinds = &[("inferenceserverconfigs", true), ("launcherconfigs", false)];
    let controllers =
        vec![PAIRING_MANAGER, CollectionController::NAME, ServerConfigStatusController::NAME];
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
        retention_time,
    } = arguments;
    let mut layer = Layer::default();
    let origin = Origin::Flag("retention-time");
    layer.set("actuation.retention", retention_time.into(), origin);
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
    let kinds = &[("launcherconfigs", true), ("launcherpopulationpolicies", true)];
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
    let checked = match standalone.check() {
        Ok(checked) => checked,
        Err(report) => {
            report.errors.iter().for_each(|error| output.error(error));
            return Ok(CommandOutcome::Failure);
        }
    };
    run_to_end(operate(standalone, checked, output))
}

impl Standalone {
    /// The settings of the subsystems: nothing but actuation runs.
    fn check(&self) -> Result<CheckedConfig, ConfigReport> {
        let CommonArguments { namespace, token_file, allow_loopback, election, .. } = &self.common;
        let mut layer = self.layer.clone();
        election.set(&mut layer, self.controllers.first().copied().unwrap_or_default());
        let own = || Origin::Object("command line".to_owned());
        layer.set("actuation.enabled", true.into(), own());
        layer.set("mcadEnabled", false.into(), own());
        layer.set("actuation.namespace", namespace.clone().into(), Origin::Flag("namespace"));
        layer.set("actuation.tokenFile", token_file.clone().into(), Origin::Flag("token-file"));
        let origin = Origin::Flag("allow-loopback");
        layer.set("actuation.allowLoopback", (*allow_loopback).into(), origin);
        merge_and_check([&layer], ConfigReport::default(), &CONTROLLERS)
    }

    fn kinds(&self) -> Vec<NeededKind> {
        let needed = |kind: &'static Kind| {
            let is_own = |it: &&(&str, bool)| kind.group == "fma.llm-d.ai" && it.0 == kind.plural;
            let (_, status) = self.kinds.iter().find(is_own)?;
            Some(NeededKind { kind, status: *status })
        };
        KINDS.iter().filter_map(needed).collect()
    }
}

async fn operate(
    standalone: Standalone,
    checked: CheckedConfig,
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
        values: checked.values,
        config,
        namespace,
        kinds,
        election: checked.settings.leader_election,
        metrics_port: common.metrics_port,
        debug_port: common.debug_port,
    };
    match standalone::run(options, shell, &mut signals).await? {
        StandaloneExit::MissingKinds(missing) => {
            write_termination_message(Path::new(TERMINATION_LOG), &missing);
            output.error(missing);
            Ok(CommandOutcome::FailureWithCode(EXIT_MISSING_KINDS))
        }
        StandaloneExit::Stopped(ending) => {
            if let Some(lost) = lost_lease(&ending.lost) {
                output.error(lost);
                return Ok(CommandOutcome::FailureWithCode(EXIT_LOST_LEADERSHIP));
            }
            ending.lost.iter().for_each(|loss| output.error(loss));
            Ok(if ending.is_clean() { CommandOutcome::Success } else { CommandOutcome::Failure })
        }
    }
}

/// Writes why the process ends, for the status of its pod; outside of a container there is no such
/// file. The error goes to the log, too, so that nothing is lost if it cannot be written.
fn write_termination_message(path: &Path, message: &str) {
    let file = std::fs::OpenOptions::new().write(true).truncate(true).open(path);
    match file.and_then(|mut file| file.write_all(message.as_bytes())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "could not write the termination message");
        }
        Ok(()) | Err(_) => {}
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
        assert_eq!(given.retention_time, "0s");
        let given = Population::try_parse_from(["c", "--retention-time=10m"]).unwrap().arguments;
        assert_eq!(given.retention_time, "10m0s");
    }

    #[test]
    fn nothing_but_actuation_is_enabled() {
        let words = ["c", "--namespace", "x", "--allow-loopback"];
        let PairingArguments { common, .. } = Pairing::try_parse_from(words).unwrap().arguments;
        let kinds = &[("launcherconfigs", true)];
        let layer = Layer::default();
        let standalone = Standalone { common, controllers: Vec::new(), layer, kinds };
        let values = standalone.check().unwrap().values;
        let enabled = crate::subsystems::features().filter(|it| (it.enabled)(&values));
        let names: Vec<&str> = enabled.map(|it| it.name).collect();
        assert_eq!(names, ["actuation", "launcher-population"]);
        assert_eq!(values.text("actuation.namespace"), "x");
        assert!(values.is_on("actuation.allowLoopback"));
        assert_eq!(standalone.kinds().len(), 1);
    }

    #[test]
    fn as_41_the_termination_message_is_written_where_there_is_a_file_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("termination-log");
        write_termination_message(&path, "text");
        assert!(!path.exists(), "outside of a container");
        std::fs::write(&path, "what an earlier container wrote").unwrap();
        write_termination_message(&path, "kinds are missing");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kinds are missing");
    }
}
