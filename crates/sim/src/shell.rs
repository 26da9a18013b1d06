//! The shell of a simulated container: enough to look around, and for scripts that do.
//!
//! It parses commands as `sh` does (lists with `;`, `&&` and `||`, quotes, variables) and has a
//! handful of built-in programs. There is nothing else: it opens no file, starts no process, and
//! time and environment are passed in. Its errors have the text of a small Linux image, and it
//! reports what it does not support.

mod commands;
mod condition;
mod input;
mod kmod;
mod output;
pub(crate) mod parser;
mod variables;

pub(crate) use variables::PATH;
pub use variables::{hostname, variables};

use std::collections::BTreeMap;

use bytes::Bytes;
use gantry_process::clock::Clock;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::image::RootFiles;
use crate::kernel::KernelAccess;
use crate::programs::Mounts;

use self::condition::IfBlocks;
use self::input::{Input, InputEvent};
use self::output::Output;
use self::parser::{RunCondition, parse};

/// The environment of a command.
#[derive(Clone, Debug)]
pub struct ShellContext {
    /// The host name: that of the pod.
    pub hostname: String,
    /// The variables of the container, in its own order; the last of a name counts.
    pub variables: Vec<(String, String)>,
    /// Whether there is a terminal: input is echoed and can be edited, and errors go to the output.
    pub tty: bool,
    /// The current time, and timers for `sleep`.
    pub clock: Clock,
    /// The volumes of a container that is a program; others have no files.
    pub files: Mounts,
    /// The files of its image, where they can be read.
    pub root: RootFiles,
    /// The kernel of its node.
    pub kernel: Option<KernelAccess>,
}

/// A command's ends of its streams; missing ones read as empty and discard what is written.
#[derive(Debug, Default)]
pub struct Stdio {
    /// The input; closed when there is no more.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// The output.
    pub stdout: Option<mpsc::Sender<Bytes>>,
    /// The error output.
    pub stderr: Option<mpsc::Sender<Bytes>>,
}

/// The exit code of a killed command.
pub const KILLED_EXIT_CODE: u8 = 137;
/// The exit code of a command that was interrupted from the keyboard.
const INTERRUPTED_EXIT_CODE: u8 = 130;
/// The exit code of a syntax error.
const USAGE_EXIT_CODE: u8 = 2;
/// The exit code of a command that does not exist.
const NOT_FOUND_EXIT_CODE: u8 = 127;

/// The most variables of a shell. Scripts here cannot loop, but a session may be long.
const MAX_VARIABLES: usize = 1_000;

/// Runs a command to its end, and returns its exit code; [`KILLED_EXIT_CODE`] when `stop` is
/// cancelled before.
///
/// # Errors
/// There is no such program, with the text of a container runtime.
pub async fn run(
    command: &[String],
    context: &ShellContext,
    stdio: Stdio,
    stop: &CancellationToken,
) -> Result<u8, String> {
    let mut shell = Shell::new(context, stdio);
    tokio::select! {
        biased;
        // Dropped when it is stopped: it leaves nothing behind.
        code = shell.start(command) => code,
        // Dropped when the command has ended: nothing waits for it any more.
        () = stop.cancelled() => Ok(KILLED_EXIT_CODE),
    }
}

/// One shell, or one program.
struct Shell<'a> {
    context: &'a ShellContext,
    variables: BTreeMap<String, String>,
    /// The working directory.
    working_directory: String,
    input: Input,
    out: Output,
    err: Output,
    /// The exit code of the last command.
    last_exit_code: u8,
    /// Set when the shell is to exit.
    exit: Option<u8>,
    /// Whether the shell exits when a command fails: `set -e`.
    exit_on_error: bool,
}

impl<'a> Shell<'a> {
    fn new(context: &'a ShellContext, stdio: Stdio) -> Self {
        let Stdio { stdin, stdout, stderr } = stdio;
        let errors = if context.tty { stdout.clone() } else { stderr };
        Self {
            variables: context.variables.iter().cloned().collect(),
            working_directory: context.root.working_directory().to_owned(),
            input: Input::new(stdin, context.tty),
            out: Output::new(stdout, context.tty),
            err: Output::new(errors, context.tty),
            last_exit_code: 0,
            exit: None,
            exit_on_error: false,
            context,
        }
    }

    async fn start(&mut self, command: &[String]) -> Result<u8, String> {
        let [program, arguments @ ..] = command else {
            let message = "OCI runtime exec failed: exec failed: unable to start container process";
            return Err(format!("{message}: exec: no command"));
        };
        match commands::program(program) {
            Some("sh") => Ok(self.shell(arguments).await),
            Some(name) => {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                Ok(self.command(name, &arguments).await)
            }
            None => {
                let why = match program.contains('/') {
                    true => "stat ".to_owned() + program + ": no such file or directory",
                    false => "executable file not found in $PATH".to_owned(),
                };
                let message =
                    "OCI runtime exec failed: exec failed: unable to start container process";
                Err(format!("{message}: exec: {program:?}: {why}"))
            }
        }
    }

    /// Runs `sh`: the script of `-c`, or the input.
    async fn shell(&mut self, arguments: &[String]) -> u8 {
        let mut given = arguments.iter();
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "-c" => match given.next() {
                    Some(text) => return self.run_list(text).await,
                    None => {
                        self.print_error("sh: -c requires an argument").await;
                        return USAGE_EXIT_CODE;
                    }
                },
                "-i" | "-l" | "--login" => {}
                other => {
                    let message = match other.starts_with('-') {
                        true => format!("sh: option {other} is not simulated"),
                        false => format!("sh: can't open '{other}': No such file or directory"),
                    };
                    self.print_error(&message).await;
                    return USAGE_EXIT_CODE;
                }
            }
        }
        loop {
            if self.context.tty {
                let prompt = format!("{} # ", self.working_directory);
                self.out.write(prompt.as_bytes()).await;
            }
            match self.input.line(&mut self.out).await {
                InputEvent::Bytes(line) => {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    self.last_exit_code = self.run_list(&line).await;
                }
                InputEvent::Interrupt => self.last_exit_code = INTERRUPTED_EXIT_CODE,
                InputEvent::End => return self.last_exit_code,
            }
            if let Some(code) = self.exit {
                return code;
            }
        }
    }

    /// Runs a list of commands in order, by their conditions.
    async fn run_list(&mut self, text: &str) -> u8 {
        let parsed = parse(text).and_then(|steps| IfBlocks::check(&steps).map(|()| steps));
        let steps = match parsed {
            Ok(steps) => steps,
            Err(message) => {
                self.print_error(&format!("sh: {message}")).await;
                return USAGE_EXIT_CODE;
            }
        };
        let mut steps = steps.into_iter().peekable();
        let mut blocks = IfBlocks::default();
        while let Some(mut step) = steps.next() {
            if let Err(message) = blocks.enter(&mut step, &mut self.last_exit_code) {
                return self.fail(&format!("sh: {message}"), USAGE_EXIT_CODE).await;
            }
            if step.is_empty() || !blocks.are_run() || !step.when.is_met(self.last_exit_code) {
                continue;
            }
            let last = self.last_exit_code.to_string();
            let found = step.expand(|name| match name {
                "?" => Some(last.as_str()),
                "$" => Some("1"),
                "#" => Some("0"),
                "0" => Some("sh"),
                name => self.variables.get(name).map(String::as_str),
            });
            let (assignments, fields) = match found {
                Ok(found) => found,
                Err(message) => {
                    self.print_error(&format!("sh: {message}")).await;
                    return USAGE_EXIT_CODE;
                }
            };
            let arguments: Vec<&str> = fields.iter().map(String::as_str).collect();
            self.last_exit_code = match arguments.as_slice() {
                [] => {
                    let mut code = 0;
                    for (name, value) in assignments {
                        code = self.assign(name, value).await;
                    }
                    code
                }
                [..] if !assignments.is_empty() => {
                    self.print_error("sh: variables of one command are not simulated").await;
                    USAGE_EXIT_CODE
                }
                [name, arguments @ ..] => self.dispatch(name, arguments).await,
            };
            let is_last_of_list = steps.peek().is_none_or(|it| it.when == RunCondition::Always);
            let ends = is_last_of_list && !blocks.is_condition();
            if self.exit_on_error && self.last_exit_code != 0 && ends {
                self.exit = Some(self.last_exit_code);
            }
            if let Some(code) = self.exit {
                return code;
            }
        }
        self.last_exit_code
    }

    /// Runs the command `name`: a builtin, a shell, or a program.
    async fn dispatch(&mut self, name: &str, arguments: &[&str]) -> u8 {
        if name == "exec" {
            let [name, arguments @ ..] = arguments else { return 0 };
            // The program takes the place of the shell.
            let code = Box::pin(self.dispatch(name, arguments)).await;
            self.exit = Some(code);
            return code;
        }
        if commands::is_builtin(name) {
            return self.command(name, arguments).await;
        }
        match commands::program(name) {
            Some("sh") => {
                self.print_error("sh: a shell in a shell is not simulated").await;
                USAGE_EXIT_CODE
            }
            Some(program) => self.command(program, arguments).await,
            None => {
                self.print_error(&format!("sh: {name}: not found")).await;
                NOT_FOUND_EXIT_CODE
            }
        }
    }

    async fn assign(&mut self, name: String, value: String) -> u8 {
        if self.variables.len() >= MAX_VARIABLES && !self.variables.contains_key(&name) {
            self.print_error("sh: too many variables").await;
            return USAGE_EXIT_CODE;
        }
        self.variables.insert(name, value);
        0
    }

    async fn print_error(&mut self, message: &str) {
        self.err.write(format!("{message}\n").as_bytes()).await;
    }
}

#[cfg(test)]
mod tests;
