//! The command line: the command tree, and the function that runs each command.

mod actuation;
mod amounts;
mod apiserver;
mod check;
mod cluster;
mod cluster_client;
mod crds;
mod devices;
mod explain;
mod files;
mod gather;
mod install;
mod legacy_spelling;
mod model_programs;
pub(crate) mod modules;
mod node;
mod operator;
mod queue;
mod registry;
mod schedule;
mod share;
mod status;
mod uninstall;
mod up;
mod user;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use gantry_engine::command_line::CommandLineError;
use gantry_engine::programs::Command as Program;
use gantry_process::clock::Clock;
use gantry_process::telemetry;
use gantry_yaml as yaml;
use serde::Serialize;

use crate::config::{GlobalFlags, Settings};
use crate::output::Output;
use crate::version::VERSION;

const EXAMPLES: &str = "\
Examples:
  gantry check manifests/                 read manifests and say what is wrong with them
  gantry crds | kubectl apply --server-side -f -
                                          install every kind in a cluster
  gantry install all                      install what the installations in a cluster share
  gantry operator --leader-elect          run the controllers against a cluster
  gantry up                               run a whole cluster on this machine
  gantry node kill gpu-0                  simulate the power failure of a node
  gantry status                           show what runs, what is held, and why
  gantry queue                            show the queue and what each AppWrapper waits for
  gantry explain appwrapper/train         show the state of a job, the reason and the remedy
  gantry gather                           collect what helps to find out what is wrong
  gantry cluster inventory -i hosts.yaml --graph
                                          show the hosts that clusters are made of
  gantry cluster exec -i hosts.yaml all -- uptime
                                          run a command on them
  gantry schedule -f cluster/ --explain   show which devices pods would get, and why not others
  gantry devices top                      show how many devices are used and free
  gantry modules sign-file sha256 key.pem cert.pem driver.ko
                                          sign a kernel module
  gantry registry ls                      list the container images of a cluster
  gantry apiserver                        run a Kubernetes-compatible API server alone
  gantry user add bob --group devs        create a user with a kubeconfig of its own
  gantry engine --model tiny/a            serve a small model, with sleep and faults
  gantry completions bash > /etc/bash_completion.d/gantry

Exit codes:
  0  done
  1  not done: the error says why and what to do
  2  the command line is wrong
Some commands have more; their help lists them.";

/// The name under which the program is `gantry modules gather`.
const GATHER_PROGRAM: &str = "gather";

/// Turns Linux hosts into a shared accelerator cluster and keeps it useful.
#[derive(Debug, Parser)]
#[command(name = "gantry", version = VERSION.version, after_help = EXAMPLES)]
#[command(propagate_version = false, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    global: GlobalFlags,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(Box<up::Arguments>),
    Status(status::Arguments),
    Queue(Box<queue::Arguments>),
    Explain(Box<explain::Arguments>),
    Gather(gather::Arguments),
    Node(node::Arguments),
    Apiserver(Box<apiserver::Arguments>),
    Check(check::Arguments),
    Cluster(cluster::Arguments),
    Crds(crds::Arguments),
    Install(Box<install::Arguments>),
    Uninstall(Box<uninstall::Arguments>),
    Share(share::Arguments),
    Schedule(Box<schedule::Arguments>),
    Devices(Box<devices::Arguments>),
    Modules(modules::Arguments),
    Registry(registry::Arguments),
    Operator(Box<operator::Arguments>),
    DualPodsController(Box<actuation::PairingArguments>),
    LauncherPopulator(Box<actuation::PopulationArguments>),
    User(user::Arguments),
    Requester(Box<gantry_engine::requester::Arguments>),
    Launcher(Box<gantry_engine::launcher::Arguments>),
    Notifier(gantry_engine::notifier::Arguments),
    Engine(Box<gantry_engine::tiny::Arguments>),
    #[command(hide = true)]
    EngineCore(model_programs::EngineCore),
    #[command(hide = true, name = "nvidia-smi", disable_help_flag = true)]
    VendorTool(model_programs::VendorTool),
    Completions(Completions),
    Version(Version),
}

/// The command line of Gantry's image in a simulated pod.
#[derive(Debug, Parser)]
#[command(name = "gantry", subcommand_required = true, disable_help_subcommand = true)]
pub(crate) struct PodCommandLine {
    #[command(subcommand)]
    command: PodCommand,
}

#[derive(Debug, Subcommand)]
enum PodCommand {
    Modules(modules::Arguments),
}

impl PodCommandLine {
    /// The only command that runs there.
    pub(crate) fn into_modules(self) -> modules::Arguments {
        match self.command {
            PodCommand::Modules(arguments) => arguments,
        }
    }
}

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(gantry completions bash)
  gantry completions zsh > \"${fpath[1]}/_gantry\"
  gantry completions fish > ~/.config/fish/completions/gantry.fish")]
struct Completions {
    /// The shell to print the script for.
    shell: clap_complete::Shell,
}

/// Print version, commit and build information.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry version
  gantry version -o json")]
struct Version {
    /// Print all facts in this form.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,
}

/// Machine-readable output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// YAML documents.
    Yaml,
    /// One JSON document.
    Json,
}

/// How a command that could run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// The command did what was asked.
    Success,
    /// The command failed; the reasons have been printed.
    Failure,
    /// The command failed with an exit code of its own, so that scripts can tell the reasons apart.
    FailureWithCode(u8),
}

/// The log of the process, for commands that change its verbosity while they run.
struct LogControl {
    handle: telemetry::LogHandle,
    /// The log settings of the command line.
    verbosity: Option<u8>,
}

/// The whole command tree, for completion scripts and the reference.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Inserts the command if the program is started as `gather`, which is what tools that collect
/// diagnostic data start in an image.
fn called_as_gather(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let program = arguments.first().map(Path::new);
    if program.and_then(Path::file_name).is_some_and(|it| it == GATHER_PROGRAM) {
        arguments.splice(1..1, ["modules", "gather"].map(OsString::from));
    }
    arguments
}

/// Returns the command line of this program that a command line means: its executable may be
/// another name of the program, and options may be spelled as in the programs that it replaces.
///
/// # Errors
/// The executable is an interpreter, such as `python3`, of something that is no program of Gantry.
pub fn translate(arguments: Vec<OsString>) -> Result<Vec<OsString>, CommandLineError> {
    let arguments = called_as_gather(arguments);
    let arguments = model_programs::by_executable(arguments)?;
    let arguments = actuation::by_executable(arguments);
    let arguments = legacy_spelling::translate_legacy_flags(arguments);
    Ok(cluster::translate_verbosity(arguments))
}

/// Parses the command line, runs the command and reports how it went.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match translate(arguments.into_iter().collect()) {
        Ok(arguments) => arguments,
        Err(error) => {
            Output::standard(anstream::ColorChoice::Auto).error(error);
            return ExitCode::from(model_programs::NOT_FOUND_EXIT_CODE);
        }
    };
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to standard output with code 0, complaints to standard error.
            let code = if error.use_stderr() { usage_code(&arguments) } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let settings = Settings::from(cli.global);
    let mut output = Output::standard(settings.color);
    let handle = match telemetry::install(&settings.telemetry, Clock::system(), io::stderr()) {
        Ok(handle) => handle,
        Err(error) => {
            output.failure(&error.into());
            return ExitCode::FAILURE;
        }
    };
    let log = LogControl { handle, verbosity: settings.verbosity };
    let end = dispatch(cli.command, log, &mut output);
    match end.and_then(|end| output.finish().map(|()| end).map_err(Into::into)) {
        Ok(CommandOutcome::Success) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Failure) => ExitCode::FAILURE,
        Ok(CommandOutcome::FailureWithCode(code)) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output.failure(&error);
            ExitCode::FAILURE
        }
    }
}

/// The exit code for a wrong command line. Commands for shared clusters use 2 for a missing
/// permission, so for them it is 1: scripts tell the two apart. The original `schedule` had no 2
/// either. For commands on hosts 2 is a host that failed.
fn usage_code(arguments: &[OsString]) -> u8 {
    let known = command();
    let named = |it: &&OsString| known.get_subcommands().any(|sub| sub.get_name() == **it);
    match arguments.iter().skip(1).find(named).and_then(|it| it.to_str()) {
        Some("install" | "uninstall" | "share" | "schedule" | "devices") => 1,
        Some("cluster") => cluster::USAGE_CODE,
        _ => 2,
    }
}

fn dispatch(
    command: Command,
    log: LogControl,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::Up(arguments) => up::run(*arguments, output),
        Command::Status(arguments) => status::run(&arguments, output),
        Command::Queue(arguments) => queue::run(&arguments, output),
        Command::Explain(arguments) => explain::run(&arguments, output),
        Command::Gather(arguments) => gather::run(&arguments, output),
        Command::Node(arguments) => node::run(&arguments, output),
        Command::Apiserver(arguments) => apiserver::run(*arguments, output),
        Command::Check(arguments) => check::run(&arguments, output),
        Command::Cluster(arguments) => cluster::run(&arguments, &log, output),
        Command::Crds(arguments) => crds::run(&arguments, output),
        Command::Install(arguments) => install::run(&arguments, output),
        Command::Uninstall(arguments) => uninstall::run(&arguments, output),
        Command::Share(arguments) => share::run(&arguments, output),
        Command::Schedule(arguments) => schedule::run(&arguments, output),
        Command::Devices(arguments) => devices::run(*arguments, output),
        Command::Modules(arguments) => modules::run(arguments, output),
        Command::Registry(arguments) => registry::run(&arguments, output),
        Command::Operator(arguments) => operator::run(*arguments, log, output),
        Command::DualPodsController(it) => actuation::run_pairing(*it, output),
        Command::LauncherPopulator(it) => actuation::run_population(*it, output),
        Command::User(arguments) => user::run(&arguments, output),
        Command::Requester(arguments) => model_programs::run(Program::Requester(arguments)),
        Command::Launcher(arguments) => model_programs::run(Program::Launcher(arguments)),
        Command::Notifier(arguments) => model_programs::run(Program::Notifier(arguments)),
        Command::Engine(arguments) => model_programs::run(Program::Engine(arguments)),
        Command::EngineCore(it) => model_programs::run(Program::EngineCore(it.name)),
        Command::VendorTool(it) => model_programs::run(Program::VendorTool(it.arguments)),
        Command::Completions(Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut self::command(), "gantry", &mut script);
            output.result_text(&String::from_utf8_lossy(&script))?;
            Ok(CommandOutcome::Success)
        }
        Command::Version(Version { output: form }) => {
            match form {
                None => output.result(format_args!(
                    "gantry {} ({}, {})",
                    VERSION.version, VERSION.commit, VERSION.commit_date
                ))?,
                Some(form) => output.result_text(&render(&VERSION, form)?)?,
            }
            Ok(CommandOutcome::Success)
        }
    }
}

/// Runs a command that goes on until a signal stops it.
fn run_to_end(
    work: impl Future<Output = anyhow::Result<CommandOutcome>>,
) -> anyhow::Result<CommandOutcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let end = runtime.block_on(work);
    // Running tasks were given their time; nothing is written after a store is closed.
    runtime.shutdown_timeout(Duration::from_secs(1));
    end
}

/// Renders one value as a document that ends with a line break.
fn render(value: &impl Serialize, form: OutputFormat) -> anyhow::Result<String> {
    let mut text = match form {
        OutputFormat::Yaml => yaml::write(value)?,
        OutputFormat::Json => serde_json::to_string_pretty(value)?,
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Renders several objects: YAML documents, or the JSON list that kubectl reads.
fn render_objects(objects: &[serde_json::Value], form: OutputFormat) -> anyhow::Result<String> {
    match form {
        OutputFormat::Json => {
            render(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects}), form)
        }
        OutputFormat::Yaml => {
            let mut text = String::new();
            for object in objects {
                text.push_str("---\n");
                text.push_str(&render(object, form)?);
            }
            Ok(text)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_tree_is_consistent() {
        super::command().debug_assert();
    }
}
