//! A shell that is all a pretend container has: enough to look around, and for scripts that do.
//!
//! It reads commands as `sh` does (lists with `;`, `&&` and `||`, quotes, variables) and has a
//! handful of programs inside. There is nothing else: it opens no file, starts no process, and what
//! it knows of time and place it is given. Where it has to refuse it does so in the words of a small
//! Linux image, and what it does not pretend to do it says so.

mod commands;
mod input;
mod output;
mod variables;
pub(crate) mod words;

pub(crate) use variables::PATH;
pub use variables::{hostname, variables};

use std::collections::BTreeMap;

use bytes::Bytes;
use gantry_process::clock::Clock;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::programs::Mounts;

use self::input::{Heard, Input};
use self::output::Output;
use self::words::{When, parse};

/// What a command finds around it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The name of the machine: that of the pod.
    pub hostname: String,
    /// The variables of the container, in its own order; the last of a name counts.
    pub variables: Vec<(String, String)>,
    /// Whether there is a terminal: what is typed is shown and can be corrected, and errors come with
    /// the output.
    pub tty: bool,
    /// What time it is, and how long to sleep.
    pub clock: Clock,
    /// The volumes of a container that is a program; others have no files.
    pub files: Mounts,
}

/// A command's ends of its streams; those that are not there read as empty and forget what they are
/// told.
#[derive(Debug, Default)]
pub struct Stdio {
    /// What is typed; closed when there is no more.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// Where output goes.
    pub stdout: Option<mpsc::Sender<Bytes>>,
    /// Where errors go.
    pub stderr: Option<mpsc::Sender<Bytes>>,
}

/// The code of what was killed.
pub const KILLED: u8 = 137;
/// The code of what was interrupted from the keyboard.
const INTERRUPTED: u8 = 130;
/// The code of what the shell does not understand.
const MISUSED: u8 = 2;
/// The code of what is not there.
const NOT_FOUND: u8 = 127;

/// Variables a shell keeps. Scripts here cannot loop, but somebody may type for long.
const VARIABLES: usize = 1_000;

/// Runs a command to its end, and gives back its code; [`KILLED`] when `stop` is cancelled before.
///
/// # Errors
/// There is no such program, in the words of a container runtime.
pub async fn run(
    command: &[String],
    setting: &Setting,
    stdio: Stdio,
    stop: &CancellationToken,
) -> Result<u8, String> {
    let mut shell = Shell::new(setting, stdio);
    tokio::select! {
        biased;
        // Dropped when it is stopped: nothing of it is left anywhere.
        code = shell.start(command) => code,
        // Dropped when the command has ended: nobody asks any more.
        () = stop.cancelled() => Ok(KILLED),
    }
}

/// One shell, or one program.
struct Shell<'a> {
    setting: &'a Setting,
    variables: BTreeMap<String, String>,
    /// The directory it is in.
    place: String,
    input: Input,
    out: Output,
    err: Output,
    /// The code of the last command.
    last: u8,
    /// Set when it shall end.
    exit: Option<u8>,
}

impl<'a> Shell<'a> {
    fn new(setting: &'a Setting, stdio: Stdio) -> Self {
        let Stdio { stdin, stdout, stderr } = stdio;
        let errors = if setting.tty { stdout.clone() } else { stderr };
        Self {
            variables: setting.variables.iter().cloned().collect(),
            place: "/".to_owned(),
            input: Input::new(stdin, setting.tty),
            out: Output::new(stdout, setting.tty),
            err: Output::new(errors, setting.tty),
            last: 0,
            exit: None,
            setting,
        }
    }

    async fn start(&mut self, command: &[String]) -> Result<u8, String> {
        let [program, arguments @ ..] = command else {
            let words = "OCI runtime exec failed: exec failed: unable to start container process";
            return Err(format!("{words}: exec: no command"));
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
                let words =
                    "OCI runtime exec failed: exec failed: unable to start container process";
                Err(format!("{words}: exec: {program:?}: {why}"))
            }
        }
    }

    /// `sh`: what is given with `-c`, or what is typed.
    async fn shell(&mut self, arguments: &[String]) -> u8 {
        let mut given = arguments.iter();
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "-c" => match given.next() {
                    Some(text) => return self.list(text).await,
                    None => {
                        self.complain("sh: -c requires an argument").await;
                        return MISUSED;
                    }
                },
                "-i" | "-l" | "--login" => {}
                other => {
                    let words = match other.starts_with('-') {
                        true => format!("sh: option {other} is not simulated"),
                        false => format!("sh: can't open '{other}': No such file or directory"),
                    };
                    self.complain(&words).await;
                    return MISUSED;
                }
            }
        }
        loop {
            if self.setting.tty {
                let prompt = format!("{} # ", self.place);
                self.out.write(prompt.as_bytes()).await;
            }
            match self.input.line(&mut self.out).await {
                Heard::Bytes(line) => {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    self.last = self.list(&line).await;
                }
                Heard::Interrupt => self.last = INTERRUPTED,
                Heard::End => return self.last,
            }
            if let Some(code) = self.exit {
                return code;
            }
        }
    }

    /// Runs commands one after the other, as far as they depend on each other.
    async fn list(&mut self, text: &str) -> u8 {
        let steps = match parse(text) {
            Ok(steps) => steps,
            Err(words) => {
                self.complain(&format!("sh: {words}")).await;
                return MISUSED;
            }
        };
        for step in steps {
            let wanted = match step.when {
                When::Always => true,
                When::AfterSuccess => self.last == 0,
                When::AfterFailure => self.last != 0,
            };
            if !wanted {
                continue;
            }
            let last = self.last.to_string();
            let found = step.expand(|name| match name {
                "?" => Some(last.as_str()),
                "$" => Some("1"),
                "#" => Some("0"),
                "0" => Some("sh"),
                name => self.variables.get(name).map(String::as_str),
            });
            let (assignments, fields) = match found {
                Ok(found) => found,
                Err(words) => {
                    self.complain(&format!("sh: {words}")).await;
                    return MISUSED;
                }
            };
            let arguments: Vec<&str> = fields.iter().map(String::as_str).collect();
            self.last = match arguments.as_slice() {
                [] => {
                    let mut code = 0;
                    for (name, value) in assignments {
                        code = self.assign(name, value).await;
                    }
                    code
                }
                [..] if !assignments.is_empty() => {
                    self.complain("sh: variables of one command are not simulated").await;
                    MISUSED
                }
                [name, arguments @ ..] => self.dispatch(name, arguments).await,
            };
            if let Some(code) = self.exit {
                return code;
            }
        }
        self.last
    }

    /// Runs what is called `name`: a part of the shell, a shell, or a program.
    async fn dispatch(&mut self, name: &str, arguments: &[&str]) -> u8 {
        if commands::is_part_of_the_shell(name) {
            return self.command(name, arguments).await;
        }
        match commands::program(name) {
            Some("sh") => {
                self.complain("sh: a shell in a shell is not simulated").await;
                MISUSED
            }
            Some(program) => self.command(program, arguments).await,
            None => {
                self.complain(&format!("sh: {name}: not found")).await;
                NOT_FOUND
            }
        }
    }

    async fn assign(&mut self, name: String, value: String) -> u8 {
        if self.variables.len() >= VARIABLES && !self.variables.contains_key(&name) {
            self.complain("sh: too many variables").await;
            return MISUSED;
        }
        self.variables.insert(name, value);
        0
    }

    async fn complain(&mut self, words: &str) {
        self.err.write(format!("{words}\n").as_bytes()).await;
    }
}

#[cfg(test)]
mod tests;
