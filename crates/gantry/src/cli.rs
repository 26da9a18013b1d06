//! The command line: what can be typed, and which function answers.

mod amounts;
mod apiserver;
mod check;
mod crds;
mod devices;
mod explain;
mod files;
mod gather;
mod install;
mod node;
mod operator;
mod queue;
mod reach;
mod schedule;
mod share;
mod spelling;
mod status;
mod uninstall;
mod up;
mod user;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use gantry_api::yaml;
use gantry_process::clock::Clock;
use gantry_process::telemetry;
use serde::Serialize;

use crate::config::{GlobalFlags, Settings};
use crate::output::Output;
use crate::version::VERSION;

const EXAMPLES: &str = "\
Examples:
  gantry check manifests/                 read manifests and say what is wrong with them
  gantry crds | kubectl apply --server-side -f -
                                          install every kind in a cluster
  gantry install all                      install what is shared in a cluster of many
  gantry operator --leader-elect          run the controllers against a cluster
  gantry up                               run a whole cluster on this machine
  gantry node kill gpu-0                  let something happen to a node
  gantry status                           show what runs, what is held, and why
  gantry queue                            show who waits for what, and who is next
  gantry explain appwrapper/train         tell why a job is where it is
  gantry gather                           collect what helps to find out what is wrong
  gantry schedule -f cluster/ --explain   show which devices pods would get, and why not others
  gantry devices top                      show how many devices are used and free
  gantry apiserver                        run a Kubernetes-compatible API server alone
  gantry user add bob --group devs        give somebody a kubeconfig of their own
  gantry completions bash > /etc/bash_completion.d/gantry

Exit codes:
  0  done
  1  not done: the error says why and what to do
  2  the command line is wrong
Some commands have more; their help lists them.";

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
    Crds(crds::Arguments),
    Install(Box<install::Arguments>),
    Uninstall(Box<uninstall::Arguments>),
    Share(share::Arguments),
    Schedule(Box<schedule::Arguments>),
    Devices(Box<devices::Arguments>),
    Operator(Box<operator::Arguments>),
    User(user::Arguments),
    Completions(Completions),
    Version(Version),
}

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(gantry completions bash)
  gantry completions zsh > \"${fpath[1]}/_gantry\"
  gantry completions fish > ~/.config/fish/completions/gantry.fish")]
struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Print what this build is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry version
  gantry version -o json")]
struct Version {
    /// Print all facts in this form.
    #[arg(short, long, value_name = "FORM")]
    output: Option<Form>,
}

/// Forms for other programs to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// YAML documents.
    Yaml,
    /// One JSON document.
    Json,
}

/// How a command ended, if nothing prevented it from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As the user wished.
    Done,
    /// The reasons have been printed.
    Refused,
    /// The same, with a code that tells other programs which reasons.
    Failed(u8),
}

/// The log of the process, for commands that turn it while they run.
struct Log {
    handle: telemetry::Handle,
    /// What the command line says about it.
    verbosity: Option<u8>,
}

/// The whole command tree, for completion scripts and the reference.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the command line, runs the command and reports how it went.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = spelling::modern(arguments.into_iter().collect());
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
    let log = Log { handle, verbosity: settings.verbosity };
    let end = answer(cli.command, log, &mut output);
    match end.and_then(|end| output.finish().map(|()| end).map_err(Into::into)) {
        Ok(End::Done) => ExitCode::SUCCESS,
        Ok(End::Refused) => ExitCode::FAILURE,
        Ok(End::Failed(code)) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output.failure(&error);
            ExitCode::FAILURE
        }
    }
}

/// The code of a command line that is wrong. Where 2 means that a right is missing, it is 1: scripts
/// that share a cluster tell these apart. The original `schedule` had no 2 either.
fn usage_code(arguments: &[OsString]) -> u8 {
    let known = command();
    let named = |it: &&OsString| known.get_subcommands().any(|sub| sub.get_name() == **it);
    match arguments.iter().skip(1).find(named).and_then(|it| it.to_str()) {
        Some("install" | "uninstall" | "share" | "schedule" | "devices") => 1,
        _ => 2,
    }
}

fn answer(command: Command, log: Log, output: &mut Output) -> anyhow::Result<End> {
    match command {
        Command::Up(arguments) => up::run(*arguments, output),
        Command::Status(arguments) => status::run(&arguments, output),
        Command::Queue(arguments) => queue::run(&arguments, output),
        Command::Explain(arguments) => explain::run(&arguments, output),
        Command::Gather(arguments) => gather::run(&arguments, output),
        Command::Node(arguments) => node::run(&arguments, output),
        Command::Apiserver(arguments) => apiserver::run(*arguments, output),
        Command::Check(arguments) => check::run(&arguments, output),
        Command::Crds(arguments) => crds::run(&arguments, output),
        Command::Install(arguments) => install::run(&arguments, output),
        Command::Uninstall(arguments) => uninstall::run(&arguments, output),
        Command::Share(arguments) => share::run(&arguments, output),
        Command::Schedule(arguments) => schedule::run(&arguments, output),
        Command::Devices(arguments) => devices::run(*arguments, output),
        Command::Operator(arguments) => operator::run(*arguments, log, output),
        Command::User(arguments) => user::run(&arguments, output),
        Command::Completions(Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut self::command(), "gantry", &mut script);
            output.result_text(&String::from_utf8_lossy(&script))?;
            Ok(End::Done)
        }
        Command::Version(Version { output: form }) => {
            match form {
                None => output.result(format_args!(
                    "gantry {} ({}, {})",
                    VERSION.version, VERSION.commit, VERSION.commit_date
                ))?,
                Some(form) => output.result_text(&render(&VERSION, form)?)?,
            }
            Ok(End::Done)
        }
    }
}

/// Runs a command that goes on until it is told to stop.
fn run_to_end(work: impl Future<Output = anyhow::Result<End>>) -> anyhow::Result<End> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let end = runtime.block_on(work);
    // What still runs was given its time; nothing is written after a store is closed.
    runtime.shutdown_timeout(Duration::from_secs(1));
    end
}

/// One value as a document that ends with a line break.
fn render(value: &impl Serialize, form: Form) -> anyhow::Result<String> {
    let mut text = match form {
        Form::Yaml => yaml::write(value)?,
        Form::Json => serde_json::to_string_pretty(value)?,
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Several objects: YAML documents, or the JSON list that kubectl reads.
fn render_objects(objects: &[serde_json::Value], form: Form) -> anyhow::Result<String> {
    match form {
        Form::Json => {
            render(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects}), form)
        }
        Form::Yaml => {
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
